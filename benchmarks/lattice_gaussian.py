"""Discrete Gaussian noise on a lattice: exact draws in integers and in doubles, against the Markov chain.

Klein's walk is exact up to the rounding of doubles; rejection on free cells is in integers only.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from benchmarks._lattice import Tuned, against_chain, bind, margins
from benchmarks.harness import Case, Harness, Run
from papers import markov_chain as chain
from trueup.measuring.entropy import words
from trueup.noise.lattice import LatticeGaussian

SIGMA2 = 16


def cases(harness: Harness) -> Iterator[Case]:
    small = margins(4, 4)
    tuned = Tuned.of(small, chain.SQUARED, 1 / (2 * SIGMA2), 1.0, 4.0, 500, 100_000)
    exact = SIGMA2 * 9 / 16  # the continuous value; at this width the discrete one agrees to many digits
    walk = bind(LatticeGaussian(Fraction(SIGMA2)), small, sampler="klein")
    yield from against_chain(harness, "4 x 4 table, sigma = 4", walk, tuned, 100, exact)
    cases = [
        ("4 x 4 table", small, "free", "klein", 100),
        ("10 x 10 table", margins(10, 10), "klein", None, 100),
        ("one sum of 102", np.ones((1, 102), np.int64), "free", "path", 100),
        ("one sum of 1,000,000", np.ones((1, 10**6), np.int64), "path", None, 1),
    ]
    for name, matrix, sampler, other, count in cases:
        bound = bind(LatticeGaussian(Fraction(SIGMA2)), matrix, sampler=sampler)
        peers: dict[str, Run | str] = {}
        if other:
            peer = bind(LatticeGaussian(Fraction(SIGMA2)), matrix, sampler=other)
            peers = {f"'{other}' (doubles)": lambda peer=peer, count=count: peer.draw(count, words).vectors}
        yield from harness.compare(
            f"{name}, sigma = 4: {count} draws, {bound.explain()[0]}",
            lambda bound=bound, count=count: bound.draw(count, words).vectors,
            peers,
            difference=lambda ours, peer: abs(ours.var() - peer.var()),
        )
