"""Margins by size: what is interpolated between budgets is what a simulation at the budget in between finds."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import trueup
from trueup.errors import SpecError
from trueup.model.cells import Margin
from trueup.planning.margins import normal_ratio
from trueup.releasing.by_size import MarginsBySize, SizeClass, margins_by_size

PLACES = pandas.DataFrame({"area": [f"{i:03d}" for i in range(300)]})
SPEC = trueup.propose_spec(["area", "n"], PLACES, title="Areas").spec


@pytest.fixture(scope="module")
def found() -> MarginsBySize:
    return margins_by_size(SPEC, PLACES, targets={"area": "20@95%"})


@pytest.mark.thorough
@pytest.mark.parametrize("wanted", [6.0, 14.0, 40.0])
def test_a_target_for_one_size_is_met_by_the_table_that_it_asks_for(found, wanted):
    for size in found.of("area"):
        deviation = found.target("area", size.lowest, wanted, "95%")
        planned = trueup.plan(SPEC, PLACES, targets={"area": f"{normal_ratio(95) * deviation}@95%"})
        seen = trueup.explain(trueup.planned_spec(SPEC, planned), PLACES).classes
        margin = float(seen.margin_of_error(Margin("area"), np.array([size.lowest]), "95%")[0])
        assert margin == pytest.approx(wanted, rel=0.15, abs=1.0), size.label


@pytest.mark.thorough
def test_sizes_differ_where_noise_is_wide(found):
    """Were each size as uncertain as its table, empty places would ask for as much as populous ones."""
    sizes = found.of("area")
    asked = [found.target("area", size.lowest, 10.0, "95%") for size in sizes]
    assert asked[0] > 1.2 * asked[-1]


def test_what_was_written_is_read(found):
    assert MarginsBySize.read(found.written()) == found


def test_a_size_that_is_unknown_and_a_margin_out_of_range_are_refused(found):
    for table, lowest, margin in (("area", 7, 3.0), ("all", 0, 3.0), ("moon", 0, 3.0), ("area", 0, -1.0)):
        with pytest.raises(SpecError):
            found.target(table, lowest, margin, "95%")
    with pytest.raises(SpecError, match="77"):
        found.target("area", 0, 3.0, "77%")


def test_a_table_of_one_size_has_no_sliders_of_its_own():
    alone = SizeClass("all", 0, "any", (1.0, 2.0), ((1.0, 2.0),) * 5)
    assert MarginsBySize((alone,), "").of("all") == ()
