"""Made-up counts on the places of a spec keep its upper limits, and leave out units at random."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from trueup import Problem, explain, parse_spec
from trueup.errors import SpecError
from trueup.model.cells import Margin
from trueup.model.constraints import violations
from trueup.synth.own_places import leave_out_excess, made_up_counts

SPEC = """
format = 2
title = "Homes"
table = { name = "homes", kind = "counts", counts = "home", count = "n" }
privacy = { unit = "home", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "kind", values = ["house", "flat"] }, { name = "let", values = ["yes", "no"] }]
query = [{ name = "q", attributes = ["kind", "let"], epsilon = { area = "1/2" } }]
"""
FLATS = 'level = "area", attributes = ["kind"], where = { kind = "flat" }'
LIMITED = f'[constraints]\nbounds = [{{ {FLATS}, upper = "flats" }}, {{ level = "area", upper = 90 }}]\n'
PLACES = pd.DataFrame({"area": [f"a{i}" for i in range(40)], "flats": [0, 3, 20, 10**6] * 10})


def test_upper_limits_hold_and_where_none_binds_nothing_changes():
    free, limited = (Problem.of(parse_spec(SPEC + more), PLACES) for more in ("", LIMITED))
    drawn = [made_up_counts(p, np.random.default_rng(3), persons=4_000) for p in (free, limited)]
    assert violations(limited.constraints, drawn[0])
    assert not violations(limited.constraints, drawn[1])
    wide = Problem.of(parse_spec(SPEC + LIMITED.replace("90", "999999")), PLACES.assign(flats=10**6))
    assert made_up_counts(wide, np.random.default_rng(3), persons=4_000).tolist() == drawn[0].tolist()


def test_each_unit_is_as_likely_to_be_left_out(rng):
    """A mean of 3,000 draws is within six standard errors; leaving out the first or the last units is far off."""
    cells, given = Problem.of(parse_spec(SPEC), PLACES[:1]).cells, np.array([30, 60, 10, 0])
    found = np.tile(given, (3_000, 1))
    for counts in found:
        leave_out_excess(cells, Margin("area"), np.array([50.0]), counts, rng)
    assert (found.sum(axis=1) == 50).all()
    error = np.sqrt(50 * 0.25 / 3_000)
    assert np.abs(found.mean(axis=0) - given / 2).max() < 6 * error


def test_errors_are_simulated_under_upper_limits_and_not_under_lower_ones():
    found = explain(parse_spec(SPEC + LIMITED), PLACES)
    assert found.classes is not None
    assert found.classes.note.startswith("Simulated")
    lower = parse_spec(f"{SPEC}[constraints]\nbounds = [{{ {FLATS}, lower = 1 }}]\n")
    with pytest.raises(SpecError, match="declares bounds"):
        made_up_counts(Problem.of(lower, PLACES), np.random.default_rng(3))
