"""Counts whose posteriors are checked against them: real ones, and made-up ones that no prior of the package describes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from trueup.inferring import infer
from trueup.inferring.tree_exact import TreeExact
from trueup.io.published.sdhc import PUBLISHED
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.records.drawn import interval_of_draws
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.model.tree import Tree
from trueup.noise import law_named
from trueup.reconciling import Prepared, default
from trueup.reconciling.tree_topdown import TreeTopDown

LEVEL = 0.9
EVERY = "all counts"
REGIONS, PLACES = 10, 50
LAWS: dict[str, Callable[[int], Fraction]] = {
    "epsilon 1": lambda levels: Fraction(1, levels),
    "epsilon 4": lambda levels: Fraction(4, levels),
    "rho 1/10": lambda levels: Fraction(5 * levels),
    "rho 1": lambda levels: Fraction(levels, 2),
}
"""Parameter of the noise of every level, all alike: epsilon of the discrete Laplace law, variance of the Gaussian."""


@dataclass(frozen=True)
class Scenario:
    """Cells and, for every replicate, their true counts."""

    name: str
    cells: Cells
    truth: Callable[[np.random.Generator], NDArray[np.int64]]


def scenarios() -> Iterator[Scenario]:
    """Made-up counts; and counties, blocks and districts where `TRUEUP_TEST_DATA` names a folder with them."""
    region = np.repeat([f"r{k}" for k in range(REGIONS)], PLACES)
    place = [f"p{k:03d}" for k in range(REGIONS * PLACES)]
    cells = Cells(
        Tree.from_columns(["nation", "region", "place"], [{}, {"region": region}, {"place": place}])
    )
    for name, draw in MADE_UP.items():
        yield Scenario(name, cells, draw)
    if folder := os.environ.get("TRUEUP_TEST_DATA"):
        yield from _real(Path(folder))


def _real(folder: Path) -> Iterator[Scenario]:
    text: Any = dict.fromkeys(("state", "county", "vtd", "GEOID"), str)
    counties = pandas.read_csv(folder / "us_counties_2010.csv", dtype=text)
    columns = [{}, {"state": counties.state}, {"county": counties.county}]
    yield _fixed("US counties", ["nation", "state", "county"], columns, counties["pop"])
    districts = pandas.read_csv(folder / "nm_vtds_2010.csv.gz", dtype=text)
    columns = [{}, {"county": districts.county}, {"vtd": districts.vtd}]
    yield _fixed("NM districts", ["state", "county", "district"], columns, districts["pop"])
    blocks = pandas.read_csv(folder / "ri_blocks_2010.csv.gz", dtype=text)
    yield _blocks("Bristol, RI, blocks", "county", blocks[blocks.GEOID.str[2:5] == "001"])
    yield _blocks("Rhode Island, blocks", "state", blocks)


def _blocks(name: str, top: str, blocks: Any) -> Scenario:
    columns = [{}, *([{"county": blocks.GEOID.str[2:5]}] if top == "state" else []), *below_county(blocks)]
    levels = [top, *(next(iter(keys)) for keys in columns[1:])]
    return _fixed(name, levels, columns, blocks["pop"])


def below_county(blocks: Any) -> list[dict[str, Any]]:
    """Keys of tracts, groups and blocks."""
    code = blocks.GEOID.str
    return [{"tract": code[5:11]}, {"group": code[11:12]}, {"block": code[12:]}]


def _fixed(name: str, levels: list[str], columns: list, counts: Any) -> Scenario:
    """One table of counts, whatever the replicate; rows in the order of the tree's leaves."""
    keys = pandas.DataFrame({k: np.asarray(v) for level in columns for k, v in level.items()})
    order = keys.sort_values(list(keys), kind="stable").index
    table = [{k: keys[k].to_numpy()[order] for k in level} for level in columns]
    truth = counts.to_numpy()[order]
    return Scenario(name, Cells(Tree.from_columns(levels, table)), lambda rng: truth)


def _half_zeros(rng: np.random.Generator) -> NDArray[np.int64]:
    scale = np.repeat(rng.lognormal(0.5, 0.4, REGIONS), PLACES)
    return rng.poisson(1.5 * scale * rng.gamma(0.35, 1 / 0.35, REGIONS * PLACES))


