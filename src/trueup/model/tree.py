"""Places in a hierarchy, such as nation / state / county."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, SpecError
from trueup.files.values import encoded
from trueup.model.place_keys import (
    Keys,
    first_rows,
    full_keys,
    key_text,
    keys_at,
    keys_down_to,
    paths_of,
    refuse_same_place,
    refuse_two_limits,
    refuse_two_parents,
    row_count,
    tree_pointers,
)


@dataclass(frozen=True, eq=False)
class Tree:
    """A hierarchy of places by level, in which siblings are consecutive.

    Every place has children down to the last level. A ragged hierarchy is padded: a place without
    children stands for itself on the levels below, so that each level partitions all the units.

    Attributes
    ----------
    levels
        Names of the levels, root first.
    child_ptr
        `(nodes + 1,)`: node `v` has the children `child_ptr[v]:child_ptr[v + 1]`.
    level_ptr
        `(levels + 1,)`: level `l` holds the nodes `level_ptr[l]:level_ptr[l + 1]`.
    keys
        For each level its key columns, one value per node. Empty where places have no names.
    names
        For each level a readable name per node, or None.
    limits
        For each level public whole numbers that bounds name, one per node; -1 where a node has none.

    Examples
    --------
    >>> tree = Tree.from_columns(["nation", "state", "county"],
    ...     [{}, {"state": ["02", "01", "01"]}, {"county": ["001", "003", "001"]}])
    >>> tree.sizes, tree.label("county", 1)
    ((1, 2, 3), '01/003')
    """

    levels: tuple[str, ...]
    child_ptr: NDArray[np.int64]
    level_ptr: NDArray[np.int64]
    keys: tuple[Keys, ...] = ()
    names: tuple[NDArray | None, ...] = field(default=())
    limits: tuple[Keys, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the places with their keys and limits."""
        whole = hashlib.sha256("|".join(self.levels).encode())
        whole.update(np.ascontiguousarray(self.child_ptr, dtype="<i8").tobytes())
        for name, column in (item for keys in self.keys for item in keys.items()):
            whole.update(name.encode())
            whole.update(encoded(column))
        for name, column in (item for limits in self.limits for item in limits.items()):
            whole.update(name.encode())
            kind = "<f8" if column.dtype.kind == "f" else "<i8"
            whole.update(np.ascontiguousarray(column, dtype=kind).tobytes())
        return whole.hexdigest()

    @classmethod
    def from_columns(
        cls,
        levels: Sequence[str],
        columns: Sequence[Mapping[str, Sequence | NDArray]],
        *,
        whole_code: Sequence[bool] | None = None,
        names: Sequence[Sequence | NDArray | None] | None = None,
        limits: Sequence[Mapping[str, NDArray]] = (),
        where: Callable[[int], str] = lambda at: f"row {at + 1}",
    ) -> Tree:
        """Build a tree from a list with one row for each place of the last level.

        Parameters
        ----------
        levels
            Names of the levels, root first.
        columns
            For each level the columns that it adds to its parent's key (none for the root).
        whole_code
            For each level, whether its columns alone name a place (a GEOID prefix does, a county
            number within a state does not).
        names
            For each level a column of readable names, or None.
        limits
            For each level columns of whole numbers, -1 where there is none, each constant within a place.
        where
            Says where the row of a position (from 0) stands.

        Raises
        ------
        DataError
            If a place is listed twice or has two limits, or a whole code has two parents.
        """
        whole = whole_code or [False] * len(levels)
        keys = full_keys(columns, whole)
        rows = row_count(columns)
        if not rows:
            raise DataError("the geography lists no place", needed="at least one place")
        least_first = keys_down_to(keys)[-1][::-1]
        order = np.lexsort(least_first) if least_first else np.arange(1)
        if (np.diff(order) < 0).any():  # else they are sorted, and a copy of a nation's keys takes gigabytes
            keys = [{name: col[order] for name, col in level.items()} for level in keys]
        starts = [first_rows(level, rows) for level in keys_down_to(keys)]
        tree = cls(
            tuple(levels), *tree_pointers(starts, rows), tuple(keys_at(k, s) for k, s in zip(keys, starts))
        )
        refuse_same_place(tree.levels[-1], starts[-1], order, where, tree.label)
        for level, is_whole in enumerate(whole):
            above = keys[level - 1].values() if level else ()
            inherited = above and all(any(col is own for own in keys[level].values()) for col in above)
            if is_whole and tree.keys[level] and not inherited:
                refuse_two_parents(tree.levels, level, tree.keys[level], tree.label)
        readable = [
            None if col is None else np.asarray(col)[order][s]
            for col, s in zip(names or [None] * len(levels), starts)
        ]
        held = [{name: col[order] for name, col in level.items()} for level in limits]
        for level, columns_held in enumerate(held):
            refuse_two_limits(tree.levels, level, columns_held, starts[level], tree.label)
        return replace(
            tree, names=tuple(readable), limits=tuple(keys_at(level, s) for level, s in zip(held, starts))
        )

    @classmethod
    def from_parents(
        cls, ids: Sequence | NDArray, parents: Sequence | NDArray, levels: Sequence[str] | None = None
    ) -> Tree:
        """Build a tree from parent pointers; the parent of the root is empty or None.

        Raises
        ------
        DataError
            If an id is missing, listed twice, its own ancestor, has an unknown parent, or if
            there is not exactly one root.

        Examples
        --------
        >>> tree = Tree.from_parents(["us", "a", "b", "a1", "a2"], ["", "us", "us", "a", "a"])
        >>> tree.levels, tree.sizes, tree.label("level 2", 2)
        (('level 0', 'level 1', 'level 2'), (1, 2, 3), 'b')
        """
        paths = paths_of(key_text(ids, "id"), key_text(parents, "parent", blank=True))
        depth = paths.shape[1]
        if levels is not None and len(levels) != depth:
            raise DataError(
                f"the hierarchy has {depth} levels, but {len(levels)} names of levels are given",
                remedy="name every level, the root first",
                needed="one name for each level",
            )
        named = list(levels or (f"level {d}" for d in range(depth)))
        columns = [{"id": paths[:, d]} for d in range(depth)]
        return cls.from_columns(named, columns, whole_code=[True] * depth)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of places at each level."""
        return tuple(int(size) for size in np.diff(self.level_ptr))

    def level(self, name: str) -> int:
        """Return the position of a level by its name; raise SpecError if there is none."""
        if name not in self.levels:
            raise SpecError(f"there is no level '{name}'", needed=f"one of {', '.join(self.levels)}")
        return self.levels.index(name)

    @cached_property
    def parents(self) -> NDArray[np.int64]:
        """Return the parent of every node; -1 for a root."""
        parents = np.repeat(np.arange(len(self.child_ptr) - 1), np.diff(self.child_ptr))
        return np.concatenate([np.full(self.level_ptr[1], -1), parents])

    def ancestors(self, fine: int, coarse: int) -> NDArray[np.int64]:
        """Return, for every place of level `fine`, the position of its ancestor on level `coarse`."""
        places = np.arange(self.level_ptr[fine], self.level_ptr[fine + 1])
        for _ in range(fine - coarse):
            places = self.parents[places]
        return places - self.level_ptr[coarse]

    @cached_property
    def alone(self) -> tuple[NDArray[np.int8], ...]:
        """Return, for every place, the highest level at which its ancestor contains no other place of the same level.

        Examples
        --------
        >>> tree = Tree.from_columns(["all", "state", "county"], [{}, {"state": list("aab")}, {"county": list("121")}])
        >>> [tops.tolist() for tops in tree.alone]
        [[0], [1, 1], [2, 2, 1]]
        """
        return tuple(self._alone(level) for level in range(len(self.levels)))

    def _alone(self, level: int) -> NDArray[np.int8]:
        tops = np.full(self.sizes[level], level, np.int8)
        for above in range(level - 1, -1, -1):
            holder = self.ancestors(level, above)
            single = np.bincount(holder, minlength=self.sizes[above])[holder] == 1
            tops[single & (tops == above + 1)] = above
        return tops

    def leaf_ptr(self, level: int) -> NDArray[np.int64]:
        """Return pointers `(size + 1,)`: place `i` of a level contains the leaves `leaf_ptr[i]:leaf_ptr[i + 1]`."""
        return self.starts(level, len(self.levels) - 1)

    def starts(self, coarse: int, fine: int) -> NDArray[np.int64]:
        """Return pointers `(size + 1,)` to the first descendant on level `fine` of each place of level `coarse`."""
        edges = np.arange(self.level_ptr[coarse], self.level_ptr[coarse + 1] + 1)
        for _ in range(fine - coarse):
            edges = self.child_ptr[edges]
        return edges - self.level_ptr[fine]

    def branch(self, top: int, first: int, last: int, bottom: int) -> Tree:
        """Return the places `first:last` of level `top` with all places below them down to level `bottom`.

        Examples
        --------
        >>> tree = Tree.from_columns(["all", "area", "block"],
        ...     [{}, {"area": ["a", "a", "b", "b"]}, {"block": ["1", "2", "1", "2"]}])
        >>> branch = tree.branch(1, 1, 2, 2)
        >>> branch.sizes, branch.label("block", 0)
        ((1, 2), 'b/1')
        """
        within = [slice(*self.starts(top, level)[[first, last]].tolist()) for level in range(top, bottom + 1)]
        sizes = [s.stop - s.start for s in within]
        counts = [
            np.diff(self.child_ptr[self.level_ptr[level] + s.start : self.level_ptr[level] + s.stop + 1])
            for level, s in enumerate(within[:-1], top)
        ]
        counts.append(np.zeros(sizes[-1], dtype=np.int64))
        return Tree(
            self.levels[top : bottom + 1],
            sizes[0] + np.append(0, np.cumsum(np.concatenate(counts))),
            np.append(0, np.cumsum(sizes)),
            tuple({k: col[s] for k, col in keys.items()} for keys, s in zip(self.keys[top:], within)),
            tuple(None if col is None else col[s] for col, s in zip(self.names[top:], within)),
            tuple({k: col[s] for k, col in held.items()} for held, s in zip(self.limits[top:], within)),
        )

    def only(self, level: int, places: NDArray[np.int64]) -> tuple[Tree, NDArray[np.int64]]:
        """Return the tree of some places of a level with all places below and above them, and the kept leaves.

        Examples
        --------
        >>> tree = Tree.from_columns(["all", "area", "block"],
        ...     [{}, {"area": ["a", "a", "b", "b"]}, {"block": ["1", "2", "1", "2"]}])
        >>> kept, leaves = tree.only(1, np.array([1]))
        >>> kept.sizes, kept.label("block", 0), leaves
        ((1, 1, 2), 'b/1', array([2, 3]))
        """
        last = len(self.levels) - 1
        above = (np.unique(self.ancestors(level, up)[places]) for up in range(level))
        below = (
            np.flatnonzero(np.isin(self.ancestors(down, level), places)) for down in range(level, last + 1)
        )
        kept = [*above, *below]
        counts = [
            np.bincount(self.ancestors(up + 1, up)[kept[up + 1]], minlength=self.sizes[up])[kept[up]]
            for up in range(last)
        ]
        counts.append(np.zeros(kept[-1].size, dtype=np.int64))
        return Tree(
            self.levels,
            kept[0].size + np.append(0, np.cumsum(np.concatenate(counts))),
            np.append(0, np.cumsum([k.size for k in kept])),
            tuple(keys_at(keys, k) for keys, k in zip(self.keys, kept)),
            tuple(None if col is None else col[k] for col, k in zip(self.names, kept)),
            tuple(keys_at(held, k) for held, k in zip(self.limits, kept)),
        ), kept[-1]

    def labels(self, level: str) -> list[str]:
        """Return the keys of all places of a level, each as one text."""
        return [self.label(level, place) for place in range(self.sizes[self.level(level)])]

    def label(self, level: str, place: int) -> str:
        """Return the key of a place as one text."""
        at = self.level(level)
        if not self.keys or not self.keys[at]:
            return level if self.sizes[at] == 1 else f"{level} {place}"
        return "/".join(str(column[place]) for column in self.keys[at].values())
