"""Axes and marks of pictures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.reporting.drawing.pictures import PictureAxis, bars, before_after, strips

VALUES = st.lists(
    st.floats(-1e9, 1e9, allow_subnormal=False).map(lambda v: round(v, 3)), min_size=1, max_size=9
)


@given(VALUES)
def test_an_axis_holds_its_values_between_few_round_ticks(values):
    axis = PictureAxis.around([0, *values], "persons")
    places = [axis.place(v) for v in values]
    assert all(-0.01 <= place <= 100.01 for place in places)
    assert 1 <= len(axis.ticks) <= 13
    assert axis.ticks[0][0] == 0
    assert axis.ticks[-1][0] == 100
    assert len({text for _, text in axis.ticks}) == len(axis.ticks)


def test_bars_start_at_zero_and_are_proportional():
    figure = bars({"a": (10, ""), "b": (40, "")}, "%", "message", "caption")
    ends = [figure.axis.place(marks[0].to) for _, marks in figure.rows]
    assert figure.axis.low == 0
    assert ends[1] == pytest.approx(4 * ends[0])


def test_a_row_without_a_first_value_shows_the_second_alone():
    figure = before_after({"a": (3, 2), "b": (None, 4)}, ("before", "after"), "x", "message", "caption")
    assert [[m.shape for m in marks] for _, marks in figure.rows] == [
        ["join", "diamond", "circle"],
        ["circle"],
    ]


def test_marks_from_one_value_to_another_go_right():
    figure = strips({"a": [-5, -2, 0, 1, 9]}, "x", "message", "caption")
    assert [(m.at, m.to) for m in figure.rows[0][1][:2]] == [(-5, 9), (-2, 1)]
