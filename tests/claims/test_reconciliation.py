"""What `reconcile` says of its counts, against independent solvers, and each claim broken on purpose.

The problems are drawn in `reconciliation_problems`. Every one goes to its default method and to another one that
fits. Clarabel and HiGHS then judge: no answer breaks a rule, no count is NaN, no feasible problem is called infeasible,
no gap is larger than reported. The full number of problems is run with `-m slow`.
"""

from __future__ import annotations

import tracemalloc
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.claims.reconciliation_problems import MOST_CELLS, Problem, draw
from trueup.errors import InfeasibleError, SpecError
from trueup.kernel.linear.polyhedron import Polyhedron
from trueup.kernel.status import Status, largest
from trueup.kernel.tree.integer import best_move, integer_optimum
from trueup.layouts.linear import LinearProblem, log_slope
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.tree import Tree
from trueup.noise import DiscreteGaussian, DiscreteLaplace
from trueup.noise.laws.exact import Exact
from trueup.reconciling import METHODS, misfit
from trueup.reconciling.general_integer import GeneralInteger
from trueup.reconciling.general_projection import GeneralProjection
from trueup.reconciling.histogram_tree import HistogramTree
from trueup.reconciling.method import Method, Solution
from trueup.reconciling.projected_laplace import ProjectedDiscreteLaplace

GAP = "largest relative gap, proved for the whole problem"
JUDGED_CELLS = 60  # up to which branch and bound of the judge has 20 seconds,
SECONDS = 2.0  # above, so many


def judge(problem: Problem, method: Method, found: Solution | InfeasibleError) -> str:
    """What is wrong with an answer, or `solved`, `infeasible`, `unsolved`."""
    if isinstance(found, InfeasibleError):
        feasible = problem.truth is not None or problem.rows.exist() is not False
        return "WRONG: a feasible problem called infeasible" if feasible else "infeasible"
    if found.status is not Status.SOLVED:
        return "unsolved"
    if not np.isfinite(found.values).all():
        return "WRONG: NaN passes as solved"
    allowed = 0.0 if method.integer else 1e-6 + 1e-9 * float(np.abs(found.values).sum())
    if problem.rows.broken(found.values.astype(float), signed=method.nonnegative) > allowed:
        return "WRONG: an answer that breaks a rule"
    return "WRONG: a gap larger than reported" if _false_gap(problem, method, found) else "solved"


def _false_gap(problem: Problem, method: Method, found: Solution) -> bool:
    """Whether a solver finds something so near that the least is below what the gap allows."""
    if (gap := found.stats.get(GAP)) is None:
        return False
    mine, least = _distances(problem, method, found)
    if least is None:
        return False
    return mine > (1 + gap + 1e-5) * max(least, 1.0) + 1e-3


def _distances(problem: Problem, method: Method, found: Solution) -> tuple[float, float | None]:
    """What a method makes least, at its answer and at the best one of another solver; None if that finds nothing."""
    rows = problem.rows
    centre = rows.least_squares()
    if centre is None or rows.broken(centre) > 1e-6 + 1e-9 * np.abs(centre).sum():
        return 0.0, None
    seconds = 20.0 if problem.constraints.cells.n <= JUDGED_CELLS else SECONDS
    if isinstance(method, GeneralProjection):
        weight = rows.variances.max(initial=1.0)
        return weight * rows.squares(found.values), weight * rows.squares(centre)
    origin = found.values.astype(float)
    if isinstance(method, ProjectedDiscreteLaplace):
        weights = _slopes(problem)
        mine = float(weights @ np.abs(rows.fit @ found.values - rows.measured))
        return mine, rows.least_absolute(weights, origin, seconds)
    if isinstance(method, GeneralInteger):
        centre = _nearer(problem, centre)
        weights = rows.variances.max() / rows.variances
        mine = float(weights @ (rows.fit @ (found.values - centre)) ** 2)
        return mine, rows.least_whole(centre, weights, seconds)
    return 0.0, None


def _nearer(problem: Problem, centre: NDArray) -> NDArray:
    """The continuous projection, which `general-integer` aims at, once Clarabel's is no nearer: its own digits are fewer."""
    found = answer(problem, GeneralProjection(), 0)
    if isinstance(found, InfeasibleError) or found.status is not Status.SOLVED:
        return centre
    return min(centre, found.values, key=problem.rows.squares)


def _slopes(problem: Problem) -> NDArray:
    noisy = [h for h in problem.headers if not h.exact]
    sizes = [problem.constraints.cells.size(h.margin) for h in noisy]
    weights = np.repeat([log_slope(h.law) for h in noisy], sizes)
    return weights / weights.min()


def answer(problem: Problem, method: Method, seed: int) -> Solution | InfeasibleError:
    """What a method says of a problem."""
    try:
        state = method.prepare(problem.constraints, problem.headers)
        return method.apply(state, problem.values, np.random.default_rng(seed))
    except InfeasibleError as error:
        return error


