"""Persons and households jointly: chains against tables that are listed one by one, with the prior integrated by quadrature."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from tests.inferring.problems import noisy, states
from tests.linked_tables import document, gaussian, population, problem
from trueup.errors import ConvergenceError, SpecError
from trueup.inferring import infer, linked_walk, tiered
from trueup.inferring.linked_gibbs import LinkedGibbs
from trueup.inferring.linked_walk import LinkedWalk
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.layouts.linked import LinkedProblem
from trueup.layouts.prior_inputs import EVEN_SPLITS, PublicNumbers, numbers_of_places
from trueup.measuring import read_confidential, simulate
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints, LinearRule, violations
from trueup.model.linear import parse_linear
from trueup.model.prior import Hierarchical
from trueup.noise import law_named
from trueup.run import Deadline

A, KAPPA = 1.3, 4.0
GRID = (np.arange(150) + 0.5) / 150


def pairs(counties=(2,), rules=("persons >= homes", "persons <= 3 * homes"), level="county"):
    """Persons and homes of counties, and the rules that link them."""
    kinds = Attribute("count", ("persons", "homes"), partition=False)
    cells = Cells(states(counties).tree, (kinds,))
    linear = tuple(LinearRule(parse_linear(rule), level) for rule in rules)
    return Constraints(cells, (cells.finest,), linear=linear)


def split(parts, alphas):
    """Log mass of a Dirichlet-multinomial draw `(..., parts)`."""
    whole, alpha = parts.sum(axis=-1), np.sum(alphas)
    terms = gammaln(parts + alphas) - gammaln(alphas) - gammaln(parts + 1)
    return gammaln(whole + 1) + gammaln(alpha) - gammaln(whole + alpha) + terms.sum(axis=-1)


def listed(constraints, measured, most, weights=(1.0, 1.0)):
    """Tables of two counties in one state, and their posterior masses; the shares of root and state integrated on a grid.

    Counts are listed up to `most` homes a county, far beyond what the noise allows.
    """
    each = np.array([(p, h) for h in range(most + 1) for p in range(h, 3 * h + 1)])
    pairs_ = np.array(list(product(range(len(each)), repeat=2)))
    tables = each[pairs_]  # (t, counties, kinds)
    log = noise(constraints, measured, tables)
    log += split(
        tables[..., 1], A * np.array(weights)
    )  # one state: the nation's split among states says nothing
    # Slacks of each county: persons beyond the first of each home, and places left; state's share around the nation's.
    more = np.stack([each[:, 0] - each[:, 1], 3 * each[:, 1] - each[:, 0]], axis=1)
    first, second = GRID[:, None], GRID[None]
    even = 0.1
    a, b = KAPPA * first + even, KAPPA * (1 - first) + even
    between = (
        gammaln(a + b) - gammaln(a) - gammaln(b) + (a - 1) * np.log(second) + (b - 1) * np.log(1 - second)
    )
    given = np.exp([split(more, np.array([KAPPA * s, KAPPA * (1 - s)])) for s in GRID])
    log += np.log((given.T * np.exp(logsumexp(between, axis=0))) @ given).ravel()
    return tables, np.exp(log - logsumexp(log))


def noise(constraints, measured, tables):
    """Log mass of the noise that tables leave."""
    log = np.zeros(len(tables))
    for header, values in zip(measured.headers, measured.values):
        sums = constraints.cells.sum(tables.reshape(len(tables), -1), header.margin)
        log += header.law.logpmf(sums - values).sum(axis=1)
    return log


def worst_difference(draws, tables, mass):
    """Largest difference of probabilities, in Monte Carlo errors of batches, over both counts and persons of the state."""
    differences = []
    for of in (lambda t: t[..., 0, 1], lambda t: t[..., 1, 0], lambda t: t[..., 0].sum(axis=-1)):
        mine, known = of(draws.reshape(*draws.shape[:2], 2, 2)), of(tables)
        for limit in np.unique(np.quantile(mine, [0.1, 0.3, 0.5, 0.7, 0.9]).round()):
            event = (mine <= limit).astype(float)
            size = diagnose(event[..., None])[1][0]
            spread = np.sqrt(event.var() / size)
            differences.append((event.mean() - mass[known <= limit].sum()) / spread)
    return np.abs(differences).max()


@pytest.fixture(scope="module")
def small():
    constraints = pairs()
    rng = np.random.default_rng(11)
    laws = {Margin("state", ("count",)): law_named("discrete-gaussian")(9)}
    laws[Margin("county", ("count",))] = law_named("discrete-laplace")("1/4")
    measured = noisy(constraints.cells, np.array([5, 2, 11, 4]), laws, rng)
    return constraints, measured


@pytest.fixture(scope="module")
def listing(small):
    """Every table and its posterior mass."""
    return listed(*small, most=16)


def drawn(constraints, measured, rng, steps=20, draws=1, kept=1000, small=False, public=EVEN_SPLITS):
    """Draws of chains: so many single steps, and draws of whole places, in a sweep; whether columns are drawn near zero."""
    problem_ = LinkedProblem(constraints, measured.headers, tuple(measured.values), public)
    walk = LinkedWalk.of(problem_, rng.spawn(4), (A, KAPPA))
    walk.steps[:], walk.draws[:], walk.small[:] = steps, draws, small
    walk.run(100, 1)
    return walk.run(kept, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "draws", "kept", "near_zero"),
    [
        pytest.param(20, 0, 1000, False, marks=pytest.mark.slow),
        (3, 30, 4000, False),
        (0, 4, 4000, True),
    ],
)
def test_chains_draw_what_listing_finds(steps, draws, kept, near_zero, small, listing, rng):
    """Fifteen probabilities within 6 Monte Carlo errors; 5 would be a false alarm in 10^5 runs."""
    assert worst_difference(drawn(*small, rng, steps, draws, kept, near_zero), *listing) < 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "counts"),
    [
        (("persons >= homes", "persons <= 3 * homes"), [150, 66, 243, 120, 183, 90, 210, 93]),
        ((), [8, 1, 3, 12, 6, 0, 20, 2]),  # each down to zero
    ],
)
def test_places_drawn_whole_and_single_steps_have_one_law(rules, counts, rng):
    """Of counts which noise and prior both inform: whole places alone, and single steps alone."""
    constraints = pairs((3, 1), rules)
    laws = {Margin("state", ("count",)): law_named("discrete-gaussian")(16)}
    laws[Margin("county", ("count",))] = law_named("discrete-laplace")("1/5")
    measured = noisy(constraints.cells, np.array(counts), laws, rng)
    whole = drawn(constraints, measured, rng, steps=0, draws=2, kept=2000)
    single = drawn(constraints, measured, rng, steps=8, draws=0, kept=2000)
    far = []
    for column in range(8):
        for limit in np.unique(np.quantile(single[..., column], [0.1, 0.3, 0.5, 0.7, 0.9]).round()):
            events = [(run[..., column] <= limit).astype(float)[..., None] for run in (whole, single)]
            spread = sum(e.var() / diagnose(e)[1][0] for e in events)
            far.append(abs(events[0].mean() - events[1].mean()) / np.sqrt(spread))
    assert max(far) < 6


@pytest.mark.slow
def test_homes_are_split_by_public_numbers(small, listing, rng):
    """Weights 1.6 and .4, single steps and whole places; equal ones are told apart."""
    public = PublicNumbers(np.log([1.0, 1.0, 1.6, 0.4]), np.zeros((4, 0)), ())
    draws = drawn(*small, rng, 3, 30, 4000, public=public)
    assert worst_difference(draws, *listed(*small, 16, (1.6, 0.4))) < 6
    assert worst_difference(draws, *listing) > 6


@pytest.mark.thorough
def test_a_coefficient_is_drawn_with_the_counts_and_recorded(rng):
    """Homes follow a public number with a coefficient of 1; columns of other places have none."""
    constraints, z = pairs((12,)), rng.normal(size=12)
    z = (z - z.mean()) / z.std()
    homes = rng.poisson(40 * np.exp(z))
    laws = {Margin("county", ("count",)): law_named("discrete-gaussian")(9)}
    measured = noisy(constraints.cells, np.stack([2 * homes, homes], axis=1).ravel(), laws, rng)
    found = []
    for numbers in (z, np.roll(z, 5)):
        public = numbers_of_places(Hierarchical(covariates=(tuple(numbers),)), constraints.cells.tree)
        walk = LinkedWalk.of(
            LinkedProblem(constraints, measured.headers, measured.values, public), rng.spawn(2)
        )
        walk.run(100, 1)
        run = walk.run(300, 2)
        found.append(walk.diagnosed(run)["coefficients"]["coefficient of numbers that were given"])
    assert abs(found[0]["mean"] - 1) < 4 * found[0]["sd"] < 1
    assert abs(found[1]["mean"] - 1) > 2 * found[1]["sd"]


@pytest.mark.thorough
def test_another_prior_is_told_apart(small, listing, rng):
    """The same chains are far from the posterior under a flat prior."""
    constraints, measured = small
    tables, _ = listing
    flat = noise(constraints, measured, tables)
    flat = np.exp(flat - logsumexp(flat))
    assert worst_difference(drawn(constraints, measured, rng), tables, flat) > 8


@pytest.mark.thorough
def test_two_tables_keep_every_rule_and_their_state(rng):
    """Draws of linked records obey the links, and what a chain keeps up step by step is what its table says."""
    given = problem(query=[*document()["query"]])
    counts = read_confidential(given.spec, given.cells, population(rng, 40), constraints=given.constraints)
    measured = simulate(given, counts, rng)
    problem_ = LinkedProblem(given.constraints, measured.headers, tuple(measured.values))
    walk = LinkedWalk.of(problem_, rng.spawn(2))
    run = walk.run(4, 1)
    assert len(np.unique(run.reshape(8, -1), axis=0)) == 8
    for draw in run.reshape(8, -1):
        assert not violations(given.constraints, draw)
    n = problem_.links.slack.shape[1]
    for state in walk.states:
        again = problem_.state(state.x[:, :n], 1.0, 1.0)
        np.testing.assert_allclose(state.gap, again.gap, atol=1e-9)
        np.testing.assert_array_equal(state.total, again.total)
        np.testing.assert_array_equal(state.sums[:, 1:], again.sums[:, 1:])


def few_kinds(size, block):
    """A spec with few kinds of households, which single steps connect, and noise beside which the prior says much."""
    rho = {"all": f"1/{10 * block}", "county": f"1/{10 * block}", "block": f"1/{4 * block}"}
    attributes = [{"name": "sex", "values": ["f", "m"]}, {"name": "size", "persons": {}} | size]
    queries = [
        gaussian("households", "household", ["size"], rho),
        gaussian("persons", "person", ["sex"], rho),
    ]
    contribution = document()["privacy"] | {"contribution": {"records": 3}}
    return document(attribute=attributes, query=queries, privacy=contribution)


def few_households(rng, spec):
    """A problem of two tables of twelve households; which persons are kept is drawn anew at each call."""
    given = problem(**spec)
    counts = read_confidential(given.spec, given.cells, population(rng, 12), constraints=given.constraints)
    measured = simulate(given, counts, rng)
    return LinkedProblem(given.constraints, measured.headers, tuple(measured.values))


def linked_chains(rng, linked, a, steps, exchanges):
    """Draws of four chains with given concentrations, by so many steps and exchanges a sweep, as `(4, 3000, places, n)`."""
    walk = LinkedWalk.of(linked, rng.spawn(4), (a, KAPPA))
    walk.steps[:], walk.draws[:] = steps, exchanges
    walk.run(300, 1)
    return walk.run(3000, 1).reshape(4, 3000, -1, linked.links.slack.shape[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "block", "a"),
    [({}, 5, 0.15), ({"values": ["1", "2+"]}, 1, 0.4)],
    ids=["exact", "top-code"],
)
def test_exchanges_of_households_and_single_steps_have_one_law(size, block, a, rng):
    """Households and persons of every place, by steps along one vector alone and by exchanges too."""
    linked = few_households(rng, few_kinds(size, block))
    runs = [linked_chains(rng, linked, a, *often) for often in ((300, 0), (20, 20))]
    persons, far = linked.links.linked[0][0], []
    for among in (persons, np.setdiff1d(np.arange(runs[0].shape[3]), persons)):
        sums = [run[..., among].sum(axis=3) for run in runs]
        for place in range(sums[0].shape[2]):
            for limit in np.unique(np.quantile(sums[1][..., place], [0.2, 0.5, 0.8]).round()):
                events = [(s[..., place] <= limit).astype(float)[..., None] for s in sums]
                if min(e.var() for e in events) > 0.01:
                    spread = sum(e.var() / diagnose(e)[1][0] for e in events)
                    far.append(abs(events[0].mean() - events[1].mean()) / np.sqrt(spread))
    assert len(far) >= 12
    assert max(far) < 6


def test_households_are_exchanged_where_pools_have_all_their_persons():
    """Not where a set of persons is of one kind alone, whose number is that of its households' persons."""

    def exchanged(changes):
        given = problem(**changes)
        measured = simulate(given, np.zeros(given.cells.n, np.int64), np.random.default_rng(1))
        return LinkedProblem(given.constraints, measured.headers, tuple(measured.values)).exchanged

    alone = document()
    alone["attribute"] = [a for a in alone["attribute"] if a["name"] not in ("sex", "head")]
    alone["query"] = [
        gaussian("households", "household", ["size", "children"], {"all": "1", "block": "1"}),
        gaussian("persons", "person", ["age"], {"all": "1", "block": "1"}),
    ]
    assert exchanged(document())
    assert exchanged(capped())
    assert not exchanged(alone)


