"""Noise that keeps crossing sums: exact draws against the paper's Markov chain, and its convergence curves.

The example is the paper's: 14 records in three sets with every intersection present. The pictures show the bound on
total variation from coupled chains, from a dispersed start and from zero, where zero is the mode of the target, and
accuracy at equal privacy.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from benchmarks._lattice import PAIRS, Tuned, against_chain, bind, crossing, float_free, margins
from benchmarks._lattice_accuracy import records
from benchmarks.harness import Case, Harness, Picture
from papers import markov_chain as chain
from trueup.measuring.entropy import words
from trueup.noise.lattice import LatticeL2Laplace, LatticeLaplace
from trueup.noise.lattice.integer import integer_plan as lay_out


def cases(harness: Harness) -> Iterator[Case]:
    rng = np.random.default_rng(3)
    matrix = crossing()
    plan = lay_out(matrix, [[0], [2], [6]], [0] * 14, [0] * 3)
    float_free(rng, plan, 0.25, 1)
    twin = {"float twin, without aggregates": lambda: float_free(rng, plan, 0.25, 20)}
    tuned = Tuned.of(matrix, chain.L1, 0.25, 1.2, 10.0, 5000, 300_000)
    bound = bind(LatticeLaplace(Fraction("1/4")), matrix)
    yield from against_chain(harness, "14 records, L1, epsilon = 1/4", bound, tuned, 20, more=twin)
    tuned = Tuned.of(matrix, chain.L2, 0.25, 4.0, 20.0, 5000, 300_000)
    bound = bind(LatticeL2Laplace(Fraction("1/4")), matrix)
    yield from against_chain(harness, "14 records, L2, epsilon = 1/4", bound, tuned, 20)
    for each in (5, 20):
        bound = bind(LatticeLaplace(Fraction("1/4")), crossing(each))
        yield from harness.compare(
            f"{7 * each} records, L1, epsilon = 1/4: 20 draws, {bound.explain()[0]}",
            lambda bound=bound: bound.draw(20, words).vectors,
        )
    for n in (50, 500):
        long = np.ones((1, n), np.int64)
        long[0, ::2] = 2
        bound = bind(LatticeLaplace(Fraction("1/4")), long)
        yield from harness.compare(
            f"{n} cells, one sum with coefficients 1 and 2: 20 draws, {bound.explain()[0]}",
            lambda bound=bound: bound.draw(20, words).vectors,
        )


def pictures(harness: Harness) -> Iterator[Picture]:
    yield records(4000 if harness.full else 2000)
    rng = np.random.default_rng(4)
    at = (0, 1000, 2000, 5000, 10_000, 20_000, 40_000)
    for name, matrix, lag in (("14 records", crossing(), 5000), ("4 x 4 table", margins(4, 4), 1000)):
        for norm, scale, spread in ((chain.L1, 1.2, 10.0), (chain.L2, 3.0, 20.0)):
            rows = []
            for start in (spread, 0.0):
                tuned = Tuned.of(matrix, norm, 0.25, scale, start, lag, 300_000)
                met = tuned.times(rng, PAIRS if harness.full else 100)
                bounds = (
                    ["some had not met"] * len(at)
                    if (met < 0).any()
                    else [f"{bound:.3f}" for bound in chain.total_variation(met, lag, at)]
                )
                rows.append(["zero" if start == 0 else "dispersed", *bounds])
            yield Picture(
                title=f"{name}, L{norm} norm, epsilon = 1/4: bound on total variation after so many steps",
                columns=["start", *map(str, at)],
                rows=rows,
            )
