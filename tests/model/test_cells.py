"""Cells, margins and the trees that nested margins make, against slow loops."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.sums import matrix
from trueup.errors import SpecError
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.constraints import name_mask
from trueup.model.nested import chain, nest
from trueup.model.tree import Tree

GRADE = Recode.of("grade", {"adult": ["m", "o"], "child": ["y"]}, ("y", "m", "o"))
END = Recode.of("end", {"outer": ["y", "o"], "inner": ["m"]}, ("y", "m", "o"))
ATTRIBUTES = (
    Attribute("sex", ("f", "m")),
    Attribute("age", ("y", "m", "o"), recodes=(GRADE, END)),
    Attribute("own", ("n", "y")),
)


def _cells() -> Cells:
    ids = ["us", "a", "b", "c", "b1", "b2", "c1", "c2", "c3"]
    parents = ["", "us", "us", "us", "b", "b", "c", "c", "c"]
    return Cells(Tree.from_parents(ids, parents), ATTRIBUTES)


CELLS = _cells()
CHOICES = product(["", "sex"], ["", "grade", "end", "age"], ["", "own"])
MARGINS = [Margin(level, tuple(filter(None, names))) for names in CHOICES for level in CELLS.tree.levels]


@cache
def _holding(margin: Margin) -> np.ndarray:
    """The group of a margin that holds each cell."""
    return matrix(CELLS, margin).argmax(axis=0)


def _is_sum(coarse: Margin, fine: Margin) -> bool:
    """Whether every group of `fine` lies in one group of `coarse`."""
    pairs = set(zip(_holding(fine).tolist(), _holding(coarse).tolist()))
    return len(pairs) == len({group for group, _ in pairs})


CONDITIONS = (((("sex", "m"), ("grade", "adult")), (("level 1", "b"), ("end", "outer"))), ((("own", "y"),),))


@pytest.mark.parametrize("where", [(), *CONDITIONS], ids=["all", "two conditions", "one"])
@pytest.mark.parametrize("margin", MARGINS, ids=str)
def test_sums_equal_the_slow_sums(margin, where, rng):
    values, asked = rng.integers(-5, 50, (2, CELLS.n)), replace(margin, where=where)
    np.testing.assert_array_equal(CELLS.sum(values, asked), values @ matrix(CELLS, asked).T)


@pytest.mark.parametrize("fine", MARGINS, ids=str)
def test_groups_name_the_group_that_holds_each_group(fine):
    for coarse in MARGINS:
        assert CELLS.contains(coarse, fine) == _is_sum(coarse, fine)
        if not CELLS.contains(coarse, fine):
            with pytest.raises(SpecError, match="is not a sum of"):
                CELLS.groups(fine, coarse)
            continue
        found = np.zeros(CELLS.size(fine), int)
        found[_holding(fine)] = _holding(coarse)
        np.testing.assert_array_equal(CELLS.groups(fine, coarse), found)


@given(st.lists(st.sampled_from(MARGINS), max_size=5))
def test_a_chain_is_found_exactly_where_margins_are_nested(margins):
    found = chain(CELLS, margins)
    nested = all(CELLS.contains(a, b) or CELLS.contains(b, a) for a, b in combinations(margins, 2))
    assert (found is not None) == nested
    if found is not None:
        assert all(CELLS.contains(coarse, fine) for coarse, fine in combinations(found, 2))


@given(st.lists(st.sampled_from(MARGINS), max_size=4), st.integers(0, 2**32))
def test_every_node_of_a_nested_tree_is_the_sum_of_its_children(margins, seed):
    ordered = chain(CELLS, margins)
    if ordered is None:
        return
    nested = nest(CELLS, ordered)
    counts = np.random.default_rng(seed).integers(0, 100, CELLS.n)
    nodes = np.empty(nested.level_ptr[-1], dtype=np.int64)
    for margin in ordered:
        nodes[nested.of(margin)] = CELLS.sum(counts, margin)
    for v in range(len(nodes)):
        a, b = nested.child_ptr[v], nested.child_ptr[v + 1]
        assert a == b or nodes[a:b].sum() == nodes[v]
    labels = {nested.label(int(v)) for v in nested.of(ordered[-1])}
    assert labels == {CELLS.label(c) for c in range(CELLS.n)}


def test_a_recode_stands_between_its_attribute_and_the_total():
    found = chain(CELLS, [Margin("level 0", ("age",)), Margin("level 0", ("grade",))])
    assert found is not None
    assert [m.attributes for m in found] == [(), ("grade",), ("age",), ("sex", "age", "own")]
    assert chain(CELLS, [Margin("level 0", ("end",)), Margin("level 0", ("grade",))]) is None


@pytest.mark.parametrize("value", ["child", "adult", "outer"])
def test_a_group_means_the_values_that_it_lists(value):
    recode = GRADE if value in GRADE.values else END
    listed = {"child": ["y"], "adult": ["m", "o"], "outer": ["y", "o"]}[value]
    slow = [[[[age in listed] * 2 for age in "ymo"] for _ in "fm"]]
    for mask in (CELLS.where({recode.name: value}), name_mask(CELLS, value)):
        np.testing.assert_array_equal(mask, slow)


def test_names_that_are_unknown_or_name_an_attribute_twice_are_refused():
    with pytest.raises(SpecError, match=r"'sx' is not declared.*one of: sex, age, grade, end, own"):
        CELLS.recodes(["sx"])
    with pytest.raises(SpecError, match="'age' and 'grade'"):
        CELLS.sum(np.zeros(CELLS.n), Margin("level 0", ("age", "grade")))


def test_a_name_of_several_groups_that_differ_is_refused():
    values = ("y", "m", "o")
    other = Recode.of("again", {"adult": ["o"], "rest": ["y", "m"]}, values)
    cells = Cells(CELLS.tree, (Attribute("age", values, recodes=(GRADE, other)),))
    with pytest.raises(SpecError, match=r"'adult'.*several"):
        name_mask(cells, "adult")
    assert name_mask(cells, "again=adult").tolist() == [[False, False, True]]


def test_values_that_overlap_are_never_summed():
    cells = Cells(CELLS.tree, (Attribute("cell", ("persons", "families"), partition=False),))
    assert cells.coarsest == Margin("level 0", ("cell",))
    assert chain(cells, [Margin("level 0", ("cell",))]) is None


def test_margins_are_taken_as_text():
    cells = Cells(
        Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]), (Attribute("sex", ("f", "m")),)
    )
    fine, coarse = Margin("area", ("sex",)), Margin("all")
    assert cells.size("area x sex") == cells.size(fine) == 4
    assert cells.sum(np.arange(4), "area").tolist() == [1, 5]
    assert cells.groups("area x sex", "all").tolist() == cells.groups(fine, coarse).tolist()
    assert cells.contains("all", "area x sex")
    assert cells.margin_label("area", 1) == "b"
    assert list(cells.margin_labels("all x sex")) == ["all, sex=f", "all, sex=m"]
    assert cells.held("area").tolist() == [0, 1]
    assert cells.among("area").all()
    with pytest.raises(SpecError, match="no level 'country'"):
        cells.size("country")


def test_cells_are_shown_in_one_line():
    cells = Cells(
        Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]), (Attribute("sex", ("f", "m")),)
    )
    assert repr(cells) == "Cells(levels={'all': 1, 'area': 2}, attributes={'sex': 2}, n=4)"
