"""Whether 90 % margins of error hold 90 %: real blocks and districts, by size of the released and of the true count.

Released by the default method, whichever one the example names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Case, Harness, Picture
from trueup.assessing.tally import by_range
from trueup.measuring import read_confidential
from trueup.model.cells import Margin
from trueup.model.header import simulate_many, split
from trueup.model.problem import Problem
from trueup.model.records.expected_errors import SIZES, ExpectedErrors
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec, load_spec
from trueup.reconciling import Prepared, build, default
from trueup.releasing.explain import explain

EXAMPLE = Path(__file__).parents[1] / "examples" / "blocks-race-age.toml"
DATA = Path(os.environ.get("TRUEUP_TEST_DATA", "../shared/data"))
LEAST, MOST, FROM = 0.88, 0.92, 5
"""What 90 % margins must cover, and at most where they are `FROM` or more."""
SHARE = 0.01
"""Classes with a smaller share of a table's counts are not held to it."""
SIMULATED = 2
"""Of so many releases the margins are simulated anew; later ones take theirs in turn, which differ little."""
CHANCE = 2
"""Standard errors of a share (as of independent counts) within which a miss may be chance: said so, and not counted."""


class World(NamedTuple):
    """A real population, a spec for it, and how often it is released."""

    name: str
    spec: Spec
    problem: Problem
    truth: np.ndarray
    releases: int


def worlds(harness: Harness) -> Iterator[World]:
    """Counties of Rhode Island by race and voting age (with `--full` the whole state), the districts of New Mexico."""
    if not DATA.is_dir():
        harness.progress(f"no data at {DATA}: set TRUEUP_TEST_DATA")
        return
    blocks = read("ri_blocks_2010.csv.gz")
    spec = load_spec(EXAMPLE)
    for county, name in {"44001": "Bristol", "44005": "Newport"}.items():
        yield world_of(f"{name} county, blocks", spec, blocks[blocks.GEOID.str.startswith(county)], 10)
    if harness.full:
        yield world_of("Rhode Island, blocks", spec, blocks, 1)
    yield world_of("New Mexico, districts", of_districts(spec), read("nm_vtds_2010.csv.gz"), 10)


def of_districts(spec: Spec) -> Spec:
    """The same tables and budgets on state, county and voting district."""
    given = spec.model_dump(by_alias=True, exclude_defaults=True)
    levels = [
        {"name": "state"},
        {"name": "county", "column": "county"},
        {"name": "district", "column": "vtd"},
    ]
    renamed = {"state": "state", "county": "county", "block": "district"}
    queries = [
        q | {"rho": {renamed[name]: amount for name, amount in query.budgets.items() if name in renamed}}
        for q, query in zip(given["query"], spec.queries)
    ]
    return Spec.model_validate(given | {"level": levels, "query": queries})


def read(name: str):
    import pandas

    return pandas.read_csv(DATA / name, dtype={"GEOID": str, "state": str, "county": str, "vtd": str})


def world_of(name: str, spec: Spec, table, releases: int) -> World:
    problem = Problem.of(spec, table, data=table)
    return World(name, spec, problem, read_confidential(spec, problem.cells, table), releases)


class Covered(NamedTuple):
    """How often margins of a class of counts hold, and how wide they are."""

    world: str
    table: str
    by: str
    size: str
    share: float
    margin: float
    covered: float
    rmse: float
    promised: float
    counts: int
    narrower: float
    """What margins one count narrower would cover."""

    @property
    def verdict(self) -> str:
        """Whether the bar is met; a class of true counts is shown, not held to it."""
        if self.by != "released" or self.share < SHARE:
            return "-"
        high = self.margin >= FROM and self.covered > MOST
        if self.covered >= LEAST and not high:
            return "met"
        miss = self.covered - MOST if high else LEAST - self.covered
        if miss < CHANCE * np.sqrt(LEAST * (1 - LEAST) / self.counts):
            return "few"
        reached = LEAST if self.margin - 1 >= FROM else 0.9  # what margins below `FROM` must reach
        return "jump" if high and self.narrower < reached else "high" if high else "low"


