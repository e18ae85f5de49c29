"""Noise that keeps one sum: exact draws against the paper's Markov chain.

Ours is in integer arithmetic only, with fresh random words. `float twin` is the same sampler in doubles with NumPy's
generator. The chain's coordinates must all meet at once, which at 101 dimensions they do not: its time is then that of
the steps it was given and certifies nothing, so the ratio is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from benchmarks._lattice import FloatSums, Tuned, against_chain, bind
from benchmarks.harness import Case, Harness
from trueup.kernel.lattice import chain
from trueup.measure.entropy import words
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
