"""Noise that keeps both margins of a table: exact draws against the paper's Markov chain, and accuracy.

Ours is exact, with fresh random words. The chain is the paper's kernel, tuned, compiled, from a
dispersed start, run to the time at which coupled chains bound its distance to the target by 0.01 (which leaves a delta
of about 0.03; ours is exact). The picture compares accuracy at equal privacy on the table of delinquent children.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from benchmarks._lattice import Tuned, against_chain, bind, margins
from benchmarks._lattice_accuracy import accuracy
from benchmarks.harness import Case, Harness, Picture
from papers import markov_chain as chain
from trueup.measuring.entropy import words
from trueup.noise.lattice import LatticeLaplace

VARIANCE = 8.84
"""Exact variance of a cell of the 4 x 4 table at epsilon = 1/4 (counts squared)."""


FULL = (((40, 40), 5), ((16, 16, 16), 3))


def cases(harness: Harness) -> Iterator[Case]:
    tuned = Tuned.of(margins(4, 4), chain.L1, 0.25, 1.2, 10.0, 1000, 200_000)
    bound = bind(LatticeLaplace(Fraction("1/4")), margins(4, 4))
    yield from against_chain(harness, "4 x 4 table, epsilon = 1/4", bound, tuned, 100, VARIANCE)
    for shape, count in (
        ((14, 14), 100),
        ((20, 20), 30),
        ((4, 4, 4), 100),
        ((8, 8, 8), 10),
        *(FULL if harness.full else ()),
    ):
        for epsilon in ("1/4", "2"):
            larger = bind(LatticeLaplace(Fraction(epsilon)), margins(*shape))
            larger.draw(1, words)  # what is set up once
            yield from harness.compare(
                f"{' x '.join(map(str, shape))}, epsilon = {epsilon}: {count} draws, {larger.explain()[0]}",
                lambda larger=larger, count=count: larger.draw(count, words).vectors,
            )


def pictures(harness: Harness) -> Iterator[Picture]:
    yield accuracy(20_000 if harness.full else 4_000)
