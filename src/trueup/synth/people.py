"""Made-up inhabitants of a region, with shares of attribute values that vary by place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Attribute, Cells
from trueup.model.joined import ROOT
from trueup.model.reading import plain_attribute
from trueup.model.spec import Spec
from trueup.model.spec_table import AttributePart, JoinPart
from trueup.model.stacking import REFERENCE
from trueup.synth.places import PlaceBranch

QUARTERS = "hhgq"
"""The attribute whose values but the first are kinds of group quarters: found in few places, where most are of one kind."""
KNOWN_SHARES = {
    "hhgq": (0.9751, 0.0060, 0.0002, 0.0049, 0.0002, 0.0084, 0.0010, 0.0042),
    "votingage": (0.221, 0.779),
    "hispanic": (0.813, 0.187),
    "cenrace": (0.616, 0.124, 0.011, 0.060, 0.002, 0.084),
    "race": (0.637, 0.122, 0.163, 0.007, 0.047, 0.002, 0.002, 0.020),
    "sex": (0.509, 0.491),
}
"""Rough shares of the United States in 2020 (`race`, with Hispanics as one: 2010); what they leave, further values share by
`1 / rank`."""
STEADY_REGION, STEADY, STEADY_LAST = 1000.0, 80.0, 8.0
"""Concentrations of the Dirichlet laws of a region's shares about the nation's, of a place's about its parent's."""
SHARE_IN_QUARTERS = 0.9
"""Share of a place with group quarters that lives in them."""
MAX_PROBABILITY_ENTRIES = 2**21  # of a table of probabilities in memory


class Sparse(NamedTuple):
    """Occupied cells: the place within the region, the cell within the place, and the count."""

    leaf: NDArray[np.int32]
    cell: NDArray[np.int32]
    count: NDArray[np.int64]


@dataclass(frozen=True)
class PeopleDomain:
    """The attributes of a spec, with the shares of values from which inhabitants are drawn.

    Attributes
    ----------
    sizes
        Number of values of every attribute.
    shares
        The nation's shares of the values of each.
    quarters
        Number of the attribute that holds group quarters, or None.
    allowed
        `sizes`: which combinations units can have.
    """

    sizes: tuple[int, ...]
    shares: tuple[NDArray[np.float64], ...]
    quarters: int | None
    allowed: NDArray[np.bool_]

    @classmethod
    def of(cls, cells: Cells, zeros: Sequence[Mapping[str, str]]) -> PeopleDomain:
        """Return the domain of a spec's attributes, with shares of their values.

        Raises
        ------
        SpecError
            If structural zeros leave nothing to those outside of group quarters.
        """
        names = [a.name.casefold() for a in cells.attributes]
        sizes = tuple(a.size for a in cells.attributes)
        allowed = ~np.any([cells.where(zero)[0] for zero in zeros], axis=0) if zeros else np.ones(sizes, bool)
        at = names.index(QUARTERS) if QUARTERS in names and sizes[names.index(QUARTERS)] > 1 else None
        domain = cls(sizes, tuple(map(_shares, names, sizes)), at, allowed)
        if not domain.outside.any():
            raise SpecError(
                "the structural zeros exclude every combination of attribute values",
                needed="at least one combination that units can have",
            )
        return domain

    @property
    def outside(self) -> NDArray[np.bool_]:
        """Return a flat mask of other attributes' combinations that can occur outside group quarters."""
        return (self.allowed if self.quarters is None else self.allowed.take(0, self.quarters)).ravel()

    @property
    def others(self) -> list[int]:
        """Return the positions of the attributes other than group quarters."""
        return [axis for axis in range(len(self.sizes)) if axis != self.quarters]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Return a flat array: the cell outside group quarters of every combination of other attributes."""
        cells = np.arange(prod(self.sizes)).reshape(self.sizes)
        return (cells if self.quarters is None else cells.take(0, self.quarters)).ravel()

    @property
    def stride(self) -> int:
        """Return the distance between the cells of successive kinds of group quarters."""
        return 0 if self.quarters is None else prod(self.sizes[self.quarters + 1 :])


def _shares(name: str, size: int) -> NDArray[np.float64]:
    known = np.array(KNOWN_SHARES.get(name, ())[:size])
    rest = 1 / np.arange(1, size - known.size + 1)
    left = max(1 - known.sum(), 0.0)
    shares = np.concatenate([known, left * rest / rest.sum()])
    return shares / shares.sum()


def populate(
    domain: PeopleDomain, branch: PlaceBranch, persons: int, rng: np.random.Generator, *, even: float = 0.0
) -> Iterator[Sparse]:
    """Yield the occupied cells of a region's inhabitants, drawn in batches of places.

    The shares of each attribute at a place are Dirichlet about those of its parent, so that neighbours are alike; in the
    last level a part of each share, `even`, is the parent's own. A place's units are multinomial, and the total of the
    region is met exactly.
    """
    units = rng.multinomial(persons, branch.weights / branch.weights.sum())
    shares = [_drifted(domain.shares[a][None], STEADY_REGION, rng) for a in domain.others]
    for parent in branch.parents[:-1]:
        shares = [_drifted(s[parent], STEADY, rng) for s in shares]
    kinds = _kinds_of_quarters(domain, units, rng)
    parent = branch.parents[-1] if branch.parents else np.zeros(1, np.int64)
    lived_in = np.flatnonzero(units)
    rows = max(1, MAX_PROBABILITY_ENTRIES // domain.outside.size)
    for start in range(0, lived_in.size, rows):
        leaf = lived_in[start : start + rows]
        near = [s[parent[leaf]] for s in shares]
        own = [even * s + (1 - even) * _drifted(s, STEADY_LAST, rng) for s in near]
        yield _cells_of(domain, leaf, units[leaf], kinds[leaf], own, rng)


def _drifted(shares: NDArray, steady: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a Dirichlet draw for each row of shares, with the given shares as its mean."""
    drawn = rng.standard_gamma(steady * shares) + 1e-12 * shares  # all may be zero in double precision
    return drawn / drawn.sum(axis=1, keepdims=True)


