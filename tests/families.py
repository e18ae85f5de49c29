"""Families of tables that tests share: a ministry's visits, and small random families."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pandas as pd

from trueup.kernel.families import cyclic_core
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.family import FamilyCells, family_of
from trueup.model.family_sets import variables
from trueup.model.header import Measured
from trueup.model.spec import Spec
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace

CLINICS = pd.DataFrame(
    {
        "region": [f"R{i // 6}" for i in range(24)],
        "district": [f"D{i // 2:02}" for i in range(24)],
        "clinic": [f"C{i:02}" for i in range(24)],
    }
)
"""24 clinics in 12 districts in 4 regions."""
DIAGNOSES = [f"{chapter}{i}" for chapter in "ABCD" for i in range(5)]
CHAPTERS = {chapter: [d for d in DIAGNOSES if d[0] == chapter] for chapter in "ABCD"}


def ministry(**parts) -> Spec:
    """Visits by clinic; by district, sex and age; by region and diagnosis; by month."""
    given = {
        "title": "Visits",
        "table": {"name": "visits", "kind": "records", "counts": "visit"},
        "privacy": {
            "unit": "patient",
            "neighbours": "add-remove",
            "id": "patient",
            "contribution": {"records": 5},
        },
        "levels": ["country", "region", "district", "clinic"],
        "attributes": [
            {"name": "sex", "values": ["f", "m"]},
            {"name": "age", "values": ["0-14", "15-64", "65+"]},
            {
                "name": "diagnosis",
                "values": DIAGNOSES,
                "recode": [{"name": "chapter", "groups": CHAPTERS}],
            },
            {"name": "month", "values": [f"{i + 1:02}" for i in range(12)]},
        ],
        "queries": [
            {"name": "clinics", "epsilon": {"country": "1/2", "region": "1/2", "clinic": "1"}},
            {"name": "people", "attributes": ["sex", "age"], "epsilon": {"district": "1"}},
            {"name": "diagnoses", "attributes": ["diagnosis"], "epsilon": {"region": "1"}},
            {"name": "months", "attributes": ["month"], "epsilon": {"country": "1"}},
        ],
    }
    return Spec(**given | parts)


def visits(rng: np.random.Generator, records: int = 6000) -> pd.DataFrame:
    """Records of visits: patients have up to five."""
    clinic = rng.choice(len(CLINICS), records, p=rng.dirichlet(np.full(len(CLINICS), 2.0)))
    return (
        CLINICS.iloc[clinic]
        .reset_index(drop=True)
        .assign(
            patient=np.arange(records) // 3,
            sex=rng.choice(["f", "m"], records),
            age=rng.choice(["0-14", "15-64", "65+"], records, p=[0.2, 0.6, 0.2]),
            diagnosis=rng.choice(DIAGNOSES, records, p=rng.dirichlet(np.full(len(DIAGNOSES), 0.7))),
            month=rng.choice([f"{i + 1:02}" for i in range(12)], records),
        )
    )


TREES = [
    Tree.from_columns(["all"], [{}]),
    Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b", "c"]}]),
    Tree.from_columns(
        ["all", "area", "block"], [{}, {"area": list("aabbbc")}, {"block": [f"{i}" for i in range(6)]}]
    ),
]


def random_tree(rng: np.random.Generator) -> Tree:
    """Places on four levels, with one to three children each."""
    towns = np.repeat(np.arange(9), rng.integers(1, 4, 9))
    blocks = np.arange(len(towns))
    columns = [{}, {"area": np.array([0, 0, 0, 1, 2, 2, 3, 3, 3])[towns]}, {"town": towns}, {"block": blocks}]
    return Tree.from_columns(["all", "area", "town", "block"], columns)


def random_family(
    rng: np.random.Generator, trees: Sequence[Tree] = TREES
) -> tuple[FamilyCells, list[Measured]]:
    """A small acyclic family of two tables or more, with noise of one variance a table."""
    attributes = (
        Attribute("x", ("0", "1")),
        Attribute("y", ("0", "1", "2", "3"), recodes=(Recode("half", ("low", "high"), (0, 1, 1, 1)),)),
        Attribute("z", ("0", "1", "2")),
    )
    while True:
        cells = Cells(trees[rng.integers(len(trees))], attributes)
        margins = []
        for _ in range(rng.integers(2, 5)):
            names = [n for n in ("x", rng.choice(["y", "half"]), "z") if rng.random() < 0.5]
            margins.append(cells.margin(Margin(str(rng.choice(cells.tree.levels)), tuple(map(str, names)))))
        margins = list(dict.fromkeys(margins))
        sets = [variables(cells, m, margins) for m in margins]
        if cyclic_core(sets):
            continue
        family = family_of(cells, margins)
        if len(family.tables) > 1:
            laws = [DiscreteLaplace(Fraction(1, int(k))) for k in rng.integers(1, 4, len(margins))]
            return family, [Measured(f"q{i}", m, law) for i, (m, law) in enumerate(zip(margins, laws))]


def random_ring(rng: np.random.Generator) -> tuple[FamilyCells, list[Measured]]:
    """The three two-way tables of three attributes, at levels drawn at random, perhaps with a count of all places."""
    attributes = (
        Attribute("x", ("0", "1")),
        Attribute("y", ("0", "1", "2", "3"), recodes=(Recode("half", ("low", "high"), (0, 1, 1, 1)),)),
        Attribute("z", ("0", "1", "2")),
    )
    cells = Cells(TREES[rng.integers(len(TREES))], attributes)
    levels = cells.tree.levels
    margins = [Margin(str(rng.choice(levels)), pair) for pair in (("x", "y"), ("y", "z"), ("x", "z"))]
    margins += [Margin(levels[-1])] * (len(levels) > 1) + [Margin(levels[0], ("half",))] * (
        rng.random() < 0.5
    )
    margins = list(dict.fromkeys(cells.margin(m) for m in margins))
    laws = [DiscreteLaplace(Fraction(1, int(k))) for k in rng.integers(1, 4, len(margins))]
    headers = [Measured(f"q{i}", m, law) for i, (m, law) in enumerate(zip(margins, laws))]
    return family_of(cells, margins), headers
