"""Made-up households with the persons who live in them: two linked tables of records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Attribute, Cells
from trueup.model.joined import ROOT, plain_attribute
from trueup.model.spec import Spec
from trueup.model.spec_table import AttributePart, JoinPart
from trueup.model.stacking import REFERENCE
from trueup.synth.people import PeopleDomain, populate
from trueup.synth.places import PlaceBranch

SIZES = np.array(
    [0.277, 0.345, 0.155, 0.126, 0.058, 0.023, 0.009, 0.004, 0.0015, 0.0008, 0.0004, 0.0002, 0.0001]
)
"""Rough shares of households of 1, 2, ... persons in the United States in 2020; the last are larger than most specs keep."""
COUNTED = 0.3
"""Chance that somebody else than the reference person has values that some number of persons counts, such as a child's age."""
Rows = dict[str, NDArray]


@dataclass(frozen=True)
class Households:
    """The attributes of a spec's two tables."""

    spec: Spec
    join: JoinPart

    @classmethod
    def of(cls, spec: Spec) -> Households | None:
        """Return the two tables of a spec, or None if it has one."""
        return cls(spec, spec.table.join) if spec.table.join is not None else None

    def parts(self, *of: str | None) -> list[AttributePart]:
        """Return the declared attributes that are columns of a table, without counts of persons."""
        return [p for p in self.join.attributes if p.of in of and p.persons is None]

    @cached_property
    def domain(self) -> PeopleDomain:
        """Return the attributes of households in the form of the generator of people."""
        held = tuple(map(plain_attribute, self.parts(self.join.counts))) or (Attribute("none", ("",)),)
        return PeopleDomain.of(Cells(ROOT, held), ())

    def draw(
        self, branch: PlaceBranch, persons: int, code: str, rng: np.random.Generator
    ) -> Iterator[tuple[Rows, Rows]]:
        """Yield households and persons, in parts: `leaf` is the place, `number` the household within the region."""
        sizes = SIZES / SIZES.sum()
        mean, start = float(sizes @ np.arange(1, sizes.size + 1)), 0
        for sparse in populate(self.domain, branch, max(1, round(persons / mean)), rng):
            leaf, cell = (np.repeat(x, sparse.count) for x in (sparse.leaf, sparse.cell))
            size = rng.choice(np.arange(1, sizes.size + 1), leaf.size, p=sizes)
            number = np.array([f"{code}-{i:08d}" for i in range(start, start + leaf.size)])
            start += leaf.size
            yield self._households(leaf, cell, number), self._persons(np.repeat(number, size), size, rng)

    def _households(self, leaf: NDArray, cell: NDArray, number: NDArray) -> Rows:
        values = np.unravel_index(cell, self.domain.sizes)
        parts = self.parts(self.join.counts)
        held = {p.column or p.name: np.array(p.values)[v] for p, v in zip(parts, values)}
        order = np.argsort(number)
        return {name: column[order] for name, column in {"leaf": leaf, self.join.id: number, **held}.items()}

    def _persons(self, number: NDArray, size: NDArray, rng: np.random.Generator) -> Rows:
        first = np.zeros(number.size, bool)
        first[np.append(0, np.cumsum(size))[:-1]] = True
        rows = {self.join.id: number}
        for part in self.parts(self.spec.table.counts):
            rows[part.column or part.name] = self._values(part, first, rng)
        for part in self.parts(REFERENCE):
            column = part.column or part.name
            if column not in rows:
                rows[column] = np.array(part.values)[rng.integers(0, len(part.values), number.size)]
        if self.join.reference is not None:
            rows[self.join.reference.column] = np.where(first, self.join.reference.value, "other")
        order = rng.permutation(number.size)
        return {name: column[order] for name, column in rows.items()}

    def _values(self, part: AttributePart, first: NDArray[np.bool_], rng: np.random.Generator) -> NDArray:
        """Return values of one attribute; a reference person has no counted value unless all are counted."""
        wanted = self._counted(part)
        shares = PeopleDomain.of(Cells(ROOT, (plain_attribute(part),)), ()).shares[0].copy()
        others = shares.copy()
        if 0 < wanted.sum() < wanted.size:
            shares[wanted], shares[~wanted] = 0, shares[~wanted] / shares[~wanted].sum()
            others[wanted] *= COUNTED / others[wanted].sum()
            others[~wanted] *= (1 - COUNTED) / others[~wanted].sum()
        at = np.where(first, *(rng.choice(len(shares), first.size, p=p / p.sum()) for p in (shares, others)))
        return np.array(part.values)[at]

    def _counted(self, part: AttributePart) -> NDArray[np.bool_]:
        found = np.zeros(len(part.values), bool)
        for count in self.join.attributes:
            for name, values in (count.persons or {}).items():
                wanted = [values] if isinstance(values, str) else values
                views = [r for r in plain_attribute(part).views if r.name == name]
                found |= np.array(
                    [
                        any(r.values[g] in wanted for r in views for g in (r.groups[i],))
                        for i in range(found.size)
                    ]
                )
        return found
