"""Inference of counts under any constraints, by moves that keep all exact sums or by listing all tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.inferring.chain_driver import out_of_time, until_long_enough
from trueup.inferring.chains import MIN_DIAGNOSED_DRAWS, OutOfTimeError
from trueup.inferring.components import components, fixed_alone, pinned_counts
from trueup.inferring.estimated import estimated_where_tables_cross
from trueup.inferring.method import InferenceMethod, Progress, announce
from trueup.inferring.walk import Walk, no_counts
from trueup.inferring.without_chains import SpreadSum, Weighed, drawn, spread_sum, weigh
from trueup.layouts.linear import LinearProblem
from trueup.layouts.rows import RowProblem
from trueup.model.constraints import ONE_TABLE, Constraints
from trueup.model.header import Measured, split
from trueup.model.nested import reported_margins
from trueup.model.prior import FACTORED, FLAT, AnyPrior, Estimated
from trueup.model.records.drawn import Drawn
from trueup.run import Deadline

REMEDY = "allow more minutes, or measure more"


@dataclass(frozen=True)
class LatticeMoves(InferenceMethod):
    """The posterior of counts under crossing margins, invariants, bounds and linear rules.

    Groups of counts that no row links are separate problems. If only the sum of such a group is known, its law and its draws are
    exact (`without_chains`). If few tables of a group satisfy the exact rows, all are listed and weighted: exact marginals,
    independent draws. Else Markov chains from opposite ends move on whole-number tables by
    steps of one cell, moves between two cells, exchanges among four, and a Graver basis of the exact rows. If ranges of
    published sums allow too few moves, relaxed copies run beside the chains (`trueup.inferring.tempered`). Runs are lengthened
    until every count and every monitored sum passes the diagnostics, else refused. Draws are said to have converged only
    if the moves are also proved to reach every table (see `trueup.inferring.connect`).

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
    sweeps: int = 200_000
    enumerate: int = 20_000

    name: ClassVar[str] = "lattice-moves"
    title: ClassVar[str] = (
        "Markov chains by moves that keep margins and rules; enumeration where tables are few"
    )
    structures: ClassVar[frozenset[str]] = ONE_TABLE
    priors: ClassVar[tuple[type, ...]] = (*FACTORED, Estimated)

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Return the reason why this method does not fit the laws or settings, or None."""
        unknown = [h.law for h in headers if not h.exact and h.law.form is None]
        if others := [law.name for law in unknown if not (law.joint and law.weighs and self.enumerate)]:  # pyright: ignore[reportAttributeAccessIssue]
            return f"under the law '{others[0]}' the noise of one count depends on other counts"
        return "it compares chains, so it needs two or more" if self.chains < 2 else None

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> LinearProblem:
        """Return the problem with all constraints and laws written as rows."""
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
        whole = [h for h in state.headers if not h.exact and h.law.form is None]
        if whole and (
            len(listed) < len(parts) or math.prod(len(one.tables) for one in listed) > self.enumerate
        ):
            raise SpecError(
                f"the noise '{whole[0].law.name}' of one count depends on that of others, and more than {self.enumerate:,} "
                "tables of counts agree with the constraints",
                needed=f"at most {self.enumerate:,} tables",
                remedy="add bounds on the counts, or give a larger `enumerate` under [infer]",
            )
        if len(listed) == len(parts):
            listed = [_together(state, fixed, listed, values)] if whole else listed
            tables = reported_margins(state.cells, (header.margin for header in state.headers))
            found = drawn(state.cells, tables, fixed, listed, draws, rng)
            progress(draws, draws)
            return found
        left = [part for part, one in zip(parts, weighed) if one is None]
        spread = [spread_sum(part) for part in left] if self.enumerate else [None] * len(left)
        exact = [*listed, *(one for one in spread if one is not None)]
        if len(exact) == len(parts):
            progress(draws, draws)
            return _all_exact(fixed, exact, draws, rng)
        for one in listed:
            problem = pinned_counts(problem, one.cells, one.tables[np.argmax(one.masses)])
        for one in spread:
            if one is not None:
                problem = pinned_counts(problem, one.cells, one.draw(1, rng)[0])
        deadline = deadline or Deadline.of()
        chains = Walk.of(state, values, problem, rng.spawn(self.chains), deadline)
        return _with_exact(self._run(chains, draws, progress), exact, rng)

    def _run(self, walk: Walk, draws: int, progress: Progress) -> Drawn:
        """Return draws of Markov chains from a run that is lengthened until it passes its diagnostics."""
        walk.kept, walk.progress = -(-max(draws, MIN_DIAGNOSED_DRAWS) // self.chains), progress
        walk.longest = self.sweeps // walk.kept
        try:
            judged = until_long_enough(walk, walk.first, draws, progress)
        except OutOfTimeError:
            raise out_of_time(self.name, walk.sweeps, walk.limit.deadline, REMEDY) from None
        more = f"allow more sweeps (sweeps = {4 * self.sweeps} under [infer]), or measure more"
        remedy = REMEDY if judged.late else more
        return judged.drawn(draws, walk.sweeps, remedy, weak=judged.rough, connected=walk.connected)


def _together(
    state: LinearProblem, fixed: NDArray[np.int64], parts: Sequence[Weighed], values: NDArray
) -> Weighed:
    """Return all tables of all components together, with weights by laws that span components."""
    at = np.indices([len(part.tables) for part in parts]).reshape(len(parts), -1)
    own = np.concatenate([part.cells for part in parts])
    tables = np.hstack([part.tables[i] for part, i in zip(parts, at)])
    log = sum((np.log(part.masses[i]) for part, i in zip(parts, at)), np.zeros(len(tables)))
    counts = np.tile(fixed, (len(tables), 1))
    counts[:, own] = tables
    for header, published in zip(state.headers, split(values, state.headers, state.cells)):
        law: Any = header.law
        if not header.exact and law.form is None:
            log += law.log_vectors(published - state.cells.sum(counts, header.margin))
    mass = np.exp(log - log.max())
    return Weighed(own, tables, mass / mass.sum())


def _all_exact(
    fixed: NDArray[np.int64], parts: Sequence[Weighed | SpreadSum], draws: int, rng: np.random.Generator
) -> Drawn:
    """Return independent draws of the whole table, all of whose components are solved exactly."""
    counts = np.tile(fixed, (draws, 1))
    for part in parts:
        counts[:, part.cells] = part.draw(draws, rng)
    stats = {"draws": draws, "tier": "exact", "independent_parts": len(parts), "interrupted": False}
    return Drawn(counts[None], independent=True, stats=stats)


def _with_exact(found: Drawn, listed: Sequence[Weighed | SpreadSum], rng: np.random.Generator) -> Drawn:
    """Return draws in which independent draws replace the counts of exactly solved components."""
    chains, draws, _ = found.draws.shape
    for one in listed:
        found.draws[:, :, one.cells] = one.draw(chains * draws, rng).reshape(chains, draws, -1)
    counts = sum(len(one.cells) for one in listed)
    return replace(found, stats={**found.stats, "counts_drawn_exactly": counts})
