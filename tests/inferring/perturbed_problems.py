"""Small tables that somebody perturbed, and their posteriors by listing every table."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.inferring.problems import star, states
from trueup.assessing.comparators import PerturbedTables
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.guarantee import NO_GUARANTEE
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.model.tree import Tree
from trueup.noise.perturbed import CellKey, CountInterval, RandomRounding, Rounded, Suppressed
from trueup.noise.perturbed.ranges import HIDDEN

LAWS = (
    RandomRounding(3),
    RandomRounding(5),
    CellKey(2, "1"),
    CellKey(2, "3/2", 2),
    CellKey(3, "2", 3),
    CellKey(
        transitions=[{0: 1}, {-1: 0.25, 0: 0.5, 1: 0.25}, {-2: 0.5, 2: 0.5}, {-1: 0.5, 1: 0.5}], repeat=2
    ),
    Rounded(3),
    Rounded(4, "either"),
    Suppressed(4),
    Suppressed(3, 0),
)


def crossing(rows, columns):
    """One place by two attributes."""
    attributes = (
        Attribute("sex", tuple(f"s{k}" for k in range(rows))),
        Attribute("age", tuple(f"a{k}" for k in range(columns))),
    )
    return Cells(Tree.from_columns(["all"], [{}]), attributes)


def random_problem(rng, crosses):
    """Cells, constraints, measurements and the truth: laws and margins at random; the finest cells always published."""
    if crosses:
        cells = crossing(2, int(rng.integers(2, 4)))
        margins = [cells.finest, Margin("all", ("sex",)), Margin("all", ("age",))]
        margins += [Margin("all")] * int(rng.random() < 0.5)
    else:
        cells = star(int(rng.integers(1, 5))) if rng.random() < 0.5 else states((2, int(rng.integers(1, 3))))
        margins = [Margin(level) for level in cells.tree.levels]
    truth = rng.poisson(rng.choice([0.4, 1.5, 4.0]), cells.n)
    headers, values = [], []
    for margin in margins:
        law: Any = LAWS[rng.integers(len(LAWS))]
        table = cells.sum(truth, margin)
        if rng.random() < 0.15:
            law = CountInterval(int(max(table.min() - 1, 0)), int(table.max() + 1 + rng.integers(2)))
        headers.append(Measured("published", margin, law))
        values.append(law.publish(table, rng.random(len(table))))
    measured = Measurements(cells, tuple(headers), tuple(values), NO_GUARANTEE)
    return cells, Constraints(cells, tuple(h.margin for h in headers)), measured, truth


def enumerated(cells, measured):
    """All tables `(t, n)` and their posterior probabilities under a flat prior, by listing a box of them."""
    units = np.eye(cells.n, dtype=np.int64)
    every = [np.stack([cells.sum(unit, h.margin) for unit in units]) for h in measured.headers]
    rows = [sums if h.groups is None else sums[:, h.groups] for h, sums in zip(measured.headers, every)]
    high = np.full(cells.n, 10**9)
    for header, values, sums in zip(measured.headers, measured.values, rows):
        top = header.law.bounds(values)[1]
        for group in range(len(values)):
            held = sums[:, group] > 0
            high[held] = np.minimum(high[held], top[group])
    tables = np.array(list(product(*(range(int(h) + 1) for h in high))), dtype=np.int64).reshape(-1, cells.n)
    log = np.zeros(len(tables))
    for header, values, sums in zip(measured.headers, measured.values, rows):
        for group, value in enumerate(values):
            log += header.law.log_mass(value, tables @ sums[:, group])
    mass = np.exp(log - log.max())
    return tables[mass > 0], mass[mass > 0] / mass.sum()


def crossing_places(places):
    """So many places by two attributes of two values each, and margins that cross in each place."""
    tree = Tree.from_columns(["all", "place"], [{}, {"place": [f"p{k:03}" for k in range(places)]}])
    cells = Cells(tree, (Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))))
    return cells, [cells.finest, Margin("place", ("sex",)), Margin("place", ("age",))]


def district_counts(folder):
    """New Mexico's districts by race as cells, and their counts `(n,)`."""
    rows = _rows(folder / "nm_vtds_2010.csv.gz", ("county", "vtd"))
    keys = [{}, {"county": [row["county"] for row in rows]}, {"vtd": [row["vtd"] for row in rows]}]
    return _by_race(Tree.from_columns(["state", "county", "vtd"], keys), rows)


