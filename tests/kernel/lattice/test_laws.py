"""Every exact sampler against enumeration of its law, and wrong ones against the same test."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.reference.lattice import law_of, p_value, points, slow_free, table_margins, three_crossing_sums
from trueup.errors import SpecError
from trueup.kernel.lattice.structure import Lattice
from trueup.kernel.lattice_samplers import run
from trueup.kernel.lattice_samplers.free import draw_free, draw_sums
from trueup.noise.lattice import LatticeGaussian, LatticeL2Laplace, LatticeLaplace
from trueup.noise.lattice import integer as lattice_integer
from trueup.noise.lattice.tables import Decisions, HalfNorm, laplace_aggregates, laplace_steps, sizes
from trueup.noise.law import Sensitivity

DRAWS = 200_000
FALSE_ALARM = 1e-6
SUM3, SUM5 = np.ones((1, 3), np.int64), np.ones((1, 5), np.int64)
TABLE = table_margins(3, 3)
TWISTED = np.array([[1, 1, 1, 0], [1, -1, 0, 1]])
"""Its first two columns have determinant 2: a dependent cell may come out a half."""
CROSSING = three_crossing_sums(1)
ALIKE = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 1]])
"""Three cells with equal columns."""
TWO_KINDS = np.array([[1, 1, 1, 0, 0, 2, 1], [0, 0, 0, 1, 1, 1, -1]])
"""Three cells of one kind and two of another, beside two of their own."""
CASES = {
    "sum of 3": (SUM3, [2], 20),
    "sum of 5": (SUM5, [4], 9),
    "3 x 3 table": (TABLE, [2, 5, 6, 7, 8], 6),
    "2 x 3 table": (table_margins(2, 3), [2, 3, 4, 5], 14),
    "determinant 2": (TWISTED, [0, 1], 20),
    "crossing sums": (CROSSING, [0, 1, 3], 6),
    "three alike": (ALIKE, [3, 4], 16),
    "three and two alike": (TWO_KINDS, [0, 3], 5),
}


def l1(epsilon):
    return lambda v: -epsilon * np.abs(v).sum(axis=-1)


def l2(epsilon):
    return lambda v: -epsilon * np.linalg.norm(v, axis=-1)


def gaussian(sigma2):
    return lambda v: -(v**2).sum(axis=-1) / (2 * sigma2)


def draw(law, matrix, rng, sampler="auto", draws=DRAWS, weights=None):
    bound = law.on(Lattice.of(matrix.shape[1], matrix), sampler=sampler, weights=weights).bound
    return bound.draw(draws, rng.bytes).vectors


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sampler", ["auto", "free"])
def test_laplace_law(case, sampler, rng):
    matrix, dependent, radius = CASES[case]
    vectors = points(matrix, dependent, radius)
    drawn = draw(LatticeLaplace("3/2"), matrix, rng, sampler)
    assert not (drawn @ matrix.T).any()
    assert p_value(drawn, vectors, law_of(vectors, l1(1.5))) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sampler", ["free", "double"])
def test_gaussian_law(case, sampler, rng):
    matrix, dependent, radius = CASES[case]
    vectors = points(matrix, dependent, radius)
    if sampler == "double":
        sampler = "path" if case.startswith("sum") else "klein"
    drawn = draw(LatticeGaussian("1"), matrix, rng, sampler)
    assert not (drawn @ matrix.T).any()
    assert p_value(drawn, vectors, law_of(vectors, gaussian(1))) > FALSE_ALARM


@pytest.mark.thorough
@pytest.mark.parametrize("sigma2", ["1/4", "2/5", "4"])
def test_gaussian_law_at_other_widths(sigma2, rng):
    vectors = points(SUM3, [2], 16)
    law = law_of(vectors, gaussian(float(Fraction(sigma2))))
    for sampler in ("free", "path"):
        assert p_value(draw(LatticeGaussian(sigma2), SUM3, rng, sampler), vectors, law) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_l2_laplace_law(case, rng):
    matrix, dependent, radius = CASES[case]
    vectors = points(matrix, dependent, radius)
    law = LatticeL2Laplace("5/2").on(Lattice.of(matrix.shape[1], matrix))
    drawn = law.bound.draw(10_000, rng.bytes).vectors
    assert not (drawn @ matrix.T).any()
    assert p_value(drawn, vectors, law_of(vectors, l2(2.5))) > FALSE_ALARM


def test_l2_laplace_law_where_wide(rng):
    vectors = points(SUM3, [2], 60)
    law = LatticeL2Laplace("1/2").on(Lattice.of(3, SUM3))
    drawn = law.bound.draw(DRAWS, rng.bytes).vectors
    assert p_value(drawn, vectors, law_of(vectors, l2(0.5))) > FALSE_ALARM


@pytest.mark.thorough
def test_cells_of_unequal_precision(rng):
    weights = [Fraction(1), Fraction(1, 2), Fraction(2), Fraction(1)]
    matrix = np.ones((1, 4), np.int64)
    vectors = points(matrix, [0], 13)
    tilt = np.array([float(w) for w in weights])
    drawn = draw(LatticeLaplace("1"), matrix, rng, weights=weights)
    assert p_value(drawn, vectors, law_of(vectors, lambda v: -np.abs(v) @ tilt)) > FALSE_ALARM
    drawn = draw(LatticeGaussian("1"), matrix, rng, weights=weights)
    assert p_value(drawn, vectors, law_of(vectors, lambda v: -(v**2) @ tilt / 2)) > FALSE_ALARM


@pytest.mark.thorough
def test_cells_alike_but_of_unequal_precision(rng):
    """Two of four cells with equal columns have another precision: two aggregates, not one."""
    weights = [Fraction(w) for w in ("1", "2", "1", "2", "1", "1")]
    matrix = np.array([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 1]])
    vectors = points(matrix, [4, 5], 7)
    tilt = np.array([float(w) for w in weights])
    drawn = draw(LatticeLaplace("1"), matrix, rng, "free", weights=weights)
    assert p_value(drawn, vectors, law_of(vectors, lambda v: -np.abs(v) @ tilt)) > FALSE_ALARM


def test_free_cells_and_pieces_side_by_side(rng):
    matrix = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 0]])
    bound = LatticeLaplace("2").on(Lattice.of(6, matrix)).bound
    drawn = bound.draw(DRAWS, rng.bytes).vectors
    assert bound.lattice.pinned.tolist() == [4]
    assert not (drawn @ matrix.T).any()
    assert not drawn[:, 4].any()
    basis = points(matrix, [1, 3, 4], 4)
    assert p_value(drawn, basis, law_of(basis, l1(2.0))) > FALSE_ALARM


class FirstPower(HalfNorm):
    """A wrong law of K: `C(n+k-1, k) x^k`, the binomial not squared."""

    def _walk(self, weight, ratio, factor, direction):
        return super()._walk(weight, lambda k: [Root(part) for part in ratio(k)], factor, direction)


class Root(int):
    def __pow__(self, power, modulo=None):
        return int(self)


@pytest.mark.parametrize("mutant", ["first power", "epsilon 5 % off", "n off by one"])
def test_a_wrong_law_of_k_is_rejected(mutant, rng):
    decisions = Decisions()
    if mutant == "first power":
        law = FirstPower(3, Fraction(3, 2))
        law.mode = 0
    else:
        law = HalfNorm(*((3, Fraction(63, 40)) if "5 %" in mutant else (4, Fraction(3, 2))))
    steps = decisions.steps([(law.cdf, law.support)])
    drawn = run(draw_sums, (steps, np.zeros(64, np.uint64)), (DRAWS, 3), rng.bytes, decisions.settle).vectors
    vectors = points(SUM3, [2], 20)
    assert not drawn.sum(axis=1).any()
    assert p_value(drawn, vectors, law_of(vectors, l1(1.5))) < FALSE_ALARM


@pytest.mark.thorough
@pytest.mark.parametrize("mistake", [{}, {"divide": "round"}, {"accept": False}])
def test_rounding_and_missing_acceptance_are_rejected(mistake, rng):
    drawn = slow_free(TWISTED, [0, 1], [1.5] * 4, DRAWS, rng, **mistake)
    vectors = points(TWISTED, [0, 1], 20)
    fits = p_value(drawn, vectors, law_of(vectors, l1(1.5))) > FALSE_ALARM
    assert fits == (not mistake)


@pytest.mark.thorough
@pytest.mark.parametrize("bits", [11, 12])
def test_open_decisions_are_settled_exactly(bits, rng):
    """With words of a few bits thousands of decisions are left open; the law stays the same."""
    decisions, epsilon, settled = Decisions(bits), Fraction(3, 2), []

    def settle(*case):
        settled.append(case[0])
        return decisions.settle(*case)

    draws = 40_000
    law = sizes(decisions, 3, epsilon)
    drawn = run(draw_sums, (law, np.zeros(64, np.uint64)), (draws, 3), rng.bytes, settle).vectors
    vectors = points(SUM3, [2], 20)
    assert p_value(drawn, vectors, law_of(vectors, l1(1.5))) > FALSE_ALARM
    plan = lattice_integer.integer_plan(ALIKE, [[0, 1, 2], [3]], [0] * 5, [1, 0])
    steps, aggregates = (
        laplace_steps(decisions, [epsilon]),
        laplace_aggregates(decisions, [(epsilon, 1), (epsilon, 3)]),
    )
    arguments = (plan, steps, aggregates, np.zeros(64, np.uint64))
    drawn = run(draw_free, arguments, (draws, 5), rng.bytes, settle).vectors
    vectors = points(ALIKE, [3, 4], 16)
    assert p_value(drawn, vectors, law_of(vectors, l1(1.5))) > FALSE_ALARM
    assert len(settled) > 200
    assert len(set(settled)) >= 4


def test_draws_do_not_depend_on_how_the_words_are_cut(rng, monkeypatch):
    stream = rng.bytes(1 << 22)

    def words():
        place = 0

        def read(count):
            nonlocal place
            place += count
            return stream[place - count : place]

        return read

    from trueup.kernel import lattice_samplers

    bound = LatticeLaplace("1/2").on(Lattice.of(9, TABLE)).bound
    whole = bound.draw(200, words()).vectors
    for chunk in (1, 7, 100):
        monkeypatch.setattr(lattice_samplers, "FIRST_CHUNK", chunk)
        monkeypatch.setattr(lattice_samplers, "LARGEST_CHUNK", chunk)
        assert np.array_equal(bound.draw(200, words()).vectors, whole)


def exact_variance_of_sum(n, epsilon):
    """`2 (n - 1) / (n^2 (n + 1)) E[K (K + n)]` with K's law summed in logarithms."""
    from scipy.special import gammaln

    k = np.arange(0.0, 400 * n / epsilon / 10)
    log = 2 * (gammaln(n + k) - gammaln(k + 1)) - 2 * epsilon * k
    weight = np.exp(log - log.max())
    return 2 * (n - 1) / (n * n * (n + 1)) * (weight @ (k * (k + n)) / weight.sum())


