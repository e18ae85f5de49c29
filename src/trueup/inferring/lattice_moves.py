"""Any structure of constraints: draws by moves that keep what is exact, or by enumeration where tables are few."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.estimated import estimated_where_tables_cross
from trueup.inferring.independent import components, fixed_alone, pinned_counts
from trueup.inferring.listed import Weighed, drawn, weigh
from trueup.inferring.method import InferenceMethod, Progress, announce, in_blocks
from trueup.inferring.walk import Walk, no_counts
from trueup.layouts.linear import LinearProblem
from trueup.layouts.rows import RowProblem
from trueup.model.cells import Margin
from trueup.model.constraints import STRUCTURES, Constraints
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.prior import FACTORED, FLAT, AnyPrior, Estimated
from trueup.model.records.drawn import Drawn
from trueup.run.deadline import Deadline

FEWEST = 1000
"""Draws that the diagnostics rest on, at least."""
BLOCKS = 10
MARGIN, LEAP = 1.25, 8
"""Length of the next run over what the last one says is needed, and over the last one at most."""


@dataclass(frozen=True)
class LatticeMoves(InferenceMethod):
    """The posterior of counts under crossing margins, invariants, bounds and linear rules.

    Counts that nothing links are separate problems. Where few tables of such a part satisfy what is exact, all are listed
    and weighed: exact marginals, independent draws. Else Markov chains from opposite ends walk the whole-number tables by
    steps of one cell, moves between two cells, exchanges among four, and a Graver basis of what is exact. Runs are made
    longer until every count and every watched sum passes the diagnostics, else refused. Draws are said to have converged only
    where the moves are also proved to reach every table (see `trueup.inferring.connect`).

    Attributes
    ----------
    prior
        Name, or name and parameters, of a prior on the finest cells; `estimated` from the finest published values and the
        published sums that nest with them.
    chains
        Number of chains.
    sweeps
        Most sweeps (one proposal per cell) of a chain in the run that is kept.
    enumerate
        Most tables that are listed; 0 for chains always.

    References
    ----------
    Diaconis and Sturmfels (1998), "Algebraic algorithms for sampling from conditional distributions".
    """

    prior: AnyPrior = FLAT
    chains: int = 4
    sweeps: int = 32_000
    enumerate: int = 20_000

    name: ClassVar[str] = "lattice-moves"
    title: ClassVar[str] = (
        "Markov chains by moves that keep margins and rules; enumeration where tables are few"
    )
    structures: ClassVar[frozenset[str]] = frozenset(STRUCTURES)
    priors: ClassVar[tuple[type, ...]] = (*FACTORED, Estimated)

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """The law of each count must be a factor of its own."""
        unknown = [h.law.name for h in headers if not h.exact and h.law.form is None]
        if unknown:
            return f"law '{unknown[0]}' does not factor over cells"
        return "it compares chains, so it takes two or more" if self.chains < 2 else None

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> LinearProblem:
        """Write everything as rows."""
        return LinearProblem(constraints, tuple(headers))

    def apply(
        self,
        state: LinearProblem,
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        deadline: Deadline | None = None,
    ) -> Drawn:
        """Draw the counts; see `Drawn.stats` for what was run and how well it mixed."""
        prior = self.prior
        if isinstance(prior, Estimated):
            announce(progress, "estimating the prior from the published values")
            prior = estimated_where_tables_cross(state.constraints, state.headers, values)
        problem = RowProblem.of(state, values, prior)
        problem.refuse_improper(state.cells.label)
        if (problem.box[0] > problem.box[1]).any() or not fixed_alone(problem):
            raise no_counts(state, values)
        parts = components(problem)
        weighed = [weigh(part, self.enumerate) for part in parts] if self.enumerate else [None] * len(parts)
        listed = [one for one in weighed if one is not None]
        if any(not len(one.tables) for one in listed):
            raise no_counts(state, values)
        fixed = np.where(problem.box[0] < problem.box[1], 0, problem.box[0]).astype(np.int64)
        if len(listed) == len(parts):
            found = drawn(state.cells, _margins(state), fixed, listed, draws, rng)
            progress(draws, draws)
            return found
        for one in listed:
            problem = pinned_counts(problem, one.cells, one.tables[np.argmax(one.masses)])
        chains = Walk.of(state, values, problem, rng.spawn(self.chains))
        return _with_listed(self._run(chains, draws, progress), listed, rng)

    def _run(self, walk: Walk, draws: int, progress: Progress) -> Drawn:
        """Make the run longer, tuning again, until it passes; what came before is warm-up."""
        kept = -(-max(draws, FEWEST) // self.chains)
        walk.warm_up()
        thin = 1
        while True:
            run, whole = in_blocks(
                lambda k, thin=thin: walk.run(k, thin),
                kept,
                -(-kept // BLOCKS),
                _scaled(progress, kept, draws),
            )
            found, short = walk.diagnosed(run, thin)
            longest = self.sweeps // kept
            if not found["refused"] or not whole or thin >= longest:
                break
            thin = min(thin * min(max(math.ceil(MARGIN * short), 2), LEAP), longest)
            walk.tune(run)
        refused = found.pop("refused")
        if refused:
            refused += (
                "; allow more sweeps, or measure more"
                if whole
                else f"; it was interrupted after {run.shape[1]:,} of {kept:,} draws in each of {self.chains} chains: "
                "run it again and let it finish"
            )
        stats = {"draws": draws, "interrupted": not whole, "chains": self.chains, **found}
        each = -(-draws // self.chains)
        chosen = np.linspace(0, run.shape[1] - 1, min(each, run.shape[1])).round().astype(int)
        return Drawn(
            run[:, chosen], independent=False, connected=walk.connected, refused=refused, stats=stats
        )


def _with_listed(found: Drawn, listed: Sequence[Weighed], rng: np.random.Generator) -> Drawn:
    """Put independent draws in the place of counts that the chains were given."""
    chains, draws, _ = found.draws.shape
    for one in listed:
        found.draws[:, :, one.cells] = one.draw(chains * draws, rng).reshape(chains, draws, -1)
    counts = sum(len(one.cells) for one in listed)
    return replace(found, stats={**found.stats, "counts_drawn_exactly": counts})


def _margins(state: LinearProblem) -> list[Margin]:
    """Measured margins, then the finest cells; counts of some units alone are invariants, in which nothing varies."""
    measured = (canonical(state.cells, h.margin) for h in state.headers if not h.margin.where)
    return list(dict.fromkeys([*measured, state.cells.finest]))


def _scaled(progress: Progress, kept: int, draws: int) -> Progress:
    return lambda done, of: progress(done * draws // kept, draws)
