"""What is said before a release: errors by size on a made-up population, in memory and by blocks, or why there are none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tests.command import run
from trueup.cli import whole_app
from trueup.model.cells import Attribute, Cells
from trueup.model.problem import Problem
from trueup.model.spec import parse_spec
from trueup.model.tree import Tree
from trueup.releasing.by_size import margins_by_size
from trueup.releasing.explain import explain
from trueup.synth.own_places import usual_persons
from trueup.synth.people import PeopleDomain, populate
from trueup.synth.places import PlaceBranch

SPEC = """
format = 2
title = "Blocks by sex"
table = {{ name = "demo", kind = "counts", counts = "person", count = "n" }}
privacy = {{ unit = "person", neighbours = "add-remove" }}
level = [{{ name = "all" }}, {{ name = "tract", column = "tract" }}, {{ name = "block", column = "block" }}]
attribute = [{{ name = "sex", values = ["f", "m"] }}]
query = [
  {{ name = "total", epsilon = {{ all = "1/4", tract = "1/4", block = "1/4" }} }},
  {{ name = "by sex", attributes = ["sex"], epsilon = {{ tract = "1/4", block = "1/4" }} }},
]
{rules}
"""
PLACES = pd.DataFrame({"tract": [f"t{i // 20}" for i in range(400)], "block": [f"b{i}" for i in range(400)]})


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr("trueup.releasing.explain.MAX_EXPLAINED_CELLS", 2**14)


def spec(rules: str = ""):
    return parse_spec(SPEC.format(rules=rules))


@pytest.mark.thorough
def test_errors_by_size_are_given_for_every_table_in_memory_and_by_parts():
    whole = explain(spec(), PLACES)
    parts = explain(spec(), PLACES, memory=10_000)
    assert (whole.engine, parts.engine) == ("memory", "local")
    for found in (whole, parts):
        tables = {str(table) for table in found.classes.tables}
        assert {"all", "tract", "block", "block x sex"} <= tables
        of_blocks = [c for c in found.classes.classes if str(c.table) == "block"]
        assert [c.lowest for c in of_blocks][:3] == [0, 1, 10]
        assert of_blocks[0].rmse < 0.8 * of_blocks[2].rmse


@pytest.mark.thorough
def test_the_population_has_the_size_that_is_asked_for():
    few, many = (explain(spec(), PLACES, persons=n).classes for n in (2_000, 200_000))
    assert "populations of 2,000 in 400 of 400 places" in few.note
    assert max(c.lowest for c in few.classes) < max(c.lowest for c in many.classes)


@pytest.mark.thorough
def test_equal_arguments_give_equal_figures():
    assert explain(spec(), PLACES).classes == explain(spec(), PLACES).classes


def test_rules_that_no_made_up_population_keeps_are_named():
    rules = '[constraints]\nbounds = [{ level = "block", lower = 3 }]'
    found = explain(spec(rules), PLACES).classes
    assert found.classes == ()
    assert "bounds" in found.note


@pytest.mark.thorough
@pytest.mark.parametrize("quick", [False, True])
def test_the_command_shows_errors_by_size_unless_it_is_to_be_quick(quick, tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC.format(rules=""))
    PLACES.to_csv(tmp_path / "places.csv", index=False)
    arguments = ["explain", str(tmp_path / "spec.toml"), "--geography", str(tmp_path / "places.csv")]
    app = whole_app("explain")
    found = CliRunner().invoke(app, [*arguments, *(["--quick"] if quick else [])])
    assert found.exit_code == 0, found.output
    assert ("Errors to expect by size" in found.output) != quick
    remedy = "state the number with --persons"
    assert (remedy in found.output) != quick
    stated = CliRunner().invoke(app, [*arguments, "--persons", "500", *(["--quick"] if quick else [])])
    assert remedy not in stated.output
    assert "a guess" not in stated.output


@pytest.mark.parametrize(
    ("levels", "persons"),
    [
        (("all", "tract", "block"), 40 * 400),  # blocks are known
        (("all", "tract", "ward"), 3_900 * 20),  # wards are not: there are 20 tracts
        (("all", "area", "ward"), 40 * 400),  # nothing is known of either
    ],
)
def test_places_of_a_kind_that_is_not_known_share_the_persons_of_those_above_them(levels, persons):
    columns = [{}, {"tract": PLACES.tract.to_numpy()}, {"block": PLACES.block.to_numpy()}]
    assert usual_persons(Tree.from_columns(list(levels), columns)) == persons


def test_a_forecast_of_counts_that_err_never_says_that_nine_in_ten_are_right():
    found = explain(spec(), PLACES).classes
    noisy = [c for c in found.classes if c.rmse > 0.1]
    assert noisy
    assert all(margin >= 1 for c in noisy for margin in c.margins[2:])
    assert any(c.margins[0] == 0 for c in noisy)


def test_a_rare_group_has_members_in_more_places_where_shares_are_partly_the_parent_s(rng):
    cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("race", tuple("abcdefgh")),))
    domain = PeopleDomain.of(cells, ())
    branch = PlaceBranch((np.zeros(500, np.int64),), np.ones(500))

    def places_of_rare_groups(even: float) -> int:
        parts = populate(domain, branch, 500 * 1000, rng, even=even)
        return sum(int((part.cell >= 5).sum()) for part in parts)

    assert places_of_rare_groups(0.5) > 1.5 * places_of_rare_groups(0.0)


def test_an_explanation_is_shown_in_three_lines_and_knows_its_problem():
    problem = Problem.of(spec(), PLACES)
    found = explain(problem, simulate=False)
    assert found.problem is problem
    title, tables, method = repr(found).splitlines()
    assert title == f"Explanation: {problem.spec.title}"
    assert "all, tract, tract x sex, block, block x sex; epsilon = 5/4 for one" in tables
    assert found.method["method"] in method
    assert "<table>" in found._repr_html_()


def test_where_no_closed_form_is_known_it_says_so_and_how_to_learn_the_errors(tmp_path):
    """A column of dashes would look like an error of none."""
    (tmp_path / "spec.toml").write_text(SPEC.format(rules='[constraints]\nlinear = ["f <= 40"]'))
    PLACES[:20].to_csv(tmp_path / "places.csv", index=False)
    given = [str(tmp_path / "spec.toml"), "--geography", str(tmp_path / "places.csv")]
    said = run("explain", *given, "--quick").stdout
    assert "error, least" not in said
    assert "Noise of each table" in said
    assert "leave out --quick to have them simulated" in " ".join(said.split())
    plain = (tmp_path / "spec.toml").read_text().partition("[constraints]")[0]
    (tmp_path / "spec.toml").write_text(plain)
    assert "error, least" in run("explain", *given, "--quick").stdout


def test_a_table_of_one_place_is_tried_on_as_many_units_as_its_cells_ask_for():
    text = """
