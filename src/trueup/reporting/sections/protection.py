"""Sections on the guarantee: what is protected, and how the privacy budget was divided."""

from __future__ import annotations

from fractions import Fraction
from math import exp, inf, nextafter

from trueup.model.guarantee import Charge, Guarantee
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.noise import law_named
from trueup.privacy import outward
from trueup.reporting.drawing import Block, Column, Facts, FoldedText, Notice, Section, Table, Text
from trueup.reporting.drawing.pictures import Figure, bars
from trueup.reporting.drawing.words import exact, percent, plain, table_name

MAX_MEANINGFUL_EPSILON = 30
"""Beyond this epsilon a factor says nothing to anybody."""
_LETTER = {"epsilon": "epsilon", "rho": "rho (zero-concentrated)"}


def total_loss(guarantee: Guarantee) -> str:
    """Return the total privacy loss in one line, or who states it."""
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
    """Show the privacy loss of every noisy table, exact, and its share of the total."""
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
    """Return the law of noise of every noisy table."""
    noisy = (h for h in measurements.headers if not h.exact)
    return Facts(
        tuple((f"Noise of {plain(h.query)}, {table_name(h.margin)}", h.law.sentence()) for h in noisy)
    )


def _factor(guarantee: Guarantee) -> tuple[str, ...]:
    """Return what a pure epsilon means for a probability; a rho bounds no single factor."""
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
        Column(
            "Privacy loss (exact)",
            [f"{c.currency} = {exact(c.amount)}" for c in charges] + [total_loss(guarantee)],
            numeric=True,
        ),
        Column(
            f"Share of the total ({guarantee.currency})",
            [percent(float(_share(c, guarantee))) for c in charges]
            + [percent(float(sum(_share(c, guarantee) for c in charges)))],
            numeric=True,
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
    letter = _LETTER[guarantee.currency]
    return bars(rows, f"share of the total {letter} (%)", message, "Where the privacy budget went.")


def _name(charge: Charge) -> str:
    return f"{plain(charge.query)}, {plain(charge.margin).replace(' x ', ' by ', 1).replace(' x ', ' and ')}"


def _share(charge: Charge, guarantee: Guarantee) -> Fraction:
    """Return a charge's share of the total in the total's currency: a pure epsilon amounts to a rho of epsilon^2 / 2."""
    same = charge.currency == guarantee.currency
    amount = charge.amount if same else charge.amount**2 / 2
    return amount / guarantee.amount if guarantee.amount else Fraction(0)
