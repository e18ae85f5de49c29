"""Coverage of 90 % intervals of histograms under the hierarchical prior, and squared errors against the default release."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from benchmarks._coverage import COVERAGE, LAWS, LEVEL, Held, below_county, figures, generator, together
from benchmarks.harness import Case, Harness, Picture
from trueup.inferring.chains import cores
from trueup.inferring.histogram_walk import HistogramWalk
from trueup.layouts.columns import ColumnProblem
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.records.drawn import interval_of_draws
from trueup.model.tree import Tree
from trueup.noise import law_named

REPLICATES = 6
MANY = {"Bristol, RI, blocks": 53, "NM districts": 20, "made up": 20}
"""With --full: 2,000 intervals or more of every level over all noise, of Bristol's groups of blocks at each noise."""
WARM_UP, DRAWS, THIN = 600, 500, 12
"""Sweeps. Those of `infer` go on until every count has an effective size of 400: some twice as long on Bristol's blocks,
where most counts forget in 3 to 20 sweeps, those of rare groups in 50 to 100. Intervals from fewer draws hold a little less."""
PARTS = ("Bristol, RI, blocks", "NM districts")
RACES = ("white", "black", "hisp", "aian", "asian", "nhpi", "other", "two")
BLOCKS = ["tract", "group", "block"]
"""Levels below a county."""
TABLES = ((), ("age",), ("race",), ("race", "age"))
LEAVES = 300
"""Lowest places whose counts are looked at in each replicate, at random: the others are alike."""
AREAS = 300
"""Areas off the hierarchy of ten lowest places each, at random in every replicate."""


@dataclass(frozen=True)
class Histograms:
    """Cells and true counts."""

    name: str
    cells: Cells
    truth: NDArray[np.int64]


def histograms() -> Iterator[Histograms]:
    """Bristol's blocks and New Mexico's districts where `TRUEUP_TEST_DATA` names a folder with them; else made-up ones."""
    if not (folder := os.environ.get("TRUEUP_TEST_DATA")):
        yield _made_up()
        return
    blocks = _table(folder, "ri_blocks_2010.csv.gz")
    blocks = pandas.DataFrame(blocks[blocks.GEOID.str[2:5] == "001"])
    yield _real("Bristol, RI, blocks", ["county", *BLOCKS], [{}, *below_county(blocks)], blocks)
    districts = _table(folder, "nm_vtds_2010.csv.gz")
    columns = [{}, {"county": districts.county}, {"vtd": districts.vtd}]
    yield _real("NM districts", ["state", "county", "district"], columns, districts)


def rhode_island() -> Histograms | None:
    """The 25,181 blocks of the state where `TRUEUP_TEST_DATA` names a folder with them; else nothing."""
    if not (folder := os.environ.get("TRUEUP_TEST_DATA")):
        return None
    blocks = _table(folder, "ri_blocks_2010.csv.gz")
    columns = [{}, {"county": blocks.GEOID.str[2:5]}, *below_county(blocks)]
    return _real("Rhode Island, blocks", ["state", "county", *BLOCKS], columns, blocks)


def _table(folder: str, name: str) -> pandas.DataFrame:
    text: Any = dict.fromkeys(("state", "county", "vtd", "GEOID"), str)
    return pandas.read_csv(Path(folder) / name, dtype=text)


def _real(name: str, levels: list[str], columns: list, table: pandas.DataFrame) -> Histograms:
    keys = pandas.DataFrame({k: np.asarray(v) for level in columns for k, v in level.items()})
    order = keys.sort_values(list(keys), kind="stable").index.to_numpy()
    cells = _cells(levels, [{k: keys[k].to_numpy()[order] for k in level} for level in columns])
    adult = np.stack([table[f"vap_{race}"].to_numpy() for race in RACES], axis=1)
    minor = np.stack([table[f"pop_{race}"].to_numpy() for race in RACES], axis=1) - adult
    return Histograms(name, cells, np.stack([minor, adult], axis=2)[order].ravel())


def _made_up() -> Histograms:
    """Ten regions of thirty places, half of them empty."""
    rng = np.random.default_rng(1)
    region = np.repeat([f"r{k}" for k in range(10)], 30)
    cells = _cells(
        ["nation", "region", "place"], [{}, {"region": region}, {"place": [f"{k:03d}" for k in range(300)]}]
    )
    size = rng.poisson(40.0, 300) * (rng.random(300) < 0.5)
    shares = rng.dirichlet(np.full(16, 0.3))
    return Histograms("made up", cells, rng.multinomial(size, rng.dirichlet(20 * shares, 300)).ravel())


def _cells(levels: list[str], columns: list) -> Cells:
    return Cells(
        Tree.from_columns(levels, columns),
        (Attribute("race", RACES), Attribute("age", ("under18", "18over"))),
    )


def cases(harness: Harness) -> Iterator[Case]:
    """No times: what is measured stands in the pictures."""
    yield from ()


