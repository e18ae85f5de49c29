"""Closing sections of a report: how the counts were made, from what, and a glossary."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from trueup.model.guarantee import Guarantee
from trueup.model.names import ISO_DATE
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.model.spec_queries import ConstraintsPart
from trueup.model.spec_table import AttributePart
from trueup.reporting.drawing import Block, Column, Facts, Section, Table, Text, numeric
from trueup.reporting.drawing.words import listing, plain, said
from trueup.reporting.sections.opening import laws
from trueup.version import __version__

Ledger = Mapping[str, Any] | None

_WHOLE = "whole numbers"
_CHECKS = {
    _WHOLE: "Every released count is a whole number.",
    "every constraint": "Every rule of the specification holds (see “How it was made”).",
    "parts add up": "Every count is the sum of the counts of the places below it.",
    "invariants exact": "Every count declared exact is published exactly as enumerated.",
}

_BROKEN = "✗ does not hold"
_FAILED = {_WHOLE: "– not claimed: the method's counts are continuous"}


def checks(release: Release) -> Section:
    """Return the section on the rules that were checked on the released counts."""
    names = sorted(release.checks)
    table = Table(
        "Rules checked on the final counts, independently of the method that made them",
        (
            Column("Check", [name.capitalize() for name in names]),
            Column("What was checked", [_CHECKS.get(name, "") for name in names]),
            Column(
                "Result",
                ["✓ holds" if release.checks[name] else _FAILED.get(name, _BROKEN) for name in names],
            ),
        ),
    )
    added = Text(
        "All published tables are sums of the same finest counts, so that parts add up to their wholes."
    )
    return Section("checks", "Rules checked", (table, added))


def passed(release: Release) -> str:
    """Return words for the number of claimed checks that passed."""
    claimed = [holds for name, holds in release.checks.items() if holds or name != _WHOLE]
    return f"{sum(claimed)} of {len(claimed)}"


def making(release: Release, spec: Spec, unit: str) -> Section:
    """Return the section on rules, noise laws, and the method with its statistics."""
    parameters = sorted(item for item in release.method.items() if item[0] != "method")
    blocks: tuple[Block, ...] = (
        Facts(
            (
                ("Method of reconciliation", str(release.method["method"])),
                *((plain(k).capitalize(), said(v)) for k, v in parameters),
            )
        ),
        Text("The rules that the counts had to satisfy: " + "; ".join(stated_rules(spec.constraints)) + "."),
        *_readings(spec),
        laws(release),
        _stats(release, unit),
    )
    return Section("making", "How it was made", blocks)


def _readings(spec: Spec) -> tuple[Text, ...]:
    """Return sentences on how attribute values were read, for attributes that are not read as listed."""
    return tuple(
        Text(f"How values of {plain(a.name)} were read: {'; '.join(_reading(a))}.")
        for a in spec.attributes
        if a.is_read
    )


def _reading(attribute: AttributePart) -> list[str]:
    said = (
        (bool(attribute.bins), "whole numbers are counted by ranges"),
        (attribute.date, f"dates ({attribute.form or ISO_DATE}) are counted by {attribute.date}"),
        (attribute.fold, "upper and lower case and repeated blanks make no difference"),
        (attribute.other, f"what is not listed is counted under “{attribute.other}”"),
        (attribute.missing, f"what is missing is counted under “{attribute.missing}”"),
    )
    return [words for holds, words in said if holds]


def noise_making(measurements: Measurements) -> Section:
    """Return the section on the noise laws of the measurements."""
    return Section("making", "How the noise was made", (laws(measurements),))


def origin(measurements: Measurements | Release, spec: Spec, ledger: Ledger) -> Section:
    """Return the section on version, digests, and the entry in the ledger."""
    facts = (
        ("Software", f"trueup {__version__}"),
        ("Dataset", spec.table.name),
        ("Digest of the noisy counts (SHA-256)", measurements.digest),
        (
            "Other digests",
            "those of the specification and of every file are in manifest.json beside this report",
        ),
    )
    return Section("origin", "Where this comes from", (Facts(facts), *_entry(ledger)))


def stated_rules(part: ConstraintsPart) -> Iterator[str]:
    """Return a sentence for every constraint of a spec."""
    yield "parts add up to their wholes"
    if part.nonnegative:
        yield "no count is negative"
    for margin in part.invariants:
        told = [_where(each) for each in margin.where]
        if margin.weights:
            told = [" and ".join(f"{weight} x {each}" for weight, each in zip(margin.weights, told))]
        yield f"{_part_name(margin)}{' where ' + ' or '.join(told) if told else ''} is exactly as enumerated"
    for zero in part.zeros:
        yield f"no count where {_where(zero)} (impossible combination)"
    for bound in part.bounds:
        limits = (("at least", bound.lower), ("at most", bound.upper))
        text = " and ".join(f"{word} {_limit_text(limit)}" for word, limit in limits if limit is not None)
        yield f"each {_part_name(bound)}{' where ' + _where(bound.where) if bound.where else ''} is {text}"
    for rule in part.linear:
        yield f"{rule.rule} at every {plain(rule.level or 'place of the last level')}"


def _limit_text(limit: int | str) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"the place's {plain(limit)} (public)"


def _part_name(part) -> str:
    by = f" by {listing(part.attributes)}" if part.attributes else ""
    return plain(part.level + by)


def _where(condition: Mapping[str, str]) -> str:
    return listing([f"{plain(name)} is {value}" for name, value in condition.items()])


def _stats(release: Release, unit: str) -> Block:
    if not release.stats:
        return Text("The method reported nothing further.")
    rows = reported(release.stats)
    return Table(
        f"What the method reported (adjustments and residuals in {unit})",
        (
            Column("Quantity", [name for name, _ in rows]),
            numeric("Value", [value for _, value in rows]),
        ),
    )


_REPORTED = {
    "largest_r_hat": "Largest R-hat of a count or sum",
    "r_hat_allowed": "Largest R-hat that is accepted",
    "smallest_ess": "Smallest effective sample size",
    "smallest_tail_ess": "Smallest effective sample size of a tail",
    "largest_mcse_in_sds": "Largest Monte Carlo error of a mean (posterior standard deviations)",
    "watched": "Counts and sums that were diagnosed",
    "passed": "All of them are accepted",
    "counts_that_fall_short": "Counts and sums with too small an effective sample size",
    "fall_short_most": "Those with the smallest",
    "sweeps": "Sweeps of each chain",
    "thinned_by": "Sweeps between kept draws",
    "chains": "Markov chains",
    "moves_known_to_connect": "Moves are proved to reach every possible table",
    "directions_left_out": "Directions of moves that were left out",
    "dropped_mass": "Posterior mass outside the tables, at most",
    "table_depth": "Depth of the tables of probabilities",
    "prior_reason": "Why no other prior",
    "predicted_seconds": "Predicted time (seconds)",
    "tier": "Kind of draws",
    "units without a place": "Units that no cell could take",
    "most iterations": "Most iterations for one table",
    "repeated_values": "Values that were published twice, used once",
}
"""Names of figures that methods report, for readers; others stand as they are called."""
_TOLD_ELSEWHERE = {"prior_instead", "doubt", "draws", "lacking", "predicted_bytes", "interrupted"}
_TOLD_IF_ZERO = {"passed", "moves_known_to_connect", "dropped_mass"}


def reported(stats: Mapping[str, Any], besides: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return names and values of a method's statistics that are not shown elsewhere in the report."""
    left = {*_TOLD_ELSEWHERE, *besides}
    return [
        (_REPORTED.get(name, plain(name).capitalize()), said(value))
        for name, value in sorted(stats.items())
        if name not in left and (name in _TOLD_IF_ZERO or not _is_zero(value))
    ]


