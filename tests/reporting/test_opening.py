"""The opening of a release's report, its facts, and its map."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas
import pytest

from tests.reporting.page_reader import Reader
from tests.reporting.records import CROSSED, PLAIN, released
from trueup.errors import DataError, TrueupError
from trueup.measuring import simulate
from trueup.model.problem import Problem
from trueup.model.spec import parse_spec
from trueup.privacy import outward
from trueup.reconciling import reconcile
from trueup.reporting import report
from trueup.reporting.drawing.maps import MAX_OUTLINE_CHARACTERS, draw_map, matched


def opening_of(page: str) -> str:
    found = re.search(r'<div class="opening">(.*?)</div>', page, re.DOTALL)
    assert found
    return found[1]


def test_the_opening_says_how_far_numbers_may_be_off():
    release, spec = released(PLAIN)
    said = opening_of(report(release, spec, level="95%"))
    assert "95 of 100 cases" in said
    for margin in release.published:
        errors = np.ceil(release.margin_of_error(margin, "95%"))
        assert f"{margin.level.replace('_', ' ')}: ± {errors.min():.0f}" in said
    assert "epsilon = 1" in said
    assert "A number of 0 does not mean that there is nobody" in said
    assert "as enumerated" not in said


def test_a_table_without_places_is_not_said_to_be_by_its_one_place():
    """Where there is one place, its level's name, `all`, is no word of a sentence: "by all", "all by sex"."""
    spec = parse_spec(
        """
format = 2
title = "Visits"
table = { name = "visits", kind = "counts", counts = "visit", count = "n" }
privacy = { unit = "visit", neighbours = "add-remove" }
level = [{ name = "all" }]
attribute = [{ name = "sex", values = ["f", "m"] }, { name = "age_group", values = ["young", "old"] }]
[[query]]
name = "total"
epsilon = { all = "1" }
[[query]]
name = "cells"
attributes = ["sex", "age_group"]
epsilon = { all = "1" }
"""
    )
    noisy = simulate(Problem.of(spec, None), np.array([40, 30, 20, 10]), np.random.default_rng(5))
    said = opening_of(report(reconcile(noisy, spec=spec), spec))
    assert "numbers of visits in all and by sex and age group." in said
    assert "in all: ±" in said
    finer = '[[level]]\nname = "area"\ncolumn = "area"\n'
    text = spec.text().replace('[[level]]\nname = "all"\n', f'[[level]]\nname = "all"\n{finer}')
    above = parse_spec(re.sub(r"epsilon = .*", 'epsilon = { all = "1", area = "1" }', text))
    more = simulate(
        Problem.of(above, pandas.DataFrame({"area": ["a", "b"]})), np.arange(8), np.random.default_rng(5)
    )
    said += opening_of(report(reconcile(more, spec=above), above))
    assert "numbers of visits in all, by sex and age group" in said
    exact = parse_spec(
        re.sub(r"epsilon = .*", 'epsilon = { all = "1" }', spec.text()).replace(
            '[[query]]\nname = "total"\nepsilon = { all = "1" }\n', ""
        )
        + '\n[constraints]\ninvariants = [{ level = "all" }]\n'
    )
    known = simulate(Problem.of(exact, None), np.array([40, 30, 20, 10]), np.random.default_rng(5))
    off = opening_of(report(reconcile(known, spec=exact), exact))
    assert "in all: ±" not in off  # that number has no error
    assert "by sex and age group: ±" in off
    assert not re.search(r"\ball (by|:)|\bby all\b", said)


def test_the_opening_says_what_is_published_as_enumerated():
    assert "State: published exactly as enumerated" in opening_of(report(*released(CROSSED)))


def test_a_level_that_is_not_kept_is_refused():
    with pytest.raises(TrueupError, match="one of: 50%"):
        report(*released(PLAIN), level="77%")


def test_facts_of_the_spec_and_files_are_on_the_page():
    about = '[about]\nauthor = "Office & Co"\ndate = 2026-11-22\nlicence = "CC BY 4.0"\n'
    release, spec = released(PLAIN)
    spec = parse_spec(spec.text() + about)
    assert parse_spec(spec.text()).about.date == "2026-11-22"
    reader = Reader(report(release, spec))
    assert {"Office & Co", "2026-11-22", "CC BY 4.0"} <= {e.text for e in reader.all("dd")}
    assert "counts/block_group.parquet" in {e.get("href") for e in reader.all("a")}


def square(key: str, x: float, y: float, **more) -> dict:
    ring = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]
    shape = {"type": "Polygon", "coordinates": [ring]}
    return {"type": "Feature", "properties": {"code": key} | more, "geometry": shape}


def at_odds(key: str, coordinates: object) -> dict:
    """A shape whose coordinates are no rings of points."""
    return {"properties": {"state": key}, "geometry": {"type": "Polygon", "coordinates": coordinates}}


@pytest.fixture
def shapes(tmp_path):
    path = tmp_path / "places.geojson"
    states = [square("01", 0, 40, name="ignored"), square("02", 1, 40)]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": states}))
    return path