def verdicts(seeds: range, most: int) -> Counter:
    """Verdicts on the default method and another one, for the problems of some seeds."""
    found: Counter = Counter()
    for seed in seeds:
        rng = np.random.default_rng([seed, most])
        problem = draw(rng, most)
        methods = [k() for k in METHODS if not k.random]
        fitting = [m for m in methods if misfit(m, problem.constraints, problem.headers) is None]
        for method in {0, int(rng.integers(len(fitting)))}:
            try:
                said = judge(problem, fitting[method], answer(problem, fitting[method], seed))
            except SpecError:
                said = "refused before"
            found[said] += 1
            if said not in ("solved", "infeasible", "refused before"):
                found[f"{said}: seed {seed}, {fitting[method].name}"] += 1
    return found


def assert_true(found: Counter, of: int) -> None:
    assert not [said for said in found if said.startswith("WRONG")], found
    assert found["unsolved"] <= 0.01 * of, found
    assert found["solved"] >= 0.7 * of, found


def test_forty_random_problems():
    assert_true(verdicts(range(40), 120), 40)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_two_thousand_random_problems(part):
    assert_true(verdicts(range(100 * part, 100 * part + 100), MOST_CELLS), 100)


@pytest.fixture
def solved() -> tuple[Problem, Method, Solution]:
    """A small problem in whole numbers with its answer."""
    for seed in range(1000):
        problem = draw(np.random.default_rng(seed), 30)
        if problem.kind == "general" and problem.truth is not None and 8 <= problem.truth.max() <= 1000:
            found = answer(problem, GeneralInteger(), 0)
            if isinstance(found, Solution) and judge(problem, GeneralInteger(), found) == "solved":
                return problem, GeneralInteger(), found
    raise AssertionError("no problem of that kind was drawn")


def test_an_injected_nan_is_seen(solved):
    problem, method, found = solved
    values = found.values.astype(float)
    values[0] = np.nan
    broken = Solution(values, Status.SOLVED, found.stats)
    assert broken.status is Status.NOT_FINITE
    assert judge(problem, method, broken) == "unsolved"
    object.__setattr__(broken, "status", Status.SOLVED)  # as if nobody had looked
    assert judge(problem, method, broken).startswith("WRONG: NaN")


def test_a_residual_that_is_not_a_number_is_seen():
    residual = largest([0.0, float("nan"), 1.0])
    assert (
        Solution(np.zeros(2), Status.SOLVED, {"largest residual (counts)": residual}).status
        is Status.NOT_FINITE
    )


def test_a_hidden_residual_is_seen(solved):
    problem, method, found = solved
    values = found.values.copy()
    values[0] = -1
    broken = Solution(values, Status.SOLVED, found.stats)
    assert judge(problem, method, broken) == "WRONG: an answer that breaks a rule"


def test_a_false_gap_is_seen():
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b", "c"]}]))
    headers = tuple(Measured("q", Margin(level), DiscreteLaplace(Fraction(1))) for level in ("all", "area"))
    constraints = Constraints(cells, (Margin("all"), Margin("area")))
    problem = Problem("tree", constraints, headers, np.array([30, 9, 10, 11]), np.array([9, 10, 11]))
    found = answer(problem, GeneralInteger(), 0)
    assert isinstance(found, Solution)
    assert judge(problem, GeneralInteger(), found) == "solved"
    worse = Solution(found.values + np.array([3, 0, 0]), Status.SOLVED, found.stats)
    assert judge(problem, GeneralInteger(), worse) == "WRONG: a gap larger than reported"
    honest = Solution(worse.values, Status.SOLVED, {GAP: 1000.0})
    assert judge(problem, GeneralInteger(), honest) == "solved"


def test_a_wrong_infeasible_is_seen(solved):
    problem, method, _ = solved
    assert judge(problem, method, InfeasibleError("these cannot hold together")).startswith(
        "WRONG: a feasible"
    )


def test_a_table_that_settling_leaves_no_room_for_is_found_at_once():
    """Given its parents one of these tables has no place; given everything it has."""
    handed = []
    for seed in (8,):
        problem = draw(np.random.default_rng(seed), 60)
        found = answer(problem, HistogramTree(), seed)
        assert judge(problem, HistogramTree(), found) == "solved"
        handed.append(found.stats["tables handed to a general program"])
    assert handed == [1]


def test_no_multipliers_contradict_a_system_that_has_a_point(rng):
    for _ in range(200):
        matrix = rng.integers(-1, 3, (5, 4))
        value = matrix @ rng.integers(0, 9, 4)
        p = Polyhedron.of(4, matrix[:2], value[:2], matrix[2:], value[2:] - 1, value[2:] + 1)
        assert not any(p._contradicts(rng.integers(-3, 4, 5).astype(float), 12) for _ in range(20))
        assert not p.refuted(integer=True)


