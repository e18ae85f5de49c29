"""The smallest integer change that involves a given cell and keeps a set of sums.

For a cell c, all `v` with `A v = 0`, `v[c] > 0` and the least L1 norm, by depth-first search. From `u = e_c` the search
takes a sum that `u` changes and adds a unit to one of its cells with the sign that mends it.

Nothing is missed. Let v be a smallest vector and `u` conformal to it (every entry of u between 0 and that of v), `u[c] > 0`.
If `A u = 0` then u = v, else u would be smaller. If u changes the sum a, then `a (v - u) = -a u` is not zero, so some
entry of `v - u` mends a, and adding its unit keeps u conformal. So a path leads to v, whichever changed sum is taken.

Pruned is what cannot be mended in time: where sums are over disjoint cells, a unit mends one of them by at most their
largest coefficient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trueup.kernel.lattice.algebra import Matrix

Vector = tuple[tuple[int, int], ...]
"""A sparse integer vector: `(cell, value)`, cells ascending."""


class Exhausted(Exception):
    """The error of a search that needed more steps than allowed."""


@dataclass
class Search:
    """Searches for small lattice vectors of one matrix, with a common limit of steps.

    Parameters
    ----------
    matrix
        The sums that are kept, `(m, n)` integers.
    steps
        Partial vectors that all searches together may visit.

    Examples
    --------
    >>> both = np.vstack([np.kron(np.eye(3, dtype=int), [1, 1, 1]), np.kron([1, 1, 1], np.eye(3, dtype=int))])
    >>> vectors = Search(both).through(0)
    >>> len(vectors), norm(vectors[0])
    (4, 4)
    """

    matrix: Matrix
    steps: int = 200_000

    def __post_init__(self) -> None:
        matrix = np.unique(self.matrix, axis=0)
        self._columns = [[(int(i), int(a[i])) for i in np.flatnonzero(a)] for a in matrix.T]
        self._rows = [[(int(j), int(a[j])) for j in np.flatnonzero(a)] for a in matrix]
        self._family, largest = _families(matrix)
        self._scales = largest

    def through(self, cell: int, *, every: bool = True, longest: int = 16) -> list[Vector]:
        """Return all smallest vectors that involve a cell, or only one of them.

        Empty where the least norm exceeds `longest`.

        Raises
        ------
        Exhausted
            If the steps are used up.
        """
        for limit in range(1, longest + 1):
            found = self.within(cell, limit, every=every)
            if found:
                return found
        return []

    def within(self, cell: int, limit: int, *, every: bool = True) -> list[Vector]:
        """Return vectors of L1 norm up to `limit` that involve a cell, if no such vector is shorter."""
        found = []
        for vector in self._descend(cell, limit):
            found.append(vector)
            if not every:
                break
        return found

    def _descend(self, cell: int, limit: int) -> Iterator[Vector]:
        start: Vector = ((cell, 1),)
        seen: set[Vector] = {start}
        stack: list[tuple[Vector, dict[int, int], int]] = [(start, dict(self._columns[cell]), 1)]
        while stack:
            vector, changed, norm = stack.pop()
            if not changed:
                yield vector
                continue
            if norm == limit:
                continue
            self.steps -= 1
            if self.steps < 0:
                raise Exhausted
            for column, sign in self._mending(changed, dict(vector)):
                rest = self._changed(changed, column, sign)
                if self._least(rest) > limit - norm - 1:
                    continue
                grown = _added(vector, column, sign)
                if grown not in seen:
                    seen.add(grown)
                    stack.append((grown, rest, norm + 1))

    def _mending(self, changed: dict[int, int], held: dict[int, int]) -> Iterator[tuple[int, int]]:
        """Yield the unit changes that bring the changed sum with the fewest cells closer to 0, and reverse no earlier change."""
        row = min(changed, key=lambda i: len(self._rows[i]))
        excess = changed[row]
        for column, coefficient in self._rows[row]:
            sign = -1 if (excess > 0) == (coefficient > 0) else 1
            if held.get(column, 0) * sign >= 0:
                yield column, sign

    def _changed(self, changed: dict[int, int], column: int, sign: int) -> dict[int, int]:
        rest = dict(changed)
        for row, coefficient in self._columns[column]:
            value = rest.pop(row, 0) + sign * coefficient
            if value:
                rest[row] = value
        return rest

    def _least(self, changed: dict[int, int]) -> int:
        """Return a lower bound on the number of unit changes that repair all changed sums."""
        needed: dict[int, int] = {}
        for row, value in changed.items():
            family = self._family[row]
            needed[family] = needed.get(family, 0) + abs(value)
        return max((-(-total // self._scales[f]) for f, total in needed.items()), default=0)


def norm(vector: Vector) -> int:
    """Return the L1 norm of a sparse vector."""
    return sum(abs(value) for _, value in vector)


def _added(vector: Vector, column: int, sign: int) -> Vector:
    held = dict(vector)
    held[column] = held.get(column, 0) + sign
    return tuple(sorted(held.items()))


def _families(matrix: Matrix) -> tuple[list[int], list[int]]:
    """Group sums greedily into families without shared cells; also return their largest coefficients."""
    taken: list[np.ndarray] = []
    scales: list[int] = []
    family = []
    for row in matrix:
        cells, largest = row != 0, int(np.abs(row).max(initial=0))
        home = next((f for f, held in enumerate(taken) if not (held & cells).any()), len(taken))
        if home == len(taken):
            taken.append(np.zeros(len(row), bool))
            scales.append(0)
        taken[home] |= cells
        scales[home] = max(scales[home], largest)
        family.append(home)
    return family, scales