def covered(world: World, method: str | None = None, *, before: bool = False) -> list[Covered]:
    """Release a world some times with seeded noise; hold margins against the true counts.

    `before`: margins of `explain`, from a made-up population of the places, in place of those of each release.
    """
    problem = world.problem
    chosen = build(method, {}) if method else default(problem.constraints)
    prepared = Prepared.of(problem.constraints, problem.headers, chosen)
    promise = explain(problem, method=chosen.name).classes if before else None
    rows: dict[Margin, list[np.ndarray]] = {}
    promises: list[ExpectedErrors] = [promise] if promise else []
    for replicate in range(world.releases):
        values = simulate_many(
            problem.cells, world.truth, problem.headers, np.random.default_rng([7, replicate]), 1
        )[0]
        parts = tuple(split(values, problem.headers, problem.cells))
        noisy = Measurements(
            problem.cells, problem.headers, parts, problem.guarantee, simulation=True, spec=world.spec
        )
        release = prepared.reconcile(noisy)
        if not before and replicate < SIMULATED and release.expected:
            promises.append(release.expected)
        expected = promises[replicate % len(promises)]
        for table in release.published:
            rows.setdefault(table, []).append(_row(problem, table, release.counts, world.truth, expected))
    return [
        c for table, parts in rows.items() for c in _classes(world.name, table, np.concatenate(parts, axis=1))
    ]


def _row(problem: Problem, table: Margin, counts, truth, expected: ExpectedErrors) -> np.ndarray:
    released, true = problem.cells.sum(counts, table), problem.cells.sum(truth, table)
    classes = expected.tables[table]
    at = np.maximum(np.searchsorted([c.lowest for c in classes], released, side="right") - 1, 0)
    promised = np.array([c.rmse for c in classes])[at]
    margin = expected.margin_of_error(table, released)
    assert margin is not None
    return np.stack([released, true, margin, promised])


def _classes(world: str, table: Margin, rows: np.ndarray) -> Iterator[Covered]:
    released, true, margin, promised = rows
    error = np.abs(released - true)
    for by, counts in (("released", released), ("true", true)):
        classing = by_range(by, np.maximum(counts, 0).astype(np.int64), SIZES)
        for number, label in enumerate(classing.labels):
            held = classing.at == number
            yield Covered(
                world, str(table), by, label, float(held.mean()), float(margin[held].mean()),
                float((error[held] <= margin[held]).mean()), _root(error[held]), _root(promised[held]), int(held.sum()),
                float((error[held] <= margin[held] - 1).mean()),
            )  # fmt: skip


def _root(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values).mean()))


_FOUND: list[tuple[str, list[Covered]]] = []


def cases(harness: Harness) -> Iterator[Case]:
    """Time of the simulation; and how many classes meet the bar."""
    for world in worlds(harness):
        for before in (False, True):
            found = covered(world, before=before)
            _FOUND.append(("before" if before else "after", found))
            held = [c for c in found if c.verdict != "-"]
            met = sum(c.verdict == "met" for c in held)
            low, high, jump, few = (sum(c.verdict == v for c in held) for v in ("low", "high", "jump", "few"))
            when = "by explain, before a release" if before else "with each release"
            counted = (
                f"{met} of {len(held)} classes meet the bar, {low} low, {high} high, {jump} between two whole margins, "
                f"{few} too few to tell"
            )
            case = f"{world.name}, {when}: {counted}"
            yield Case(
                case=case, ours_s=None, peer=None, peer_s=None, ratio=None, peak_mb=None, difference=None
            )


def pictures(harness: Harness) -> Iterator[Picture]:
    """Every class of the last level, and every class that misses the bar."""
    columns = [
        "when",
        "where",
        "table",
        "by",
        "count",
        "share",
        "mean margin",
        "covers",
        "RMSE",
        "promised",
        "bar",
    ]
    for title, wanted in {
        "Tables of the last level": _is_last,
        "Other classes that miss the bar": lambda c: not _is_last(c) and c.verdict in ("low", "high"),
    }.items():
        rows = [[when, *_text(c)] for when, found in _FOUND for c in found if wanted(c)]
        yield Picture(title=title, columns=columns, rows=rows)


def _is_last(row: Covered) -> bool:
    return row.table.split(" x ")[0] in ("block", "district")


def _text(c: Covered) -> list[str]:
    figures = (f"{c.share:.3f}", f"{c.margin:.1f}", f"{c.covered:.3f}", f"{c.rmse:.2f}", f"{c.promised:.2f}")
    return [c.world, c.table, c.by, c.size, *figures, c.verdict]
