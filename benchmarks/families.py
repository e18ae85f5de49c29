"""Several tables in one release: a ministry's four, with errors beside each table's own release, and cost by published cells.

`difference` is not measured. Pictures: root mean square errors (counts) over paired replicates of each table released by itself
from the same noisy values, of the family, and of the family's least squares; ratios with their standard errors.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from benchmarks.harness import Case, Harness, Picture
from trueup.measuring import read_confidential
from trueup.model.header import simulate_many
from trueup.model.problem import Problem
from trueup.model.spec import Spec
from trueup.reconciling import default
from trueup.reconciling.family_tree import FamilyTree
from trueup.releasing.pipeline import release

LEVELS = ("country", "region", "district", "clinic")
MINISTRY = {
    "sex": ["f", "m"],
    "age": ["0-14", "15-64", "65+"],
    "diagnosis": [f"d{i:02}" for i in range(40)],
    "month": [f"{i + 1:02}" for i in range(12)],
}
QUERIES = {
    "clinic": ((), {"country": "1/2", "region": "1/2", "clinic": "1"}),
    "district x sex x age": (("sex", "age"), {"district": "1"}),
    "region x diagnosis": (("diagnosis",), {"region": "1"}),
    "country x month": (("month",), {"country": "1"}),
}
CROSS = 1e9
"""Cells of the full cross of the tables whose cost is measured."""


def cases(harness: Harness) -> Iterator[Case]:
    """The ministry's release, then releases of 1e4, 1e5 and 1e6 published cells whose cross would have 1e9."""
    with tempfile.TemporaryDirectory() as folder:
        runs = count()

        def released(spec: Spec, records: Any, places: Any) -> float:
            release(spec, records, Path(folder) / f"{next(runs)}", geography=places)
            return 0.0

        places = _places(60, 5, 15)
        table = _records(places, MINISTRY, 19_000)
        spec = _spec(MINISTRY, QUERIES)
        yield from harness.compare(
            "ministry: release", lambda: released(spec, table, places), clock=time.process_time
        )
        for cells in (10**4, 10**5, *([10**6] if harness.full else [])):
            places, spec, table = _of_cells(cells)
            n = Problem.of(spec, places).cells.n
            yield from harness.compare(
                f"{n:,} cells: release",
                lambda spec=spec, table=table, places=places: released(spec, table, places),
                clock=time.process_time,
            )


def pictures(harness: Harness) -> Iterator[Picture]:
    """Errors of the ministry's tables."""
    places = _places(60, 5, 15)
    problem = Problem.of(_spec(MINISTRY, QUERIES), places)
    truth = read_confidential(problem.spec, problem.cells, _records(places, MINISTRY, 19_000))
    replicates = 500 if harness.full else 60
    values = simulate_many(problem.cells, truth, problem.headers, np.random.default_rng(1), replicates)
    method = FamilyTree()
    state = method.prepare(problem.constraints, problem.headers)
    found = method.apply(state, values, np.random.default_rng(2)).values
    rows = []
    for name in QUERIES:
        true, margin = problem.cells.sum(truth, name), problem.cells.margin(name)
        tables = _alone(problem, places, name, values), problem.cells.sum(found, name)
        errors = [((x - true) ** 2).mean(axis=1) for x in (*tables, state.estimates(values, margin))]
        own, family, least = errors
        roots = [f"{np.sqrt(e.mean()):.3f}" for e in errors]
        rows.append([name, *roots, _ratio(family, own), _ratio(family, least)])
    columns = ["table", "own release", "family", "least squares", "family / own", "family / least squares"]
    yield Picture(
        title=f"Root mean square errors, {replicates} paired replicates", columns=columns, rows=rows
    )