format = 2
title = "Births"
table = { name = "births", kind = "counts", counts = "birth", count = "n" }
privacy = { unit = "birth", neighbours = "add-remove" }
level = [{ name = "all" }]
attribute = [{ name = "age", values = ["15", "20", "25", "30", "35", "40"] }, { name = "parity", values = ["1", "2", "3"] }]
query = [{ name = "cells", attributes = ["age", "parity"], epsilon = { all = "1" } }]
"""
    guessed, stated = (explain(parse_spec(text), persons=persons) for persons in (None, 5_000))
    assert guessed.classes is not None
    assert stated.classes is not None
    assert "of 720 (a guess) in 1 of 1 places" in guessed.classes.note
    assert "of 5,000 in 1 of 1 places" in stated.classes.note


@pytest.mark.thorough
@pytest.mark.parametrize("level", ["ward", "county"])
def test_a_number_of_units_that_nobody_stated_is_called_a_guess(level):
    wards = pd.DataFrame({level: ["A", "B", "C"]})
    text = f"""
format = 2
title = "Births"
table = {{ name = "births", kind = "counts", counts = "birth", count = "n" }}
privacy = {{ unit = "birth", neighbours = "add-remove" }}
level = [{{ name = "all" }}, {{ name = "{level}", column = "{level}" }}]
query = [{{ name = "total", epsilon = {{ {level} = "1" }} }}]
"""
    guessed, stated = (explain(parse_spec(text), wards, persons=persons) for persons in (None, 500))
    by_size = [
        margins_by_size(parse_spec(text), wards, targets={level: "20@95%"}, persons=persons).note
        for persons in (None, 500)
    ]
    for note in (guessed.classes and guessed.classes.note, by_size[0]):
        assert "(a guess) in 3 of 3 places" in note
    for note in (stated.classes and stated.classes.note, by_size[1]):
        assert "of 500 in 3 of 3 places" in note