def _mostly_zeros(rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.poisson(20.0, REGIONS * PLACES) * (rng.random(REGIONS * PLACES) < 0.1)


def _heavy_tailed(rng: np.random.Generator) -> NDArray[np.int64]:
    return np.minimum(rng.pareto(1.0, REGIONS * PLACES) * 3, 1e5).astype(np.int64)


def _two_humped(rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.poisson(np.where(rng.random(REGIONS * PLACES) < 0.5, 4.0, 200.0))


MADE_UP = {
    "50 % zeros": _half_zeros,
    "90 % zeros": _mostly_zeros,
    "heavy-tailed": _heavy_tailed,
    "two-humped": _two_humped,
}


@dataclass(frozen=True)
class Held:
    """How often intervals held true counts, and the mean squared errors, of one kind of count.

    Attributes
    ----------
    held, mass, posterior, released, unshrunk
        (replicates,) means over the counts of one kind: intervals that hold the truth, their stated mass, squared errors of
        the posterior mean, of the default release, and of that of trees before small counts were shrunk, `tree-topdown`.
    counts
        How many of them each replicate has.
    """

    held: NDArray[np.float64]
    mass: NDArray[np.float64]
    posterior: NDArray[np.float64]
    released: NDArray[np.float64]
    unshrunk: NDArray[np.float64]
    counts: int

    @property
    def excess(self) -> float:
        """How far coverage is above the stated mass."""
        return float((self.held - self.mass).mean())

    @property
    def error(self) -> float:
        """Standard error of `excess`, counts of one replicate taken as one."""
        return float((self.held - self.mass).std(ddof=1) / np.sqrt(len(self.held)))

    def worse(self, than: float, release: NDArray[np.float64]) -> float:
        """Standardised difference between the posterior mean's squared error and that of a release, `than` times."""
        gap = self.posterior - than * release
        spread = gap.std(ddof=1)
        return float(gap.mean() / spread * np.sqrt(len(gap))) if spread > 0 else 0.0


COVERAGE = ["intervals", "held", "stated mass", "difference", "± s.e."]
"""Columns of what `figures` writes."""


def figures(held: Held) -> list[str]:
    """How often intervals held, in text."""
    shown = [held.held.mean(), held.mass.mean(), held.excess, held.error]
    return [f"{held.counts * len(held.held):,}", *(f"{x:.3f}" for x in shown)]


def together(parts: Iterable[Held]) -> Held:
    """Replicates of one kind of count, of several runs, as those of one."""
    every = list(parts)
    return Held(*np.concatenate([np.array(astuple(one)[:-1]) for one in every], axis=1), every[0].counts)  # pyright: ignore[reportCallIssue]


def generator(counts: str, law: str, seed: int) -> np.random.Generator:
    """Random numbers that no two kinds of counts or of noise have in common: several are pooled as independent."""
    return np.random.default_rng([seed, *f"{counts}, {law}".encode()])


def replicate(scenario: Scenario, law: str, prior, replicates: int, seed: int) -> dict[str, Held]:
    """Measure and infer again and again; by level, for all levels, sums of ten places of no one region, shares of a parent."""
    cells, levels = scenario.cells, scenario.cells.tree.levels
    kind = "discrete-laplace" if law.startswith("epsilon") else "discrete-gaussian"
    noise = law_named(kind)(LAWS[law](len(levels)))
    headers = tuple(Measured("total", Margin(level), noise) for level in levels)
    constraints = Constraints(cells, tuple(Margin(level) for level in levels))
    methods = default(constraints), TreeTopDown()
    prepared = [Prepared.of(constraints, headers, method) for method in methods]
    rng = generator(scenario.name, law, seed)
    rows: dict[str, list[NDArray]] = {}
    for _ in range(replicates):
        truth = scenario.truth(rng)
        sums = [cells.sum(truth, h.margin) for h in headers]
        values = tuple(x + noise.quantile(rng.random(len(x))).astype(np.int64) for x in sums)
        measured = Measurements(cells, headers, values, PUBLISHED, simulation=True)
        posterior = infer(measured, TreeExact(prior=prior), spec=constraints, draws=1000)
        released = [one.reconcile(measured).counts for one in prepared]
        for name, row in _rows(posterior, truth, released, rng):
            rows.setdefault(name, []).append(row)
    return {
        name: Held(*np.array([row[:-1] for row in many]).T, int(many[0][-1]))  # pyright: ignore[reportCallIssue]
        for name, many in rows.items()
    }


def _rows(posterior: Posterior, truth: NDArray, released: list[NDArray], rng: np.random.Generator):
    cells, levels = posterior.cells, []
    for level in cells.tree.levels:
        margin = Margin(level)
        table, true = posterior.summary(margin, LEVEL), cells.sum(truth, margin)
        held = (table["low"] <= true) & (true <= table["high"])
        means = [table["mean"], *(cells.sum(one, margin) for one in released)]
        levels.append(_row(held, table["mass"], true, means))
        yield level, levels[-1]
    sizes = np.array([row[-1] for row in levels])
    yield EVERY, np.append(sizes @ np.array(levels)[:, :-1] / sizes.sum(), sizes.sum())
    draws = posterior.draws[0]
    areas = rng.integers(0, cells.n, (100, 10))
    yield "areas", _of_draws(*(x[..., areas].sum(axis=-1) for x in (draws, truth, *released)))
    parent = cells.tree.ancestors(len(cells.tree.levels) - 1, len(cells.tree.levels) - 2)
    yield "shares", _of_draws(*(_shares(x, parent) for x in (draws, truth, *released)))


def _shares(counts: NDArray, parent: NDArray) -> NDArray[np.float64]:
    totals = np.apply_along_axis(lambda x: np.bincount(parent, x), -1, counts)[..., parent]
    return np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)


def _of_draws(draws: NDArray, true: NDArray, *released: NDArray) -> NDArray:
    low, high = interval_of_draws(draws, LEVEL, 0.0)
    mass = ((draws >= low) & (draws <= high)).mean(axis=0)
    return _row((low <= true) & (true <= high), mass, true, [draws.mean(axis=0), *released])


def _row(held: NDArray, mass: NDArray, true: NDArray, estimates: list[NDArray]) -> NDArray:
    return np.array([held.mean(), mass.mean(), *(((x - true) ** 2).mean() for x in estimates), len(held)])
