"""Axes and marks of pictures."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reporting.records import RECORDS
from trueup.reporting import report
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


@pytest.mark.parametrize("record", ["release", "posterior with ratios"])
def test_pictures_of_a_record_stand_by_themselves(record, tmp_path):
    page = report(RECORDS[record]()[0])  # a record knows its spec
    assert len(page.pictures) > 1
    for at, picture in enumerate(page.pictures):
        root = ElementTree.fromstring(picture.svg())
        assert root.get("aria-label") == picture.message
        assert len(list(root.iter("{http://www.w3.org/2000/svg}svg"))) > 2
        assert not {part for part in root.iter() if part.get("src") or part.get("href")}
        assert picture._repr_html_().startswith("<img alt=")
        picture.save(tmp_path / f"{at}.svg")


def test_a_report_is_saved_and_shown(tmp_path):
    page = report(RECORDS["release"]()[0])
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page
    assert page._repr_html_().startswith("<iframe")
    assert repr(page).count("\n") == 2


@pytest.mark.parametrize("record", ["measurements", "release", "posterior with ratios", "assessment"])
def test_a_record_is_shown_in_three_lines_without_a_count(record):
    shown = RECORDS[record]()[0]
    assert repr(shown).count("\n") == 2
    assert "Areas & places" in repr(shown)
    assert "Areas &amp; places" in shown._repr_html_()