def test_variance_of_102_cells_with_one_sum(rng):
    assert exact_variance_of_sum(102, 0.192) == pytest.approx(52.772, abs=5e-4)
    drawn = draw(LatticeLaplace("0.192"), np.ones((1, 102), np.int64), rng, draws=20_000)
    squares = (drawn.astype(float) ** 2).mean(axis=1)
    assert abs(squares.mean() - 52.772) < 5 * squares.std() / np.sqrt(len(drawn))
    assert np.abs(drawn.mean(axis=0)).max() < 6 * np.sqrt(52.772 / len(drawn))


@pytest.mark.thorough
def test_variance_of_4_by_4_table(rng):
    drawn = draw(LatticeLaplace("1/4"), table_margins(4, 4), rng, draws=50_000)
    squares = (drawn.astype(float) ** 2).mean(axis=1)
    assert abs(squares.mean() - 8.84) < 5 * squares.std() / np.sqrt(len(drawn)) + 0.005
    assert np.abs(drawn.mean(axis=0)).max() < 6 * np.sqrt(8.84 / len(drawn))


def test_noise_too_narrow_for_its_sampler_is_refused():
    with pytest.raises(SpecError, match="tries"):
        LatticeL2Laplace("30").on(Lattice.of(144, table_margins(12, 12)))


