"""Trial of a drafted spec, which is changed or annotated by what the published sums show."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from trueup.errors import TrueupError
from trueup.io.published.drafting.keys import Draft
from trueup.io.published.drafting.sums import SumMissed, sums_missed, way_without_totals, without_totals
from trueup.io.published.drafting.written import written
from trueup.io.published.perturbed import read_perturbed
from trueup.io.published.perturbed.agreeing import SumsKept, sums_kept
from trueup.model.perturbed import parse_perturbed
from trueup.model.records.measurements import Measurements
from trueup.noise.laws.undrawn import Exact
from trueup.noise.perturbed import CountInterval, Rounded

NEAREST, RANDOM = Rounded.name, "random-rounding"
CERTAIN_CHANCE, OPEN_CHANCE = 1e-3, 0.1
"""Chances of sums that agree, at which totals are taken for added from perturbed cells, and at which it is asked."""


class Trial(NamedTuple):
    """A drafted spec in TOML, with the measurements that it reads and notes on them.

    Attributes
    ----------
    text
        The spec in TOML.
    said
        Notes on what stays open.
    measured
        What it reads; None if it is refused.
    kept
        Published sums of perturbed values that equal the sums of their parts.
    """

    text: str
    said: tuple[str, ...] = ()
    measured: Measurements | None = None
    kept: int = 0

    def noting(self, *said: str) -> Trial:
        """Return the trial with further notes."""
        return self._replace(said=(*self.said, *said))


Read = Callable[[str], Measurements]


class Drafted(NamedTuple):
    """The draft from which a spec was written, with the title and the noise law of the spec.

    Attributes
    ----------
    draft
        Levels, attributes and tables.
    title
        The title of the spec.
    law
        The law that a list of transitions gives, in TOML; None without one.
    has_variances
        True if lists give the variances of values.
    """

    draft: Draft
    title: str
    law: str | None
    has_variances: bool

    def tried(self, text: str, files: Sequence[str | Path], geography: str | Path | None) -> Trial:
        """Return the trial of a spec, changed to omit calculated totals and to name a possible noise law."""

        def read(spec: str) -> Measurements:
            return read_perturbed(parse_perturbed(spec), files, geography)

        trial = _read_anew(Trial(text), read)
        if trial.measured is not None:
            trial = self._without_added_totals(trial, trial.measured, read)
        if trial.measured is not None:
            trial = self._with_what_sums_say(trial, trial.measured, read)
        return trial

    def _without_added_totals(self, trial: Trial, measured: Measurements, read: Read) -> Trial:
        """Leave out totals that were added from perturbed cells, or ask whether they were."""
        if self.has_variances or any(e.seen.errors or e.seen.variance for e in self.draft.entries):
            return trial
        laws = {header.law.name for header in measured.headers} - {CountInterval.name}
        added = sums_kept(measured, [*laws - {Exact.name}], shown=True)
        trial = trial._replace(kept=added.kept)
        if added.chance < CERTAIN_CHANCE:
            finest = without_totals(self.draft)
            text = trial.text if finest is None else written(finest, self.title, {}, self.law)[0]
            todo = way_without_totals(self.draft) if finest is None else "they are left out"
            return _read_anew(trial._replace(text=text).noting(_said_of_added(added, todo)), read)
        asked = sums_kept(measured, [*laws], shown=True)
        if asked.chance < OPEN_CHANCE:
            trial = trial.noting(
                f"whether totals were added from the published cells: all {asked.kept} published sums equal those of their "
                "published parts. If so, and if values are perturbed, they tell nothing more than the cells and have to be "
                f"left out: {way_without_totals(self.draft)}"
            )
        return trial

    def _with_what_sums_say(self, trial: Trial, measured: Measurements, read: Read) -> Trial:
        """Return the trial with random rounding if sums rule out rounding to the nearest, and with notes."""
        if sums_missed(measured, NEAREST):
            nearest = rf'name = "{NEAREST}", base = (\d+), ties = "either"'
            text = re.sub(nearest, r'name = "random-rounding", base = \1', trial.text)
            said = "sums of parts exclude rounding to the nearest: it is taken to be at random"
            trial = trial._replace(text=text).noting(said)
        if not trial.kept and (hidden := sums_kept(measured, (NEAREST, RANDOM))).chance < CERTAIN_CHANCE:
            trial = trial.noting(_said_of_added(hidden, way_without_totals(self.draft)))
        if missed := sums_missed(measured, Exact.name):
            wider = _with_wider_codes(trial, missed, read)
            trial = wider or trial.noting(missed.said())
        noted = getattr(measured.spec, "noted", ())
        return trial.noting(*(text for text in noted if "is about the sum" in text))


_RANGE_OF_CODE = re.compile(r'("[^"\n]*") = "(?:<\d+|\d+-\d+)"(?=.*\}$)')
"""A code and the range of counts that a line `codes = { ... }` gives it."""


def _with_wider_codes(trial: Trial, missed: SumMissed, read: Read) -> Trial | None:
    """Return the trial with a code that says nothing, if its range alone makes published sums miss; else None."""
    for line in dict.fromkeys(re.findall(r"^codes = .*", trial.text, re.MULTILINE)):
        for found in _RANGE_OF_CODE.finditer(line):
            wider = f'{line[: found.start()]}{found[1]} = "unknown"{line[found.end() :]}'
            other = _read_anew(Trial(trial.text.replace(line, wider)), read)
            if other.measured is None or sums_missed(other.measured, Exact.name):
                continue
            said = (
                f"the code {found[1]} cannot say its range everywhere ({missed.sums_said()}): it is taken to hide larger counts, "
                'too, which would give small ones away, and says "unknown"; if the file has a misprint there, correct it and '
                "write the range. If infer finds a count that nothing limits, it prints the two lines that limit it"
            )
            return trial._replace(text=other.text, measured=other.measured).noting(said)
    return None


def _read_anew(trial: Trial, read: Read) -> Trial:
    """Return a trial with the measurements that its spec reads, or with a note on why it is refused."""
    try:
        return trial._replace(measured=read(trial.text))
    except TrueupError as error:
        return trial._replace(measured=None).noting(f"as it stands the spec is refused: {error}")


def _said_of_added(found: SumsKept, todo: str) -> str:
    """Return a note that published sums equal the sums of their parts, although the law would make them differ."""
    return (
        f"all {found.kept} published sums equal the sums of their published parts, as they would with a chance below "
        f"{CERTAIN_CHANCE:g} if each were perturbed by itself: they are taken for added from perturbed cells, so that they tell "
        f"nothing more; {todo}"
    )
