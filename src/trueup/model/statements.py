"""Sentences of a guarantee: "exactly" is used for a loss that some change has, "at most" for a bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING

from trueup.model.constraints import Constraints
from trueup.model.guarantee import Change
from trueup.model.header import Measured
from trueup.model.spec import Spec
from trueup.noise.law import Currency
from trueup.privacy import Loss, NoisePart, outward, tight_epsilon

if TYPE_CHECKING:
    from trueup.model.kept import Kept

DECLARED = "declared by the agency, not verified"
SHOWN_DELTA = Fraction(1, 10**10)
"""The delta at which a zCDP guarantee is also shown as (epsilon, delta)."""
SHOWN_COUNTS = 20
"""Counts that follow from invariants which a guarantee names one by one."""


def statements(
    spec: Spec,
    constraints: Constraints,
    loss: Loss,
    parts: Sequence[NoisePart],
    currency: Currency,
    change: Change | str,
    *,
    attained: bool,
) -> tuple[str, ...]:
    """Return the sentences on the loss of one step, the compared databases, and conditions.

    `loss` is the sum of the costs of `parts`, the noise that the spec asks for.
    """
    shared = _shared(spec, constraints, change, currency) if constraints.invariants else ()
    return (*_step(spec, loss, parts, currency, attained), *shared, *_conditions(spec, constraints))


_DIFFER = {
    "add-remove": "one {unit} is in one of two databases and not in the other",
    "replace": "the data of one {unit} are replaced by any others",
}


def _step(
    spec: Spec, loss: Loss, parts: Sequence[NoisePart], currency: Currency, attained: bool
) -> tuple[str, ...]:
    unit = spec.privacy.unit
    differ = _DIFFER[spec.privacy.neighbours].format(unit=unit)
    further = "k^2 times that rho" if currency == "rho" else "k times as much"
    if loss.delta:
        further = "k times that epsilon, with a delta of at most k e^((k-1) epsilon) times that delta"
    cost = _zcdp(loss, parts) if currency == "rho" else _pure(loss)
    return (
        f"One step, in which {differ}, costs {'exactly' if attained else 'at most'} {cost}.",
        f"Where k such steps lie between two databases, the cost is at most {further}. The costs of several releases add up.",
        "Everything after the noise is post-processing and costs nothing more.",
    )


def _pure(loss: Loss) -> str:
    delta = f" and delta = {outward(loss.delta, 3)}" if loss.delta else ""
    return f"epsilon = {loss.epsilon}{delta} (differential privacy)"


def _zcdp(loss: Loss, parts: Sequence[NoisePart]) -> str:
    delta = loss.delta + SHOWN_DELTA
    return (
        f"rho = {loss.zcdp} (zero-concentrated differential privacy), "
        f"and at most epsilon = {outward(tight_epsilon(parts, delta))} at delta = {outward(delta, 3)}"
    )


def _shared(
    spec: Spec, constraints: Constraints, change: Change | str, currency: Currency
) -> tuple[str, ...]:
    """Return sentences that say what comparing databases with the same invariants means."""
    rules = f"the invariants{' and structural zeros' if constraints.zeros else ''}"
    if constraints.bounds or constraints.linear:
        rules += " (leaving declared bounds and linear rules out of account)"
    if isinstance(change, Change):
        smallest = change.sentence(spec.privacy.unit, rules, currency)
    else:
        smallest = f"The smallest change that {rules} allow is not stated: {change}."
    return (
        "Compared are only databases that share every count published exactly; a step is priced whether or not it "
        "alone leaves them as they are.",
        smallest,
    )


def _conditions(spec: Spec, constraints: Constraints) -> tuple[str, ...]:
    fixed = (
        f"'{margin}' is published exactly as enumerated and is not protected; the guarantee compares only "
        "databases that share it."
        for margin in constraints.invariants
    )
    return (*_contribution_sentences(spec), *fixed, *_checked(spec, constraints))


def _checked(spec: Spec, constraints: Constraints) -> tuple[str, ...]:
    """Return the sentence on rules that a release checks, each an exact answer about confidential counts.

    Those that link two tables are none: persons are counted in households before anything else is done with them.
    """
    zeros = (", ".join(map("=".join, zero.items())) for zero in spec.constraints.zeros)
    limits = (f"the bound on '{bound.margin}'{bound.declared}" for bound in constraints.bounds)
    linking = constraints.joined.rules if constraints.joined else ()
    declared = (rule for rule in constraints.linear if rule.linear not in linking)
    rules = (f"'{rule.linear.text}' at every {rule.level}" for rule in declared)
    named = [*(f"no unit with {zero}" for zero in zeros), *limits, *rules]
    if not named:
        return ()
    return (
        f"Checked on the confidential counts, held, and not protected: {'; '.join(named)}. Compared are databases that "
        "keep these rules.",
    )


def limited(spec: Spec) -> str:
    """Return the limit on a unit's records as text, such as `at most 5 of each patient`.

    Records beyond the limit are in no count: what is published is no count of all records.
    """
    privacy = getattr(spec, "privacy", None)  # tables that others published state no unit
    most = privacy and privacy.contribution
    if privacy is None or most is None or (privacy.id is None and spec.table.join is None):
        return ""
    return f"at most {most.records:,} of each {privacy.unit}"


def limited_sentence(spec: Spec | None) -> str:
    """Return a sentence that says counts leave out a unit's records beyond the limit; empty without a limit."""
    if spec is None or not (most := limited(spec)):
        return ""
    return f"Every count is of {most} alone: what is beyond that is in none."


