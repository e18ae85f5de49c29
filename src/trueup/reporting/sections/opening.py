"""Opening of a release's report in plain words: what is protected, what it cost, and who publishes the counts."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import exp, inf, nextafter

import numpy as np

from trueup.io.bundle.manifest import slug
from trueup.model.cells import Margin
from trueup.model.guarantee import Charge, Guarantee
from trueup.model.records.expected_errors import read_confidence
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.model.statements import limited
from trueup.noise import law_named
from trueup.privacy import outward
from trueup.reporting.drawing import (
    Block,
    Column,
    Facts,
    FoldedText,
    Links,
    Notice,
    Section,
    Table,
    Text,
    numeric,
)
from trueup.reporting.drawing.pictures import Figure, bars
from trueup.reporting.drawing.words import exact, listing, number, percent, plain, table_name

MAX_MEANINGFUL_EPSILON = 30
"""Beyond this epsilon a factor says nothing to anybody."""
_LETTER = {"epsilon": "epsilon", "rho": "rho (zero-concentrated)"}


def total_loss(guarantee: Guarantee) -> str:
    """Return the total privacy loss as one line, or the statement that there is none to give."""
    if guarantee.kind == "none" or (not guarantee.charges and guarantee.kind == "dp"):
        return guarantee.line
    delta = f", delta = {exact(guarantee.delta)}" if guarantee.delta else ""
    return f"{guarantee.currency} = {exact(guarantee.amount)}{delta}"


def protected(guarantee: Guarantee) -> Section:
    """Return the section on what is protected."""
    first, *details = guarantee.sentences
    blocks: list[Block] = [Text(first)]
    if details:
        blocks.append(FoldedText("What exactly is compared, and under which conditions", tuple(details)))
    if guarantee.kind == "invariant":
        blocks.append(
            Notice(
                "This is the guarantee for data with enumerated totals. It does not compare databases that "
                "differ in a total published exactly, and is therefore weaker than ordinary differential privacy."
            )
        )
    return Section("protected", "What is protected", tuple(blocks))


def cost(measurements: Measurements | Release) -> Section:
    """Return the section on the exact privacy loss of every noisy table, and its share of the total."""
    guarantee = measurements.guarantee
    if not guarantee.charges and guarantee.kind == "dp":
        return Section("cost", "What it cost", (Text(*guarantee.sentences),))
    explained = Text(
        f"The whole release has a privacy loss of {total_loss(guarantee)} for one step. A smaller loss protects better "
        "and needs more noise. The parts below add up to it exactly.",
        *_factor(guarantee),
    )
    return Section("cost", "What it cost", (explained, _budget_picture(guarantee), _charges(guarantee)))


def laws(measurements: Measurements | Release) -> Facts:
    """Return the noise law of every noisy table, as pairs of the table's name and a sentence."""
    noisy = (h for h in measurements.headers if not h.exact)
    return Facts(
        tuple((f"Noise of {plain(h.query)}, {table_name(h.margin)}", h.law.sentence()) for h in noisy)
    )


def _factor(guarantee: Guarantee) -> tuple[str, ...]:
    """Return a sentence on the change in probabilities that a pure epsilon allows; empty without one."""
    if guarantee.currency != "epsilon" or guarantee.delta:
        return ()
    if guarantee.kind == "dp":
        between, amount = "between two databases that are one step apart", guarantee.amount
        power = "epsilon"
    elif guarantee.change is not None:
        between = "between two databases that differ by the smallest change that the exact counts allow"
        amount, steps = guarantee.change.amount, guarantee.change.steps
        power = f"{outward(amount, 3)}: that change is {'one step' if steps == 1 else f'{steps} steps'}"
    else:
        return ()
    if amount > MAX_MEANINGFUL_EPSILON:
        return ()
    factor = nextafter(exp(nextafter(float(amount), inf)), inf)
    return (
        f"In plain terms: {between}, the probability of any published result "
        f"differs by at most a factor of {outward(factor, 3)} (e to the power {power}).",
    )