def _kinds_of_quarters(domain: PeopleDomain, units: NDArray, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the kind of group quarters at every place `(places,)`, 0 where there are none."""
    kinds = np.zeros(units.size, np.int64)
    if domain.quarters is None:
        return kinds
    shares = domain.shares[domain.quarters]
    lived_in = np.flatnonzero(units)
    order = lived_in[np.argsort(rng.standard_exponential(lived_in.size) / units[lived_in])]
    wanted = (1 - shares[0]) * units.sum() / SHARE_IN_QUARTERS
    some = order[: np.searchsorted(units[order].cumsum(), wanted)]
    kinds[some] = rng.choice(np.arange(1, shares.size), some.size, p=shares[1:] / shares[1:].sum())
    return kinds


def _cells_of(
    domain: PeopleDomain,
    leaf: NDArray[np.int64],
    units: NDArray[np.int64],
    kinds: NDArray[np.int64],
    shares: list[NDArray],
    rng: np.random.Generator,
) -> Sparse:
    joint = np.ones((leaf.size, 1))
    for s in shares:
        joint = (joint[:, :, None] * s[:, None, :]).reshape(leaf.size, -1)
    joint = np.where(domain.outside, joint + 1e-15, 0)  # what is left may all be forbidden
    counts = rng.multinomial(units, joint / joint.sum(axis=1, keepdims=True))
    row, other = np.nonzero(counts)
    count, cell = counts[row, other], domain.offsets[other]
    inside = cell + kinds[row] * domain.stride
    moved = np.where(
        domain.allowed.ravel()[inside] & (kinds[row] > 0), rng.binomial(count, SHARE_IN_QUARTERS), 0
    )
    return _stacked(leaf[row], cell, inside, count - moved, moved)


def _stacked(leaf: NDArray, cell: NDArray, inside: NDArray, outside: NDArray, moved: NDArray) -> Sparse:
    leaf, cell = np.concatenate([leaf, leaf]), np.concatenate([cell, inside])
    count = np.concatenate([outside, moved])
    held = np.flatnonzero(count)
    held = held[np.lexsort((cell[held], leaf[held]))]
    return Sparse(leaf[held].astype(np.int32), cell[held].astype(np.int32), count[held])


SIZES = np.array(
    [0.277, 0.345, 0.155, 0.126, 0.058, 0.023, 0.009, 0.004, 0.0015, 0.0008, 0.0004, 0.0002, 0.0001]
)
"""Rough shares of households of 1, 2, ... persons in the United States in 2020; the last are larger than most specs keep."""
COUNTED_PROBABILITY = 0.3
"""Chance that somebody else than the reference person has values that some number of persons counts, such as a child's age."""
Rows = dict[str, NDArray]


@dataclass(frozen=True)
class Households:
    """The attributes of linked tables of households and persons, from which both tables are drawn."""

    spec: Spec
    join: JoinPart

    @classmethod
    def of(cls, spec: Spec) -> Households | None:
        """Return the attributes of a spec's two linked tables, or None if the spec has only one table."""
        return cls(spec, spec.table.join) if spec.table.join is not None else None

    def parts(self, *of: str | None) -> list[AttributePart]:
        """Return the declared attributes that are columns of the given tables."""
        return [p for p in self.join.attributes if p.of in of and p.persons is None]

    @cached_property
    def domain(self) -> PeopleDomain:
        """Return the attributes of households as a domain, from which households are drawn."""
        held = tuple(map(plain_attribute, self.parts(self.join.counts))) or (Attribute("none", ("",)),)
        return PeopleDomain.of(Cells(ROOT, held), ())

    def draw(
        self, branch: PlaceBranch, persons: int, code: str, rng: np.random.Generator
    ) -> Iterator[tuple[Rows, Rows]]:
        """Yield rows of households and rows of their persons, in batches."""
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
        """Return values of an attribute for all persons, with the reference persons' own shares of values."""
        wanted = self._counted(part)
        shares = PeopleDomain.of(Cells(ROOT, (plain_attribute(part),)), ()).shares[0].copy()
        others = shares.copy()
        if 0 < wanted.sum() < wanted.size:
            shares[wanted], shares[~wanted] = 0, shares[~wanted] / shares[~wanted].sum()
            others[wanted] *= COUNTED_PROBABILITY / others[wanted].sum()
            others[~wanted] *= (1 - COUNTED_PROBABILITY) / others[~wanted].sum()
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