def _alone(problem: Problem, places: Any, name: str, values: NDArray) -> NDArray:
    """Release one query by itself from the family's noisy values: `(replicates, groups)` of its table."""
    level = name.split(" x ")[0]
    spec = _spec(MINISTRY, {name: QUERIES[name]}, LEVELS[: LEVELS.index(level) + 1])
    names = [part.name for part in spec.levels[1:]]
    own = Problem.of(spec, places[names].drop_duplicates() if names else None)
    starts = np.cumsum([0, *(problem.cells.size(h.margin) for h in problem.headers)])
    at = [i for i, h in enumerate(problem.headers) if h.query == name]
    method = default(own.constraints)
    state = method.prepare(own.constraints, [problem.headers[i] for i in at])
    rows = np.concatenate([values[:, starts[i] : starts[i + 1]] for i in at], axis=1)
    return own.cells.sum(method.apply(state, rows, np.random.default_rng(3)).values, name)


def _ratio(one: NDArray, other: NDArray) -> str:
    """Ratio of root mean squares, and its standard error by the delta method."""
    square = one.mean() / other.mean()
    error = np.std(one - square * other) / other.mean() / np.sqrt(len(one))
    return f"{np.sqrt(square):.4f} ({error / 2 / np.sqrt(square):.4f})"


def _spec(
    attributes: dict[str, list[str]], queries: dict[str, Any], levels: Sequence[str] = LEVELS, limit: int = 5
) -> Spec:
    used = {name for names, _ in queries.values() for name in names}
    person = {"unit": "patient", "id": "patient", "contribution": {"records": limit}}
    document: dict[str, Any] = {
        "title": "Visits",
        "table": {"name": "visits", "kind": "records", "counts": "visit"},
        "privacy": {"neighbours": "add-remove", **(person if limit else {"unit": "visit"})},
        "levels": list(levels),
        "attributes": [
            {"name": name, "values": values} for name, values in attributes.items() if name in used
        ],
        "queries": [
            {"name": name, "epsilon": budgets, **({"attributes": list(names)} if names else {})}
            for name, (names, budgets) in queries.items()
        ],
    }
    return Spec(**document)


def _places(clinics: int, district: int, region: int) -> pandas.DataFrame:
    """Clinics in districts of so many, and in regions of so many."""
    at = np.arange(clinics)
    keys = {"region": at // region, "district": at // district, "clinic": at}
    return pandas.DataFrame({name: [f"{name[0]}{i:07}" for i in column] for name, column in keys.items()})


def _records(places: pandas.DataFrame, attributes: dict[str, list[str]], records: int) -> pandas.DataFrame:
    """Visits of patients with three each; clinics and values are unequally frequent."""
    rng = np.random.default_rng(7)
    clinics = rng.choice(len(places), records, p=rng.dirichlet(np.full(len(places), 2.0)))
    columns = {
        name: rng.choice(values, records, p=rng.dirichlet(np.full(len(values), 2.0)))
        for name, values in attributes.items()
    }
    return places.iloc[clinics].reset_index(drop=True).assign(patient=np.arange(records) // 3, **columns)


def _of_cells(cells: int) -> tuple[pandas.DataFrame, Spec, pandas.DataFrame]:
    """Tables of about so many cells, whose cross would have 1e9: half of them are clinics by sex."""
    clinics = cells // 4
    weeks = max(2, round(CROSS / (clinics * 2 * 5 * 200)))
    sizes = {"sex": 2, "age": 5, "diagnosis": 200, "week": weeks}
    attributes = {name: [f"{name}{i}" for i in range(size)] for name, size in sizes.items()}
    queries = {
        "clinic x sex": (("sex",), {"country": "1/2", "region": "1/2", "clinic": "1"}),
        "district x sex x age": (("sex", "age"), {"district": "1"}),
        "region x diagnosis": (("diagnosis",), {"region": "1"}),
        "country x week": (("week",), {"country": "1"}),
    }
    places = _places(clinics, 50, 250)
    return places, _spec(attributes, queries, limit=0), _records(places, attributes, 4 * cells)
