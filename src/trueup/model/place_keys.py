"""Keys of places on each level, and the tree that sorted keys describe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.values import Numbered, as_text, rows_at

Keys = dict[str, NDArray]


def key_text(values: Sequence | NDArray, column: str, *, blank: bool = False) -> NDArray:
    """Return keys as fixed-width text with leading zeros; refuse missing keys."""
    text = as_text(values)
    if not blank and (text == "").any():
        raise DataError(
            f"key column '{column}' is missing a value in {rows_at(Numbered(), np.flatnonzero(text == ''))}",
            needed="a key in every row",
        )
    return text


def lost_zeros(column: str, text: str, known: Iterable[str]) -> str:
    """Return a remedy for a key that lost its leading zeros; an empty text if that is not the cause.

    Examples
    --------
    >>> lost_zeros("county", "1001", ["01001", "12003"])
    "read column 'county' as text: the places' keys have 5 characters, and those of the table have lost their leading zeros, \
which =TEXT(A2,REPT(0,5)) brings back in a spreadsheet"
    """
    held, digits = set(known), text.removesuffix(".0")
    lengths = set(map(len, held))
    if len(lengths) != 1 or not digits.isdigit() or digits.zfill(max(lengths)) not in held:
        return ""
    return (
        f"read column '{column}' as text: the places' keys have {max(lengths)} characters, and those of the table "
        f"have lost their leading zeros, which =TEXT(A2,REPT(0,{max(lengths)})) brings back in a spreadsheet"
    )


def row_count(columns: Sequence[Mapping]) -> int:
    """Return the number of rows of a list of places, given its key columns by level; 1 without columns."""
    return next((len(col) for level in reversed(columns) for col in level.values()), 1)


def full_keys(columns: Sequence[Mapping], whole: Sequence[bool]) -> list[Keys]:
    """Return the key columns of each level, with those of the parent first unless the level's code is unique."""
    keys: list[Keys] = []
    for adds, is_whole in zip(columns, whole):
        inherited = {} if is_whole or not keys else keys[-1]
        keys.append(inherited | {name: key_text(col, name) for name, col in adds.items()})
    return keys


def keys_down_to(keys: Sequence[Keys]) -> list[list[NDArray]]:
    """Return, for each level, all key columns from the root down, which together identify a place."""
    seen: list[NDArray] = []
    result = []
    for level in keys:
        seen = [*seen, *(col for col in level.values() if not any(col is old for old in seen))]
        result.append(seen)
    return result


