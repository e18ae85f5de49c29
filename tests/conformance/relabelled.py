"""A structure with every place and every attribute value in the opposite order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tests.conformance.structures import Structure
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.constraints import Bound
from trueup.model.header import split
from trueup.model.tree import Tree


def relabelled(structure: Structure) -> Structure:
    """Turn a structure's cells round: cell `i` becomes cell `n - 1 - i`, with all that speaks of it."""
    old = structure.constraints
    cells = Cells(_tree(old.cells.tree), tuple(map(_attribute, old.cells.attributes)))
    bounds = tuple(replace(b, lower=_turned(b.lower), upper=_turned(b.upper)) for b in old.bounds)
    headers = (replace(h, groups=_groups(old.cells, h.margin, h.groups)) for h in structure.headers)
    constraints = replace(old, cells=cells, bounds=bounds)
    return Structure(f"{structure.name}, relabelled", constraints, tuple(headers))


def turned_values(structure: Structure, values: NDArray) -> NDArray:
    """Measured values `(..., q)` of a structure as those of its relabelled twin."""
    parts = split(values, structure.headers, structure.constraints.cells)
    whole = (p[..., ::-1] if h.groups is None else p for h, p in zip(structure.headers, parts))
    return np.concatenate(list(whole), axis=-1)


def _tree(tree: Tree) -> Tree:
    last = len(tree.levels) - 1
    columns = [{}] + [
        {name: [f"{tree.sizes[level] - place:06d}" for place in tree.ancestors(last, level)]}
        for level, name in enumerate(tree.levels)
        if level
    ]
    return Tree.from_columns(tree.levels, columns, whole_code=[True] * len(tree.levels))


def _attribute(attribute: Attribute) -> Attribute:
    recodes = tuple(
        Recode(r.name, r.values[::-1], tuple(r.size - 1 - g for g in r.groups[::-1]))
        for r in attribute.recodes
    )
    return replace(attribute, values=attribute.values[::-1], recodes=recodes)


def _turned(limit: Bound | tuple[int, ...] | int | None):
    return limit[::-1] if isinstance(limit, tuple) else limit


def _groups(cells: Cells, margin: Margin, groups: NDArray | None) -> NDArray | None:
    return None if groups is None else cells.size(margin) - 1 - groups