@pytest.mark.thorough
def test_chains_that_would_take_too_long_are_refused_before_they_run(rng, monkeypatch):
    """By the time of the first sweeps, and by the memory of what is kept."""
    given = problem(query=[*document()["query"]])
    counts = read_confidential(given.spec, given.cells, population(rng, 40), constraints=given.constraints)
    measured = simulate(given, counts, rng)
    text = "4 Markov chains predicted"
    monkeypatch.setattr(LinkedWalk, "forecast", lambda self: (text, 1e9, 0.0))
    with pytest.raises(
        SpecError, match=r"predicted; that is longer than the .* left of 10 minutes.*--within"
    ):
        infer(measured, method=LinkedGibbs())
    method = LinkedGibbs()
    state = method.prepare(given.constraints, measured.headers)
    passed = replace(Deadline.of(1), ends=time.monotonic() - 1)
    with pytest.raises(ConvergenceError, match=r"had 1 minutes.*--within"):
        method.apply(state, measured.flat, 1000, rng, lambda done, of: None, deadline=passed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("second", "helps"), [pytest.param(60.0, False, marks=pytest.mark.thorough), (90.0, True)]
)
def test_where_more_steps_at_places_do_not_help_draws_lie_further_apart(second, helps, small, monkeypatch):
    """Effective sizes of 50 and then of `second`: unless that is half as much again, steps are given back, once and for all."""
    sizes, runs = [50.0, second, 80.0, 500.0], []
    run = LinkedWalk.run

    def told(self, kept, thin, *tell):
        runs.append((int(self.steps.sum() + self.draws.sum()), thin))
        return run(self, kept, 1, *tell)

    def diagnosed(self, draws):
        self.slowest = np.full(self.problem.cells.shape[0], sizes[0])
        if draws.shape[1] > linked_walk.PILOT:
            sizes.pop(0)
        found = {"smallest_ess": float(self.slowest[0]), "largest_r_hat": 1.0, "r_hat_allowed": 1.1}
        return found | {"passed": self.slowest[0] >= 400}

    monkeypatch.setattr(LinkedWalk, "run", told)
    monkeypatch.setattr(LinkedWalk, "diagnosed", diagnosed)
    infer(small[1], method=LinkedGibbs(), spec=small[0], draws=1000)
    (few, thin), (more, same), third, last = runs[-4:]
    assert more > 2 * few
    assert same == thin
    if helps:
        assert third[0] > 2 * more
        assert (third[1], last) == (thin, (more, 5 * thin))
    else:
        assert (third, last) == ((few, 7 * thin), (few, 35 * thin))


