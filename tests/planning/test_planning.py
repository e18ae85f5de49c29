"""Planned budgets against a generic solver on dense algebra, simulation, and closed forms."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pandas
import pytest
from scipy.stats import binom

from tests.planning.wishes import BUDGETS, NOISE, WISHES, coverage, places, spec_of
from tests.reference import planning as dense
from tests.reference.sums import matrix
from trueup.errors import SpecError, TrueupError
from trueup.model.spec import parse_spec
from trueup.noise import law_named
from trueup.planning import Target
from trueup.planning.allocation import exact_amounts, planned_spec
from trueup.planning.margins import margin_ratio, normal_ratio
from trueup.planning.optimum import Hyperbolic, epsilon_at
from trueup.planning.outcome import about_local_optima
from trueup.planning.plan import plan
from trueup.planning.task import PlanningTask

INVARIANT = "[constraints]\ninvariants = [{ level = 'area' }]\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "neighbours"),
    [pytest.param((2, 2), "add-remove", marks=pytest.mark.thorough), ((1, 2), "replace")],
    ids=["uniform", "ragged"],
)
def test_the_least_budget_is_that_of_a_generic_solver(counts, neighbours):
    spec = spec_of("rho", BUDGETS | {"total": {"area": "1/9"}}, neighbours=neighbours)
    planned = plan(spec, places(*counts), targets=WISHES)
    assert sum(planned.budgets) == planned.total
    assert planned.certificate.gap < 1e-4
    task = PlanningTask.of(spec, places(*counts), WISHES, None, "equal")
    limits = {t.margin: (t.counts / normal_ratio(t.confidence)) ** 2 for t in task.targets}
    known = dense.least_cost(task.expected.cells, list(task.expected.measured), task.prices.price, limits)
    assert planned.certificate.least <= known * (1 + 1e-6)
    assert known * 0.999 < float(planned.total) < known * (1 + 1e-4)
    assert all(reached.ratio <= 1 for reached in planned.targets)


@pytest.mark.slow
@pytest.mark.parametrize("currency", ["rho", "epsilon"])
def test_tables_that_targets_leave_little_are_named(currency):
    """A target for one table alone takes from the others, and the plan says from which; with targets for all it says nothing."""
    spec = spec_of(currency, BUDGETS)
    one = plan(spec, places(2, 2), targets=["all=3@95%"])
    grown = {
        name: then / now for name, then, now in zip(one.levels, one.error, one.given_error) if name != "all"
    }
    said = one.certificate.sentences[0]
    worst = max(grown, key=grown.__getitem__)
    assert grown[worst] > 2
    assert said.startswith("Tables without a target get only what the targets leave")
    assert f"'{worst}' " in said
    every = plan(spec, places(2, 2), targets=[f"{name}=3@95%" for name in one.levels])
    assert "without a target" not in " ".join(every.certificate.sentences)


@pytest.mark.thorough
def test_invariants_leave_the_plan():
    spec = spec_of("rho", BUDGETS | {"total": {"area": "1/9"}})
    with_exact = spec_of("rho", {k: v for k, v in BUDGETS.items() if k != "total"}, extra=INVARIANT)
    wishes = WISHES[1:]
    free = plan(spec, places(1, 2), targets=wishes)
    fixed = plan(with_exact, places(1, 2), targets=wishes)
    assert fixed.total < free.total
    task = PlanningTask.of(with_exact, places(1, 2), wishes, None, "equal")
    limits = {t.margin: (t.counts / normal_ratio(t.confidence)) ** 2 for t in task.targets}
    prices = np.full(len(task.expected.measured), np.inf)
    prices[task.priced] = task.prices.price
    known = dense.least_cost(task.expected.cells, list(task.expected.measured), prices, limits)
    assert known * 0.999 < float(fixed.total) < known * (1 + 2e-4)


def test_a_total_is_divided_as_the_least_budget_is():
    least = plan(spec_of("rho", BUDGETS), places(1, 4), targets=WISHES)
    given = plan(spec_of("rho", BUDGETS), places(1, 4), targets=WISHES, total=Fraction(1, 3))
    assert given.total == sum(given.budgets) == Fraction(1, 3)
    ratio = float(least.total / given.total) ** 0.5
    assert max(r.ratio for r in given.targets) == pytest.approx(ratio, rel=1e-3)


def test_a_mean_is_asked_for_by_name():
    every, mean = (
        plan(spec_of("rho", BUDGETS), places(1, 6), targets=[f"{p}area=10", "block=9"]) for p in ("", "mean:")
    )
    assert mean.total < every.total
    assert every.targets[0].place
    assert mean.targets[0].target.confidence == 90


@pytest.mark.slow
@pytest.mark.parametrize("weights", [{"block x sex": 9.0, "area": 0.0}])
def test_the_least_error_of_a_budget_is_that_of_a_generic_solver(weights):
    import scipy.optimize

    budgets = {name: BUDGETS[name] for name in ("total", "s", "d")}
    planned = plan(spec_of("rho", budgets), places(1, 2), total=Fraction(2), weights=weights)
    assert planned.total == sum(planned.budgets) == 2
    assert planned.certificate.gap < 1e-4
    task = PlanningTask.of(spec_of("rho", budgets), places(1, 2), None, weights, "equal")
    tables = list(task.expected.measured)

    def objective(logs):
        shares = np.exp(logs) / np.exp(logs).sum()
        p = 2 * shares / task.prices.price
        cells = task.expected.cells
        return np.log(sum(w * dense.errors(cells, tables, p, m).mean() for m, w in task.weights.items()))

    known = scipy.optimize.minimize(objective, np.zeros(len(tables)), method="L-BFGS-B").fun
    assert planned.stats["value"] == pytest.approx(np.exp(known), rel=1e-4)


def test_presets_ask_for_what_they_say():
    spec = spec_of("rho", BUDGETS)
    same = plan(spec, places(1, 4), preset="no-worse")
    assert same.total <= 1 + Fraction(1, 10**5)
    assert all(a <= b * (1 + 1e-6) for a, b in zip(same.worst, same.given_worst))
    relative = plan(spec, places(1, 4), preset="relative")
    measured = [i for i, g in enumerate(relative.given) if g]
    ratios = [(relative.error[i] / relative.given_error[i]) ** 2 for i in measured]
    assert np.mean(ratios) <= 1


def test_errors_now_are_those_of_the_spec_as_it_stands():
    first, second = (plan(spec_of("rho", BUDGETS), places(1, 4), total=Fraction(t)) for t in (1, 5))
    assert first.given_error == second.given_error
    assert first.given_worst == second.given_worst


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_no_mechanism_is_better_than_its_bound(neighbours):
    """On a histogram whose every count is wanted, noise on each count is best of all: the bound is reached."""
    spec = spec_of("rho", {"d": {"block": "1/2"}}, neighbours=neighbours)
    planned = plan(spec, places(3, 3), targets=["block x sex x age=10"])
    cells = 36
    known = 1.0 if neighbours == "add-remove" else cells / (cells - 1)
    assert planned.certificate.mechanisms == pytest.approx(known**2, rel=1e-4)


def test_the_bound_over_mechanisms_is_below_the_best_known():
    """Against the dual of the semidefinite program on a ragged tree with a recode."""
    spec = spec_of("rho", BUDGETS)
    wishes = ["area=10@95%", "block x adult=12@90%", "all x sex=4@90%"]
    planned = plan(spec, places(1, 4, 2), targets=wishes)
    task = PlanningTask.of(spec, places(1, 4, 2), wishes, None, "equal")
    rows = [
        matrix(task.expected.cells, t.margin) * normal_ratio(t.confidence) / t.counts for t in task.targets
    ]
    best = dense.least_mechanism(np.vstack(rows))
    assert float(planned.total) / planned.certificate.mechanisms <= best * (1 + 1e-4)
    assert float(planned.total) / planned.certificate.mechanisms >= best * 0.9
    assert best <= float(planned.total)


@pytest.mark.thorough
@pytest.mark.parametrize("currency", NOISE)
def test_realised_errors_meet_the_targets(currency, rng):
    """Coverage at the wanted margin is at least what was asked; planning 7 % too cheaply is rejected as well."""
    spec, geography, draws = (
        spec_of(currency, {"total": {"area": "1/3"}, "d": {"block": "1/3"}}),
        places(2, 2),
        40_000,
    )
    wishes = ["area=10@95%", "block x sex=12@90%"]
    planned = plan(spec, geography, targets=wishes)
    for target, inside in coverage(spec, geography, planned, rng, draws):
        p = target.confidence / 100
        assert inside >= binom.ppf(1e-7, draws, p - 0.002), str(target)
        assert inside <= binom.ppf(1 - 1e-7, draws, p + 0.01), str(target)


def test_margins_are_quantiles_of_the_law():
    """One count under Laplace noise: 95 % need 2.12 standard deviations, where the normal law has 1.96."""
    spec = spec_of("epsilon", {"d": {"block": "1/3"}})
    task = PlanningTask.of(spec, places(1), ["block x sex x age=30@95%"], None, "equal")
    p = np.array([np.cosh(0.1) - 1])
    margin = round(margin_ratio(task.expected, p, task.targets[0]) / np.sqrt(p[0]))
    law = law_named("discrete-laplace")(Fraction(1, 10))
    assert law.cdf(margin) - law.cdf(-margin - 1) >= 0.95 > law.cdf(margin - 1) - law.cdf(-margin)
    assert round(normal_ratio(95), 2) == 1.96


def test_laplace_plans_keep_their_lower_bound_and_say_what_it_is():
    budgets = {"total": {"area": "1/3"}, "s": {"block": "1/3"}, "d": {"block": "1/3"}}
    planned = plan(spec_of("epsilon", budgets), places(1, 3), targets=["block x sex=12"])
    assert planned.certificate.least <= planned.total
    assert planned.total == sum(planned.budgets)
    assert "local optima" in " ".join(planned.certificate.sentences)
    assert planned.targets[0].ratio <= 1.001


def test_a_laplace_plan_is_as_good_as_a_grid():
    spec = spec_of("epsilon", {"s": {"block": "1/3"}, "adult": {"block": "1/3"}, "d": {"block": "1/3"}})
    planned = plan(spec, places(2), total=Fraction(1), weights={"block x sex": 5.0})
    task = PlanningTask.of(spec, places(2), None, {"block x sex": 5.0}, "equal")
    grid = [(a, b, 20 - a - b) for a, b in itertools.product(range(1, 20), repeat=2) if a + b < 20]
    best = min(
        task.expected.weighted(task.prices.precision(np.array(g) / 20)[0], task.weights)[0][0] for g in grid
    )
    assert planned.stats["value"] <= best * (1 + 1e-6)


@pytest.mark.parametrize("targets", [[], ["block=10"]], ids=["a division", "targets"])
def test_a_laplace_total_beyond_floating_point_is_refused(targets):
    spec = spec_of("epsilon", {"s": {"block": "1/3"}, "adult": {"block": "1/3"}, "d": {"block": "1/3"}})
    for total in (10**6, 10**400):
        with pytest.raises(SpecError, match=r"practically vanish.*at most"):
            plan(spec, places(2), targets=targets or None, total=Fraction(total))


def test_small_laplace_budgets_keep_their_digits():
    """`cosh(epsilon) - 1` and `arccosh(1 + precision)` would lose them all below 1e-8."""
    for epsilon in (1e-12, 1e-6, 1e-3):
        precision = Hyperbolic(np.ones(1)).precision(np.array([epsilon]))[0][0]
        assert precision == pytest.approx(epsilon**2 / 2 + epsilon**4 / 24, rel=1e-12)
        assert epsilon_at(precision) == pytest.approx(epsilon, rel=1e-12)


def test_the_planned_spec_runs_and_holds_the_plan(tmp_path):
    spec = spec_of("rho", BUDGETS)
    planned = plan(spec, places(1, 4), targets=["area=10@95%", "block x sex=12@90%"])
    written = parse_spec(planned_spec(spec, planned).text())
    assert all(amount > 0 for query in written.queries for amount in query.budgets.values())
    assert sum(sum(query.budgets.values()) for query in written.queries) == planned.total
    again = plan(written, places(1, 4), targets=["area=10@95%", "block x sex=12@90%"])
    assert max(r.given / r.target.counts for r in again.targets) <= 1
    assert float(again.total) == pytest.approx(float(planned.total), rel=2e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": ["area=0"]}, "'area=0' is out of range"),
        ({"targets": ["area=nan"]}, "out of range"),
        ({"targets": ["area=10@0%"]}, "percentage of the target 'area=10@0%'"),
        ({"targets": ["area=10@100%"]}, "percentage"),
        ({"targets": ["area=10@95"]}, "percentage"),
        ({"targets": ["area=ten"]}, "'area=ten' lacks a number"),
        ({"targets": ["county=10"]}, "no level 'county'"),
        ({"targets": ["area x race=10"]}, "'race' is not declared"),
        ({"targets": ["area=10", "area=9@95%"]}, "two targets"),
        ({"targets": ["all=10"]}, "'all' is fixed by the invariant 'area'"),
        ({"targets": {"block": 10}, "weights": {"block": 1.0}}, "both"),
        ({"weights": {"county": 1.0}}, "no level 'county'"),
        ({"weights": {"block": -1.0}}, "out of range"),
    ],
)
def test_bad_wishes_are_named(options, message):
    spec = spec_of("rho", {"s": {"block": "1/9"}, "d": {"block": "1/9"}}, extra=INVARIANT)
    if "fixed" not in message:
        spec = spec_of("rho", BUDGETS)
    with pytest.raises(SpecError, match=message):
        plan(spec, places(1, 2), **options)


def test_linear_rules_have_no_closed_form():
    with pytest.raises(SpecError, match="no formula"):
        plan(spec_of("rho", BUDGETS, extra="[constraints]\nlinear = ['f <= 3 * m']\n"), places(2))


def test_laws_of_another_price_are_refused():
    with pytest.raises(SpecError, match="truncated-geometric"):
        law_named("truncated-geometric")(Fraction(1), 5).scaled(Fraction(2))


@pytest.mark.parametrize("total", [None, Fraction(1), Fraction(1, 3), Fraction(10**9 + 7, 10**8)])
def test_amounts_are_exact_and_near(total, rng):
    costs = rng.exponential(size=12) ** 4
    costs[3] = 0
    amounts = exact_amounts(costs, total)
    if total is not None:
        assert sum(amounts) == total
    scale = 1 if total is None else float(total) / costs.sum()
    np.testing.assert_allclose([float(a) for a in amounts], costs * scale, atol=2e-6 * costs.sum() * scale)
    assert amounts[3] == 0
    assert all(a > 0 for a, c in zip(amounts, costs) if c > 0)


def test_targets_read_and_write():
    task = PlanningTask.of(
        spec_of("rho", BUDGETS), places(2), {"area": "10@95%", "mean:block x sex": 3}, None, "equal"
    )
    assert [str(t) for t in task.targets] == ["area=10@95%", "mean:block x sex=3@90%"]
    assert task.targets[1] == Target(task.targets[1].margin, 3.0, 90.0, mean=True)


DISTRICTS = pandas.DataFrame(
    {"district": list("nnss"), "area": ["a0", "a1", "a0", "a2"], "block": ["a0b0", "a1b0", "a0b1", "a2b1"]}
)
FOR_AREAS = {"total": {"all": "1/8", "area": "1/8"}, "d": {"area": "1/8", "block": "1/4"}}


def test_areas_off_the_hierarchy_are_targets():
    spec, where = spec_of("rho", FOR_AREAS), places(2, 3, 2)
    wishes = ["area=9@95%", "district=12@95%", "district x sex=8@90%", "mean:district=6@90%"]
    planned = plan(spec, where, targets=wishes, areas=DISTRICTS, column="district")
    assert [str(r.target) for r in planned.targets] == wishes
    assert max(r.ratio for r in planned.targets) == pytest.approx(1, abs=1e-6)
    assert planned.certificate.gap < 1e-4
    assert sum(planned.budgets) == planned.total
    alone = plan(spec, where, targets=["area=9@95%"])
    assert planned.total > alone.total
    again = plan(spec, where, targets=wishes, areas=DISTRICTS, column="district", total=planned.total)
    assert max(r.ratio for r in again.targets) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("table", "column", "message"),
    [
        (DISTRICTS.assign(block="z"), "district", "no place of level 'block'"),
        (pandas.concat([DISTRICTS, DISTRICTS[:1]]), "district", "lists the place .* twice"),
        (DISTRICTS[:0], "district", "is empty"),
        (DISTRICTS, "county", "no column 'county'"),
        (DISTRICTS.rename(columns={"district": "sex"}), "sex", "the name of a level or an attribute"),
    ],
)
def test_bad_areas_are_named(table, column, message):
    with pytest.raises(TrueupError, match=message):
        plan(spec_of("rho", FOR_AREAS), places(2, 3, 2), targets=[f"{column}=9"], areas=table, column=column)


def test_areas_need_noise_whose_sums_have_a_known_law():
    with pytest.raises(SpecError, match="Laplace"):
        plan(
            spec_of("epsilon", FOR_AREAS),
            places(2, 3, 2),
            targets=["district=9"],
            areas=DISTRICTS,
            column="district",
        )


def test_areas_that_were_not_given_are_no_level():
    with pytest.raises(SpecError, match="no level 'district'"):
        plan(spec_of("rho", FOR_AREAS), places(2, 3, 2), targets=["district=9"])


def test_the_command_takes_areas_from_a_file(tmp_path):
    from typer.testing import CliRunner

    from trueup.cli import whole_app

    spec_of("rho", FOR_AREAS).write(tmp_path / "spec.toml")
    places(2, 3, 2).to_csv(tmp_path / "places.csv", index=False)
    DISTRICTS.to_csv(tmp_path / "districts.csv", index=False)
    files = ["--geography", str(tmp_path / "places.csv"), "--areas", f"district={tmp_path / 'districts.csv'}"]
    app = whole_app("plan")
    wish = ["--target", "district=12@95%"]
    found = CliRunner().invoke(app, ["plan", str(tmp_path / "spec.toml"), *files, *wish])
    assert found.exit_code == 0, found.output
    assert "district=12@95%" in found.output


@pytest.mark.parametrize(("agree", "said"), [(1, "no other agrees on it"), (3, "3 of them agree on it")])
def test_how_many_solves_agree_is_said_in_words(agree, said):
    assert about_local_optima(5, agree).endswith(f"the best of 5 solves, and {said}.")
