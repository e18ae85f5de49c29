"""Marginals of a tree's nodes, as tables of its margins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.messages.partition import spread_messages
from trueup.model.cells import Margin
from trueup.model.nested import NestedTree
from trueup.model.records.marginals import Marginals


def holds_all_levels(nested: NestedTree) -> bool:
    """Return True if every level's totals are among the margins: else tables from draws would not add up with exact ones."""
    return {Margin(level) for level in nested.cells.tree.levels} <= set(nested.margins)


def by_margin(nested: NestedTree, start: NDArray, offset: NDArray, masses: NDArray) -> dict:
    """Cut the nodes' marginals into those of each margin, in the order of its groups."""
    result = {}
    for margin, nodes in zip(nested.margins, nested.nodes):
        sizes = np.diff(start)[nodes]
        begin = np.concatenate([[0], np.cumsum(sizes)])
        if (np.diff(nodes) == 1).all():  # side by side: no copy of a nation's masses
            own = masses[start[nodes[0]] : start[nodes[-1] + 1]]
        else:
            own = masses[spread_messages(start[nodes], sizes)]
        result[margin] = Marginals(begin, offset[nodes], own)
    return result
