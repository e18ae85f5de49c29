"""Trees of places, from columns and from parent pointers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trueup.errors import DataError
from trueup.model.tree import Tree


@st.composite
def pointers(draw):
    """Random parent pointers: ids, parents; any node but the first hangs on an earlier one."""
    size = draw(st.integers(1, 25))
    parents = [-1] + [draw(st.integers(0, i - 1)) for i in range(1, size)]
    names = draw(st.permutations([f"p{i:02d}" for i in range(size)]))
    rows = draw(st.permutations(range(size)))
    return [names[i] for i in rows], ["" if parents[i] < 0 else names[parents[i]] for i in rows]


def _paths(ids, parents):
    """Path of every leaf from the root, slowly."""
    up = dict(zip(ids, parents))
    for leaf in (i for i in ids if i not in parents):
        path = [leaf]
        while up[path[0]]:
            path.insert(0, up[path[0]])
        yield path


@settings(deadline=None)  # a busy machine is not at fault
@given(pointers())
def test_parent_pointers_give_the_padded_paths(given_tree):
    ids, parents = given_tree
    tree = Tree.from_parents(ids, parents)
    paths = sorted(_paths(ids, parents))
    depth = max(map(len, paths))
    padded = sorted(path + [path[-1]] * (depth - len(path)) for path in paths)
    last = depth - 1
    for level in range(depth):
        held = tree.keys[level]["id"][tree.ancestors(last, level)]
        assert sorted(held.tolist()) == sorted(path[level] for path in padded)
    rows = zip(*(tree.keys[level]["id"][tree.ancestors(last, level)].tolist() for level in range(depth)))
    assert sorted(map(list, rows)) == padded


@settings(deadline=None)  # a busy machine is not at fault
@given(pointers())
def test_pointers_are_consistent(given_tree):
    tree = Tree.from_parents(*given_tree)
    sizes, nodes = tree.sizes, len(tree.child_ptr) - 1
    assert sum(sizes) == nodes
    for level in range(len(sizes) - 1):
        a, b = tree.level_ptr[level], tree.level_ptr[level + 1]
        assert tree.child_ptr[a] == b
        assert (np.diff(tree.child_ptr[a : b + 1]) > 0).all(), "every inner place has a child"
    assert (tree.child_ptr[tree.level_ptr[-2] :] == nodes).all()
    for level in range(len(sizes)):
        edges = tree.leaf_ptr(level)
        assert edges[0] == 0
        assert edges[-1] == sizes[-1]
        counted = np.bincount(tree.ancestors(len(sizes) - 1, level), minlength=sizes[level])
        np.testing.assert_array_equal(np.diff(edges), counted)


@settings(deadline=None)  # a busy machine is not at fault
@given(pointers(), st.randoms())
def test_row_order_does_not_matter(given_tree, random):
    pairs = list(zip(*given_tree))
    random.shuffle(pairs)
    one, two = Tree.from_parents(*given_tree), Tree.from_parents(*zip(*pairs))
    np.testing.assert_array_equal(one.child_ptr, two.child_ptr)
    assert one.keys[-1]["id"].tolist() == two.keys[-1]["id"].tolist()


def test_a_county_number_is_a_place_within_its_state():
    tree = Tree.from_columns(
        ["nation", "state", "county"], [{}, {"state": ["01", "02"]}, {"county": ["001", "001"]}]
    )
    assert tree.sizes == (1, 2, 2)
    assert tree.label("county", 1) == "02/001"


def test_names_travel_with_their_places():
    tree = Tree.from_columns(
        ["all", "area"], [{}, {"area": ["b", "a"]}], names=[None, np.array(["Bee", "Ay"])]
    )
    assert tree.names[1] is not None
    assert tree.names[1].tolist() == ["Ay", "Bee"]


@pytest.mark.parametrize(
    ("ids", "parents", "message"),
    [
        (["a", "b", "b"], ["", "a", "a"], "place 'b' has two rows"),
        (["a", "b", "c", "b"], ["", "a", "a", "c"], "place 'b' has two parents"),
        (["a", "b"], ["", "x"], "parent 'x' of place 'b' is not listed"),
        (["a", "b"], ["", ""], "2 places without a parent"),
        (["a", "b"], ["b", "a"], "0 places without a parent"),
        (["r", "a", "b"], ["", "b", "a"], "is its own ancestor"),
        (["r", None], ["", "r"], "key column 'id' is missing a value in row 2"),
    ],
)
def test_bad_parent_pointers_are_named(ids, parents, message):
    with pytest.raises(DataError, match=message):
        Tree.from_parents(ids, parents)


def test_a_code_with_two_parents_is_named():
    columns = [{}, {"state": ["01", "02"]}, {"county": ["01001", "01001"]}]
    with pytest.raises(DataError, match="county '01001' has two parents"):
        Tree.from_columns(["nation", "state", "county"], columns, whole_code=[False, False, True])


def test_a_place_listed_twice_is_refused():
    with pytest.raises(DataError, match="more than once"):
        Tree.from_columns(["all", "area"], [{}, {"area": ["a", "a"]}])


def test_no_place_is_refused():
    with pytest.raises(DataError, match="lists no place"):
        Tree.from_columns(["all", "area"], [{}, {"area": []}])


def test_one_long_key_does_not_widen_all_others():
    """20,000 characters at one place cost 5,000 places 400 MB at one width."""
    ids = [f"{i:05d}" for i in range(5000)]
    tree = Tree.from_columns(["all", "area"], [{}, {"area": [*ids, "z" * 20_000]}])
    keys = tree.keys[1]["area"]
    assert keys.nbytes < 10 * 5001
    assert keys.tolist() == [*ids, "z" * 20_000]
    other = Tree.from_columns(["all", "area"], [{}, {"area": [*ids, "z" * 19_999 + "y"]}])
    assert tree.digest != other.digest
