"""Dharangutte et al., Figure 10: noise that keeps a total, beside noise that is projected on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from papers.dharangutte.exact import moments
from papers.dharangutte.examples import EPSILON, EPSILON_COUNTIES, PAPER, RUNS, children, unbiased
from papers.dharangutte.figure_2 import county_noise, variance
from papers.item import Found, Item, Setting
from papers.row import ERRORS, Row, claim, held, shown
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace, Exact
from trueup.reconciling.general_projection import GeneralProjection
from trueup.reconciling.method import Method
from trueup.reporting.drawing.pictures import Figure, strips

COUNTIES = 102
KEPT, REAL, WHOLE = "given the total", "projected (reals)", "projected (whole numbers)"
PROJECTIONS: Mapping[str, Method] = {
    REAL: GeneralProjection("l1", "none"),
    WHOLE: GeneralProjection("l1", "optimal"),
}
DRAWS = {KEPT: RUNS, REAL: RUNS, WHOLE: 400}
"""Fewer in whole numbers, where each takes a mixed-integer program."""
ON_TABLE = 200

OPTIMUM = (
    "The nearest point in L1 is not unique: any split of the gap among counties is as near. The package takes the "
    "split of least squares; a solver of linear programs may put all of it on one county."
)
ORDER = (
    "Whole numbers cannot share a gap evenly. A solver leaves which counties bear the odd persons to their places: the "
    "first come out low and the last high, by up to half a person. The package has it solve in an order drawn at random."
)
TABLE = (
    "With more invariants than one sum the two part: noise given both margins of a table is narrower by half."
)


class DharangutteFigure10(Item):
    """Errors of counties under three mechanisms of equal privacy, drawn."""

    name: ClassVar[str] = "dharangutte-figure-10"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Appendix E.4 and Figure 10"
    shows: ClassVar[str] = (
        "Noise on 102 counties at epsilon 0.192: given the total, and two-sided geometric noise moved to the nearest "
        "point in L1 with that total, in reals and in whole numbers; 1,000 draws (400 in whole numbers)."
    )
    packages: ClassVar[tuple[str, ...]] = ("flint", "piqp")
    seconds: ClassVar[float] = 30.0
    catches: ClassVar[tuple[str, ...]] = (
        "epsilon 5 % off",
        "the whole gap on one county",
        "odd persons borne by place",
    )

    def run(self, setting: Setting) -> Found:
        rng = setting.rng(self)
        part = 10 if setting.quick else 1
        errors = counties({name: number // part for name, number in DRAWS.items()}, rng)
        table = tables(ON_TABLE // part, rng)
        rows = [unbiased(errors[name], name) for name in (KEPT, REAL)]
        return Found(
            (*rows, _by_order(errors), *_widths(errors), _overlap(errors), *_on_table(table)),
            (_picture(errors),),
            (OPTIMUM,),
        )


def counties(draws: Mapping[str, int], rng: np.random.Generator) -> dict[str, NDArray]:
    """Errors `(draws, 102)` of each mechanism; both projections start from the same noise."""
    law = DiscreteLaplace(EPSILON_COUNTIES)
    tree = Tree.from_columns(["state", "county"], [{}, {"county": [f"{i:03}" for i in range(COUNTIES)]}])
    constraints = _keeping(Cells(tree), Margin("state"))
    noise = law.sample(COUNTIES * max(draws.values()), rng.bytes).reshape(-1, COUNTIES)
    projected = {
        name: _projected(method, constraints, law, noise[: draws[name]])
        for name, method in PROJECTIONS.items()
    }
    return {KEPT: county_noise(COUNTIES, draws[KEPT], rng), **projected}


def tables(draws: int, rng: np.random.Generator) -> dict[str, NDArray]:
    """Errors `(draws, 16)` of each mechanism on the 4 x 4 table with both margins kept."""
    law, example = DiscreteLaplace(EPSILON), children()
    attributes = tuple(Attribute(name, tuple("abcd")) for name in ("county", "education"))
    cells = Cells(Tree.from_columns(["all"], [{}]), attributes)
    constraints = _keeping(cells, *(Margin("all", (name,)) for name in ("county", "education")))
    noise = law.sample(16 * draws, rng.bytes).reshape(draws, -1)
    projected = {name: _projected(method, constraints, law, noise) for name, method in PROJECTIONS.items()}
    return {KEPT: example.noise(1, draws, rng), **projected}


def _keeping(cells: Cells, *invariants: Margin) -> Constraints:
    """Invariants alone: the paper leaves counts free to be negative here."""
    return Constraints(cells, (cells.finest,), invariants=invariants, nonnegative=False)


def _projected(method: Method, constraints: Constraints, law: DiscreteLaplace, noise: NDArray) -> NDArray:
    """What noise on counts becomes by projection on their own totals; counts of zero stand for any."""
    headers = [Measured("noisy", constraints.cells.finest, law)]
    headers += [Measured("kept", margin, Exact()) for margin in constraints.invariants]
    kept = sum(constraints.cells.size(margin) for margin in constraints.invariants)
    values = np.hstack([noise, np.zeros((len(noise), kept), np.int64)])
    return method.apply(method.prepare(constraints, headers), values, np.random.default_rng(0)).values


def _mean_square(errors: NDArray) -> tuple[float, float]:
    """Mean squared error of a cell, and its standard error over draws."""
    squares = (errors.astype(float) ** 2).mean(axis=1)
    return float(squares.mean()), float(squares.std() / np.sqrt(len(squares)))


def _by_order(errors: dict[str, NDArray]) -> Row:
    """Claim that what rounding to whole numbers adds favours no county by its place."""
    added = errors[WHOLE] - errors[REAL][: len(errors[WHOLE])]
    return replace(unbiased(added, f"{WHOLE}, beyond the error in reals"), note=ORDER)


def _widths(errors: dict[str, NDArray]) -> list[Row]:
    """Hold each variance to its exact value, and the standard deviations to each other."""
    epsilon = float(EPSILON_COUNTIES)
    single = 2 * math.exp(-epsilon) / (1 - math.exp(-epsilon)) ** 2
    exact = {KEPT: variance(COUNTIES, epsilon), REAL: (1 - 1 / COUNTIES) * single}
    rows = []
    for name, right in exact.items():
        ours, error = _mean_square(errors[name])
        rows.append(held(f"{name}: variance of a county's error", ours, right, ours_error=error))
    deviations = [_mean_square(e)[0] ** 0.5 for e in errors.values()]
    text = ", ".join(f"{d:.2f}" for d in deviations)
    return [*rows, claim("Standard deviations", "comparable", text, max(deviations) < 1.1 * min(deviations))]


def _overlap(errors: dict[str, NDArray]) -> Row:
    """The paper: box plots overlap for the most part."""
    low, high = (np.stack([np.quantile(e, q, axis=0) for e in errors.values()]) for q in (0.25, 0.75))
    shares = (high.min(axis=0) - low.max(axis=0)) / (high.max(axis=0) - low.min(axis=0))
    text = f"{shares.mean():.0%} on average, {shares.min():.0%} at least"
    return claim("Overlap of a county's three boxes", "for the most part", text, bool(shares.mean() > 0.5))


def _on_table(errors: dict[str, NDArray]) -> list[Row]:
    """The same comparison on the 4 x 4 table, where the paper makes none."""
    (kept, error), *projected = (_mean_square(e) for e in errors.values())
    right = float(moments(children(), 1, float(EPSILON)).square.mean())
    label = "4 x 4 table: mean squared error given the margins, and projected"
    text = f"{kept:.1f} beside " + ", ".join(f"{mean:.1f}" for mean, _ in projected)
    narrower = all(mean - kept > ERRORS * math.hypot(error, own) for mean, own in projected)
    return [
        held("4 x 4 table, given the margins: mean squared error of a cell", kept, right, ours_error=error),
        claim(label, "", text, narrower, TABLE)
        if len(errors[KEPT]) == ON_TABLE
        else shown(label, "", text, "Too few draws to tell them apart."),
    ]


def _picture(errors: dict[str, NDArray]) -> Figure:
    """Boxes of all counties together, of the first and of the last, under each mechanism."""
    chosen = {
        "all counties": slice(None),
        "county listed first": slice(1),
        "county listed last": slice(-1, None),
    }
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    quantiles = {
        f"{place}, {name}": np.quantile(e[:, at], levels).tolist()
        for place, at in chosen.items()
        for name, e in errors.items()
    }
    return strips(
        quantiles,
        "error (persons)",
        "The boxes of the three mechanisms nearly coincide.",
        "Errors of counties under each mechanism: all counties together, and those that bear the odd persons first or "
        "last.",
    )
