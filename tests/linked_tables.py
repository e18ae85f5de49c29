"""Specs of persons and households, populations of both, and what is counted of them, slowly and in Python."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

import numpy as np
import pandas

from trueup.files import JoinedTables
from trueup.io.microdata.truncate import Limit
from trueup.ledger.request import Terms
from trueup.model.joined import LinkedTables
from trueup.model.problem import Problem
from trueup.model.spec import Spec

PLACES = pandas.DataFrame({"block": ["11", "12", "21", "22", "23"]})
TERMS = Terms("household", "add-remove")
"""What an account of such tables is kept under."""


def document(**changes) -> dict:
    """Return a spec of two tables; `changes` replace whole parts of it."""
    levels = {"all": "1/2", "county": "1/2", "block": "1"}
    return {
        "format": 2,
        "title": "linked",
        "table": {
            "name": "t",
            "kind": "records",
            "counts": "person",
            "join": {"counts": "household", "id": "hid", "reference": {"column": "relation", "value": "ref"}},
        },
        "privacy": {"unit": "household", "neighbours": "add-remove", "contribution": {"records": 4}},
        "level": [
            {"name": "all"},
            {"name": "county", "column": "block", "prefix": 1},
            {"name": "block", "column": "block"},
        ],
        "attribute": [
            {"name": "age", "values": ["child", "adult", "old"]},
            {"name": "sex", "values": ["f", "m"]},
            {"name": "tenure", "of": "household", "values": ["own", "rent"]},
            {"name": "head", "of": "reference", "column": "sex", "values": ["f", "m"]},
            {"name": "size", "persons": {}},
            {"name": "children", "persons": {"age": "child"}},
        ],
        "query": [
            gaussian("size", "household", ["size", "children", "tenure"], levels, cumulative="size"),
            gaussian("households", "household", ["size", "children", "tenure", "head"], levels),
            gaussian("persons", "person", ["age", "sex", "tenure"], levels),
        ],
    } | changes


def gaussian(name: str, counts: str, attributes: list[str], rho: dict[str, str], **more) -> dict:
    """Return a query with discrete Gaussian noise."""
    return {
        "name": name,
        "counts": counts,
        "attributes": attributes,
        "noise": "discrete-gaussian",
        "rho": rho,
    } | more


def population(rng: np.random.Generator, households: int, places: pandas.DataFrame = PLACES) -> JoinedTables:
    """Return both tables; sizes go beyond what a household keeps."""
    ids = np.array([f"h{i}" for i in range(households)])
    size = 1 + rng.poisson(1.6, households)
    first = pandas.DataFrame(
        {
            "hid": ids,
            "block": rng.choice(places["block"], households, p=_skewed(len(places))),
            "tenure": rng.choice(["own", "rent"], households),
        }
    )
    second = pandas.DataFrame({"hid": np.repeat(ids, size)})
    second["relation"] = ["ref" if k == 0 else "other" for n in size for k in range(n)]
    second["age"] = rng.choice(["child", "adult", "old"], len(second), p=[0.3, 0.5, 0.2])
    second["sex"] = rng.choice(["f", "m"], len(second))
    return JoinedTables(second.sample(frac=1, random_state=int(rng.integers(2**31))), first)


def write_tables(
    folder: Path, rng: np.random.Generator, households: int, places: pandas.DataFrame = PLACES
) -> dict[str, Path]:
    """Write spec, both tables and places, with a household of nobody; return their paths."""
    table = document()["table"]
    table["join"]["apart"] = ["households without persons"]
    paths = {
        "spec": folder / "spec.toml",
        "data": folder / "persons.parquet",
        "households": folder / "households.csv",
        "geography": folder / "places.csv",
    }
    paths["spec"].write_text(Spec.model_validate(document(table=table)).text())
    tables = population(rng, households, places)
    tables.households.loc[households] = ["vacant", places["block"].iloc[0], "own"]
    tables.persons.to_parquet(paths["data"])
    tables.households.to_csv(paths["households"], index=False)
    places.to_csv(paths["geography"], index=False)
    return paths


def _skewed(places: int) -> np.ndarray:
    shares = 0.5 ** np.arange(places)
    return shares / shares.sum()


def problem(**changes) -> Problem:
    """Return the spec on its places."""
    return Problem.of(Spec.model_validate(document(**changes)), PLACES)


def joined(problem: Problem) -> LinkedTables:
    """Return the two tables of a problem."""
    found = problem.constraints.joined
    assert found is not None
    return found


def counted(problem: Problem, tables: JoinedTables, limit: Limit) -> np.ndarray:
    """Counts `(n,)` of the records of the document above, person by person."""
    join, most = problem.spec.table.join, limit.records
    assert join is not None
    domains = [["child", "adult", "old"], ["f", "m"], ["f", "m"]]
    cell = {
        (age, sex, head, ref): (((domains[0].index(age) * 2 + domains[1].index(sex)) * 2) + head) * 2 + ref
        for age, sex, head, ref in product(*domains[:2], (0, 1), (0, 1))
    }
    held: dict[str, list] = defaultdict(list)
    for row in tables.persons.itertuples():
        ref = int(row.relation == "ref")
        head = domains[2].index(row.sex) if ref else 0
        held[row.hid].append((cell[row.age, row.sex, head, ref], ref, row.age, row.sex))
    found: Counter[tuple] = Counter()
    for home in tables.households.itertuples():
        ordinals: Counter[int] = Counter()
        ranked = []
        for index, ref, age, sex in sorted(held[home.hid]):
            text = f"{limit.key}|{index}|{ordinals[index]}|{home.hid}"
            ranked.append((-ref, hashlib.sha256(text.encode()).hexdigest(), age, sex))
            ordinals[index] += 1
        kept = sorted(ranked)[:most] if len(ranked) > most else ranked
        children = sum(age == "child" for _, _, age, _ in kept)
        head = next(sex for ref, _, _, sex in kept if ref)
        found[home.block, f"household: head={head}, size={len(kept)}, children={children}", home.tenure] += 1
        for _, _, age, sex in kept:
            found[home.block, f"person: age={age}, sex={sex}", home.tenure] += 1
    blocks, records = PLACES["block"].tolist(), problem.spec.attributes[0].values
    counts = np.zeros(problem.cells.shape, np.int64)
    for (block, record, tenure), n in found.items():
        counts[blocks.index(block), records.index(record), ["own", "rent"].index(tenure)] = n
    return counts.ravel()