def block_counts(folder, by_race=True):
    """Rhode Island's blocks, by race or not, as cells, and their counts `(n,)`."""
    rows = _rows(folder / "ri_blocks_2010.csv.gz", ("GEOID",))
    keys = [{}]
    for name, digits in (("county", 5), ("tract", 11), ("group", 12), ("block", 15)):
        keys.append({name: [row["GEOID"][:digits] for row in rows]})
    tree = Tree.from_columns(["state", "county", "tract", "group", "block"], keys)
    return _by_race(tree, rows) if by_race else (Cells(tree), np.array([int(row["pop"]) for row in rows]))


def _rows(path, order):
    with gzip.open(path, "rt") as file:
        return sorted(csv.DictReader(file), key=lambda row: tuple(row[name] for name in order))


def _by_race(tree, rows):
    kinds = tuple(name for name in rows[0] if name.startswith("pop_"))
    return Cells(tree, (Attribute("race", kinds),)), np.array([int(row[k]) for row in rows for k in kinds])


def tract_counts(folder):
    """Rhode Island's tracts by race and whether of voting age, as cells, their counts `(n,)`, and margins that cross."""
    sums: dict[str, NDArray] = {}
    for row in _rows(folder / "ri_blocks_2010.csv.gz", ("GEOID",)):
        races = [name.removeprefix("pop_") for name in row if name.startswith("pop_")]
        every = np.array([[int(row[f"pop_{race}"]), int(row[f"vap_{race}"])] for race in races])
        sums[row["GEOID"][:11]] = sums.get(row["GEOID"][:11], 0) + every
    keys = [{}, {"county": [tract[:5] for tract in sums]}, {"tract": list(sums)}]
    tree = Tree.from_columns(["state", "county", "tract"], keys)
    cells = Cells(tree, (Attribute("race", tuple(races)), Attribute("adult", ("no", "yes"))))
    counts = np.concatenate(
        [np.stack([every[:, 0] - every[:, 1], every[:, 1]], axis=1) for every in sums.values()]
    )
    return cells, counts.ravel(), [cells.finest, Margin("tract", ("race",)), Margin("tract", ("adult",))]


def published_tables(cells, counts, law, rng, margins=None):
    """Tables of margins, by default every level and the finest cells, as a law makes them: cell keys by simulated record keys."""
    margins = margins or list(dict.fromkeys([*(Margin(level) for level in cells.tree.levels), cells.finest]))
    tables = PerturbedTables(law, counts, 0.9).publish(cells, margins, rng)
    headers = tuple(Measured("t", margin, law) for margin in margins)
    measured = Measurements(cells, headers, tuple(tables[m] for m in margins), NO_GUARANTEE)
    return measured, Constraints(cells, tuple(margins))


def with_complements(measured):
    """Hide, where one count alone of a place is not shown, the smallest other one that is not zero; its code says nothing.

    So a total that is shown does not give the hidden count away.
    """
    cells, shown = measured.cells, measured.values[-1].reshape(measured.cells.shape[0], -1)
    hidden = shown == HIDDEN
    others = np.where(shown > 0, shown, np.iinfo(np.int64).max)
    rows = np.flatnonzero((hidden.sum(axis=1) == 1) & (shown > 0).any(axis=1))
    complement = np.zeros(shown.shape, bool)
    complement[rows, others[rows].argmin(axis=1)] = True
    keep = np.flatnonzero(~complement.ravel())
    last = replace(measured.headers[-1], groups=keep)
    values = (*measured.values[:-1], measured.values[-1][keep])
    return Measurements(cells, (*measured.headers[:-1], last), values, NO_GUARANTEE), complement.ravel()
