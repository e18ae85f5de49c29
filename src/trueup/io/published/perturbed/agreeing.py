"""Published sums that equal the sums of their parts, and the chance of it where each value is perturbed by itself.

Let y_i be the published parts of a published total Y, e_i = y_i - x_i their errors, and E the error of the total. The sums agree
where E = e_1 + ... + e_n. Given the published parts, under a flat prior of each true count, e_i has the probabilities
q_i(e) = p(y_i | y_i - e) / sum_e p(y_i | y_i - e), and the total is published as Y = y_1 + ... + y_n with the probability

    sum_e (q_1 * ... * q_n)(e) p(Y | Y - e)  <=  max_s sum_e (q_1 * ... * q_n)(e) p(Y | Y - e - s).

The maximum over the shifts s also holds where some parts have any errors whatever. A prior that is not flat matters where a part
may stand for a true count of 0, or for one that would have been hidden; so the errors of such parts are left out of the
convolution, and such totals have a chance of 1. Noise that is added has the same errors at all counts and needs no prior.

Two totals of one margin share no part, so their chances multiply. Totals of two margins share parts: a table in which no value
was changed agrees in all margins at once. So the chances of margins are not multiplied: the smallest one is the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.io.published.perturbed.under_law import drawn_by
from trueup.model.cells import Margin
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.records.measurements import Measurements
from trueup.noise.law import Integers, Reals
from trueup.noise.laws.undrawn import Exact
from trueup.noise.perturbed import CountInterval, Rounded

MAX_TOTALS = 300
"""Totals of a margin whose chances are computed; those of the others count as 1."""
MAX_ERRORS, MAX_ROWS = 500_000, 500
"""Probabilities computed for one law, and different distributions of errors; values beyond count as having any error."""
MAX_CIRCLE = 1 << 14
"""Length of the circle on which errors are added; wider ones wrap around it, which makes no chance smaller."""
LEFT_OUT_MASS = 1e-9
"""Probability of the largest errors of noise that is added, which are left out."""
UNLIKELY = 1e-6
"""Probability of a value at a true count of 0 below which the value is not taken to stand for 0."""
AS_IF = Rounded(11)
"""The law of values of which no law is known, where it is asked if they are perturbed: all alike, rounded to the nearest."""


def values_under(
    measured: Measurements, laws: Sequence[str]
) -> Iterator[tuple[Measured, NDArray, Margin, Integers]]:
    """Yield the headers that have one of some laws, each with values, margin and groups."""
    for header, values in zip(measured.headers, measured.values):
        if header.law.name in laws:
            margin = canonical(measured.cells, header.margin)
            every = np.arange(measured.cells.size(margin))
            yield header, values, margin, every if header.groups is None else np.asarray(header.groups)


class SumsKept(NamedTuple):
    """The number of published sums that equal those of their parts.

    Attributes
    ----------
    kept
        Their number.
    chance
        An upper bound on the probability that all of them do, if each value is perturbed by itself.
    """

    kept: int = 0
    chance: float = 1.0


class _Shown(NamedTuple):
    """Published values `(groups,)` of a margin, NaN where none is, and the row of their errors, -1 where any error may be."""

    values: Reals
    rows: Integers


def sums_kept(measured: Measurements, laws: Sequence[str], *, shown: bool = False) -> SumsKept:
    """Return how many published sums equal the sums of their parts; none if one differs.

    Where all parts have to be `shown`, none is returned for a sum of hidden parts, too: it tells of these. Numbers that
    a law leaves as they are, as it does those above 2 where only these are rounded, tell nothing. Exact values count
    as if they were rounded: their chance serves to ask whether they are exact.
    """
    found, errors = _shown_with_errors(measured, laws)
    cells, kept, chances = measured.cells, 0, []
    for (total, own), (parts, each) in product(found.items(), repeat=2):
        if parts == total or not cells.contains(total, parts):
            continue
        group, size = cells.groups(parts, total), len(own.values)
        sums, many = np.bincount(group, each.values, size), np.bincount(group, each.values != 0, size)
        compared = (many > 1) & np.isfinite(sums) & np.isfinite(own.values)
        hidden = np.isfinite(own.values) & ~np.isfinite(sums)
        if not np.isclose(own.values, sums)[compared].all() or (shown and hidden.any()):
            return SumsKept()
        some = np.flatnonzero(compared)[:MAX_TOTALS]
        chances.append(
            float(_chances(own.rows[some], _row_counts(group, each.rows, some, errors), errors).prod())
        )
        kept += int(compared.sum()) if chances[-1] < 1 else 0
    return SumsKept(kept, min(chances, default=1.0))


def _shown_with_errors(measured: Measurements, laws: Sequence[str]) -> tuple[dict[Margin, _Shown], Reals]:
    """Return the published numbers of each margin, and the rows `(rows, circle)` of the likelihoods of their errors."""
    found: dict[Margin, _Shown] = {}
    tables, used = [np.ones((1, 1))], 1  # a row that stands for any error, of which no chance is computed
    for header, values, margin, groups in values_under(measured, laws):
        if not header.law.numeric:
            continue
        size = measured.cells.size(margin)
        own = found.setdefault(margin, _Shown(np.full(size, np.nan), np.full(size, -1)))
        own.values[groups] = values
        law, scale = (AS_IF, AS_IF.base) if header.law.exact else (header.law, 1)
        rows, table = _errors(law, values * scale)
        if used + len(table) <= MAX_ROWS:
            own.rows[groups] = np.where(rows < 0, -1, rows + used)
            tables.append(table)
            used += len(table)
    widest = max(table.shape[1] for table in tables)
    circle = min(1 << (2 * widest - 1).bit_length(), MAX_CIRCLE)
    return found, np.concatenate([_on_circle(table, circle) for table in tables])


def _errors(law: Any, values: NDArray) -> tuple[Integers, Reals]:
    """Return each value's row, -1 if its errors depend on the prior, and the rows `(rows, 2 reach + 1)`.

    A row holds the probability of the published value y given each true count y - e, e = -reach, .., reach.
    """
    reach = law.tail(LEFT_OUT_MASS).counts
    each, back = np.unique(np.zeros(len(values)) if law.additive else law.kinds(values), return_inverse=True)
    if len(each) * (2 * reach + 1) > MAX_ERRORS:
        return np.full(len(values), -1), np.zeros((0, 1))
    published, true = each[:, None], each[:, None] - np.arange(-reach, reach + 1)
    mass = np.exp(law.log_mass(published, true))
    if law.additive:
        mass /= max(mass.sum(), 1.0)  # of continuous noise it is a density
        known = np.ones(len(each), bool)
    else:
        known = np.exp(law.log_mass(each, np.zeros(len(each)))) < UNLIKELY
        known &= mass.any(axis=1) & (mass == np.exp(drawn_by(law).log_mass(published, true))).all(axis=1)
    first: dict[bytes, int] = {}
    which = [first.setdefault(row.tobytes(), k) for k, row in enumerate(mass.round(12))]
    used, rows = np.unique(which, return_inverse=True)
    return np.where(known, rows, -1)[back], mass[used]


def _on_circle(table: Reals, circle: int) -> Reals:
    """Return rows at the errors -reach, .., reach as rows at the errors modulo the length of a circle."""
    whole = np.pad(table, ((0, 0), (0, -table.shape[1] % circle)))
    turns = whole.reshape(len(table), whole.shape[1] // circle, circle)
    return np.roll(turns.sum(axis=1), -(table.shape[1] // 2), axis=1)


def _row_counts(group: Integers, rows: Integers, some: Integers, errors: Reals) -> Reals:
    """Return `(totals, rows)` numbers of parts of some totals that have each row of errors."""
    place = np.full(int(group.max(initial=0)) + 1, -1)
    place[some] = np.arange(len(some))
    at, known = place[group], (place[group] >= 0) & (rows >= 0)
    cells = at[known] * len(errors) + rows[known]
    return np.bincount(cells, minlength=len(some) * len(errors)).reshape(len(some), len(errors)).astype(float)


def _chances(own: Integers, parts: Reals, errors: Reals) -> Reals:
    """Return an upper bound on the chance of each total to equal the sum of its parts; the module says why it is one.

    Parameters
    ----------
    own
        The row of errors of each total `(totals,)`; -1 where any error may be.
    parts
        Numbers `(totals, rows)` of its parts with each row of errors.
    errors
        Likelihoods `(rows, circle)` of the errors.
    """
    used = np.flatnonzero(parts.any(axis=0))
    spectra = np.fft.rfft(errors[used] / errors[used].sum(axis=1, keepdims=True), axis=1)
    size = np.log(np.maximum(np.abs(spectra), 1e-300))
    summed = np.exp(parts[:, used] @ size - 1j * (parts[:, used] @ np.angle(spectra)))
    agree = np.fft.irfft(summed * np.fft.rfft(errors[own], axis=1), errors.shape[1], axis=1).max(axis=1)
    return np.where(own < 0, 1.0, np.clip(agree, 0.0, 1.0))


SOME_CHANCE = 0.05
"""The chance at which a warning says that totals may have been added from perturbed values."""


def totals_added(measured: Measurements) -> Iterator[str]:
    """Yield a note if published totals equal the sums of their perturbed parts, as they rarely do by chance."""
    laws = {header.law.name for header in measured.headers} - {Exact.name, CountInterval.name}
    found = sums_kept(measured, [*laws])
    if found.chance < SOME_CHANCE:
        yield (
            f"All {found.kept} published sums of perturbed values equal the sums of their published parts, as they rarely do "
            "where each value is perturbed by itself. If they were added from the published values, results are wrong: leave "
            "their rows out by `only`, which takes a list of the rows to read, and take `total` and the `cell` of totals out."
        )