def pictures(harness: Harness) -> Iterator[Picture]:
    """Held less stated mass by level and table, for areas off the hierarchy and for shares of a lowest place's total."""
    rows, over = [], []
    for scenario in histograms():
        if harness.part not in (None, scenario.name):
            continue
        found, many = {}, MANY[scenario.name] if harness.full else REPLICATES
        for law in LAWS:
            found[law] = replicate(scenario, law, many)
            rows += [
                [scenario.name, law, of, *figures(held), *_errors(held)] for of, held in found[law].items()
            ]
            harness.progress(f"{scenario.name}, {law}")
        over += [
            [scenario.name, of, *figures(together(each[of] for each in found.values()))] for of in found[law]
        ]
    yield Picture(
        title="coverage of histograms",
        columns=["counts", "noise", "of", *COVERAGE, "RMSE / release's", "z"],
        rows=rows,
    )
    yield Picture(title="coverage over all noise", columns=["counts", "of", *COVERAGE], rows=over)


def _errors(held: Held) -> list[str]:
    ratio = (held.posterior.mean() / max(held.released.mean(), 1e-12)) ** 0.5
    return [f"{ratio:.3f}", f"{held.worse(1.01, held.released):.1f}"]


def replicate(scenario: Histograms, law: str, replicates: int, seed: int = 1) -> dict[str, Held]:
    """Measure and infer again and again; by level and table, for areas and for shares."""
    rows: dict[str, list] = {}
    with ThreadPoolExecutor(cores()) as pool:
        for found in pool.map(lambda k: list(_once(scenario, law, seed + k)), range(replicates)):
            for name, row in found:
                rows.setdefault(name, []).append(row)
    return {
        name: Held(*np.array([[*row[:4], np.nan] for row in many]).T, int(many[0][4]))  # pyright: ignore[reportCallIssue]
        for name, many in rows.items()
    }


def measured(scenario: Histograms, law: str, rng: np.random.Generator) -> ColumnProblem:
    """Every table at every level with noise."""
    cells, levels = scenario.cells, scenario.cells.tree.levels
    kind = "discrete-laplace" if law.startswith("epsilon") else "discrete-gaussian"
    noise = law_named(kind)(LAWS[law](len(levels) * len(TABLES)))
    headers = tuple(Measured("table", Margin(level, table), noise) for level in levels for table in TABLES)
    sums = [cells.sum(scenario.truth, h.margin) for h in headers]
    values = tuple(x + noise.quantile(rng.random(len(x))).astype(np.int64) for x in sums)
    return ColumnProblem(Constraints(cells, tuple(h.margin for h in headers)), headers, values)


def _once(scenario: Histograms, law: str, seed: int) -> Iterator[tuple[str, NDArray]]:
    cells, levels = scenario.cells, scenario.cells.tree.levels
    rng = generator(scenario.name, law, seed)
    problem = measured(scenario, law, rng)
    walk = HistogramWalk.of(problem, [rng])
    released = walk.states[0].x.astype(np.int64).ravel()
    walk.run(1, WARM_UP, _silent)
    draws = walk.run(DRAWS, THIN, _silent)[0]
    places = np.sort(rng.choice(cells.shape[0], min(LEAVES, cells.shape[0]), replace=False))
    for margin in (h.margin for h in problem.headers):
        triple = [cells.sum(x, margin) for x in (draws, scenario.truth, released)]
        if margin.level == levels[-1]:
            triple = [
                x.reshape(*x.shape[:-1], cells.shape[0], -1)[..., places, :].reshape(*x.shape[:-1], -1)
                for x in triple
            ]
        yield str(margin), _row(*triple)
    areas = rng.integers(0, cells.shape[0], (AREAS, 10))
    totals = [cells.sum(x, Margin(levels[-1])) for x in (draws, scenario.truth, released)]
    yield "areas", _row(*(x[..., areas].sum(axis=-1) for x in totals))
    race = [cells.sum(x, Margin(levels[-2], ("race",))) for x in (draws, scenario.truth, released)]
    shares = [x.reshape(*x.shape[:-1], -1, len(RACES)) for x in race]
    yield (
        "shares",
        _row(
            *((x / np.maximum(x.sum(axis=-1, keepdims=True), 1)).reshape(*x.shape[:-2], -1) for x in shares)
        ),
    )


def _row(draws: NDArray, true: NDArray, released: NDArray) -> NDArray:
    low, high = interval_of_draws(draws, LEVEL, 0.0)
    held, mass = (low <= true) & (true <= high), ((draws >= low) & (draws <= high)).mean(axis=0)
    squares = (draws.mean(axis=0) - true) ** 2, (released - true) ** 2
    return np.array([held.mean(), mass.mean(), *(s.mean() for s in squares), len(true)])


def _silent(done: int, of: int) -> None:
    pass
