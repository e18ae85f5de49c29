"""Reports begin with the counts: ranked, each with how far it may be off."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pandas as pd

from tests.reporting.records import CROSSED, PLAIN, RATIOS, posterior, released
from trueup.cli.release import show_release
from trueup.demo import AREAS
from trueup.inferring.questions import infer_areas
from trueup.measuring import simulate
from trueup.model.cells import Cells, Margin
from trueup.model.problem import Problem
from trueup.model.records.expected_errors import ErrorClass, ExpectedErrors
from trueup.model.records.release import unreadable_forecast, unreadable_tables
from trueup.model.spec import parse_spec
from trueup.model.tree import Tree
from trueup.reconciling import reconcile
from trueup.releasing.explain import explain
from trueup.reporting import report
from trueup.reporting.sections.origin import reported


def pictures_of(page, section: str) -> list:
    return [picture.block for picture in page.pictures if picture.section == section]


def test_a_release_shows_its_counts_first_largest_on_top_with_their_margins():
    release, spec = released(PLAIN)
    page = report(release, spec, level="95%")
    first = page.pictures[0]
    assert first.section == "What the numbers say"
    states, blocks = pictures_of(page, first.section)
    for margin, picture in (("state", states), ("block_group", blocks)):
        counts, errors = release.sums(margin), release.margin_of_error(margin, "95%")
        order = np.argsort(-counts, kind="stable")
        texts = [marks[-1].text for _, marks in picture.rows]
        assert texts == [f"{counts[i]:,} ± {errors[i]:.0f}" for i in order]
        assert [marks[0].to for _, marks in picture.rows] == counts[order].tolist()
        assert [marks[1].to for _, marks in picture.rows] == (counts + errors)[order].tolist()
    assert f"In all: {release.sums('nation')[0]:,} ±" in page
    ids = re.findall(r'<section id="(\w+)"', page)
    assert ids.index("results") < ids.index("protected") < ids.index("cost")


def test_attributes_of_the_whole_are_shown_with_margins_that_were_simulated_with_the_tables():
    release, spec = released(CROSSED)
    pictures = pictures_of(report(release, spec), "What the numbers say")
    by_sex = next(picture for picture in pictures if picture.caption.startswith("The whole by sex"))
    counts = release.sums("nation x sex")
    assert [name for name, _ in by_sex.rows] == ["female", "male"]
    assert [marks[0].to for _, marks in by_sex.rows] == counts.tolist()
    assert "Lines show the 90 % margin of error" in by_sex.caption
    sums = Margin("nation", ("sex",))
    assert sums not in release.published
    assert [marks[1].to for _, marks in by_sex.rows] == (counts + release.margin_of_error(sums)).tolist()
    bare = replace(release, expects=None)  # of which nothing was simulated
    said = pictures_of(report(bare, spec), "What the numbers say")
    assert any("No margin of error of these sums is known" in picture.caption for picture in said)


def test_a_posterior_shows_what_was_asked_first():
    found, spec = posterior(CROSSED, ratios=RATIOS)
    blocks = [found.cells.tree.keys[-1][name].tolist() for name in found.cells.tree.keys[-1]]
    mapping = pd.DataFrame(dict(zip(found.cells.tree.keys[-1], blocks))).assign(district=["x", "y"] * 3)
    areas = infer_areas(found, mapping, column="district")
    page = report(found, spec, areas=areas)
    districts, ratios = pictures_of(page, "What was asked")
    assert page.pictures[0].block == districts
    assert sorted(name for name, _ in districts.rows) == ["x", "y"]
    assert max(areas["mean"]) == districts.rows[0][1][0].to
    assert "share of women" in ratios.caption
    assert pictures_of(page, "What the true counts may be, largest first")
    assert "shares = " not in re.search(r'<dl class="summary">.*?</dl>', page, re.DOTALL)[0]


def test_notebooks_show_the_largest_counts():
    release, _ = released(PLAIN)
    shown = release._repr_html_()
    counts = release.sums("state")
    assert f"<td>{counts.max():,}</td>" in shown
    assert "released" in shown
    assert "<script>" not in shown  # a place is called so
    assert "<th>mean</th>" in posterior(PLAIN)[0]._repr_html_()
    assert "<th>noisy</th>" not in release.measurements._repr_html_()


def test_notebooks_show_the_first_level_that_is_not_known_exactly():
    states = PLAIN.replace('nation = "1/10", state = "2/5", ', "")
    states += 'constraints = { invariants = [{ level = "state" }] }\n'
    for record in (released(states)[0], posterior(states)[0]):
        assert "<th>block_group</th>" in record._repr_html_()
    assert "<th>state</th>" in released(PLAIN)[0]._repr_html_()


AGES = ["under 5", "5 to 64", "65 and over"]
MEASURED = PLAIN.replace(
    "query =",
    f'attribute = [{{ name = "sex", values = ["female", "male"] }}, {{ name = "age", values = {AGES} }}]\nquery ='.replace(
        "'", '"'
    ),
).replace(
    "} }]",
    '} }, { name = "ages", attributes = ["age"], levels = ["nation"], epsilon = 1 }, '
    '{ name = "both", attributes = ["sex", "age"], levels = ["block_group"], epsilon = 1 }]',
)


def test_every_measured_table_is_shown_with_margins_and_ages_in_their_order():
    release, spec = released(MEASURED)
    pictures = pictures_of(report(release, spec), "What the numbers say")
    titles = [picture.caption.split(":")[0] for picture in pictures]
    assert titles == [
        "State",
        "Block group",
        "The whole by sex",
        "The whole by age",
        "Block group by sex by age",
    ]
    _, ages, both = pictures[2:]
    assert [name for name, _ in ages.rows] == AGES
    assert "Lines show the 90 % margin of error" in ages.caption
    assert "Lines show the 90 % margin of error" in both.caption
    assert all(len(marks) == 3 for _, marks in (*ages.rows, *both.rows))
    largest = max(ages.rows, key=lambda row: row[1][0].to)[0]
    assert f"The largest is {largest}:" in ages.message


def test_a_budget_that_is_far_too_small_is_said_to_be(capsys):
    release, spec = released(re.sub(r'"1/10"|"2/5"|"1/2"', '"1/500"', PLAIN))
    said = "From the table 'block_group' "
    assert said in unescape(report(release, spec))
    show_release(release, "out", as_json=False)
    assert said in capsys.readouterr().out
    sparse = replace(
        release, counts=np.array([0, 0, 0, 0, 0, 90_000])
    )  # whose margins exceed zeros, not the mean
    assert not [*unreadable_tables(sparse)]
    enough, spec = released(PLAIN.replace('"1/2"', "4"))
    assert said not in unescape(report(enough, spec))
    show_release(enough, "out", as_json=False)
    assert said not in capsys.readouterr().out


def test_a_forecast_says_of_which_tables_nothing_can_be_read():
    cells = Cells(Tree.from_columns(["all", "block"], [{}, {"block": np.arange(100)}]))

    def said(margin, units=1000, classes=((0, 500), (1, 10), (10, 490))):
        rows = [ErrorClass(Margin("block"), low, n, 0.0, 1.0, (1, 2, margin, 900, 999)) for low, n in classes]
        return [*unreadable_forecast(ExpectedErrors(tuple(rows), ""), cells, units)]

    assert not said(10)  # the average number, and the least of the largest class
    assert "no number and no order can be read: for 100 % of its counts in made-up populations" in said(11)[0]
    assert not said(11, units=10_000)
    assert not said(5, classes=((0, 100), (1, 900)))  # a class without an end holds numbers near the average
    few, most = (
        said(20, classes=((0, 520), (10, 10), (100, 470))),
        said(20, classes=((0, 490), (10, 10), (100, 500))),
    )
    assert "neither most numbers nor their order can be read: for 52 %" in few[0]
    assert not most
    assert not [*unreadable_forecast(None, cells, 1000)]


def test_an_explanation_names_tables_of_which_nothing_can_be_read():
    places = pd.DataFrame({"area": ["a", "b"]})
    assert not explain(AREAS, places).unreadable
    (said,) = explain(AREAS, places, persons=4).unreadable
    assert "'area'" in said


def test_figures_that_mean_nothing_to_readers_are_left_out():
    stats = {
        "lacking": 1.0,
        "largest_r_hat": 1.01,
        "chains": 4,
        "directions_left_out": 0,
        "predicted_bytes": 1e8,
        "passed": False,
    }
    assert reported(stats, {"chains"}) == [
        ("Largest R-hat of a count or sum", "1.01"),
        ("All of them are accepted", "no"),
    ]


def test_what_is_left_out_stands_beside_the_total_and_in_charts():
    spec = parse_spec(VISITS)
    noisy = simulate(Problem.of(spec, None), np.array([40, 30]), np.random.default_rng(5))
    page = report(reconcile(noisy, spec=spec), spec)
    assert re.search(r"In all: \d+ ± \d+ visits \(at most 5 of each patient\)", page)
    assert all(
        "visits (at most 5 of each patient)" in p.axis.title
        for p in pictures_of(page, "What the numbers say")
    )


VISITS = """
format = 2
title = "Visits"
table = { name = "visits", counts = "visit", kind = "records" }
privacy = { unit = "patient", neighbours = "add-remove", id = "patient", contribution = { records = 5 } }
level = [{ name = "all" }]
attribute = [{ name = "sex", values = ["f", "m"] }]
query = [{ name = "total", attributes = ["sex"], epsilon = { all = "1" } }]
"""
