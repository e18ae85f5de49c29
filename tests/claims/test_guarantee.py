"""Every statement of a guarantee against all pairs of databases that it compares, on random small specs.

The true loss comes from the masses of the drawn laws over outputs. What is broken on purpose must be seen by the same checks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.claims.small_specs import Case, random_spec
from tests.reference.true_loss import RADIUS, rows
from trueup.model import changes, kept, mechanism, search
from trueup.model.build import build_constraints
from trueup.model.constraints import Constraints
from trueup.model.tree import Tree

CLOSE = 1e-3
"""Sums over a lattice are cut off at a norm; everything else agrees to rounding."""
SPECS = 200
ROOT = Tree.from_columns(["all"], [{}])


def cases(rng, count):
    """Accepted random specs, two thirds of them with invariants."""
    found, plain = [], 0
    while len(found) < count:
        case = Case.of(*random_spec(rng))
        if case is None or (case.guarantee.kind == "dp" and plain > count // 3):
            continue
        plain += case.guarantee.kind == "dp"
        found.append(case)
    return found


def steps_of(relation, vectors):
    norms = np.abs(vectors).sum(axis=1)
    return norms if relation == "add-remove" else norms // 2


def check_steps(case):
    """Under either relation every change costs at most its steps; without invariants one step says whether exactly."""
    guarantee = case.guarantee
    power = 2 if guarantee.currency == "rho" else 1
    for relation in ("add-remove", "replace"):
        price = guarantee.price(relation)
        amount = float(price.zcdp if guarantee.currency == "rho" else price.epsilon)
        vectors = case.changes(relation)
        vectors = vectors[np.abs(vectors).sum(axis=1) <= 4]
        if not len(vectors):
            continue
        true, steps = case.losses(vectors), steps_of(relation, vectors)
        assert (true <= steps**power * amount + CLOSE).all()
        if relation == guarantee.neighbours:
            assert amount == float(guarantee.amount)
            exactly = "costs exactly" in guarantee.sentences[0]
            attained = bool((steps == 1).any()) and abs(true[steps == 1].max() - amount) < CLOSE
            assert exactly == (attained and guarantee.kind == "dp")


def check_change(case, folded=False):
    """The smallest change of the hardest cell, its steps and its loss; on folded trees some losses are bounds."""
    change, relation = case.guarantee.change, case.guarantee.neighbours
    if case.guarantee.kind == "dp":
        assert change is None
        return
    vectors = case.changes(relation)
    if not len(vectors):
        assert change is None or change.norm > RADIUS
        return
    assert change is not None
    norms = np.abs(vectors).sum(axis=1)
    least = {c: norms[vectors[:, c] != 0].min() for c in np.flatnonzero(vectors.any(axis=0))}
    hardest = max(least.values())
    if change.norm > RADIUS:
        return
    assert change.smallest
    assert change.norm == hardest
    assert change.steps == (hardest if relation == "add-remove" else hardest // 2)
    smallest = np.any([(vectors[:, c] != 0) & (norms == norm) for c, norm in least.items()], axis=0)
    true = case.losses(vectors[smallest])
    assert true.max() <= float(change.amount) + CLOSE
    worst = true[norms[smallest] == hardest].max()
    exactly = abs(worst - float(change.amount)) < CLOSE
    assert exactly if change.attained else folded or not exactly
    said = next(s for s in case.guarantee.sentences if "hardest to change" in s)
    assert ("it costs exactly" in said) == change.attained


def check_noise(case, rng):
    """Joint noise leaves the invariants, and a structural zero never gets any."""
    for header in case.noisy:
        if header.law.joint:
            drawn = header.law.bound.draw(30, rng.bytes).vectors
            group = rows(case.cells, header.margin)
            assert not drawn[:, group[:, ~case.zeros].sum(axis=1) == 0].any()


def check(case, rng):
    if case.spec.privacy.unit == "person":
        check_steps(case)
        check_change(case)
    check_noise(case, rng)


def check_all(found, rng):
    for case in found:
        check(case, rng)


@pytest.mark.thorough
def test_stated_losses_are_those_of_all_neighbours_on_random_small_specs(rng):
    kinds = set()
    for case in cases(rng, SPECS):
        check(case, rng)
        joint = any(h.law.joint for h in case.noisy)
        kinds.add((case.guarantee.kind, case.guarantee.neighbours, case.guarantee.currency, joint))
    assert len(kinds) == 12  # both relations and currencies: no invariants, and invariants with either noise


def test_folded_trees_give_the_same_smallest_changes(rng, monkeypatch):
    """What is searched on the whole of a small tree is searched on its foldings instead."""
    monkeypatch.setattr(search, "MAX_WHOLE_TREE_CELLS", 0)
    norms = []
    while len(norms) < 12:
        document, tree = random_spec(rng)
        levels, every = [level["name"] for level in document["level"]], document["attribute"]
        if len(levels) < 2 or not every:
            continue
        crossing = [(levels[-1], []), (str(rng.choice(levels[:-1])), [a["name"] for a in every])]
        document["constraints"]["invariants"] = [{"level": at, "attributes": by} for at, by in crossing]
        document["query"] = [
            {
                "name": "q",
                "attributes": crossing[1][1],
                "noise": "discrete-laplace",
                "epsilon": {levels[-1]: "1"},
            }
        ]
        case = Case.of(document, tree)
        if case is not None and case.guarantee.change is not None:
            check_change(case, folded=True)
            norms.append(case.guarantee.change.norm)
    assert max(norms) >= 4


def test_a_search_that_ends_early_states_a_bound_and_says_so(rng):
    case = Case.of(table([3, 3], ["a", "b"], DIAGONAL), ROOT)
    constraints = build_constraints(case.spec, case.cells)
    early = changes.smallest_change(constraints, "replace", [(h.margin, h.law) for h in case.noisy], steps=3)
    assert not early.smallest
    assert early.norm >= case.guarantee.change.norm
    assert early.amount >= case.guarantee.change.amount
    assert "at most" in early.sentence("person", "the invariants", "epsilon")
    assert "a proved bound" in early.sentence("person", "the invariants", "epsilon")


def attributes(*sizes):
    return [
        {"name": "abc"[i], "values": [f"{'abc'[i]}{v}" for v in range(size)], "recode": []}
        for i, size in enumerate(sizes)
    ]


def table(sizes, invariants, zeros=(), relation="replace", noise="lattice-laplace", epsilon="1"):
    """A spec of one place: a query by all attributes, margins by some of them held."""
    named = attributes(*sizes)
    return {
        "format": 2,
        "title": "table",
        "table": {"name": "t", "kind": "counts", "counts": "person", "count": "n", "keys": "public"},
        "privacy": {"unit": "person", "neighbours": relation},
        "level": [{"name": "all"}],
        "attribute": named,
        "constraints": {
            "invariants": [{"level": "all", "attributes": list(margin)} for margin in invariants],
            "zeros": [{"a": f"a{i}", "b": f"b{j}"} for i, j in zeros],
        },
        "query": [
            {
                "name": "q",
                "attributes": [a["name"] for a in named],
                "noise": noise,
                "epsilon": {"all": epsilon},
            }
        ],
    }


DIAGONAL = [(i, i) for i in range(3)]
NAMED = {
    "2 x 2 x 2, all two-way margins": (table([2, 2, 2], ["ab", "ac", "bc"]), 8, 4),
    "3 x 3, zero diagonal": (table([3, 3], ["a", "b"], DIAGONAL), 6, 3),
    "3 x 3": (table([3, 3], ["a", "b"]), 4, 2),
    "2 x 3, one margin": (table([2, 3], ["a"]), 2, 1),
    "2 x 2 x 2, independent noise": (table([2, 2, 2], ["ab", "ac", "bc"], noise="discrete-laplace"), 8, 4),
}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("relation", ["replace", "add-remove"])
def test_named_tables(name, relation, rng):
    document, norm, steps = NAMED[name]
    case = Case.of(document | {"privacy": {"unit": "person", "neighbours": relation}}, ROOT)
    change = case.guarantee.change
    assert (change.norm, change.steps) == (norm, steps if relation == "replace" else norm)
    assert (case.guarantee.amount, change.amount, change.attained) == (1, change.steps, True)
    check(case, rng)


def test_one_margin_then_both_in_two_releases_add_up_to_three_and_never_two():
    """Under laws priced by the move (1/2 and 1/4 a unit of L1) the second release told 1 for a swap, which loses 2 in the first.

    A swap is two steps; a step costs 1 in the first and 1/2 in the second: together 3.
    """
    first = Case.of(table([3, 3], ["a"], epsilon="1"), ROOT).guarantee
    second = Case.of(table([3, 3], ["a", "b"], epsilon="1/2"), ROOT).guarantee
    assert (first.change.amount, second.change.amount) == (1, 1)
    together = first.price("replace") + second.price("replace")
    assert second.change.steps * together.epsilon == 3


def test_one_free_piece_does_not_hide_another_that_needs_more():
    """Cells of one place move alone; the 2 x 2 x 2 cells of another are held by all two-way margins."""
    document = table([2, 2, 2], ["ab", "ac", "bc"])
    document["level"].append({"name": "area", "column": "area"})
    for part in document["constraints"]["invariants"]:
        part["level"] = "area"
    document["constraints"]["invariants"] = [
        *(part | {"where": {"area": "1"}} for part in document["constraints"]["invariants"]),
        {"level": "area", "attributes": []},
    ]
    document["query"][0] |= {"noise": "discrete-laplace", "epsilon": {"area": "1"}}
    change = Case.of(
        document, Tree.from_columns(["all", "area"], [{}, {"area": ["1", "2"]}])
    ).guarantee.change
    assert (change.norm, change.steps, change.amount, change.attained) == (8, 4, 4, True)


def test_a_step_that_a_declared_rule_may_exclude_is_not_said_to_cost_exactly():
    document = table([2, 2], [], noise="discrete-laplace")
    assert "costs exactly" in Case.of(document, ROOT).guarantee.sentences[0]
    for rules in (
        {"linear": ["a0 >= 2 * a1"]},
        {"bounds": [{"level": "all", "attributes": ["a"], "upper": 7}]},
    ):
        case = Case.of(document | {"constraints": rules}, ROOT)
        assert "costs at most" in case.guarantee.sentences[0]
    held = document | {"constraints": rules | {"invariants": [{"level": "all", "attributes": ["b"]}]}}
    told = " ".join(Case.of(held, ROOT).guarantee.sentences)
    assert "leaving declared bounds and linear rules out of account" in told


def wrong_relation(patch):
    right = mechanism.Charge
    patch.setattr(
        mechanism, "Charge", lambda *parts: right(*parts[:6], tuple((r, parts[6][0][1]) for r, _ in parts[6]))
    )


def changes_of_two_units(patch):
    right = changes.Changes.hardest
    swap = lambda self: (found := right(self)) and replace(found, norm=min(found.norm, 4))  # noqa: E731
    patch.setattr(changes.Changes, "hardest", swap)


def zeros_forgotten_by_the_search(patch):
    right = kept.Kept.of.__func__
    patch.setattr(
        kept.Kept, "of", classmethod(lambda cls, c, *, total: right(cls, replace(c, zeros=()), total=total))
    )


def zeros_forgotten_by_the_noise(patch):
    patch.setattr(Constraints, "zero_groups", lambda self, margin: np.zeros(self.cells.size(margin), bool))


def worst_query_alone(patch):
    right = mechanism.compose
    patch.setattr(mechanism, "compose", lambda costs: right([max(costs, key=lambda c: c.amount)]))


WRONG = [
    wrong_relation,
    changes_of_two_units,
    zeros_forgotten_by_the_search,
    zeros_forgotten_by_the_noise,
    worst_query_alone,
]


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_broken_on_purpose_is_seen(wrong, rng, monkeypatch):
    wrong(monkeypatch)
    named = [Case.of(document, ROOT) for document, *_ in NAMED.values()]
    with pytest.raises(AssertionError):
        check_all([*named, *cases(rng, 40)], rng)


@pytest.mark.thorough
def test_what_one_household_contributes_is_priced_as_declared(rng):
    """All vectors that a unit may contribute, all pairs of them, for every accepted spec with declared contributions."""
    seen = 0
    while seen < 30:
        document, tree = random_spec(rng)
        document["privacy"]["unit"] = "household"
        for query in document["query"]:
            query["noise"] = query["noise"].replace("lattice", "discrete")
            query["contribution"] = {"cells": int(rng.integers(1, 3)), "each": int(rng.integers(1, 3))}
        document["constraints"]["invariants"] = []
        case = Case.of(document, tree)
        if case is None or case.cells.n > 6 or case.zeros.all():
            continue
        seen += 1
        assert "costs at most" in case.guarantee.sentences[0]
        assert sum("declared by the agency, not verified" in s for s in case.guarantee.sentences) == len(
            document["query"]
        )
        power = case.guarantee.currency == "rho"
        for relation in ("add-remove", "replace"):
            price = case.guarantee.price(relation)
            true = case.losses(contributed(case, relation))
            assert true.max() <= float(price.zcdp if power else price.epsilon) + CLOSE


def contributed(case, relation):
    """Differences of the contributions of one unit, to the finest cells."""
    free = np.flatnonzero(~case.zeros)
    units = np.zeros((3 ** len(free), case.cells.n), np.int64)
    units[:, free] = np.array(np.meshgrid(*[range(3)] * len(free))).reshape(len(free), -1).T
    for query, header in zip(case.by_header(), case.noisy):
        given = units @ rows(case.cells, header.margin).T
        units = units[((given > 0).sum(axis=1) <= query["cells"]) & (given.max(axis=1) <= query["each"])]
    if relation == "add-remove":
        return units
    return np.unique((units[:, None] - units[None]).reshape(-1, case.cells.n), axis=0)
