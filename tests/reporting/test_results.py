"""Reports begin with the counts: ranked, each with how far it may be off."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from tests.reporting.records import CROSSED, PLAIN, RATIOS, posterior, released
from trueup.inferring.areas import infer_areas
from trueup.reporting import report


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


def test_attributes_of_the_whole_are_shown_and_unknown_margins_are_said_to_be():
    release, spec = released(CROSSED)
    *_, by_sex = pictures_of(report(release, spec), "What the numbers say")
    counts = release.sums("nation x sex")
    assert sorted(name for name, _ in by_sex.rows) == ["female", "male"]
    assert [marks[0].to for _, marks in by_sex.rows] == sorted(counts.tolist(), reverse=True)
    assert "No margin of error of these sums is known" in by_sex.caption


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
