"""Noise that keeps counts within a public feasible set, such as bounds, sums and inequalities.

On the feasible set F the law is `exp(-rate |x - y|_1) / Z(x)`. For tables x and x' of F that are d apart the loss is at most
`rate d + |log Z(x) - log Z(x')| <= 2 rate d`. It is `rate d` where Z is constant: without bounds, on two values, and for sums
of cells with two values each, which permutations turn into each other. F splits into parts that share no rule; each gets the
largest rate that is proved: exact for single cells, where `Z(x + 1) / Z(x)` is largest at a bound, and for listed tables.

The law: Dharangutte, Gao, Gong and Yu, section 6. The loss: McSherry and Talwar's exponential mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import ArrayLike

from trueup.arrays.exact import (
    LARGEST_COUNT,
    Matrix,
    Number,
    exact_number,
    matrix_rows,
    real_vector,
    whole_vector,
)
from trueup.arrays.feasible_parts import PINNED, FeasiblePart, Rules, boxes, ruled
from trueup.errors import DataError, PrivacyError, SpecError
from trueup.noise.law import Integers, Reals, Words
from trueup.noise.laws.geometric import DiscreteLaplace


@dataclass(frozen=True, eq=False)
class NoiseWithin:
    """Noise that keeps counts within a public feasible set.

    Attributes
    ----------
    epsilon
        Loss for each unit of L1 distance between two tables of the set, proved.
    parts
        Sets of cells that share rules with no others.
    """

    epsilon: Fraction
    parts: tuple[FeasiblePart, ...]
    _rules: Rules

    @classmethod
    def of(
        cls,
        x: Integers,
        *,
        epsilon: Number,
        A: Matrix | None = None,
        lower: ArrayLike = -inf,
        upper: ArrayLike = inf,
        R: Matrix | None = None,
        least: ArrayLike = (),
        slowest: float = 60.0,
        known: bool = True,
    ) -> NoiseWithin:
        """Return noise within the feasible set around counts x. Of x only the sums `A x` are used.

        Unless A x is `known`, it is not used either to choose how the noise is drawn, nor to refuse it.
        """
        rules = _rules_of(x, A, (lower, upper), R, least)
        amount = DiscreteLaplace(exact_number(epsilon, "epsilon")).epsilon  # refused where it is extreme
        parts = tuple(_choose_parts(rules, amount, slowest, known=known))
        if all(part.how == PINNED for part in parts):
            raise PrivacyError(
                "the rules allow only one table, so that noise cannot change it",
                needed="rules that allow at least two tables",
            )
        return cls(amount, parts, rules)

    @property
    def n(self) -> int:
        """Return the number of cells of the feasible set."""
        return self._rules.low.size

    @property
    def constant(self) -> bool:
        """Return True if the probability of noisy counts is a product over cells, or pairs of cells."""
        return all(part.constant for part in self.parts)

    @property
    def attained(self) -> bool:
        """Return True if the stated privacy loss is exact, and not only an upper bound."""
        return not any(part.how.endswith("at most") for part in self.parts)

    @property
    def variance(self) -> float:
        """Return the approximate mean squared error of a cell whose true count is at one of its bounds."""
        total = 0.0
        for part in self.parts:
            far = np.arange(1 + min(part.widest, 60 / part.rate)) if part.rate else np.zeros(1)
            mass = np.exp(-part.rate * far)
            total += part.cells.size * float(mass @ far**2 / mass.sum())
        return total / self.n

    def tail(self, probability: float) -> int:
        """Return a bound (counts) that any single cell's noise exceeds with at most the given probability."""
        return int(max(part.tail(probability) for part in self.parts))

    @property
    def rates(self) -> Reals:
        """Return rates r `(n,)`: noisy counts y have mass proportional to `exp(-sum r |x - y|)`."""
        out = np.zeros(self._rules.low.size)
        for part in self.parts:
            out[part.cells] = part.rate
        return out

    def draw(self, x: Integers, count: int, words: Words) -> Integers:
        """Draw noisy counts `(count, n)` in the feasible set, or raise DataError if x is outside."""
        if not self._rules.hold(x[None])[0]:
            raise DataError(
                "the counts break a rule of the feasible set", needed="counts that obey every rule"
            )
        out = np.empty((count, x.size), np.int64)
        for part in self.parts:
            out[:, part.cells] = part.draw(x[part.cells], count, words)
        return out

    def bias(self, x: ArrayLike) -> Reals:
        """Return the mean error of each cell if x are the true counts, or NaN where it is unknown."""
        given = whole_vector(x, "the counts")
        self._rules.check(given)
        out = np.full(given.size, np.nan)
        for part in self.parts:
            if part.mean is not None:
                out[part.cells] = part.mean(given[part.cells]) - given[part.cells]
        return out

    def explain(self) -> list[str]:
        """Return lines that state how the noise is drawn and what is known of the privacy loss."""
        kinds = [part.how for part in self.parts]
        return [f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds)]