def test_a_map_shades_each_place_by_its_uncertainty(shapes):
    release, spec = released(PLAIN)
    page = report(release, spec, shapes=shapes)
    by_count, drawn = [picture.block for picture in page.pictures if picture.block.kind == "map"]
    assert [shape.path for shape in by_count.shapes] == [shape.path for shape in drawn.shapes]
    shown = [release.sums("state")[int(shape.key) - 1] for shape in by_count.shapes]
    assert (np.argsort(shown) == np.argsort([shape.shade for shape in by_count.shapes])).all()
    counts, margins = release.sums("state"), release.margin_of_error("state")
    for shape, count, margin in zip(drawn.shapes, counts, margins, strict=True):
        assert f"{count:,} persons, ± {margin:g}" in shape.text
        assert shape.shade == np.searchsorted([0.01, 0.03, 0.1, 0.3], margin / max(count, 1), side="right")
    assert '<svg class="map" role="img" aria-label="Map of 2 places' in page
    assert "<title>&lt;script&gt;" in page  # the name of a place is no markup


def corners(path: str) -> set[tuple[int, int]]:
    """Corners of an outline."""
    steps = [tuple(map(int, step.split())) for step in re.findall(r"-?\d+ -?\d+", path)]
    return set(map(tuple, np.cumsum(steps, axis=0).tolist()))


def test_neighbours_still_share_their_border():
    release, _ = released(PLAIN)
    features, counts = [square("01", 0, 0), square("02", 1, 0)], {"state": release.sums("state")}
    drawn = draw_map(release.cells, features, counts, {"state": np.ones(2)}, "persons", "90 %")
    west, east = (corners(shape.path) for shape in drawn.shapes)
    assert len(west & east) == 2
    assert len(west) == len(east) == 4


def test_neighbours_across_the_180th_meridian_are_drawn_side_by_side():
    release, _ = released(PLAIN)
    features, counts = [square("01", 179, 0), square("02", -180, 0)], {"state": release.sums("state")}
    drawn = draw_map(release.cells, features, counts, {"state": np.ones(2)}, "persons", "90 %")
    west, east = (corners(shape.path) for shape in drawn.shapes)
    assert len(west & east) == 2
    assert min(west) < min(east)


def test_a_place_that_is_smaller_than_a_pixel_is_drawn():
    release, _ = released(PLAIN)
    small = square("02", 0, 0)
    small["geometry"]["coordinates"] = [[[0, 0], [1e-9, 0], [1e-9, 1e-9], [0, 0]]]
    counts = {"state": release.sums("state")}
    drawn = draw_map(
        release.cells, [square("01", 5, 0), small], counts, {"state": np.ones(2)}, "persons", "90 %"
    )
    assert len(corners(drawn.shapes[1].path)) >= 3
    assert "without a shape" not in drawn.caption


def test_a_fine_coast_is_simplified():
    release, _ = released(PLAIN)
    turn = np.linspace(0, 2 * np.pi, 200_001)
    coast = square("01", 0, 0)
    ring = np.column_stack([np.cos(turn), np.sin(turn)]).tolist()
    coast["geometry"] = {"type": "MultiPolygon", "coordinates": [[ring]]}
    counts = {"state": release.sums("state")}
    drawn = draw_map(release.cells, [coast], counts, {"state": np.ones(2)}, "persons", "90 %")
    assert len(drawn.shapes[0].path) < 40_000 < MAX_OUTLINE_CHARACTERS
    assert "Places without a shape: '02'." in drawn.caption


def test_both_maps_and_the_command_name_shapes_and_places_without_each_other(tmp_path):
    release, spec = released(PLAIN)
    shapes = tmp_path / "shapes.json"
    shapes.write_text(json.dumps({"features": [square("01", 0, 0), square("VOSS", 1, 0)]}))
    said = "Places without a shape: '02'. Shapes of no place: 'VOSS'."
    page = report(release, spec, shapes=shapes)
    assert [picture.block.unmatched for picture in page.pictures if picture.block.kind == "map"] == [said] * 2
    assert page.replace("&#39;", "'").count(said) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "holds no shapes"),
        ('{"features": []}', "holds no shapes"),
        (json.dumps({"features": [square("77", 0, 0)]}), "no property of the shapes contains the key"),
        (json.dumps({"features": [at_odds("01", [[["x", 1]]])]}), "cannot be read"),
        (json.dumps({"features": [at_odds("01", [[[float("nan"), 1.0]]])]}), "cannot be read"),
        (json.dumps({"features": [at_odds("01", 7)]}), "cannot be read"),
    ],
)
def test_shapes_of_something_else_are_refused(text, words, tmp_path):
    (tmp_path / "places.geojson").write_text(text)
    with pytest.raises(DataError, match=words):
        report(*released(PLAIN), shapes=tmp_path / "places.geojson")
    with pytest.raises(DataError, match="no file"):
        report(*released(PLAIN), shapes=tmp_path / "nowhere.geojson")


def test_the_finest_level_that_the_shapes_match_is_drawn():
    release, _ = released(PLAIN)
    level, _, found = matched(release.cells, [square(f"{at:05d}", at, 0) for at in range(6)])
    assert (level, len(found)) == ("block_group", 6)


def test_a_loss_beside_exact_counts_is_said_for_the_change_that_they_allow():
    """A household that leaves one cell for another of a state whose count is exact takes two steps."""
    release, spec = released(CROSSED)
    change = release.guarantee.change
    assert change is not None
    assert change.steps == 2
    page = report(release, spec)
    loss = outward(change.amount, 3)
    assert (
        f"and epsilon = {loss} for the smallest change that the exact counts allow, which is 2 steps"
        in opening_of(page)
    )
    assert f"(e to the power {loss}: that change is 2 steps)" in page
    assert "e to the power epsilon" in report(*released(PLAIN))
