"""Hierarchies given by parent pointers: the path of every leaf from the root."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError


def paths_of(ids: NDArray, parents: NDArray) -> NDArray:
    """Return `(leaves, depth)` every leaf's ancestors from the root down, padded with the leaf."""
    unique, first = np.unique(ids, return_index=True)
    if len(unique) < len(ids):
        twice = np.setdiff1d(np.arange(len(ids)), first)[0]
        same = parents[ids == ids[twice]]
        what = "two parents" if len(set(same)) > 1 else "two rows"
        raise DataError(f"place '{ids[twice]}' has {what}", needed="one row and one parent for each place")
    at = np.minimum(np.searchsorted(unique, parents), len(unique) - 1)
    is_root = parents == ""
    if (lost := np.flatnonzero((unique[at] != parents) & ~is_root)).size:
        raise DataError(
            f"parent '{parents[lost[0]]}' of place '{ids[lost[0]]}' is not listed", remedy="add its row"
        )
    if is_root.sum() != 1:
        raise DataError(
            f"the hierarchy has {int(is_root.sum())} places without a parent", needed="exactly one root"
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
        raise DataError(f"place '{ids[caught[0]]}' is its own ancestor", remedy="correct the parent column")


def _climb(up: NDArray, leaves: NDArray, root: int) -> NDArray:
    steps = [leaves]
    while (steps[-1] != root).any():
        steps.append(up[steps[-1]])
    paths = np.stack(steps[::-1], axis=1)
    # A shallow leaf reached the root early: shift its path left and pad with the leaf itself.
    depth = (paths != root).sum(axis=1) + 1
    columns = np.arange(paths.shape[1]) + (paths.shape[1] - depth)[:, None]
    return np.take_along_axis(paths, np.minimum(columns, paths.shape[1] - 1), axis=1)
