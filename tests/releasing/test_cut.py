"""Cuts: every place in one part of each layer that covers its level, within the size that memory allows."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import SpecError, TrueupError
from trueup.model.tree import Tree
from trueup.releasing import cut as cut_module
from trueup.releasing.cut import Cut, PlacePart, cut_tree
from trueup.releasing.start import Settings


def tree_of(children):
    """A tree from the number of children of every place, level by level."""
    sizes = [1, *(sum(level) for level in children)]
    counts = [c for level in children for c in level] + [0] * sizes[-1]
    names = tuple(f"level {i}" for i in range(len(sizes)))
    return Tree(names, 1 + np.append(0, np.cumsum(counts)), np.append(0, np.cumsum(sizes)))


@st.composite
def trees(draw):
    children, size = [], 1
    for _ in range(draw(st.integers(1, 4))):
        level = draw(st.lists(st.integers(1, 5), min_size=size, max_size=size))
        children.append(level)
        size = sum(level)
        if size > 60:
            break
    return tree_of(children)


@given(trees(), st.integers(2, 80), st.sampled_from([1, 3]))
def test_every_place_is_in_one_part_and_parts_fit(tree, most, workers):
    try:
        with patch.multiple(
            cut_module, MIN_LAST_LAYER_PLACES=6, MIN_UPPER_LAYER_PLACES=2
        ):  # so that few places are enough to be cut for balance
            cut = cut_tree(tree, most, workers)
    except TrueupError:
        assert np.diff(tree.child_ptr).max() >= most
        return
    assert cut == Cut.of_plain(cut.plain())
    assert [cut.layers[0].top, cut.layers[-1].bottom] == [0, len(tree.levels) - 1]
    for upper, lower in zip(cut.layers, cut.layers[1:]):
        assert upper.bottom == lower.top
    measured = [level for s in range(len(cut.layers)) for level in cut.levels(s)]
    settled = [level for s in range(len(cut.layers)) for level in cut.settled(s)]
    assert measured == settled == list(range(len(tree.levels)))
    for layer in cut.layers:
        assert layer.edges[0] == 0
        assert layer.edges[-1] == tree.sizes[layer.top]
        for first, last in zip(layer.edges, layer.edges[1:]):
            assert 0 < sum(tree.branch(layer.top, first, last, layer.bottom).sizes) <= most


@given(trees(), st.integers(2, 40))
def test_parts_know_each_other(tree, most):
    try:
        cut = cut_tree(tree, most)
    except TrueupError:
        return
    for parts in cut.parts[:-1]:
        below = [b for part in parts for b in cut.below(part)]
        assert below == cut.parts[parts[0].layer + 1]
        assert all(cut.above(b) == part for part in parts for b in cut.below(part))
    assert cut.below(cut.parts[-1][0]) == []
    assert np.array_equal(np.unique(cut.part_of_leaf()), np.arange(cut.layers[-1].parts))


def test_a_place_with_too_many_children_is_named():
    with pytest.raises(TrueupError, match="level 1 'level 1 1' has 9 places directly below it"):
        cut_tree(tree_of([[2], [3, 9]]), 8)


def test_workers_get_several_parts_each():
    tree = tree_of([[40], [50] * 40])
    assert cut_tree(tree, 10**6).layers[-1].parts == 1
    assert cut_tree(tree, 10**6, workers=2).layers[-1].parts >= 4
    assert str(PlacePart(1, 7)) == "1-00007"


def test_the_first_stage_is_short_where_others_wait_for_it():
    tree = tree_of([[4], [250] * 4, [40] * 1000])
    assert [(s.top, s.bottom) for s in cut_tree(tree, 6000).layers] == [(0, 2), (2, 3)]
    cut = cut_tree(tree, 6000, workers=2)
    assert [(s.top, s.bottom, s.parts) for s in cut.layers[:2]] == [(0, 1, 1), (1, 2, 4)]


def test_more_memory_holds_more_places_and_too_little_is_refused():
    held = [Settings(memory, 2).places(2016, 3000) for memory in (2 * 10**9, 4 * 10**9)]
    assert held[0] < held[1]
    with pytest.raises(SpecError, match="too little for 2 workers"):
        Settings(10**9, 2).places(2016, 3000)