def _rules_of(
    x: Integers,
    A: Matrix | None,
    box: tuple[ArrayLike, ArrayLike],
    R: Matrix | None,
    least: ArrayLike,
) -> Rules:
    """Return the arguments as linear rules. Refuse true counts that break a rule."""
    n = x.size
    none = scipy.sparse.csr_array((0, n))
    kept, rows = (none if rule is None else matrix_rows(rule, n, name) for rule, name in ((A, "A"), (R, "R")))
    if (fraction := (kept.data != np.rint(kept.data)).any()) or (
        abs(kept) @ np.abs(x) >= LARGEST_COUNT
    ).any():
        raise SpecError(
            "A holds a number that is not whole" if fraction else "a sum that A keeps may be 2^62 or more",
            needed="a matrix A of whole numbers" if fraction else "sums below 2^62",
        )
    kept = scipy.sparse.csr_array(kept, dtype=np.int64)
    low, high = (
        np.ceil(real_vector(box[0], "lower", n, infinite=True)),
        np.floor(real_vector(box[1], "upper", n, infinite=True)),
    )
    limits = real_vector(least, "least", rows.shape[0], infinite=True)
    if (np.abs(x) >= 2**53).any():
        raise SpecError(
            "the counts are beyond 2^53",
            needed="counts up to 2^53, which floating-point numbers hold exactly",
        )
    rules = Rules(kept, kept @ x, low, high, rows, limits)
    rules.check(x)
    return rules


def _components(rules: Rules) -> tuple[list[Integers], Integers]:
    """Return the sets of cells that are connected by rules, and the cells without rules."""
    both = scipy.sparse.csr_array(scipy.sparse.vstack([abs(rules.kept), abs(rules.rows)]))
    graph = scipy.sparse.block_array([[None, both], [both.T, None]])
    labels = scipy.sparse.csgraph.connected_components(graph, directed=False)[1][both.shape[0] :]
    named = np.diff(both.tocsc().indptr) > 0
    ruled = np.flatnonzero(named)[np.argsort(labels[named], kind="stable")]
    ties = np.split(ruled, np.flatnonzero(np.diff(labels[ruled])) + 1) if ruled.size else []
    return ties, np.flatnonzero(~named)


def _choose_parts(rules: Rules, epsilon: Fraction, slowest: float, *, known: bool) -> list[FeasiblePart]:
    """Split the cells into independent parts, and choose how the noise of each part is drawn."""
    ties, alone = _components(rules)
    parts = [ruled(rules, cells, epsilon, slowest, known=known) for cells in ties]
    low, high = rules.low[alone], rules.high[alone]
    kind = np.stack([high - low, low == -inf, high == inf], axis=1)
    for one in np.unique(kind, axis=0):
        same = (kind == one).all(axis=1)
        parts.append(boxes(alone[same], low[same], high[same], epsilon))
    return parts
