"""Axes, strokes and marks of plots, and their place on a page."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.curves import Curve, LogAxis, plot
from trueup.reporting import html
from trueup.reporting.drawing import Page, Section


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=9))
def test_a_logarithmic_axis_holds_its_values_between_few_ticks(values):
    axis = LogAxis.around(values, "persons")
    assert all(-0.01 <= axis.place(v) <= 100.01 for v in values)
    assert 2 <= len(axis.ticks) <= 10


def test_a_stroke_goes_up_where_values_grow_and_zero_is_on_the_axis():
    drawn = plot([Curve("a", [0, 1, 2], [1, 2, 4])], "x", "y", "m", "c")
    heights = [float(point.split(",")[1]) for point in drawn.path(drawn.curves[0]).split()]
    assert heights == sorted(heights, reverse=True)
    assert drawn.up.low == 0
    assert heights[0] == pytest.approx(75)


def test_a_histogram_has_two_corners_for_each_bin():
    steps = Curve("h", [0, 1, 3], [5, 2], "steps")
    assert steps.corners == [(0, 5), (1, 5), (1, 2), (3, 2)]
    with pytest.raises(ValueError):
        _ = Curve("h", [0, 1], [5, 2], "steps").corners


def test_error_bars_are_on_the_axis_and_around_their_points():
    drawn = plot([Curve("p", [1, 2], [0.0, 1.0], "points", [3.0, 1.0])], "x", "y", "m", "c")
    for _, at, top, bottom in drawn.marks(drawn.curves[0]):
        assert 0 <= top < at < bottom <= 100


def test_a_page_draws_every_curve_and_says_what_it_shows():
    curves = [Curve("one & two", [0, 1], [0, 1]), Curve("points", [0, 1, 2], [1, 1, 1], "points", [1, 1, 1])]
    block = plot(curves, "across", "up", "what it says", "how to read it")
    page = html(Page("t", "s", "", (), (Section("a", "A", (block,)),)), more="papers")
    assert 'aria-label="what it says"' in page
    assert "one &amp; two" in page
    assert len(re.findall("<polyline", page)) == 1
    assert len(re.findall("bar-of-error curve-2", page)) == 3
