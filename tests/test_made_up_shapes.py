"""Made-up shapes: each place has one, they do not overlap, and neighbours share their borders."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.demo.synthetic import made_up_shapes, synthetic_blocks
from trueup.model.cells import Cells
from trueup.model.tree import Tree
from trueup.reporting.drawing.maps import outlines


def area(ring: np.ndarray) -> float:
    x, y = ring[:, 0], ring[:, 1]
    return float(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]) / 2)


@pytest.fixture(scope="module")
def shapes() -> list[dict]:
    return made_up_shapes(synthetic_blocks()["GEOID"].tolist(), (2, 5, 11), "tract")["features"]


def test_every_tract_of_the_demonstration_has_a_shape_that_is_drawn(shapes):
    codes = np.array([shape["properties"]["tract"] for shape in shapes])
    cells = Cells(Tree.from_columns(["all", "tract"], [{}, {"tract": codes}]))
    drawn = outlines(cells, shapes)
    assert (drawn.level, drawn.unmatched, len(drawn.paths)) == ("tract", "", 420)


def test_shapes_fill_what_lies_between_them(shapes):
    """Borders are straight between the points of a grid, so that small gaps are left where three shapes meet."""
    areas = [area(np.array(shape["geometry"]["coordinates"][0])) for shape in shapes]
    whole = made_up_shapes(["1", "1"], (1,), "all")["features"][0]["geometry"]["coordinates"][0]
    assert min(areas) > 0
    assert sum(areas) == pytest.approx(area(np.array(whole)), rel=1e-3)


def test_a_place_with_more_below_it_is_larger():
    few, many = made_up_shapes(["a1", *(f"b{i}" for i in range(9))], (1,), "x")["features"]
    assert area(np.array(few["geometry"]["coordinates"][0])) < area(
        np.array(many["geometry"]["coordinates"][0])
    )
