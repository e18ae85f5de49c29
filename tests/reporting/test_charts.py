"""Where the marks of a chart stand, and that a page's charts agree with each other."""

from __future__ import annotations

import pytest

from tests.reporting.page_reader import Reader
from tests.reporting.records import RECORDS, assessed
from trueup.reporting import report
from trueup.reporting.drawing import MAX_SERIES, WHISKER_ERRORS, Chart, chart
from trueup.reporting.sections.assessed_error import AssessmentView, by_size

PLACES = [("small", "3 places"), ("large", "1 place")]


def draw(series, **options):
    return chart(series, PLACES, "size", "persons", "message", "caption", **options)


def test_points_stand_side_by_side_within_their_place_and_at_their_height():
    drawn = draw({"a": [(0.0, 0.0), (10.0, 0.0)], "b": [(5.0, 1.0), None]})
    first, second = drawn.drawn(0), drawn.drawn(1)
    assert 0 < first[0].x < second[0].x < 50 < first[1].x < 100
    assert (first[0].y, first[1].y) == (100, 0)
    assert second[0].y == 50
    assert second[0].low - second[0].high == pytest.approx(-2 * WHISKER_ERRORS * 10)
    assert second[1] is None


def test_lines_join_neighbours_only_and_only_where_places_have_an_order():
    series = {"a": [(1.0, 0.1), (2.0, 0.1)], "b": [None, (2.0, 0.1)]}
    assert [len(draw(series).lines(n)) for n in (0, 1)] == [1, 0]
    assert draw(series, joined=False).lines(0) == []


def test_the_axis_holds_whiskers_zero_and_the_reference():
    drawn = draw({"a": [(4.0, 2.0), (5.0, 0.0)]}, reference=(12.0, "claimed"))
    assert drawn.axis.low <= 0
    assert drawn.axis.high >= 12
    bare = draw({"a": [(94.0, 0.1), (95.0, 0.1)]}, from_zero=False)
    assert 90 < bare.axis.low < 94


def test_a_series_keeps_its_style_where_another_has_no_point_and_no_more_are_drawn_than_can_be_told_apart():
    drawn = draw({"a": [None, None], "b": [(1.0, 0.1), None]})
    assert [(name, style) for name, style, _ in drawn.series] == [("b", 1)]
    many = draw({str(k): [(1.0, 0.1), None] for k in range(MAX_SERIES + 3)})
    assert len(many.series) == MAX_SERIES


def test_the_picture_of_bias_by_size_has_the_figures_of_the_record():
    record, spec = assessed()
    first = next(block for block in by_size(AssessmentView(record, spec)).blocks if isinstance(block, Chart))
    names = [name.replace("–", "-") for name, _ in first.places]
    assert names == ["0", "1-9", "10-99", "100-999", "1,000-9,999"]
    budget = record.budgets[0].label
    for method, _, points in first.series:
        for unit, point in zip(names, points):
            assert point == record.figure(
                "bias", "block_group", by="size", unit=unit, method=method, budget=budget
            )


def test_a_page_names_every_method_and_what_its_axes_mean():
    reader = Reader(report(*RECORDS["assessment"]()))
    charts = [e for e in reader.elements if "chart" in e.get("class").split()]
    assert len(charts) >= 8
    text = " ".join(e.text for e in reader.all("main"))
    for words in (
        "too high",
        "too low",
        "Typical error",
        "smaller is better",
        "multinomial-mode",
        "claimed: 90 %",
    ):
        assert words in text
