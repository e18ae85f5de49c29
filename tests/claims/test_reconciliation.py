"""What `reconcile` says of its counts, against independent solvers, and each claim broken on purpose.

The problems are drawn in `reconciliation_problems`. Every one goes to its default method and to another one that
fits. Clarabel and HiGHS then judge: no answer breaks a rule, no count is NaN, no feasible problem is called infeasible,
no gap is larger than reported. The full number of problems is run with `-m slow`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import scipy
from numpy.typing import NDArray

from tests.claims.reconciliation_problems import MOST_CELLS, Problem, Rows, draw, sums_of
from tests.conformance.methods import METHODS_TRIED
from trueup.errors import InfeasibleError, SpecError
from trueup.kernel import Status, largest
from trueup.kernel.linear import whole_fit
from trueup.kernel.linear.polyhedron import Polyhedron
from trueup.kernel.margins.whole import EXACT_CELLS
from trueup.layouts.linear import LinearProblem, log_slope
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.tree import Tree
from trueup.noise import DiscreteGaussian, DiscreteLaplace
from trueup.noise.laws.undrawn import Exact
from trueup.reconciling import general_projection, misfit
from trueup.reconciling.general_projection import OPEN_TIES, GeneralProjection
from trueup.reconciling.histogram_tree import HistogramTree
from trueup.reconciling.margins_projection import (
    ROUNDING_GAP,
    SETTLED_GAP,
    MarginsProjection,
    project_on_margins,
)
from trueup.reconciling.method import Method, Solution

LEAST_ABSOLUTE = GeneralProjection("l1", "none")
"""A judge of its own has no solver for it: HiGHS is what it uses, and it says so where a vertex breaks a rule."""
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
    names = (ROUNDING_GAP, SETTLED_GAP) if isinstance(method, MarginsProjection) else (GAP,)
    gap = next((found.stats[name] for name in names if name in found.stats), None)
    if gap is None:
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
    general = isinstance(method, GeneralProjection)
    if general and not method.integer:
        weight = rows.variances.max(initial=1.0)
        return weight * rows.squares(found.values), weight * rows.squares(centre)
    if (
        isinstance(method, MarginsProjection)
        and method.integer
        and not found.stats["tables solved by a general program"]
    ):
        return _table_distances(
            problem, found.values, _projected(problem, SETTLED_GAP in found.stats), seconds
        )
    origin = found.values.astype(float)
    if general and method.rounding == "optimal":
        weights = _slopes(problem)
        mine = float(weights @ np.abs(rows.fit @ found.values - rows.measured))
        return mine, rows.least_absolute(weights, origin, seconds)
    if method.integer and (general or isinstance(method, MarginsProjection)):
        centre = _nearer(problem, centre)
        weights = rows.variances.max() / rows.variances
        mine = float(weights @ (rows.fit @ (found.values - centre)) ** 2)
        return mine, rows.least_whole(centre, weights, seconds)
    return 0.0, None


def _projected(problem: Problem, settled: bool) -> NDArray:
    """The nearest nonnegative table to the measurements; or, of a gap that says so, the nearest with settled margins."""
    method = MarginsProjection(rounding="none")
    if settled:
        state = method.prepare(problem.constraints, problem.headers)
        return project_on_margins(state, problem.values, state.first).table.ravel()
    projected = answer(problem, method, 0)
    assert isinstance(projected, Solution)
    return projected.values


def _table_distances(
    problem: Problem, table: NDArray, centre: NDArray, seconds: float
) -> tuple[float, float | None]:
    """Distances of a rounded table and of the nearest one from the projection, among tables with the sums that it keeps.

    Of a two-way table these are its rows and columns, around a second projection onto them. Else they are the exact
    margins, or the total; up to 1,000 cells all measured margins are to be near, above the cells.
    """
    cells, axes = problem.constraints.cells, problem.constraints.cells.attributes
    every = sums_of(cells, cells.finest)
    exact = [h.margin for h in problem.headers if h.exact]
    full = [m for m in exact if len(m.attributes) == len(axes)]
    rows = replace(problem.rows, fit=every, measured=centre, variances=np.ones(cells.n))
    if len(axes) == 2 and not full:
        rows = _keeping(rows, [sums_of(cells, Margin("top", (a.name,))) for a in axes], table)
        again = rows.least_squares(table.astype(float))
        if again is None:
            return 0.0, None
        centre = again
    elif cells.n <= EXACT_CELLS:
        near = {m for m in (h.margin for h in problem.headers) if m not in exact} | {cells.finest} - set(
            exact
        )
        fit = scipy.sparse.csr_array(scipy.sparse.vstack([sums_of(cells, m) for m in sorted(near, key=str)]))
        rows = replace(rows, fit=fit, measured=fit @ centre, variances=np.ones(fit.shape[0]))
    elif not exact:
        rows = _keeping(rows, [sums_of(cells, Margin("top"))], table)
    weights = np.ones(rows.fit.shape[0])
    return float(weights @ (rows.fit @ (table - centre)) ** 2), rows.least_whole(centre, weights, seconds)


def _keeping(rows: Rows, sums: list, table: NDArray) -> Rows:
    """The same among tables with some sums of a table."""
    more = scipy.sparse.vstack(sums)
    return replace(
        rows,
        equal=scipy.sparse.csr_array(scipy.sparse.vstack([rows.equal, more])),
        sums=np.concatenate([rows.sums, more @ table]),
    )


def _nearer(problem: Problem, centre: NDArray) -> NDArray:
    """The continuous projection, which `general-projection` aims at, once Clarabel's is no nearer: its own digits are fewer,
    and of the point there are half as many as of its squares."""
    found = answer(problem, GeneralProjection(rounding="none"), 0)
    if isinstance(found, InfeasibleError) or found.status is not Status.SOLVED:
        return centre
    mine, other = problem.rows.squares(found.values), problem.rows.squares(centre)
    return found.values if mine <= (1 + 1e-6) * other + 1e-6 else centre


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
        methods = [m for m in METHODS_TRIED.values() if not m.random and m != LEAST_ABSOLUTE]
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


@pytest.mark.thorough
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
            found = answer(problem, GeneralProjection(), 0)
            if isinstance(found, Solution) and judge(problem, GeneralProjection(), found) == "solved":
                return problem, GeneralProjection(), found
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
    found = answer(problem, GeneralProjection(), 0)
    assert isinstance(found, Solution)
    assert judge(problem, GeneralProjection(), found) == "solved"
    worse = Solution(found.values + np.array([3, 0, 0]), Status.SOLVED, found.stats)
    assert judge(problem, GeneralProjection(), worse) == "WRONG: a gap larger than reported"
    honest = Solution(worse.values, Status.SOLVED, {GAP: 1000.0})
    assert judge(problem, GeneralProjection(), honest) == "solved"


def test_a_false_gap_of_a_rounded_table_is_seen():
    """Twos around a rectangle keep rows and columns, and are further away."""
    cells = Cells(
        Tree.from_columns(["top"], [{}]), (Attribute("a", tuple("012")), Attribute("s", tuple("01")))
    )
    noisy, line = Margin("top", ("a", "s")), Margin("top", ("a",))
    headers = tuple(Measured("q", m, DiscreteLaplace(Fraction(1))) for m in (noisy, line))
    values = np.array([7, 9, 12, 4, 6, 5, 17, 15, 12])
    problem = Problem("margins", Constraints(cells, (noisy, line)), headers, values, np.zeros(6, np.int64))
    found = answer(problem, MarginsProjection(), 0)
    assert isinstance(found, Solution)
    assert judge(problem, MarginsProjection(), found) == "solved"
    worse = Solution(found.values + np.array([2, -2, -2, 2, 0, 0]), Status.SOLVED, found.stats)
    assert judge(problem, MarginsProjection(), worse) == "WRONG: a gap larger than reported"


def test_no_gap_to_the_nearest_table_is_claimed_where_margins_were_settled_first():
    """Seeds at which the settled table is not the nearest: as a gap to the nearest one, what is reported would be false."""
    for seed in (2, 20, 23):
        problem = draw(np.random.default_rng([seed, 120]), 120)
        found = answer(problem, MarginsProjection(), seed)
        assert isinstance(found, Solution)
        assert ROUNDING_GAP not in found.stats
        assert judge(problem, MarginsProjection(), found) == "solved"
        stats = {ROUNDING_GAP if k == SETTLED_GAP else k: v for k, v in found.stats.items()}
        claimed = Solution(found.values, Status.SOLVED, stats)
        assert judge(problem, MarginsProjection(), claimed) == "WRONG: a gap larger than reported"


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
        found = answer(problem, HistogramTree(estimates="least-squares"), seed)
        assert judge(problem, HistogramTree(estimates="least-squares"), found) == "solved"
        handed.append(found.stats["tables solved by a general program"])
    assert handed == [1]


@pytest.mark.thorough
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
    for method in METHODS_TRIED.values():
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
    method = HistogramTree(rounding=rounding, estimates="least-squares")
    found = answer(problem, method, 0)
    assert judge(problem, method, found) == "solved"
    assert found.values.sum() == pytest.approx(398 + 2067, abs=1e-6)


def misses(method: Method, *slopes: Fraction) -> int:
    """For how many of 30 draws of a total, two areas and three parts a method misses the mode of their laws."""
    places = [{}, {"area": ["a", "a", "b"]}, {"part": ["p", "q", "r"]}]
    cells = Cells(Tree.from_columns(["all", "area", "part"], places))
    levels, laws = ("all", "area", "part"), [DiscreteLaplace(s) for s in slopes]
    headers = tuple(Measured(name, Margin(name), law) for name, law in zip(levels, laws, strict=True))
    constraints = Constraints(cells, tuple(map(Margin, levels)))
    grid = np.array([*product(range(12), repeat=3)])
    law = np.array([laws[i].logpmf(np.arange(-60, 61)) for i in (0, 1, 1, 2, 2, 2)])

    def log(parts: NDArray, values: NDArray) -> NDArray:
        sums = np.stack([parts.sum(axis=1), parts[:, 0] + parts[:, 1], parts[:, 2], *parts.T])
        return law[np.arange(6)[:, None], sums - values[:, None] + 60].sum(axis=0)

    missed = 0
    for values in np.random.default_rng(0).integers(-1, 12, (30, 6)):
        found = answer(Problem("tree", constraints, headers, values, None), method, 0)
        assert isinstance(found, Solution)
        missed += log(found.values[None], values)[0] < log(grid, values).max() - 1e-9
    return missed


CLOSE = (
    Fraction(1),
    Fraction(1),
    Fraction(39, 20),
)  # a part just weighs less than its area and the total together


@pytest.mark.thorough
@pytest.mark.parametrize(
    "slopes", [CLOSE, (Fraction(1), Fraction(2, 5), Fraction(1, 2)), 3 * (Fraction(7, 2),)]
)
def test_the_mode_of_the_law_is_found(slopes):
    assert misses(GeneralProjection("l1", "optimal"), *slopes) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("weight", [lambda law: 1 / law.variance, lambda law: (2 / law.variance) ** 0.5])
def test_weights_by_the_variance_or_its_root_miss_the_mode(weight, monkeypatch):
    """They follow narrow noise further than its law does."""
    monkeypatch.setattr(general_projection, "log_slope", weight)
    assert misses(GeneralProjection("l1", "optimal"), *CLOSE) > 0


def test_ties_that_were_not_settled_in_time_are_said_to_be_open(monkeypatch):
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b", "c", "d"]}]))
    noisy = Measured("q", Margin("area"), DiscreteLaplace(Fraction(1)))
    fixed = Measured("i", Margin("all"), Exact())
    constraints = Constraints(cells, (Margin("area"),), invariants=(Margin("all"),))
    problem = Problem("tree", constraints, (noisy, fixed), np.array([7, 7, 7, 7, 40]), None)
    spread = answer(problem, GeneralProjection("l1", "optimal"), 0)
    assert spread.values.tolist() == [10, 10, 10, 10]
    assert OPEN_TIES not in spread.stats
    monkeypatch.setattr(whole_fit, "MAX_TIE_SECONDS", 0.0)
    found = answer(problem, GeneralProjection("l1", "optimal"), 0)
    assert (found.status, found.stats[GAP], np.abs(found.values - 7).sum()) == (Status.SOLVED, 0.0, 12)
    assert "not proved" in found.stats[OPEN_TIES]