def first_rows(columns: list[NDArray], rows: int) -> NDArray[np.int64]:
    """Return the first row of every run of rows with equal keys."""
    new = np.zeros(rows, dtype=bool)
    new[0] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def tree_pointers(starts: Sequence[NDArray], rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return child and level pointers of the tree of places, given the rows at which the places of each level begin."""
    sizes = [len(s) for s in starts]
    level_ptr = np.concatenate([[0], np.cumsum(sizes)])
    edges = [
        level_ptr[i + 1] + np.searchsorted(below, above) for i, (above, below) in enumerate(pairwise(starts))
    ]
    last = np.full(sizes[-1] + 1, level_ptr[-1])
    return np.concatenate([*edges, last]).astype(np.int64), level_ptr.astype(np.int64)


def keys_at(level: Keys, rows: NDArray) -> Keys:
    """Return the key columns in some rows, given in ascending order; the columns themselves if that is all rows."""
    return {name: column if len(rows) == len(column) else column[rows] for name, column in level.items()}


def key_codes(level: Keys) -> NDArray:
    """Return one value for each place of a level that compares like the place's key."""
    if len(level) == 1:
        return next(iter(level.values()))
    return np.rec.fromarrays([np.unique(column, return_inverse=True)[1] for column in level.values()])


def refuse_same_place(
    level: str,
    starts: NDArray,
    order: NDArray,
    where: Callable[[int], str],
    label: Callable[[str, int], str],
) -> None:
    """Raise DataError if two rows of the list of places are the same place."""
    if len(starts) == order.size:
        return
    twice = np.flatnonzero(np.diff(np.append(starts, order.size)) > 1)
    place, others = int(twice[0]), f", and {len(twice) - 1:,} others" if len(twice) > 1 else ""
    first, second = sorted(order[starts[place] : starts[place] + 2].tolist())
    raise DataError(
        f"the geography lists {level} '{label(level, place)}' more than once, in {where(first)} and {where(second)}"
        f"{others}",
        needed="each place of the last level in exactly one row",
    )


def refuse_two_limits(
    levels: Sequence[str], level: int, limits: Keys, starts: NDArray, label: Callable[[str, int], str]
) -> None:
    """Raise DataError if a place has two values in a column of limits."""
    name = levels[level]
    for column_name, column in limits.items():
        whole = np.repeat(column[starts], np.diff(np.append(starts, column.size)))
        if (differ := np.flatnonzero((column != whole) & ((column == column) | (whole == whole)))).size:
            place = int(np.searchsorted(starts, differ[0], "right")) - 1
            raise DataError(
                f"column '{column_name}' gives two limits for the {name} '{label(name, place)}'",
                needed=f"one number for each {name}, the same in all of its rows",
                remedy=f"correct the geography file, or set the bound at level '{levels[-1]}'",
            )


def refuse_two_parents(
    levels: Sequence[str], level: int, keys: Keys, label: Callable[[str, int], str]
) -> None:
    """Raise DataError if a code that should be unique on its level has two parents."""
    codes = key_codes(keys)
    if len(keys) == 1 and (codes[1:] > codes[:-1]).all():
        return
    _, first, count = np.unique(codes, return_index=True, return_counts=True)
    if (twice := first[count > 1]).size:
        name, above = levels[level], levels[level - 1]
        raise DataError(
            f"{name} '{label(name, int(twice[0]))}' has two parents",
            needed=f"each {name} inside one {above}",
            remedy=f"correct the rows that name a second {above} for it, or leave the level '{above}' out of the spec",
        )


def paths_of(ids: NDArray, parents: NDArray) -> NDArray:
    """Return the ancestors of every leaf from the root down, `(leaves, depth)`, padded with the leaf."""
    unique, first = np.unique(ids, return_index=True)
    if len(unique) < len(ids):
        twice = np.setdiff1d(np.arange(len(ids)), first)[0]
        same = parents[ids == ids[twice]]
        what = "two parents" if len(set(same)) > 1 else "two rows"
        raise DataError(
            f"place '{ids[twice]}' has {what}",
            needed="one row for each place, with one parent",
            remedy="leave out its other rows",
        )
    at = np.minimum(np.searchsorted(unique, parents), len(unique) - 1)
    is_root = parents == ""
    if (lost := np.flatnonzero((unique[at] != parents) & ~is_root)).size:
        raise DataError(
            f"parent '{parents[lost[0]]}' of place '{ids[lost[0]]}' is not listed", remedy="add a row for it"
        )
    if is_root.sum() != 1:
        raise DataError(
            f"the hierarchy has {int(is_root.sum())} places without a parent",
            needed="exactly one place without a parent: the root",
        )
    up = np.where(is_root, np.arange(len(ids)), first[at])
    root = int(np.flatnonzero(is_root)[0])
    _refuse_loops(up, root, ids)
    leaves = np.setdiff1d(np.arange(len(ids)), up[~is_root]) if len(ids) > 1 else np.array([0])
    return ids[_climb(up, leaves, root)]


def _refuse_loops(up: NDArray, root: int, ids: NDArray) -> None:
    jump = up
    for _ in range(len(up).bit_length()):
        jump = jump[jump]  # twice as far up each time
    if (caught := np.flatnonzero(jump != root)).size:
        raise DataError(
            f"place '{ids[caught[0]]}' is its own ancestor",
            remedy=f"correct the parents of '{ids[caught[0]]}' and of the places above it, so that they lead to the root",
        )


def _climb(up: NDArray, leaves: NDArray, root: int) -> NDArray:
    steps = [leaves]
    while (steps[-1] != root).any():
        steps.append(up[steps[-1]])
    paths = np.stack(steps[::-1], axis=1)
    # A shallow leaf reached the root early: shift its path left and pad with the leaf itself.
    depth = (paths != root).sum(axis=1) + 1
    columns = np.arange(paths.shape[1]) + (paths.shape[1] - depth)[:, None]
    return np.take_along_axis(paths, np.minimum(columns, paths.shape[1] - 1), axis=1)