def capped():
    """Sizes with a top code: what households hold beyond it is a slack."""
    levels = {"all": "1/2", "county": "1/2", "block": "1"}
    return {
        "attribute": [
            *document()["attribute"][:3],
            {"name": "size", "persons": {}, "values": ["1", "2", "3+"]},
            {"name": "children", "persons": {"age": "child"}, "values": ["0", "1", "2+"]},
        ],
        "query": [
            gaussian("households", "household", ["size", "tenure", "children"], levels),
            gaussian("persons", "person", ["age", "sex", "tenure"], levels),
        ],
    }


@pytest.mark.thorough
def test_a_top_code_bounds_persons_on_both_sides(rng):
    given = problem(**capped())
    counts = read_confidential(given.spec, given.cells, population(rng, 40), constraints=given.constraints)
    measured = simulate(given, counts, rng)
    problem_ = LinkedProblem(given.constraints, measured.headers, tuple(measured.values))
    walk = LinkedWalk.of(problem_, rng.spawn(2))
    run = walk.run(4, 1).reshape(8, -1)
    joined = given.constraints.joined
    persons, households = (t.of(run, joined.records) for t in joined.tables)
    most = np.where(joined.links[0].persons == 3, 4, joined.links[0].persons)
    held = households.reshape(8, len(given.cells.tree.keys[-1]["block"]), len(most), -1)
    there = persons.reshape(8, held.shape[1], -1, held.shape[3]).sum(axis=2)
    assert (there <= np.einsum("k,dpks->dps", most, held)).all()
    assert not any(violations(given.constraints, draw) for draw in run)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (("persons <= 3 * homes",), "pairs of rules"),
        (("persons >= homes", "persons <= 3 * homes", "homes >= 1"), "not of the form"),
        (("persons >= homes", "persons <= 7/2 * homes"), "not of the form"),
    ],
)
def test_other_rules_are_refused_by_name(rules, says):
    assert says in LinkedGibbs().refuses(pairs(rules=rules), ())


def test_a_tier_is_refused_by_the_name_of_the_method_that_fits(rng):
    both = problem()
    measured = simulate(both, np.ones(both.cells.n, np.int64), rng)
    with pytest.raises(
        SpecError, match=r"tier 'chains' is given, but method 'linked-gibbs' has no tiers.*leave out --tier"
    ):
        tiered(measured, None, "chains")
