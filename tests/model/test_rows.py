"""Which rules contradict each other, against every table of small counts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from trueup.errors import InfeasibleError, SpecError
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Bound, Constraints, LinearRule
from trueup.model.linear import parse_linear
from trueup.model.linear_system import refuse_contradiction
from trueup.model.tree import Tree
from trueup.releasing.pipeline import release

NAMES = ("a", "b", "c")
AREAS = Tree.from_columns(["all", "area"], [{}, {"area": ["x", "y"]}])
CELLS = Cells(AREAS, (Attribute("kind", NAMES),))
TABLES = np.array(list(product(range(25), repeat=3)))


def refused(*rules, cells=CELLS, level="area", **more):
    """What the error names, the whole message; None if there is no error."""
    linear = tuple(LinearRule(parse_linear(rule), level) for rule in rules)
    try:
        refuse_contradiction(Constraints(cells, (), linear=linear, **more))
    except InfeasibleError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        (["a >= 5", "b >= 1", "a <= 3"], ": 'a >= 5' at x; 'a <= 3' at x."),
        (["a >= b + 1", "b >= c + 1", "c >= a"], ": 'a >= b + 1' at x; 'b >= c + 1' at x; 'c >= a' at x."),
        (["a + b == 2", "a >= 3", "c >= 1"], " with counts of at least zero: 'a + b == 2' at x; 'a >= 3' at x."),
        (["2*a + 2*b == 7"], " in whole numbers: '2*a + 2*b == 7' at "),
        (["a <= -1"], " with counts of at least zero: 'a <= -1' at x."),
    ],
)  # fmt: skip
def test_rules_that_exclude_each_other_are_named(rules, named):
    assert f"these constraints cannot all hold{named}" in refused(*rules)


def test_bounds_exclude_each_other_by_way_of_sums():
    bounds = (
        Bound(Margin("all"), lower=10),
        Bound(Margin("area", ("kind",)), upper=1),
        Bound(Margin("area"), lower=1),
    )
    message = refused(bounds=bounds)
    assert "the bound on 'all'; the bound on 'x, kind=a'; the bound on 'x, kind=b'" in message
    assert "the bound on 'x'" not in message


@pytest.mark.parametrize("limits", [(1.0, 2.0, 3.0, 4.0), np.zeros(40)])
def test_a_bound_has_one_limit_or_one_for_each_count(limits):
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    for bound in (Bound(Margin("area"), lower=limits), Bound(Margin("area"), upper=limits)):
        with pytest.raises(
            SpecError, match=f"bound of 'area' has {len(limits)} limits.*or 2 limits: one for each"
        ):
            Constraints(cells, (), bounds=(bound,))
    for fitting in ((3.0,), np.zeros(2), 3):
        Constraints(cells, (), bounds=(Bound(Margin("area"), lower=fitting),))


def test_a_structural_zero_excludes_a_bound():
    bound = Bound(Margin("all", ("kind",)), lower=1, where=(("kind", "b"),))
    named = "the structural zero 'x, kind=b'; the structural zero 'y, kind=b'; the bound on 'all, kind=b'"
    assert named in refused(bounds=(bound,), zeros=({"kind": "b"},))


def test_invariants_take_no_part():
    fixed = Margin("all"), Margin("area")
    assert refused("a >= 5", bounds=(Bound(Margin("all"), lower=10, upper=10),), invariants=fixed) is None


def test_counts_may_be_negative_where_the_spec_says_so():
    assert refused("a <= -1", "a + b == 0", nonnegative=False) is None


def _holds(rule, tables):
    parsed = parse_linear(rule)
    side = sum(float(parsed.coefficients.get(n, 0)) * tables[:, i] for i, n in enumerate(NAMES)) - float(
        parsed.bound
    )
    return {"<=": side <= 0, ">=": side >= 0, "==": side == 0}[parsed.sense]


def _somebody(rules):
    return bool(np.all([_holds(rule, TABLES) for rule in rules], axis=0).any())


@pytest.mark.thorough
def test_random_rules_are_refused_exactly_when_no_table_satisfies_them(rng):
    """And what is named excludes itself, none of it needless."""
    one = Cells(Tree.from_columns(["all"], [{}]), (Attribute("kind", NAMES),))
    outcomes = {True: 0, False: 0}
    for _ in range(120):
        terms = rng.integers(-1, 3, (4, 3))
        sides, senses = rng.integers(-3, 9, 4), rng.choice(["<=", ">=", "=="], 4)
        rules = [
            " + ".join(f"{int(c)}*{n}" for c, n in zip(row, NAMES) if c) + f" {sense} {side}"
            for row, side, sense in zip(terms, sides, senses)
            if row.any()
        ]
        rules = list(dict.fromkeys(r.replace("+ -", "- ") for r in rules))
        message = refused(*rules, cells=one, level="all")
        outcomes[message is None] += 1
        assert _somebody(rules) == (message is None), rules
        if message is not None:
            named = [rule for rule in rules if f"'{rule}' at all" in message]
            assert not _somebody(named)
            assert all(_somebody([r for r in named if r != rule]) for rule in named), (rules, message)
    assert min(outcomes.values()) > 20


@pytest.mark.thorough
def test_fifty_thousand_cells_take_seconds():
    """Cells that appear alike in every rule are one; the largest tables searched would take minutes otherwise."""
    places = [str(i) for i in range(16_000)]
    halves = [str(i % 100) for i in range(16_000)]
    columns = [{}, {"half": halves}, {"half": halves, "place": places}]
    cells = Cells(Tree.from_columns(["all", "half", "place"], columns), (Attribute("kind", NAMES),))
    lower = Bound(Margin("half"), lower=5)
    assert refused(cells=cells, bounds=(lower, Bound(Margin("all"), upper=500))) is None
    assert "and 95 more" in refused(cells=cells, bounds=(lower, Bound(Margin("all"), upper=499)))


SPEC = """
format = 2
title = "Areas"
table = { name = "areas", kind = "records", counts = "person" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "kind", values = ["a", "b", "c"] }]
query = [{ name = "kinds", attributes = ["kind"], levels = ["area"], epsilon = 1 }]
constraints = { linear = ["a >= 5", "a <= 3"] }
"""


def test_rules_alone_are_refused_before_the_confidential_file_is_opened(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "areas.csv").write_text("area\nx\ny\n")
    with pytest.raises(InfeasibleError, match="'a >= 5' at x; 'a <= 3' at x"):
        release(
            tmp_path / "spec.toml", tmp_path / "none.csv", tmp_path / "out", geography=tmp_path / "areas.csv"
        )
    assert {path.name for path in tmp_path.iterdir()} == {"spec.toml", "areas.csv"}
