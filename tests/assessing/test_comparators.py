"""What agencies do today, beside a spec's own methods: keys, roundings, suppression, swapping, a published table."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import trueup as tu
from trueup.assessing.comparators import comparators
from trueup.demo import AREAS
from trueup.errors import TrueupError
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.tree import Tree

COUNTS = {"area": list("abcdef"), "n": [300, 40, 3, 1, 0, 12]}
ALL = [
    ("cell-key", {"maximum": 5, "change_variance": "3", "smallest": 3}),
    ("random-rounding", {"base": 3}),
    ("random-rounding", {"base": 5}),
    ("suppressed", {"threshold": 10}),
    ("swapping", {"rate": 0.05}),
]


def two_levels():
    """Two parents of two and one places, by three values, and counts."""
    tree = Tree.from_columns(
        ["all", "parent", "place"], [{}, {"parent": list("aab")}, {"place": list("xyz")}]
    )
    cells = Cells(tree, (Attribute("kind", ("u", "v", "w")),))
    return cells, np.array([40, 0, 9, 3, 20, 0, 7, 0, 0])


def tables(name, given, replicates=200):
    """Tables of one comparator of these counts."""
    cells, counts = two_levels()
    [(_, comparator)] = comparators([(name, given)], counts, None, 0.9)
    margins = [Margin("all"), Margin("parent"), Margin("parent", ("kind",)), Margin("place"), cells.finest]
    found = comparator.estimate(cells, margins, np.zeros((replicates, 1)), np.random.default_rng(3))
    return cells, counts, margins, found


def test_every_comparator_is_labelled_and_flagged_for_nothing():
    found = tu.assess(
        AREAS,
        pandas.DataFrame(COUNTS),
        replicates=60,
        public_truth=True,
        comparators=ALL,
        released=pandas.DataFrame(COUNTS),
    )
    theirs = [m for m in found.methods if m.verb == "comparator"]
    assert len(theirs) == 6
    assert all("no formal guarantee" in m.title for m in theirs)
    assert not {flag.method for flag in found.flags} & {m.label for m in theirs}
    page = str(tu.report(found, AREAS))
    assert "no formal guarantee" in page
    assert "Do parts add up?" in page
    budget = found.budgets[0].label
    rows = [line for line in page.split("<tr>") if f"<td>{budget}</td>" in line]
    assert rows
    assert not [line for line in rows for other in theirs if other.label in line], (
        "what others do has a budget"
    )
    rows = found.rows(statistic="missed by parts", level="all", by="level")
    missed = dict(zip(rows["method"], rows["value"]))
    assert missed[found.methods[0].label] == 0
    assert missed["random-rounding, base 3"] > 1


def test_cells_with_the_same_records_have_the_same_value():
    cells, counts, margins, found = tables("cell-key", {"maximum": 2, "change_variance": "1"})
    parent, place = found.tables[margins[1]], found.tables[margins[3]]
    assert (parent[:, 1] == place[:, 2]).all()  # b holds z alone
    kinds = found.tables[margins[2]]
    assert (kinds[:, 3] == parent[:, 1]).all()  # and nobody but kind u
    assert (parent[:, 0] != place[:, :2].sum(axis=1)).any()
    assert (found.tables[cells.finest][:, counts == 0] == 0).all()


def test_rounding_draws_each_cell_apart():
    _, _, margins, found = tables("random-rounding", {"base": 5})
    assert (found.tables[margins[1]][:, 1] != found.tables[margins[3]][:, 2]).any()


def test_swapping_keeps_places_and_what_parents_hold_together():
    cells, counts, margins, found = tables("swapping", {"rate": 0.3})
    for margin in margins[:4]:
        assert (found.tables[margin] == cells.sum(counts, margin)).all()
    finest = found.tables[cells.finest]
    assert (finest[:, :6] != counts[:6]).any()
    assert (finest[:, 6:] == counts[6:]).all()  # nobody to swap with


def test_implied_intervals_cover_as_they_claim_over_a_flat_range_of_counts():
    counts = np.arange(50, 1050)
    cells = Cells(Tree.from_columns(["all", "place"], [{}, {"place": [f"{k:04d}" for k in counts]}]))
    [(_, comparator)] = comparators([("cell-key", {"maximum": 5, "change_variance": "5"})], counts, None, 0.9)
    found = comparator.estimate(cells, [cells.finest], np.zeros((40, 1)), np.random.default_rng(4))
    low, high = found.intervals["implied", cells.finest]
    covered = ((low <= counts) & (counts <= high)).mean()
    law = comparator.law
    x = np.arange(90, 111)
    mass = np.exp(law.log_mass(100, x))
    (claimed_low, claimed_high), whole = comparator._ends(100), mass.sum()
    claim = mass[(x >= claimed_low) & (x <= claimed_high)].sum() / whole
    assert abs(covered - claim) < 5.5 * np.sqrt(claim * (1 - claim) / low.size)


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        ([("cell-keys", {})], "unknown"),
        ([("random-rounding", {})], "parameter"),
        ([("random-rounding", {"base": "x"})], "base"),
        ([("swapping", {"rate": 2})], "rate"),
        ([("swapping", {})], "rate"),
        ([3], "comparator"),
    ],
)
def test_bad_comparators_are_named(wanted, word):
    with pytest.raises(TrueupError, match=word):
        comparators(wanted, np.zeros(2, np.int64), None, 0.9)
