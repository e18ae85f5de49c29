"""Noise that keeps one sum: exact draws against the paper's Markov chain.

Ours is in integer arithmetic only, with fresh random words. `float twin` is the same sampler in doubles with NumPy's
generator. The coordinates of coupled chains must all meet at once, which at 101 dimensions they do not: the chain is
then timed at a number of steps where the bound on its distance is still far above 0.01, and the ratio is a lower bound.
The pictures show what starting the chain at zero hides, and accuracy at equal privacy.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from benchmarks._lattice import FloatSums, Tuned, against_chain, bind
from benchmarks._lattice_accuracy import counties
from benchmarks.harness import Case, Harness, Picture
from papers import markov_chain as chain
from trueup.measuring.entropy import words
from trueup.noise.lattice import LatticeLaplace

VARIANCE = 52.772
"""Exact variance of a cell at n = 102, epsilon = 0.192 (counts squared)."""


def cases(harness: Harness) -> Iterator[Case]:
    rng = np.random.default_rng(2)
    one = np.ones((1, 102), np.int64)
    tuned = Tuned.of(one, chain.L1, 0.192, 0.35, 5.0, 2000, 100_000 if harness.full else 5_000)
    twin = FloatSums(102, 0.192)
    twin.draw(rng, 1)
    more = {"float twin": lambda: twin.draw(rng, 100)}
    bound = bind(LatticeLaplace(Fraction("0.192")), one)
    yield from against_chain(harness, "102 counties, epsilon = 0.192", bound, tuned, 100, VARIANCE, more)
    for n, count in ((10**4, 20), (10**6, 1)):
        bound, twin = bind(LatticeLaplace(Fraction("0.192")), np.ones((1, n), np.int64)), FloatSums(n, 0.192)
        yield from harness.compare(
            f"{n:,} cells, epsilon = 0.192: {count} draws",
            lambda bound=bound, count=count: bound.draw(count, words).vectors,
            {"float twin": lambda twin=twin, count=count: twin.draw(rng, count)},
            difference=lambda ours, peer: abs(ours.var() - peer.var()),
        )


def pictures(harness: Harness) -> Iterator[Picture]:
    yield _from_zero(200 if harness.full else 60)
    yield from counties(2_000 if harness.full else 400)


def _from_zero(runs: int) -> Picture:
    """Count runs that start at zero, the mode of the target, and have not moved after 20,000 steps."""
    rng, rows = np.random.default_rng(7), []
    target = chain.ChainTarget(chain.smith_basis(np.ones((1, 102), np.int64)), chain.L1, 0.192)
    for scale in (0.35, 0.7, 0.8, 1.0):
        rates = [
            chain.run_lattice_chain(rng, target, scale, np.zeros(101, np.int64), 20_000, 20_000)[1]
            for _ in range(runs)
        ]
        norms = np.abs(Tuned(target, scale, 0.0, 0, 0).ends(rng, 20_000, runs)).sum(axis=1)
        left = np.mean(np.array(rates) > 0)
        rows.append([f"{scale}", f"{left:.0%}", f"{np.mean(rates):.2g}", f"{norms.mean():.0f}", str(runs)])
    exact = bind(LatticeLaplace(Fraction("0.192")), np.ones((1, 102), np.int64)).draw(2000, words).vectors
    rows.append(["exact draws", "", "", f"{np.abs(exact).sum(axis=1).mean():.0f}", "2000"])
    return Picture(
        title="102 counties: the paper's chain started at zero, after 20,000 steps",
        columns=["scale of the jumps", "left zero", "accepted", "mean L1 norm reached", "runs"],
        rows=rows,
    )