def _contribution_sentences(spec: Spec) -> Iterator[str]:
    """Yield sentences on how much one unit contributes to each query, and why that is known."""
    unit, limited, join = spec.privacy.unit, spec.privacy.contribution, spec.table.join
    if limited is not None and join is not None:
        yield (
            f"Each {unit} keeps at most {limited.records} of its {spec.table.counts}s, by the column '{join.id}': this is "
            f"enforced before anything is counted, and every count, the numbers of {spec.table.counts}s of a {join.counts} "
            "among them, is about those that are kept."
        )
    elif limited is not None and spec.privacy.id is not None:
        yield (
            f"Each {unit} keeps at most {limited.records} of its records, by the column '{spec.privacy.id}': this is enforced "
            "before anything is counted, and every count and declared rule is about the records that are kept."
        )
        if (part := spec.left_out) is not None:
            yield (
                f"How many records are left out is measured at {part.currency} = {part.budget}, of each {unit} at most "
                f"{part.most} beyond those that are kept: so many more or fewer are what one {unit} can change it by."
            )
    elif limited is not None:
        yield f"One {unit} is taken to hold at most {limited.records} records; this is {DECLARED}."
    elif any(query.contribution is None for query in spec.queries):
        yield f"Each {unit} is taken to be counted once in every table; this is {DECLARED}."
    for query in spec.queries:
        if query.contribution is not None:
            yield (
                f"In query '{query.name}' one {unit} is taken to touch at most {query.contribution.cells} counts "
                f"and to change each by at most {query.contribution.each}; this is {DECLARED}."
            )


def known(kept: Kept, measured: Sequence[Measured]) -> tuple[str, ...]:
    """Return sentences on measured counts that the invariants determine."""
    sentences = []
    for margin in dict.fromkeys(h.margin for h in measured):
        fixed = kept.fixed(margin)
        if names := list(islice(fixed.labels(), SHOWN_COUNTS)):
            more = f" and {fixed.count - len(names)} more" if fixed.count > len(names) else ""
            sentences.append(
                f"The invariants determine these counts of '{margin}', published exactly and not protected: "
                f"{'; '.join(names)}{more}."
            )
    return tuple(sentences)
