"""Draws of a posterior stored by parts, which are read one file at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError
from trueup.files.database import connect_to_files, parquet, quiet_duckdb, quoted
from trueup.io.bundle.manifest import digest
from trueup.io.bundle.strict import KINDS, columns_of
from trueup.model.cells import Cells

Integers = NDArray[np.int64]
LARGEST_COUNT = 1 << 53
"""Absolute values of drawn counts are below this, so that sums stay exact."""
MOST_ROWS = 1 << 28
"""Largest number of rows in a file of draws."""


@dataclass(frozen=True, eq=False)
class DrawsInParts:
    """Draws `(1, draws, n)` of a posterior in several files, each with some of the cells.

    Attributes
    ----------
    folder, files
        Folder of the files, and the digest of each file by name.
    cells
        The finest cells.
    draws
        Number of draws of each cell.
    """

    folder: Path
    files: dict[str, str]
    cells: Cells
    draws: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the numbers of chains, draws and cells."""
        return (1, self.draws, self.cells.n)

    @property
    def size(self) -> int:
        """Return the number of drawn counts: draws times cells."""
        return prod(self.shape)

    def whole(self) -> Integers:
        """Return the draws `(1, draws, n)` of all cells, read from every file."""
        found, seen = np.zeros(self.shape[1:], np.int64), 0
        for rows, cells, counts in self._parts(np.ones(self.cells.shape[0], bool)):
            found[rows, cells] = counts
            seen += counts.size
        if seen != found.size:
            raise _damaged(self.folder.name, "holds other draws than its manifest says")
        return found[None]

    def sums(self, leaf: Integers, edges: Integers, kept: NDArray[np.bool_]) -> Integers:
        """Return draws `(1, draws, k)` of sums over groups of places and over some of their cells.

        Group `i` is `leaf[edges[i]:edges[i + 1]]`. Only keys are read from files that hold none of these places.
        """
        order, group = np.argsort(leaf, kind="stable"), np.repeat(np.arange(len(edges) - 1), np.diff(edges))
        leaf, group, found = leaf[order], group[order], np.zeros((self.draws, len(edges) - 1), np.int64)
        asked, seen = np.isin(np.arange(self.cells.shape[0]), leaf), 0
        for rows, cells, counts in self._parts(asked):
            places, column = np.divmod(cells, kept.size)
            first, last = (np.searchsorted(leaf, places, side) for side in ("left", "right"))
            pairs = np.where(kept[column], last - first, 0)
            inside = np.repeat(np.arange(len(cells)), pairs)
            at = np.arange(pairs.sum()) - np.repeat(np.cumsum(pairs) - pairs, pairs) + first[inside]
            sums = np.zeros((found.shape[1], counts.shape[0]), np.int64)
            np.add.at(sums, group[at], counts.T[inside])
            found[rows] += sums.T
            seen += int(asked[places].sum()) * counts.shape[0]
        if seen != int(asked.sum()) * kept.size * self.draws:
            raise _damaged(self.folder.name, "holds other draws than its manifest says")
        return found[None]

    def _parts(self, asked: NDArray[np.bool_]) -> Iterator[tuple[slice, Integers, Integers]]:
        """Yield each file with a requested place: its slice of draws, its cells, and its counts."""
        for name, written in self.files.items():
            path = self.folder / name
            if not path.is_file() or digest(path) != written:
                raise _damaged(name, "is missing or not the file that was written")
            with connect_to_files([path], threads=1) as connection, quiet_duckdb(f"'{path.name}'"):
                cells, first = self._cells(connection, path)
                if not asked[cells // (self.cells.n // self.cells.shape[0])].any():
                    continue
                query = f'SELECT draw::BIGINT AS draw, "count"::BIGINT AS n FROM {parquet([path])}'
                held = connection.execute(query).fetchnumpy()
            draw, counts = (np.asarray(held[column]) for column in ("draw", "n"))
            several, odd = divmod(len(counts), len(cells))
            if odd or not np.array_equal(draw, np.repeat(np.arange(first, first + several), len(cells))):
                raise _damaged(name, "does not hold draw after draw of the same cells")
            if (
                np.ma.is_masked(held["n"])
                or np.abs(counts).max() >= LARGEST_COUNT
                or first + several > self.draws
            ):
                raise _damaged(name, "holds counts or draws that were not written")
            yield slice(first, first + several), cells, counts.reshape(several, -1)

    def _cells(self, connection: Any, path: Path) -> tuple[Integers, int]:
        """Return the cells in one file of draws, in the order of rows, and the number of its first draw."""
        keys, names = list(self.cells.tree.keys[-1]), [a.name for a in self.cells.attributes]
        kinds = columns_of(connection, [path])
        if any(kinds.get(column) not in KINDS["whole"] for column in ("draw", "count")):
            raise _damaged(path.name, "has no columns 'draw' and 'count' of whole numbers")
        if missing := next((key for key in (*keys, *names) if key not in kinds), None):
            raise _damaged(path.name, f"has no column '{missing}'")
        table = parquet([path])
        rows, first = connection.execute(f"SELECT count(*), min(draw) FROM {table}").fetchone()
        if not 0 < rows <= MOST_ROWS or first is None or first < 0:
            raise _damaged(path.name, "holds no draws, or too many")
        columns = ", ".join(f"{quoted(key)}::VARCHAR AS {quoted(key)}" for key in (*keys, *names))
        held = connection.execute(f"SELECT {columns} FROM {table} WHERE draw = {int(first)}").fetchnumpy()
        place = _positions(zip(*(held[key].tolist() for key in keys)), self._known)
        for attribute in self.cells.attributes:
            known = {value: k for k, value in enumerate(attribute.values)}
            place = place * attribute.size + _positions(held[attribute.name].tolist(), known)
        if (place < 0).any() or len(np.unique(place)) < len(place):
            raise _damaged(path.name, "names cells that the posterior does not have, or one twice")
        return place, int(first)

    @cached_property
    def _known(self) -> dict[tuple[str, ...], int]:
        keys = (column.astype(str).tolist() for column in self.cells.tree.keys[-1].values())
        return {key: at for at, key in enumerate(zip(*keys))}


def _positions(keys: Iterable[Any], known: Mapping[Any, int]) -> Integers:
    """Return the position of each key; a large negative number if it is not known."""
    return np.array([known.get(key, -(1 << 40)) for key in keys], np.int64)


def _damaged(name: str, how: str) -> BundleError:
    return BundleError(f"'{name}' {how}", remedy="infer again, or restore the folder from a copy")
