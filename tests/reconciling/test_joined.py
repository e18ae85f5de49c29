"""Two linked tables reconciled: every rule at every level, the same integers by parts, near what a general program finds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.linked_tables import document, gaussian, joined, population, problem
from tests.parameters import one_in
from tests.reconciling.test_on_segments import places_of, segment_of
from trueup.measuring import read_confidential, simulate
from trueup.model.cells import Margin
from trueup.reconciling import reconcile
from trueup.reconciling.general_projection import GeneralProjection
from trueup.reconciling.histogram_parts import joined_summaries, tie_seed
from trueup.reconciling.joined_parts import JoinedPlan, JoinedSegment, joined_down, joined_up
from trueup.reconciling.joined_tree import JoinedTree, stacked_counts

LEVELS = {"all": "1/2", "county": "1/2", "block": "1"}


def capped(values: list[str], **more) -> dict:
    """A spec whose sizes, or numbers of children, have a top code."""
    attributes = document()["attribute"][:3]
    attributes += (
        [{"name": "size", "persons": {}, "values": values}] if values else [{"name": "size", "persons": {}}]
    )
    queries = [
        gaussian("households", "household", ["size", "tenure", *more.get("beside", [])], LEVELS),
        gaussian("persons", "person", ["age", "sex", "tenure"], LEVELS),
    ]
    return {"attribute": [*attributes, *more.get("attributes", [])], "query": queries}


CHILDREN = {"name": "children", "persons": {"age": "child"}, "values": ["0", "1", "2+"]}
NESTED = [
    {"name": "minors", "persons": {"age": ["child"]}},
    {"name": "grown", "persons": {"age": ["adult", "old"]}},
]
ESTIMATES = ["posterior-means", "least-squares"]
SPECS = {
    "size and children": {},
    "a top code of size": capped(["1", "2", "3+"]),
    "a top code of children": capped([], attributes=[CHILDREN], beside=["children"]),
    "a top code of both": capped(["1", "2", "3+"], attributes=[CHILDREN], beside=["children"]),
    "two sets apart": capped([], attributes=NESTED[:1], beside=["minors"]),
    "nobody lives alone with children": {
        "constraints": {"zeros": [{"size": str(k), "children": str(k)} for k in range(1, 5)]}
    },
}


def noisy(rng, name: str, households: int = 60):
    """A problem, its true counts where they obey the rules, and measurements of them."""
    given = problem(**SPECS[name])
    tables = population(rng, households)
    if "constraints" in SPECS[name]:
        tables.persons.loc[tables.persons.relation == "ref", "age"] = "adult"
    counts = read_confidential(given.spec, given.cells, tables, constraints=given.constraints)
    measured = simulate(given, counts, rng)
    return given, counts, measured


@pytest.mark.parametrize("estimates", ESTIMATES)
@pytest.mark.parametrize("name", SPECS)
def test_no_place_contradicts_at_any_level(rng, name, estimates):
    given, _, measured = noisy(rng, name)
    released = reconcile(measured, JoinedTree(estimates=estimates))
    assert all(released.checks.values())
    assert released.counts.dtype.kind == "i"
    assert (released.counts >= 0).all()
    both, tree = joined(given), given.cells.tree
    assert both.rules
    for level in tree.levels:
        tables = [
            table.cells(tree)
            .sum(table.of(released.counts, both.records), Margin(level, table.cells(tree).finest.attributes))
            .reshape(tree.sizes[tree.level(level)], table.size, -1)
            for table in both.tables
        ]
        for link in both.links:
            held = np.einsum("k,pkt->pt", link.persons, tables[1])
            inside = both.inside(link)
            persons = tables[0][:, inside].sum(axis=1)
            assert (held == persons).all() if link.exact else (held <= persons).all()


def test_a_contradiction_is_seen(rng):
    from trueup.model.constraints import violations

    given, counts, _ = noisy(rng, "size and children")
    assert not violations(given.constraints, counts)
    counts[0] += 1
    assert any("==" in broken for broken in violations(given.constraints, counts))


def test_without_noise_the_counts_come_back(rng):
    budgets = {"size": "400", "households": "100", "persons": "400"}  # some count is off once in 10^9 runs
    exact = [query | {"rho": dict.fromkeys(LEVELS, budgets[query["name"]])} for query in document()["query"]]
    given = problem(query=exact)
    counts = read_confidential(given.spec, given.cells, population(rng, 60), constraints=given.constraints)
    measured = simulate(given, counts, rng)
    released = reconcile(measured, JoinedTree(estimates="least-squares"))
    np.testing.assert_array_equal(released.counts, counts)


@pytest.mark.thorough
@pytest.mark.parametrize("estimates", ESTIMATES)
@pytest.mark.parametrize("name", one_in(2, SPECS))
def test_by_parts_the_same_integers_are_found(rng, name, estimates):
    given, _, measured = noisy(rng, name)
    method, headers = JoinedTree(estimates=estimates), given.headers
    whole = method.apply(method.prepare(given.constraints, headers), measured.flat, np.random.default_rng(3))
    plan = method.divide(given.constraints, headers)
    assert isinstance(plan, JoinedPlan)
    tree = given.cells.tree
    answers = [
        [v.reshape(tree.sizes[i], -1) for h, v in zip(headers, measured.values) if h.margin.level == level]
        for i, level in enumerate(tree.levels)
    ]

    def segment(top: int, bottom: int, start: int, stop: int) -> JoinedSegment:
        return JoinedSegment.of(plan, segment_of(plan, given.constraints, top, bottom, start, stop))

    def of(part: JoinedSegment):
        return [
            [t[places_of(part.persons, level)] for t in answers[level]] for level in part.persons.measured
        ]

    seed = tie_seed(np.random.default_rng(3))
    top, parts = segment(0, 1, 0, 1), [segment(1, 2, i, i + 1) for i in range(2)]
    below = [joined_up(part, of(part)) for part in parts]
    summary = joined_summaries(below)
    settled = joined_down(top, of(top), summary, None, seed)
    tables = [
        joined_down(part, of(part), None, settled.tables[-1][i : i + 1], seed).tables[-1]
        for i, part in enumerate(parts)
    ]
    np.testing.assert_array_equal(np.concatenate(tables).ravel(), whole.values)


def test_many_rows_at_once_are_each_reconciled(rng):
    given, _, measured = noisy(rng, "a top code of both")
    method = JoinedTree(estimates="least-squares")
    state = method.prepare(given.constraints, given.headers)
    rows = np.stack([measured.flat, measured.flat + 1])
    together = method.apply(state, rows, np.random.default_rng(1))
    assert together.values.shape == (2, given.cells.n)
    one = method.apply(state, rows[0], np.random.default_rng(1))
    np.testing.assert_array_equal(together.values[0], one.values)


def test_stacking_puts_the_tables_where_they_were(rng):
    given = problem()
    both, counts = joined(given), rng.integers(0, 9, given.cells.n)
    parts = [table.of(counts[None], both.records) for table in both.tables]
    np.testing.assert_array_equal(stacked_counts(both, *parts)[0], counts)


@pytest.mark.thorough
def test_errors_are_near_those_of_a_general_program(rng):
    """`general-projection` solves for all places and both tables at once, which is not possible for a state."""
    tried = {
        "means": JoinedTree(),
        "least squares": JoinedTree(estimates="least-squares"),
        "general": GeneralProjection(),
    }
    errors = dict.fromkeys(tried, 0.0)
    for _ in range(8):
        _, counts, measured = noisy(rng, "a top code of size", households=80)
        for name, method in tried.items():
            errors[name] += float(((reconcile(measured, method).counts - counts) ** 2).sum())
    assert errors["least squares"] < 1.25 * errors["general"]
    assert errors["means"] < errors["general"]