@pytest.mark.parametrize("size", [10, 10**9])
def test_invariants_that_differ_by_one_are_named_at_any_size(size):
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    fixed = (Margin("all"), Margin("area"))
    headers = (
        Measured("q", Margin("area"), DiscreteLaplace(Fraction(1))),
        *(Measured("i", m, Exact()) for m in fixed),
    )
    constraints = Constraints(cells, (Margin("area"),), invariants=fixed)
    for method in (k() for k in METHODS):
        if method.integer and misfit(method, constraints, headers) is None:
            problem = Problem(
                "tree", constraints, headers, np.array([size, size, 2 * size + 1, size, size]), None
            )
            assert isinstance(answer(problem, method, 0), InfeasibleError), method.name


def test_a_lying_solver_blames_no_rule(monkeypatch, solved):
    """Multipliers that prove nothing name nothing, whatever violation comes with them."""
    problem, _, _ = solved
    linear = LinearProblem(problem.constraints, problem.headers)
    monkeypatch.setattr(Polyhedron, "_least_violation", lambda self: (7.0, np.ones(self.rows)))
    assert linear.conflict(problem.values) is None


SOME, OTHER, LAST = (Attribute(n, tuple("012"[:k])) for n, k in (("a", 3), ("s", 2), ("h", 2)))


@pytest.mark.parametrize("rounding", ["none", "controlled"])
def test_a_margin_that_is_known_already_is_conditioned_on(rounding):
    """The table on which the pseudo-inverse of a rounding error gave NaN, and "solved"."""
    cells = Cells(Tree.from_columns(["us", "t"], [{}, {"t": ["x"]}]), (SOME, OTHER, LAST))
    noisy, fixed = (Margin("us", ("a", "h")), Margin("t", ("a", "s", "h"))), Margin("us", ("s",))
    constraints = Constraints(cells, noisy, invariants=(fixed,), zeros=({"a": "2", "s": "0"},))
    law = DiscreteGaussian(Fraction(8))
    headers = (*(Measured("q", m, law) for m in noisy), Measured("i", fixed, Exact()))
    y = np.array([-1, -1, 1436, 1030, 2, 3, 1, 2, 0, 8, 402, 5, 1040, 1031, -3, 2, 1, -3, 398, 2067])
    problem = Problem("histogram", constraints, headers, y, np.zeros(12, np.int64))
    method = HistogramTree(rounding=rounding)
    found = answer(problem, method, 0)
    assert judge(problem, method, found) == "solved"
    assert found.values.sum() == pytest.approx(398 + 2067, abs=1e-6)


def test_the_projected_law_is_at_its_mode():
    """Weights by 1 / variance would follow the narrow noise further than its law does."""
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b", "c"]}]))
    laws = DiscreteLaplace(Fraction(1)), DiscreteLaplace(Fraction(2, 5))
    headers = Measured("t", Margin("all"), laws[0]), Measured("p", Margin("area"), laws[1])
    constraints = Constraints(cells, (Margin("all"), Margin("area")))
    values = np.array([14, 2, 3, 4])
    grid = np.array([*product(range(12), repeat=3)])
    deviations = [grid.sum(axis=1) - 14, *(grid - values[1:]).T]
    log = sum(law.logpmf(d) for law, d in zip((laws[0], *3 * [laws[1]]), deviations, strict=True))
    problem = Problem("tree", constraints, headers, values, np.zeros(3, np.int64))
    found = answer(problem, ProjectedDiscreteLaplace(), 0)
    mine = laws[0].logpmf(found.values.sum() - 14) + laws[1].logpmf(found.values - values[1:]).sum()
    assert mine == pytest.approx(log.max())
    by_variance = sum(
        np.abs(d) / law.variance for law, d in zip((laws[0], *3 * [laws[1]]), deviations, strict=True)
    )
    assert log[by_variance.argmin()] <= log.max()


@pytest.mark.parametrize("far", [10**3, 10**6, 10**9])
def test_the_whole_optimum_is_found_from_afar_in_the_same_memory(far):
    parts = 200
    tree = np.concatenate([[1], np.full(parts + 1, parts + 1)])
    values = np.concatenate([[parts * far], np.arange(parts) % 7.0])
    weights, none = np.concatenate([[1.0], np.full(parts, 1e-6)]), np.zeros(parts + 1)
    top = np.full(parts + 1, np.inf)
    integer_optimum(tree, weights, none, values, none, top, none)  # compiled
    tracemalloc.start()
    found, rounds = integer_optimum(tree, weights, none, values, none, top, none)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert best_move(tree, weights, none, values, none, top, found) <= 1e-6
    assert peak < 2_000_000
    assert rounds < 200
