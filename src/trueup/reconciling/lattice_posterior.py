"""Nonnegative counts from noise that keeps the invariants: the posterior on the fibre `{x >= 0 : A x = A z}`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, SpecError
from trueup.layouts.linear import LinearProblem
from trueup.model.constraints import STRUCTURES, Constraints
from trueup.model.header import Measured, split
from trueup.model.nested import canonical
from trueup.reconciling.method import Method, Solution

LAPLACE, GAUSSIAN = "lattice-laplace", "lattice-gaussian"


class FibreProblem(NamedTuple):
    """What was measured, and the law of its noise bound to the lattice of the invariants.

    Attributes
    ----------
    linear
        Constraints and headers.
    rows
        Invariants as rows `(m, n)`, sparse integers.
    law
        The bound law.
    """

    linear: LinearProblem
    rows: Any
    law: Any


@dataclass(frozen=True)
class LatticePosterior(Method):
    """Turn counts with noise that keeps the invariants into nonnegative ones, by their posterior under a flat prior.

    Given noisy counts z, the counts x with the same invariants have `p(x | z)` proportional to the law's mass at
    `z - x`. Pieces of the table that share no invariant are independent; each is drawn exactly, by rejection, where
    at least one in a hundred proposals is nonnegative, else by four Markov chains whose R-hat and effective
    sample size are reported. What the draws cost is accuracy, never privacy.

    Attributes
    ----------
    estimate
        `mean`: the posterior mean, rounded to the nearest whole counts (L1) with the same invariants. `mode`: the
        nearest nonnegative counts in L1, for Laplace noise. `draw`: one draw from the posterior.
    draws
        Draws that the mean is taken over, and that the chains' diagnostics rest on.

    References
    ----------
    Dharangutte, Gao, Gong and Yu (2023), section 6, name nonnegativity as future work.
    """

    estimate: Literal["mean", "mode", "draw"] = "mean"
    draws: int = 400

    name: ClassVar[str] = "lattice-posterior"
    title: ClassVar[str] = (
        "nonnegative counts from noise that keeps the invariants: posterior mean, mode or one draw"
    )
    structures: ClassVar[frozenset[str]] = frozenset(STRUCTURES)
    effort: ClassVar[int] = 1000
    random: ClassVar[bool] = True

    def refuses(self, constraints: Constraints) -> str | None:
        """Only invariants and nonnegativity; the finest cells are all that is measured."""
        if self.draws < 40:
            return f"{self.draws} draws are too few for diagnostics; it takes 40 or more"
        if not constraints.nonnegative:
            return "counts may be negative, so the noisy counts need no reconciliation"
        if constraints.zeros or constraints.bounds or constraints.linear:
            return "it keeps invariants and nonnegativity, and the spec has zeros, bounds or linear rules"
        if not constraints.invariants:
            return "there are no invariants"
        finest = constraints.cells.finest
        if any(canonical(constraints.cells, m) != finest for m in constraints.margins):
            return f"a margin above the finest cells '{finest}' is measured"
        return None

    def refuses_noise(self, headers: Sequence[Measured]) -> str | None:
        """One query, with noise that keeps the invariants and is a product over cells."""
        noisy = [h for h in headers if not h.exact]
        if (
            len(noisy) != 1
            or not (noisy[0].law.joint and noisy[0].law.factors)
            or noisy[0].groups is not None
        ):
            return f"it takes one query, with noise '{LAPLACE}' or '{GAUSSIAN}'"
        if self.estimate == "mode" and noisy[0].law.rate is None:
            return "the mode under Gaussian noise is least squares: use 'general-projection' with rounding = 'optimal'"
        return None

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> FibreProblem:
        """Bind the law to the lattice of the invariants, whose samplers then propose."""
        from scipy.sparse import vstack

        from trueup.kernel.lattice.structure import Lattice

        linear = LinearProblem(constraints, tuple(headers))
        rows = vstack([linear.sums(h.margin, h.groups) for h in headers if h.exact], format="csr").astype(
            np.int64
        )
        (law,) = (h.law for h in headers if not h.exact)
        return FibreProblem(linear, rows, _bind(law, Lattice.of(constraints.cells.n, rows)))

    def apply(self, state: FibreProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Estimate from measured values `(q,)` or `(b, q)`, whole numbers that keep the invariants."""
        solved = [self._row(state, _noisy(state, row), rng) for row in np.atleast_2d(values)]
        x = np.reshape([counts for counts, _ in solved], (*values.shape[:-1], -1))
        return Solution(x, stats=_worst([stats for _, stats in solved]))

    def _row(self, state: FibreProblem, noisy: NDArray[np.int64], rng: np.random.Generator):
        from trueup.reconciling.lattice_fibre import nonnegative_tables

        if self.estimate == "mode":
            return _nearest(state.law, noisy, noisy), {}
        found = nonnegative_tables(state.law, noisy, self.draws, rng)
        stats = {
            "share of pieces drawn exactly": found.exact,
            "smallest acceptance": found.acceptance,
            "largest R-hat": found.r_hat,
            "smallest effective sample size": found.ess,
            "moves known to connect": found.connected,
        }
        if self.estimate == "draw":
            return found.draws[-1], stats
        counts = _nearest(state.law, noisy, found.mean)
        error = float(found.draws.std(axis=0).max() / np.sqrt(found.ess))
        rounding = float(np.abs(counts - found.mean).max())
        return counts, {
            **stats,
            "largest Monte Carlo error (counts)": error,
            "largest rounding (counts)": rounding,
        }


def _bind(law: Any, lattice: Any) -> Any:
    """Bind the law; where no exact sampler is fast, with a slow one, which rejection then leaves alone."""
    try:
        return law.on(lattice)
    except SpecError:
        return law.on(lattice, slowest=inf)


def _noisy(state: FibreProblem, values: NDArray) -> NDArray[np.int64]:
    """Noisy cells `(n,)` in the order of the finest cells, after checking that they keep the invariants."""
    parts = list(
        zip(state.linear.headers, split(values, state.linear.headers, state.linear.cells), strict=True)
    )
    (noisy,) = (np.rint(part).astype(np.int64) for header, part in parts if not header.exact)
    fixed = np.concatenate([part for header, part in parts if header.exact])
    if not np.array_equal(state.rows @ noisy, fixed):
        raise DataError(
            "the noisy counts do not sum to the invariants, which their noise would have kept",
            remedy="check that the measurements are unaltered",
        )
    return noisy


def _nearest(law: Any, noisy: NDArray[np.int64], target: NDArray) -> NDArray[np.int64]:
    """Whole nonnegative counts nearest to `target` with the invariants of `noisy`, piece by piece."""
    from trueup.kernel.table_walks.fibre import nearest_table

    counts = noisy.copy()
    for (cells, _), piece in zip(law.bound.pieces, law.bound.lattice.pieces):
        wanted = target[cells]
        if (wanted >= 0).all() and np.array_equal(wanted, np.rint(wanted)):
            counts[cells] = wanted
        else:
            counts[cells] = nearest_table(piece.invariants, piece.invariants @ noisy[cells], wanted)
    return counts


def _worst(stats: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The worst of each number over the rows of a batch."""
    least = ("share", "smallest", "moves")
    return {name: (min if name.startswith(least) else max)(row[name] for row in stats) for name in stats[0]}