def _is_zero(value: Any) -> bool:
    """Return True if a value is zero, False or empty."""
    return isinstance(value, int | float | str | list | tuple | dict | np.number) and not value


def _entry(ledger: Ledger) -> tuple[Block, ...]:
    if ledger is None:
        return (
            Text(
                "No ledger was kept: this page states the loss of this release alone. Whoever publishes several "
                "releases of the same data must add up their losses."
            ),
        )
    return (Facts(tuple((f"Ledger: {plain(name)}", said(ledger[name])) for name in sorted(ledger))),)


_WORDS = (
    (
        "Differential privacy",
        "A property of the way in which counts are published: whatever anybody concludes from them would be almost "
        "as likely had one unit's data been different. How much 'almost' allows is the privacy loss.",
    ),
    (
        "Privacy loss",
        "The bound on how much one unit's data can change the probability of any published result, stated as "
        "epsilon or rho. Losses of several releases add up.",
    ),
    ("Noisy count", "The true count plus a random number from a known law. It may be negative."),
    (
        "Noise margin",
        "The distance from the true count within which the noisy count lies with the stated probability.",
    ),
    (
        "Reconciliation",
        "Turning noisy counts into whole counts that are not negative and add up, without looking at the true data.",
    ),
    (
        "Weighted least squares",
        "The combination of all noisy counts that is closest to them, where each counts the more the less noise it has.",
    ),
    ("Standard error", "The typical size of the error: the root of its mean square."),
    ("Post-processing", "Any computation on noisy counts. It cannot weaken the protection."),
    ("Digest", "A fingerprint of a file: two files with the same digest are the same."),
)
_INVARIANT = (
    "Exactly as enumerated",
    "Published without noise (an invariant). Such counts are not protected.",
)


def glossary(guarantee: Guarantee) -> Section:
    """Return the section that explains the words used on the page."""
    words = (*_WORDS, _INVARIANT) if guarantee.kind == "invariant" else _WORDS
    return Section("words", "Words used on this page", (Facts(words),))