def test_noise_that_is_mostly_zero_takes_few_tries(rng):
    [(_, choice)] = LatticeGaussian("1/100").on(Lattice.of(144, table_margins(12, 12))).bound.pieces
    assert choice.tries == choice.draw(200, rng.bytes).tries / 200 == 1


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_the_stated_tries_are_about_right(shape, rng):
    bound = LatticeLaplace("1/4").on(Lattice.of(shape[0] * shape[1], table_margins(*shape))).bound
    drawn = bound.draw(2000, rng.bytes)
    assert 0.5 < drawn.tries / 2000 / bound.pieces[0][1].tries < 2


@pytest.mark.parametrize(("epsilon", "most"), [("1", 1e-10), ("1/100", 1e-8)])
def test_what_is_drawn_in_doubles_states_a_delta(epsilon, most):
    """The bound of its derivation: above what a million uniforms of 53 bits can hide, and far below one in a million."""
    law = LatticeL2Laplace(epsilon).on(Lattice.of(3, SUM3))
    cost = law.cost(Sensitivity.of(cells=2, each=1))
    assert 2.0**-53 < law.bound.rounding < most
    assert float(cost.delta) >= (1 + np.exp(float(cost.amount))) * law.bound.rounding
    assert cost.delta.numerator == 1
    assert LatticeLaplace(epsilon).on(Lattice.of(3, SUM3)).cost(Sensitivity.of(cells=2, each=1)).delta == 0


def test_a_wide_law_in_doubles_has_a_larger_delta():
    deltas = [
        LatticeL2Laplace(epsilon).on(Lattice.of(3, SUM3)).bound.rounding
        for epsilon in ("1", "1/100", "1/10000")
    ]
    assert deltas == sorted(deltas)
    assert deltas[-1] > 100 * deltas[0]
