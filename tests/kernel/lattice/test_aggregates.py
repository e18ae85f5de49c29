"""Cells with equal columns, drawn by their sum: acceptance and split against enumeration, and named mistakes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.reference.lattice import law_of, p_value, points, three_crossing_sums
from trueup.kernel.lattice.structure import Lattice
from trueup.kernel.lattice_samplers import run
from trueup.kernel.lattice_samplers.free import draw_free
from trueup.noise.lattice import LatticeLaplace
from trueup.noise.lattice import integer as lattice_integer
from trueup.noise.lattice.tables import Decisions, laplace_aggregates, laplace_steps

DRAWS = 200_000
FALSE_ALARM = 1e-6


def draw_aggregate(rng, mistake, m=3, epsilon=Fraction(1, 2)):
    """One sum of m + 1 cells, m of them one aggregate, with a named mistake."""
    decisions = Decisions()
    aggregates = laplace_aggregates(decisions, [(epsilon, m)])
    if mistake == "accepted as one cell":
        aggregates = aggregates._replace(sums=laplace_aggregates(decisions, [(epsilon, 1)]).sums)
    if mistake == "split without acceptance":
        sure = np.full_like(aggregates.heads.floors, 2**64 - 1)
        aggregates = aggregates._replace(heads=aggregates.heads._replace(floors=sure))
    if mistake == "one cell too few":
        aggregates = aggregates._replace(sums=laplace_aggregates(decisions, [(epsilon, m - 1)]).sums)
    if mistake == "parts too wide":
        aggregates = aggregates._replace(parts=laplace_aggregates(decisions, [(epsilon / 2, m)]).parts)
    layout = lattice_integer.integer_plan(np.ones((1, m + 1), np.int64), [list(range(m))], [0] * (m + 1), [0])
    arguments = (layout, laplace_steps(decisions, [epsilon]), aggregates, np.zeros(64, np.uint64))
    return run(draw_free, arguments, (DRAWS, m + 1), rng.bytes, decisions.settle).vectors


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake",
    [
        "",
        "accepted as one cell",
        *(
            pytest.param(m, marks=pytest.mark.thorough)
            for m in ("one cell too few", "split without acceptance", "parts too wide")
        ),
    ],
)
def test_a_aggregate_wrongly_accepted_or_split_is_rejected(mistake, rng):
    vectors = points(np.ones((1, 4), np.int64), [0], 40)
    fits = (
        p_value(
            draw_aggregate(rng, mistake), vectors, law_of(vectors, lambda v: -0.5 * np.abs(v).sum(axis=-1))
        )
        > FALSE_ALARM
    )
    assert fits == (not mistake)


@pytest.mark.parametrize(("m", "epsilon"), [(1, "3/2"), (2, "1/4"), (5, "1/100"), (16, "2")])
def test_the_weight_of_a_aggregate_is_its_convolution(m, epsilon):
    """Against m-fold convolution in doubles; the coins' floors are in integers."""
    rate = float(Fraction(epsilon))
    one = np.exp(-rate * np.abs(np.arange(-4000, 4001)))
    spectrum = np.fft.fft(np.fft.ifftshift(one)) ** m
    slow = np.fft.ifft(spectrum).real
    aggregates = laplace_aggregates(Decisions(), [(Fraction(epsilon), m)])
    k = np.arange(1, min(aggregates.sums.floors.shape[1], int(6 * np.sqrt(m) / rate)))
    assert aggregates.sums.floors[0, k] / 2.0**64 == pytest.approx(slow[k] / slow[0], rel=1e-9, abs=1e-12)


def test_large_aggregates_are_drawn_and_save_tries(rng):
    matrix = three_crossing_sums(20)
    bound = LatticeLaplace("1/4").on(Lattice.of(140, matrix)).bound
    drawn = bound.draw(400, rng.bytes)
    assert not (drawn.vectors @ matrix.T).any()
    assert 0.6 < drawn.tries / 400 / bound.pieces[0][1].tries < 1.6
    variance, law = (drawn.vectors.astype(float) ** 2).mean(axis=1), LatticeLaplace("1/4").variance
    assert abs(variance.mean() - law * 137 / 140) < 6 * variance.std() / 20