def _charges(guarantee: Guarantee) -> Table:
    charges = guarantee.charges
    columns = (
        Column("Noisy table", [_name(c) for c in charges] + ["Total"]),
        Column("Kind of noise", [law_named(c.law).title.partition(",")[0] for c in charges] + [""]),
        numeric(
            "Privacy loss (exact)",
            [f"{c.currency} = {exact(c.amount)}" for c in charges] + [total_loss(guarantee)],
        ),
        numeric(
            f"Share of the total ({guarantee.currency})",
            [percent(float(_share(c, guarantee))) for c in charges]
            + [percent(float(sum(_share(c, guarantee) for c in charges)))],
        ),
    )
    converted = any(c.currency != guarantee.currency for c in charges)
    note = "A loss stated as epsilon counts as rho = epsilon squared / 2." if converted else ""
    return Table("Privacy loss of each noisy table", columns, note)


def _budget_picture(guarantee: Guarantee) -> Figure:
    shares = [(c, float(_share(c, guarantee))) for c in guarantee.charges]
    largest = max(shares, key=lambda pair: pair[1])
    rows = {_name(c): (100 * s, percent(s)) for c, s in shares}
    message = f"Bar picture of the privacy budget: {_name(largest[0])} took the largest share, {percent(largest[1])}."
    unit = f"share of the total {_LETTER[guarantee.currency]} (%)"
    return bars(rows, unit, message, "Where the privacy budget went.")


def _name(charge: Charge) -> str:
    return f"{plain(charge.query)}, {plain(charge.margin).replace(' x ', ' by ', 1).replace(' x ', ' and ')}"


def _share(charge: Charge, guarantee: Guarantee) -> Fraction:
    """Return a charge as a share of the total; under a total in rho, a pure epsilon counts as epsilon^2 / 2."""
    same = charge.currency == guarantee.currency
    amount = charge.amount if same else charge.amount**2 / 2
    return amount / guarantee.amount if guarantee.amount else Fraction(0)


MOST_TABLES = 3
"""Tables by attributes of which the opening says how far they are off, where no level of places is."""


def opening(release: Release, unit: str, level: float | str) -> tuple[str, ...]:
    """Return the first paragraphs: what was released, how it was protected, how accurate it is, and its limits."""
    tables = listing([_by(release, m) for m in release.published])
    exact = [h for h in release.headers if h.exact]
    named = listing([table_name(h.margin) for h in exact]) if exact else ""
    kept = (
        f" {named[:1].upper()}{named[1:]}: published exactly as enumerated, without noise and not protected."
        if exact
        else ""
    )
    guarantee, what = release.guarantee, counted(release.spec, unit)
    return (
        f"This release publishes numbers of {what} {tables}.",
        *what_is_left_out(release, unit, level),
        f"Random noise was added to what was counted before anything was published. It bounds how much the data of one "
        f"{guarantee.unit} can change what is published. The bound is the privacy loss, {total_loss(guarantee)}"
        f"{_of_change(guarantee)}: a smaller one protects better.{kept}",
        *_off(release, unit, level),
        "A number of 0 does not mean that there is nobody, a small number is not exact, and two numbers that differ by "
        "less than their margins of error may in truth be equal or the other way round.",
    )


def _of_change(guarantee: Guarantee) -> str:
    """Return words for the loss of the smallest change that invariants allow, if that takes more than one step."""
    if guarantee.change is None or guarantee.change.steps < 2:
        return ""
    loss, steps = outward(guarantee.change.amount, 3), guarantee.change.steps
    said = f"{guarantee.currency} = {loss} for the smallest change that the exact counts allow"
    return f" for one step, and {said}, which is {steps} steps"


def _by(release: Release, margin: Margin) -> str:
    """Return words for the rows of a table: level and attributes, without a level that has a single place."""
    if not _is_whole(release, margin.level):
        return f"by {table_name(margin)}"
    return plain(f"by {listing(margin.attributes)}" if margin.attributes else "in all") + str(
        Margin("", (), margin.where)
    )


