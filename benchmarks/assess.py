"""Assessments: many replicates of measure and reconcile, against releases made one by one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas

from benchmarks.harness import Case, Harness
from trueup.assessing import assess
from trueup.measuring import read_confidential, simulate
from trueup.model.cells import Margin
from trueup.model.problem import Problem
from trueup.model.spec import Spec, load_spec, parse_spec
from trueup.reconciling import reconcile

EXAMPLES = Path(__file__).parents[1] / "examples"
BOTH = [("multinomial-mode", {"total": total}) for total in ("independent", "summed")]
FIFTY = parse_spec(
    """
format = 2
title = "Fifty counts"
table = { name = "areas", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", epsilon = { all = "1/2", area = "1/2" } }]
"""
)


def fifty() -> pandas.DataFrame:
    """Counts as in the second scenario of Wang and Reiter (2021): some zero, some small, most large."""
    rng = np.random.default_rng(0)
    counts = [0, 0, 0, 1, 2, 3, *rng.integers(15, 60, 5), *rng.integers(60, 978, 39)]
    return pandas.DataFrame({"area": [f"{i:02d}" for i in range(50)], "n": counts})


def counties() -> tuple[str, pandas.DataFrame | Path]:
    """The 3,143 counties of 2010 if `TRUEUP_TEST_DATA` names them, else as many made-up ones."""
    file = Path(os.environ.get("TRUEUP_TEST_DATA") or ".") / "us_counties_2010.csv"
    if file.exists():
        return "US counties", file
    rng = np.random.default_rng(0)
    state = np.sort(rng.integers(0, 51, 3143)).astype(str)
    county = np.arange(3143).astype(str)
    count = rng.lognormal(10.2, 1.4, 3143).astype(int)
    columns = {"state": state, "state_name": state, "county": county, "county_name": county, "pop": count}
    return "made-up counties", pandas.DataFrame(columns)


def one_by_one(spec: Spec, table: pandas.DataFrame, replicates: int) -> float:
    """Root mean squared error of the finest counts, from releases that are made one after the other."""
    problem = Problem.of(spec, data=table)
    counts, rng = read_confidential(spec, problem.cells, table), np.random.default_rng(1)
    squares = [
        np.mean((reconcile(simulate(problem, counts, rng)).counts - counts) ** 2.0) for _ in range(replicates)
    ]
    return float(np.sqrt(np.mean(squares)))


def streamed(spec: Spec, table: pandas.DataFrame | Path, replicates: int, **options) -> float:
    """The same figure from an assessment."""
    found = assess(spec, table, replicates=replicates, public_truth=True, **options)
    finest: Margin = found.levels[-1]
    return found.figure("rmse", str(finest), method=found.methods[0].label)[0]


def cases(harness: Harness) -> Iterator[Case]:
    table = fifty()
    yield from harness.compare(
        "fifty counts, 1,000 replicates, tree-topdown",
        lambda: streamed(FIFTY, table, 1_000),
        {"simulate and reconcile, one by one": lambda: one_by_one(FIFTY, table, 1_000)},
        memory=False,
    )
    yield from harness.compare(
        "fifty counts, 10,000 replicates, multinomial-mode with both totals",
        lambda: streamed(FIFTY, table, 10_000, methods=BOTH),
    )
    name, truth = counties()
    spec = load_spec(EXAMPLES / "us-counties.toml")
    yield from harness.compare(
        f"{name} (3,143), 1,000 replicates, tree-topdown", lambda: streamed(spec, truth, 1_000)
    )
    if harness.full:
        yield from harness.compare(
            f"{name} (3,143), 1,000 replicates, four methods, three budgets",
            lambda: streamed(
                spec,
                truth,
                1_000,
                methods=["tree-topdown", "multinomial-mode", "multinomial-sample", "tree-equality"],
                budgets=["1/2", 1, 2],
            ),
        )
