"""Slow obvious twin of sums of cells into margins: every cell asks for its place and its values, by name."""

from __future__ import annotations

from itertools import product

import numpy as np


def matrix(cells, margin) -> np.ndarray:
    """The 0/1 matrix `(groups, n)` of which finest cells each group of a margin counts; groups by place, then values."""
    level = cells.tree.levels.index(margin.level)
    views = [next((v for v in a.views if v.name in margin.attributes), None) for a in cells.attributes]
    groups = list(product(_places(cells.tree, level), *(v.values if v else [""] for v in views)))
    position = {group: i for i, group in enumerate(groups)}
    rows = np.zeros((len(groups), cells.n))
    for cell, (leaf, *values) in enumerate(_finest(cells)):
        if not margin.where or any(_meets(cells, leaf, values, dict(each)) for each in margin.where):
            named = (_named(v, a, value) for v, a, value in zip(views, cells.attributes, values))
            rows[position[(_above(cells.tree, leaf, level), *named)], cell] = 1
    return rows


def marginal_matrix(marginal) -> np.ndarray:
    """The same for the cells of one histogram, whose axes are recoded to groups."""
    groups = product(*(range(max(axis) + 1) for axis in marginal))
    codes = list(product(*(axis.tolist() for axis in marginal)))
    return np.array([[float(group == code) for code in codes] for group in groups])


def _places(tree, level) -> range:
    return range(tree.level_ptr[level], tree.level_ptr[level + 1])


def _finest(cells):
    return product(_places(cells.tree, len(cells.tree.levels) - 1), *(a.values for a in cells.attributes))


def _above(tree, node, level) -> int:
    """The place of a level that holds a place, by looking through all children of all places."""
    while node >= tree.level_ptr[level + 1]:
        node = next(v for v in range(node) if tree.child_ptr[v] <= node < tree.child_ptr[v + 1])
    return node


def _named(view, attribute, value) -> str:
    """The group of a value under a view of its attribute; no name where it is summed out."""
    return view.values[view.groups[attribute.values.index(value)]] if view else ""


def _meets(cells, leaf, values, condition) -> bool:
    """Whether a cell meets all that one condition asks of its values and places."""
    told = {
        view.name: _named(view, attribute, value)
        for attribute, value in zip(cells.attributes, values)
        for view in attribute.views
    }
    for depth, level in enumerate(cells.tree.levels):
        node = _above(cells.tree, leaf, depth)
        told[level] = cells.tree.label(level, node - cells.tree.level_ptr[depth])
    return all(told[name] == wanted for name, wanted in condition.items())