def _is_whole(release: Release, level: str) -> bool:
    return release.cells.tree.sizes[release.cells.tree.level(level)] == 1


def counted(spec: Spec | None, unit: str) -> str:
    """Return words for the counted units with the limit on each, such as `visits (at most 5 of each patient)`."""
    most = limited(spec) if spec else ""
    return f"{unit} ({most})" if most else unit


def counted_line(spec: Spec, unit: str) -> tuple[tuple[str, str], ...]:
    """Return a row of text on the limit on each unit's records; empty if there is no limit."""
    return (("Counted", f"{counted(spec, unit)}; others are left out"),) if limited(spec) else ()


def what_is_left_out(release: Release, unit: str, level: float | str) -> tuple[str, ...]:
    """Return sentences on the records that a limit leaves out; empty if there is no limit."""
    spec = release.spec
    if spec is None or not (most := limited(spec)):
        return ()
    counted_alone = release.left_out if spec.left_out is not None else None
    if counted_alone is None:
        how_many = (
            f"How many {unit} were left out is confidential, and no margin of error below includes them."
        )
    else:
        how_many = (
            f"About {number(max(counted_alone.value, 0))} {unit} were left out (± {number(counted_alone.margin_of_error(level))} "
            f"in {read_confidence(level)} of 100 cases), where of each {spec.privacy.unit} at most {counted_alone.most:,} of "
            "those left out are counted; no margin of error below includes them."
        )
    return (
        f"It counts {most}, and leaves out all others: a published number is no number of all {unit}, and may be far below "
        f"it. {how_many}",
    )


def _off(release: Release, unit: str, level: float | str) -> tuple[str, ...]:
    """Return words for the margins of error on each level or, without totals, in the first tables by attributes."""

    def uncertain(tables: Iterable[Margin]) -> dict[Margin, tuple[float, float]]:
        return {m: reach for m in tables if (reach := margins_of(release, m, level)) and reach[1] > 0}

    found = uncertain(m for m in release.published if not m.attributes)
    found = found or dict([*uncertain(release.published).items()][:MOST_TABLES])
    if not found:
        return ()
    percent, alone = read_confidence(level), _is_whole(release, release.cells.tree.levels[-1])
    ranges = {m: dict.fromkeys(f"± {number(np.ceil(end))}" for end in reach) for m, reach in found.items()}
    said = [
        f"{_by(release, m) if m.attributes else 'in all' if m.level == 'all' or alone else plain(m.level)}: "
        f"{' to '.join(ends)} {unit}"
        for m, ends in ranges.items()
    ]
    of = f" of {what}" if (what := counted(release.spec, unit)) != unit else ""
    return (
        f"How far a published number may be from the true one{of}, in {percent} of 100 cases and by forecast: "
        f"{'; '.join(said)}.",
    )


def margins_of(release: Release, margin: Margin, level: float | str) -> tuple[float, float] | None:
    """Return the smallest and the largest margin of error (counts) in a table; None if none is known."""
    if release.parts > 1:
        classes = release.expected.tables.get(margin) if release.expected else None
        errors = np.array([c.margin(read_confidence(level)) for c in classes or ()], dtype=float)
    else:
        known = release.margin_of_error(margin, level)
        errors = np.zeros(0) if known is None else known
    return (float(errors.min()), float(errors.max())) if errors.size else None


def about(spec: Spec, release: Release) -> Section:
    """Return the section on the publisher and on the files beside the report."""
    given = spec.about.model_dump(exclude_none=True)
    rows = tuple((name.capitalize(), text) for name, text in given.items())
    alone = release.published if release.parts == 1 else ()
    tables = ((f"counts/{slug(m)}.parquet", table_name(m)) for m in alone)
    files = (
        *tables,
        ("manifest.json", "how the release was made, with the digest of every file"),
        ("spec.toml", "the specification"),
    )
    return Section(
        "about", "About this release, and its files", (*([Facts(rows)] if rows else []), Links(files))
    )
