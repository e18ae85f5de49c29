"""Every structure of constraints, small: what each method is held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tests.linked_tables import gaussian, problem
from trueup.kernel.lattice.structure import Lattice
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.changes import of_records
from trueup.model.constraints import Bound, Constraints, LinearRule
from trueup.model.family import FamilyCells, family_of
from trueup.model.header import Measured
from trueup.model.linear import parse_linear
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace
from trueup.noise.lattice import LatticeLaplace
from trueup.noise.laws.undrawn import Exact

NARROWEST = DiscreteLaplace(Fraction(230))
"""Just accepted: its variance is 2.6e-100."""
SEX = Attribute("sex", ("female", "male"))
AGE = Attribute("age", ("young", "middle", "old"))
RACE = Attribute("race", ("a", "b"))
GRADE = Recode("grade", ("child", "adult"), (0, 1, 1))
END = Recode("end", ("outer", "inner"), (0, 1, 0))
RECODED = Attribute("age", AGE.values, recodes=(GRADE, END))
LAW = DiscreteLaplace(Fraction(1, 2))


@dataclass(frozen=True)
class Structure:
    """A named problem: constraints, what is measured, and the range of true counts."""

    name: str
    constraints: Constraints
    headers: tuple[Measured, ...]

    def true_counts(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw feasible cell counts, many of them zero."""
        cells = self.constraints.cells
        if isinstance(cells, FamilyCells):
            whole = replace(self, constraints=of_records(self.constraints)).true_counts(rng)
            return cells.tally(np.arange(whole.size), whole)
        counts = rng.poisson(rng.gamma(0.7, 8, cells.n))
        counts[self.constraints.zero_cells] = 0
        return counts

    def exact_values(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """All `q` measured values without noise."""
        cells = self.constraints.cells
        tables = ((cells.sum(counts, h.margin), h.groups) for h in self.headers)
        return np.concatenate([table if groups is None else table[groups] for table, groups in tables])

    def noisy_values(self, counts: NDArray[np.int64], rng: np.random.Generator, batch: int = 1) -> NDArray:
        """`(b, q)` measured values with noise, exact where declared."""
        exact = self.exact_values(counts)
        if isinstance(law := self.headers[0].law, LatticeLaplace):
            noise = law.bound.draw(batch, rng.bytes).vectors
            return exact + np.pad(noise, ((0, 0), (0, exact.size - noise.shape[1])))
        spread = np.concatenate([np.full(self._size(h), 0 if h.exact else 4) for h in self.headers])
        noise = rng.geometric(0.4, (batch, exact.size)) - rng.geometric(0.4, (batch, exact.size))
        return exact + noise * (spread > 0)

    def _size(self, header: Measured) -> int:
        return self.constraints.cells.size(header.margin) if header.groups is None else len(header.groups)


def _tree(*sizes: int) -> Tree:
    """A tree whose level `l` has `sizes[l]` places, shared out unevenly."""
    places = [np.arange(sizes[-1])]
    for below, size in zip(sizes[:0:-1], sizes[-2::-1]):
        places.insert(0, places[0] * size // below)
    names = [f"level{i}" for i in range(len(sizes))]
    columns = [{name: place.astype(str)} if i else {} for i, (name, place) in enumerate(zip(names, places))]
    return Tree.from_columns(names, columns, whole_code=[True] * len(sizes))


def _measured(*margins: Margin) -> tuple[Measured, ...]:
    return tuple(Measured("q", margin, LAW) for margin in margins)


def _structure(
    name: str, cells: Cells, *margins: Margin, invariants: tuple[Margin, ...] = (), **more
) -> Structure:
    headers = (*_measured(*margins), *(Measured("invariant", m, Exact()) for m in invariants))
    return Structure(name, Constraints(cells, margins, invariants=invariants, **more), headers)


def _levels(tree: Tree) -> tuple[Margin, ...]:
    return tuple(Margin(level) for level in tree.levels)


def _one_cell() -> Structure:
    cells = Cells(_tree(1))
    return _structure("one cell", cells, Margin("level0"))


def _one_sum() -> Structure:
    tree = _tree(1, 5)
    return _structure("one sum", Cells(tree), *_levels(tree))


def _parts_only() -> Structure:
    return _structure("unmeasured total", Cells(_tree(1, 5)), Margin("level1"))


def _deep_tree() -> Structure:
    tree = _tree(1, 3, 7, 17)
    return _structure("tree", Cells(tree), *_levels(tree))


def _ragged_tree() -> Structure:
    ids = ["us", "a", "b", "c", "b1", "b2", "b21", "b22", "c1"]
    parents = ["", "us", "us", "us", "b", "b", "b2", "b2", "c"]
    tree = Tree.from_parents(ids, parents)
    return _structure("ragged tree", Cells(tree), *_levels(tree))


def _measured_twice() -> Structure:
    tree = _tree(1, 4)
    cells = Cells(tree)
    twice = (*_measured(*_levels(tree)), Measured("again", Margin("level1"), DiscreteLaplace(Fraction(1, 4))))
    return Structure("measured twice", Constraints(cells, _levels(tree)), twice)


def _skipped_level() -> Structure:
    tree = _tree(1, 3, 9)
    return _structure("tree with an unmeasured level", Cells(tree), Margin("level0"), Margin("level2"))


def _nested_attributes() -> Structure:
    cells = Cells(_tree(1, 2, 5), (SEX, AGE))
    margins = (
        Margin("level0"),
        Margin("level1", ("sex",)),
        Margin("level2", ("sex",)),
        Margin("level2", ("sex", "age")),
    )
    return _structure("tree of nested attributes", cells, *margins)


def _invariant_tree() -> Structure:
    tree = _tree(1, 3, 9)
    return _structure("tree with invariants", Cells(tree), Margin("level2"), invariants=(Margin("level1"),))


def _on_lattice(name: str, cells: Cells, *fixed: Margin) -> Structure:
    """Noise on the finest cells that keeps the invariants."""
    finest = cells.finest
    rows = np.vstack(
        [np.arange(cells.size(m))[:, None] == cells.groups(finest, m)[None, :] for m in fixed]
    ).astype(np.int64)
    law = LatticeLaplace(Fraction(1, 4)).on(Lattice.of(cells.n, rows))
    headers = (Measured("q", finest, law), *(Measured("invariant", m, Exact()) for m in fixed))
    return Structure(name, Constraints(cells, (finest,), invariants=fixed), headers)


def _lattice_tree() -> Structure:
    tree = _tree(1, 3, 9)
    return _on_lattice(
        "tree with noise that keeps invariants", Cells(tree), Margin("level0"), Margin("level1")
    )


def _lattice_table() -> Structure:
    cells = Cells(_tree(1), (SEX, AGE))
    fixed = (Margin("level0", ("sex",)), Margin("level0", ("age",)))
    return _on_lattice("two-way table with noise that keeps both margins", cells, *fixed)


def _zeros_tree() -> Structure:
    cells = Cells(_tree(1, 4), (SEX, AGE))
    margins = (Margin("level0"), Margin("level1", ("sex", "age")))
    return _structure("tree with structural zeros", cells, *margins, zeros=({"sex": "male", "age": "old"},))


def _bounded_tree() -> Structure:
    tree = _tree(1, 3, 9)
    bounds = (Bound(Margin("level1"), lower=0, upper=10**6), Bound(Margin("level2"), upper=10**6))
    return _structure("tree with bounds", Cells(tree), *_levels(tree), bounds=bounds)


def _two_way() -> Structure:
    cells = Cells(_tree(1), (SEX, AGE))
    return _structure(
        "two-way table", cells, *(Margin("level0", a) for a in [("sex",), ("age",), ("sex", "age")])
    )


def _two_way_fixed() -> Structure:
    cells = Cells(_tree(1), (SEX, AGE))
    fixed = (Margin("level0", ("sex",)), Margin("level0", ("age",)))
    return _structure(
        "two-way table with fixed margins", cells, Margin("level0", ("sex", "age")), invariants=fixed
    )


def _three_way() -> Structure:
    cells = Cells(_tree(1), (SEX, AGE, RACE))
    pairs = [("sex", "age"), ("sex", "race"), ("age", "race"), ("sex", "age", "race")]
    return _structure("three-way table", cells, *(Margin("level0", a) for a in pairs))


def _three_way_fixed() -> Structure:
    cells = Cells(_tree(1), (SEX, AGE, RACE))
    fixed = tuple(Margin("level0", a) for a in [("sex", "age"), ("sex", "race"), ("age", "race")])
    finest = Margin("level0", ("sex", "age", "race"))
    return _structure("three-way table with fixed margins", cells, finest, invariants=fixed)


def _histogram() -> Structure:
    cells = Cells(_tree(1, 2, 5), (SEX, AGE))
    kinds = [(), ("sex",), ("age",), ("sex", "age")]
    return _structure("histogram", cells, *(Margin(f"level{i}", a) for i in range(3) for a in kinds))


def _histogram_with_rules() -> Structure:
    cells = Cells(_tree(1, 2, 5), (SEX, AGE))
    kinds = [(), ("age",), ("sex", "age")]
    fixed = (Margin("level0"), Margin("level1", ("sex",)))
    noisy = (Margin(f"level{i}", a) for i in range(3) for a in kinds if (i, a) != (0, ()))
    return _structure(
        "histogram with invariants and zeros",
        cells,
        *noisy,
        invariants=fixed,
        zeros=({"sex": "male", "age": "old"},),
    )


def _bounded_histogram() -> Structure:
    cells = Cells(_tree(1, 2, 5), (SEX, AGE))
    kinds = [(), ("sex",), ("age",), ("sex", "age")]
    bounds = (Bound(Margin("level2", ("sex",)), upper=90), Bound(Margin("level1"), lower=1, upper=300))
    margins = (Margin(f"level{i}", a) for i in range(3) for a in kinds)
    return _structure("histogram with bounds", cells, *margins, bounds=bounds)


def _recoded_tree() -> Structure:
    cells = Cells(_tree(1, 2, 5), (RECODED, SEX))
    margins = (Margin("level1", ("grade",)), Margin("level2", ("age",)), Margin("level2", ("age", "sex")))
    return _structure("tree through a recode", cells, Margin("level0"), *margins)


def _recoded_histogram() -> Structure:
    cells = Cells(_tree(1, 2, 5), (RECODED, SEX))
    kinds = [(), ("grade",), ("grade", "sex"), ("end",), ("age", "sex")]
    return _structure(
        "histogram with recodes", cells, *(Margin(f"level{i}", a) for i in range(3) for a in kinds)
    )


def _recoded_histogram_with_rules() -> Structure:
    cells = Cells(_tree(1, 2, 5), (RECODED, SEX))
    kinds = [("sex",), ("end",), ("age", "sex")]
    return _structure(
        "histogram with recoded invariants and zeros",
        cells,
        *(Margin(f"level{i}", a) for i in range(3) for a in kinds),
        invariants=(Margin("level0", ("grade",)), Margin("level1")),
        zeros=({"grade": "child", "sex": "male"},),
    )


def _recoded_table() -> Structure:
    cells = Cells(_tree(1), (RECODED, SEX))
    kinds = [("grade",), ("end",), ("sex",), ("age", "sex")]
    return _structure("one table with recodes", cells, *(Margin("level0", a) for a in kinds))


def _two_way_zeros() -> Structure:
    cells = Cells(_tree(1), (SEX, AGE))
    fixed = (Margin("level0", ("sex",)), Margin("level0", ("age",)))
    zeros = ({"sex": "male", "age": "old"},)
    finest = Margin("level0", ("sex", "age"))
    return _structure(
        "two-way table with fixed margins and a zero", cells, finest, invariants=fixed, zeros=zeros
    )


def _overlapping_sums() -> Structure:
    cells = Cells(_tree(1, 3), (SEX, AGE))
    fixed = (Margin("level0", ("sex",)), Margin("level0", ("age",)), Margin("level1"))
    rules = (LinearRule(parse_linear("young + middle >= 0"), "level1"),)
    return _structure(
        "overlapping sums", cells, Margin("level1", ("sex", "age")), invariants=fixed, linear=rules
    )


def _linear() -> Structure:
    cells = Cells(_tree(1, 3), (Attribute("cell", ("under18", "over18")),))
    rules = (LinearRule(parse_linear("under18 <= 1000 + 2 * over18"), "level1"),)
    return _structure("linear inequality", cells, Margin("level1", ("cell",)), linear=rules)


class Linked(Structure):
    """Two tables: persons follow from households."""

    def true_counts(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw households, and as many persons as they hold."""
        joined, cells = self.constraints.joined, self.constraints.cells
        assert joined is not None
        homes = rng.poisson(rng.gamma(0.5, 4, (cells.shape[0], joined.households.size)))
        homes[:, (joined.determined.weights < 0).any(axis=0)] = 0
        others, children = joined.determined.held(homes).T
        return np.concatenate([children[:, None], others[:, None], homes], axis=1).ravel()


def _linked() -> Structure:
    levels = {"county": "1/2", "block": "1"}
    attributes = [
        {"name": "age", "values": ["child", "adult"]},
        {"name": "size", "persons": {}},
        {"name": "children", "persons": {"age": "child"}},
    ]
    queries = [
        gaussian("households", "household", ["size", "children"], levels),
        gaussian("persons", "person", ["age"], levels),
    ]
    few = {"unit": "household", "neighbours": "add-remove", "contribution": {"records": 2}}
    places = [{"name": "county"}, {"name": "block", "column": "block"}]
    given = problem(attribute=attributes, query=queries, privacy=few, level=places)
    return Linked("linked tables", given.constraints, given.headers)


FAMILY = (
    Margin("level1", ("sex",)),
    Margin("level0", ("age", "race")),
    Margin("level0", ("grade",)),
    Margin("level2"),
)
"""Places by sex, races by age, and places: of these tables no one holds the others."""


def _family() -> Structure:
    cells = family_of(Cells(_tree(1, 3, 7), (SEX, RECODED, RACE)), FAMILY)
    return _structure("family of tables", cells, *FAMILY)


def _family_with_rules() -> Structure:
    invariants, zeros = (Margin("level1"),), ({"age": "old", "race": "b"},)
    margins = (*FAMILY, *invariants)
    cells = family_of(Cells(_tree(1, 3, 7), (SEX, RECODED, RACE)), margins)
    return _structure("family with invariants and zeros", cells, *FAMILY, invariants=invariants, zeros=zeros)


BUILDERS: tuple[Callable[[], Structure], ...] = (
    _one_cell,
    _one_sum,
    _parts_only,
    _deep_tree,
    _ragged_tree,
    _measured_twice,
    _skipped_level,
    _nested_attributes,
    _invariant_tree,
    _lattice_tree,
    _lattice_table,
    _zeros_tree,
    _bounded_tree,
    _two_way,
    _two_way_fixed,
    _three_way,
    _three_way_fixed,
    _histogram,
    _histogram_with_rules,
    _bounded_histogram,
    _recoded_tree,
    _recoded_histogram,
    _recoded_histogram_with_rules,
    _recoded_table,
    _two_way_zeros,
    _overlapping_sums,
    _linear,
    _linked,
    _family,
    _family_with_rules,
)
STRUCTURES: tuple[Structure, ...] = tuple(build() for build in BUILDERS)
