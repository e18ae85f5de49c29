"""Tables and grids drawn row after row: bounds and limits beside plain sums, laws beside enumeration and a slow chain."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.arrays.matrices import chance, counted
from tests.reference.lattice import law_of, one_way_margins, points, slow_beginning, swapped
from trueup.errors import SpecError
from trueup.kernel.lattice.structure import Lattice
from trueup.kernel.lattice_samplers import run
from trueup.kernel.lattice_samplers.rows import ACCEPT, chance_bounds, draw_grids
from trueup.noise.lattice import LatticeLaplace
from trueup.noise.lattice.rows import GridSampler, limit

FALSE_ALARM = 1e-6
DEPENDENT = {
    (3, 3): [2, 5, 6, 7, 8],
    (3, 4): [3, 7, 8, 9, 10, 11],
    (2, 2, 2): [0, 1, 2, 4],
    (2, 2, 3): [0, 1, 2, 3, 6],
}
RADIUS = {(3, 3): 12, (3, 4): 4, (2, 2, 2): 14, (2, 2, 3): 4}


def lacking(rng, columns, width):
    left = np.rint(rng.laplace(0, width, columns)).astype(np.int64)
    left[-1] -= left.sum()
    return left


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shape", "epsilon"), [((5, 6), "1/4"), ((4, 3), "2"), ((6, 20), "1/2"), ((3, 4, 5), "1")]
)
def test_what_begins_a_row_lies_within_its_bounds(shape, epsilon, rng):
    """Against plain convolutions; exactly in whole numbers, and in doubles to nine digits, however far columns are."""
    grids, rate = GridSampler(shape, Fraction(epsilon)), float(Fraction(epsilon))
    for stage, law in zip(grids._stages, grids.laws):
        for width in (0.0, 2 / rate, 8 / rate):
            k, left = int(rng.integers(2, law.rows + 1)), lacking(rng, law.columns, width)
            right = slow_beginning(rate, k, left, law.summands)
            least, most = chance_bounds(law, k, left, law.beyond, law.beyond + 2 * law.spread)
            assert least <= right * (1 + 1e-10)
            assert most >= right * (1 - 1e-10)
            if width < 8 / rate:
                assert most - least < 1e-9
            cut = chance_bounds(law, k, left, law.beyond // 4, law.spread // 4)
            assert cut[0] <= right <= cut[1]
            exact = stage.chance(k, left.tolist(), 64)
            assert exact.lo / 2**exact.bits * law.limits[k - 1] == pytest.approx(right, rel=1e-9)
            assert exact.hi - exact.lo < 2 ** (exact.bits - 60)


@pytest.mark.parametrize(("epsilon", "summands"), [(0.25, 1), (2.0, 1), (0.5, 5)])
def test_no_row_begins_more_often_than_its_limit(epsilon, summands, rng):
    for k in (2, 3, 6):
        most = limit(k, 6, epsilon, summands)
        at_zero = slow_beginning(epsilon, k, [0] * 6, summands)
        assert at_zero <= most < at_zero * 1.01  # and not much less often, or tries are wasted
        for width in (0.3, 1, 4, 20):
            left = lacking(rng, 6, width / epsilon)
            assert slow_beginning(epsilon, k, left, summands) <= most


def drawn_from(grids, shape, draws, rng):
    """Draws in the flat order of the grid."""
    found = run(draw_grids, (grids.laws, grids.asked), (draws, int(np.prod(shape))), rng.bytes, grids.settle)
    memory = [*range(len(shape) - 1, 1, -1), 0, 1]
    vectors = found.vectors.reshape(draws, *(shape[axis] for axis in memory))
    back = [1 + memory.index(axis) for axis in range(len(shape))]
    return vectors.transpose(0, *back).reshape(draws, -1)


def of_enumeration(shape, epsilon, drawn):
    """P-value of draws against the enumerated law."""
    matrix = one_way_margins(*shape)
    assert not (drawn @ matrix.T).any()
    vectors = points(matrix, DEPENDENT[shape], RADIUS[shape])
    return chance(*counted(drawn, vectors), law_of(vectors, lambda v: -epsilon * np.abs(v).sum(axis=1)))


def mistaken(grids, mistake):
    """A wrong version: what begins rows is not asked, limits are too low, coins are off."""
    last = grids.laws[-1]
    match mistake:
        case "always begun":
            wrong = last._replace(limits=np.full_like(last.limits, 1e-9))
        case "limits a third too low":
            wrong = last._replace(limits=last.limits / 1.5)
        case "the weight of what columns lack":
            last.coins.floors[-2, 1:] = last.coins.floors[-1, 1:]
            wrong = last
        case _:
            wrong = last
    grids.laws = (*grids.laws[:-1], wrong)
    return grids


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake",
    ["none", "always begun", "limits a third too low", "the weight of what columns lack"],
)
@pytest.mark.parametrize("shape", [(3, 3), (2, 2, 2)])
def test_the_law_is_the_enumerated_one_and_wrong_versions_are_not(shape, mistake, rng):
    grids = mistaken(GridSampler(shape, Fraction(3, 5)), mistake)
    p_value = of_enumeration(shape, 0.6, drawn_from(grids, shape, 250_000, rng))
    assert (p_value > FALSE_ALARM) == (mistake == "none")


@pytest.mark.slow
def test_decisions_that_bounds_leave_open_are_settled_exactly(rng):
    """With bounds that are cut off near zero hundreds are left open, and with words of few bits other decisions, too."""
    grids, asked = GridSampler((3, 3), Fraction(3, 5), bits=12), []
    grids.laws = (grids.laws[0]._replace(beyond=1, spread=0),)
    settle = grids.settle

    def noting(family, *case):
        asked.append(family)
        return settle(family, *case)

    grids.settle = noting
    shape = (3, 3)
    assert of_enumeration(shape, 0.6, drawn_from(grids, shape, 800, rng)) > FALSE_ALARM
    assert asked.count(ACCEPT) > 100
    assert len(asked) > asked.count(ACCEPT) + 20


def small_tables(first, number, draws, rng):
    """P-values of tables of two rows and more and of three axes, at epsilon 1/2 to 4."""
    for k in range(first, first + number):
        shape = list(DEPENDENT)[k % len(DEPENDENT)]
        epsilon = Fraction(int(rng.integers(24, 36)), RADIUS[shape] if min(shape) > 2 else 2 * RADIUS[shape])
        lattice = Lattice.of(int(np.prod(shape)), one_way_margins(*shape))
        drawn = LatticeLaplace(epsilon).on(lattice).bound.draw(draws, rng.bytes)
        yield of_enumeration(shape, float(epsilon), drawn.vectors)


@pytest.mark.thorough
def test_small_tables_have_the_enumerated_law(rng):
    assert min(small_tables(0, 2, 20_000, rng)) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 6))
def test_sixty_small_tables_have_the_enumerated_law(first, rng):
    assert min(small_tables(first, 6, 1_000_000, rng)) > FALSE_ALARM / 60


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "epsilon"), [((20, 20), "1/4"), ((20, 20), "2"), ((8, 8, 8), "1/4")])
def test_large_tables_keep_their_margins(shape, epsilon, rng):
    bound = LatticeLaplace(epsilon).on(Lattice.of(int(np.prod(shape)), one_way_margins(*shape))).bound
    [(_, choice)] = bound.pieces
    assert (choice.sampler, choice.seconds < 1, bound.exact_in_integers) == ("rows", True, True)
    drawn = bound.draw(3, rng.bytes)
    assert not (drawn.vectors @ one_way_margins(*shape).T).any()
    assert len(np.unique(drawn.vectors, axis=0)) == 3


@pytest.mark.thorough
def test_axes_of_unequal_lengths_come_back_in_their_order(rng):
    matrix = one_way_margins(5, 2, 3, 4)
    places = rng.permutation(120)
    bound = LatticeLaplace("3/2").on(Lattice.of(120, matrix[:, places])).bound
    assert [piece.kind for piece in bound.lattice.pieces] == ["grid"]
    assert not (bound.draw(20, rng.bytes).vectors @ matrix[:, places].T).any()


@pytest.mark.parametrize(
    ("matrix", "kind"),
    [
        (one_way_margins(3, 4)[1:], "table"),
        (one_way_margins(2, 3, 3), "grid"),
        (one_way_margins(2, 3, 3)[[0, 1, 2, 3, 5, 6]], "grid"),
        (one_way_margins(2, 3, 3)[:, 1:], "general"),
    ],
)
def test_what_is_a_table_or_grid(matrix, kind):
    pieces = Lattice.of(matrix.shape[1], matrix).pieces
    assert [piece.kind for piece in pieces] == [kind]


@pytest.mark.thorough
def test_a_grid_that_takes_too_long_to_set_up_is_refused():
    with pytest.raises(SpecError, match=r"set-up of about|lattice-gaussian"):
        LatticeLaplace("1/100").on(Lattice.of(1600, one_way_margins(40, 40)))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("epsilon", ["1/4", "2"])
def test_moments_of_20_by_20_are_those_of_a_slow_chain(epsilon, rng):
    """First two moments of cells and neighbours, absolute values and zeros, over 400 chains."""
    law = LatticeLaplace(epsilon).on(Lattice.of(400, one_way_margins(20, 20)))
    ours = law.bound.draw(2_000, rng.bytes).vectors.reshape(-1, 20, 20).astype(float)
    chains = swapped(rng, float(Fraction(epsilon)), np.zeros((400, 20, 20), np.int64), 1500).astype(float)
    for name, statistic in {
        "corner": lambda t: t[:, :10, :10].mean(axis=(1, 2)),
        "square": lambda t: (t**2).mean(axis=(1, 2)),
        "size": lambda t: np.abs(t).mean(axis=(1, 2)),
        "neighbours": lambda t: (t[:, :, 1:] * t[:, :, :-1]).mean(axis=(1, 2)),
        "squares of rows": lambda t: ((t**2).mean(axis=2) ** 2).mean(axis=1),
        "zeros": lambda t: (t == 0).mean(axis=(1, 2)),
    }.items():
        one, other = statistic(ours), statistic(chains)
        error = np.hypot(one.std() / np.sqrt(len(one)), other.std() / np.sqrt(len(other)))
        assert abs(one.mean() - other.mean()) < 4 * error, name
