"""Markov chains for several tables that share margins, with moves that change all tables together.

One file: the method and the engine of its chains share monitored quantities, tuning and reports.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.chain_driver import (
    MIN_EFFECTIVE_SIZE,
    Longer,
    Verdict,
    out_of_time,
    until_long_enough,
)
from trueup.inferring.chains import (
    MIN_DIAGNOSED_DRAWS,
    START_NOISE_DEVIATIONS,
    ChainLimit,
    OutOfTimeError,
    diagnosed_in_pieces,
    run_side_by_side,
)
from trueup.inferring.method import InferenceMethod, Progress, announce, silent
from trueup.kernel.families.walk import WalkState, tuned, walk
from trueup.kernel.settling.descend import Settling
from trueup.kernel.statistics.diagnostics import r_hat_by_chance
from trueup.layouts.family import FamilyProblem, family_problem
from trueup.layouts.family_rules import closed_constraints, family_cells
from trueup.layouts.family_walk import FamilyWalk, divided_anew
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.prior import HIERARCHICAL, AnyPrior, Flat, Hierarchical
from trueup.model.records.drawn import Drawn
from trueup.run import Deadline

REMEDY = "allow more minutes, or measure more"
TUNING_ROUNDS, TUNING_SWEEPS = 12, 40
"""Rounds in which lengths of moves are tuned, and sweeps of each; what was drawn in them is left out."""
MOST_JOINT = 2000
"""Cells of the joint table up to which a cycle is drawn: they follow from nothing but their sums and the prior."""
LENGTHENING_SECONDS = 60.0
"""Seconds of a processor that making chains longer may take where no tier is asked for."""
BLOCK_SECONDS = 0.25
"""Seconds that a call of the kernel takes, about, before it listens to an interruption."""


@dataclass(frozen=True)
class FamilyMoves(InferenceMethod):
    """The posterior of several tables that share margins, without a joint table.

    Chains walk on agreeing tables: counts move between cells of one table that share everything with other tables, between
    other cells with all tables that must follow, and whole records come and go. These moves are known to reach every state.
    Under the hierarchical prior the number of records is flat. What a table shares with its parent in the junction tree is
    divided among places, level by level, and then among the values of its attributes, by Dirichlet-multinomial laws; nothing
    else is assumed about the tables together. Each step's concentration is drawn with the counts, and so are the shares of
    values, which are common to all places of a table. A cycle of tables is drawn as sums of a joint table that closes the cycle;
    that table is neither measured nor reported.

    Tier `chains`: until at least 19 of 20 counts of every table have the effective size that their intervals need, else refused.
    Tier `approximate`: the first run, not required to have converged. `auto`: `chains`, after a minute of a processor the other.

    Attributes
    ----------
    prior
        `hierarchical`, with one concentration a step and equal shares if concentrations are given, or `flat`.
    tier
        `chains`, `approximate`, or `auto`.
    chains
        Number of chains.
    sweeps
        Most sweeps (one proposal per cell) of a chain in the run that is kept.
    """

    prior: AnyPrior = HIERARCHICAL
    tier: Literal["auto", "chains", "approximate"] = "auto"
    chains: int = 4
    sweeps: int = 200_000

    name: ClassVar[str] = "family-moves"
    title: ClassVar[str] = (
        "several tables that share margins: Markov chains whose moves change all tables together"
    )
    structures: ClassVar[frozenset[str]] = frozenset({"family"})
    priors: ClassVar[tuple[type, ...]] = (Flat, Hierarchical)

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Return the reason why moves of single records do not suit this problem, or None."""
        prior, joint = self.prior, family_cells(constraints).joint
        if joint is not None and (size := constraints.cells.size(joint)) > MOST_JOINT:
            return (
                f"the shared attributes form a cycle, which needs the joint table '{joint}' of {size:,} cells; at most "
                f"{MOST_JOINT:,} are possible"
            )
        if constraints.bounds:
            return "it cannot keep bounds on several tables that share margins"
        if not _nested(constraints):
            return "it can keep only invariants that are nested"
        if not constraints.nonnegative:
            return "it draws no negative counts"
        if unknown := [h.law.name for h in headers if not h.exact and h.law.form is None]:
            return f"under the law '{unknown[0]}' the noise of one count depends on other counts"
        if isinstance(prior, Hierarchical):
            if prior.shares != "uniform" or prior.covariates or prior.total.name != "flat":
                return "it supports no parameter of the prior except concentrations"
            steps = FamilyWalk.of(closed_constraints(constraints), headers).steps
            if len(prior.concentrations) not in (0, steps):
                return f"it needs {steps} concentrations: for each table, one for each step to a lower level and to values"
        return "it compares chains, so it needs two or more" if self.chains < 2 else None

    def doubt(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Return a warning on sums over values if the prior divides places separately by value, else None."""
        if isinstance(self.prior, Flat):
            return super().doubt(constraints, headers)
        return divided_anew(family_cells(closed_constraints(constraints)))

    def prepare(
        self, constraints: Constraints, headers: Sequence[Measured]
    ) -> tuple[FamilyProblem, FamilyWalk]:
        """Return the family as a least-squares problem for starting points, and as the chains' arrays."""
        return family_problem(constraints, headers), FamilyWalk.of(closed_constraints(constraints), headers)

    def apply(
        self,
        state: tuple[FamilyProblem, FamilyWalk],
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        deadline: Deadline | None = None,
    ) -> Drawn:
        """Draw the tables; see `Drawn.stats` for what was run and how well it mixed."""
        deadline = deadline or Deadline.of()
        kept = -(-max(draws, MIN_DIAGNOSED_DRAWS) // self.chains)
        engine = _FamilyChains.of(self, *state, values, kept, rng, progress, ChainLimit(deadline))
        try:
            judged = until_long_enough(engine, engine.first, draws, progress)
        except OutOfTimeError:
            raise out_of_time(self.name, engine.sweeps, deadline, REMEDY) from None
        judged.found.update(sweeps=engine.sweeps, thinned_by=engine.thin)
        return judged.drawn(draws, engine.sweeps, REMEDY, weak=self.tier != "chains", connected=True)


@dataclass(eq=False)
class _FamilyChains:
    """The Markov chains of a family of tables, with the methods that `until_long_enough` calls."""

    method: FamilyMoves
    problem: FamilyProblem
    family: FamilyWalk
    values: NDArray
    kept: int
    rngs: list[np.random.Generator]
    states: list[WalkState]
    means: list[NDArray]
    progress: Progress
    limit: ChainLimit
    thin: int = 1
    sweeps: int = 0
    seconds: float = 0.0
    stopped: bool = False
    lacking: float = field(default=1.0)

    @classmethod
    def of(
        cls,
        method: FamilyMoves,
        problem: FamilyProblem,
        family: FamilyWalk,
        values: NDArray,
        kept: int,
        rng: np.random.Generator,
        progress: Progress,
        limit: ChainLimit,
    ) -> _FamilyChains:
        """Start chains at different tables, each fitted to the measured values with noise added once more."""
        spread = np.repeat(
            [np.sqrt(h.law.variance) for h in family.headers],
            [family.cells.size(h.margin) for h in family.headers],
        )
        rows = values + START_NOISE_DEVIATIONS * spread * rng.normal(size=(method.chains, spread.size))
        seeds = rng.integers(2**63, size=method.chains, dtype=np.uint64)
        counts, _ = problem.settle(rows, seeds, Settling())
        tables, steps = len(family.cells.tables), family.steps
        given = method.prior.concentrations if isinstance(method.prior, Hierarchical) else ()
        alphas = [np.array(given) if given else np.exp(rng.normal(size=steps)) for _ in range(method.chains)]
        states = [family.state(np.rint(row).astype(np.int64), a) for row, a in zip(counts, alphas)]
        means = [np.full((tables, 3), max(1.0, float(np.median(spread[spread > 0])) / 2)) for _ in states]
        return cls(
            method, problem, family, values, kept, rng.spawn(method.chains), states, means, progress, limit
        )

    @property
    def chains(self) -> int:
        """Return the number of chains that run side by side."""
        return len(self.states)

    def first(self, tell: Progress) -> NDArray:
        """Tune the lengths of moves, and return the draws of the first run."""
        announce(self.progress, "tuning Markov chains")
        for _ in range(TUNING_ROUNDS):
            tally = self._walk(TUNING_SWEEPS, TUNING_SWEEPS, silent)[1]
            self.means = [tuned(mean, counted) for mean, counted in zip(self.means, tally, strict=True)]
        told = self.limit.deadline.in_all(self.seconds * self.kept)
        announce(self.progress, f"{self.chains} Markov chains, {told} predicted")
        run = self._run(tell)
        if self.method.tier == "auto":
            self.limit = ChainLimit(self.limit.deadline, LENGTHENING_SECONDS)
        return run

    def diagnosed(self, run: NDArray) -> dict[str, Any]:
        """Return the convergence diagnostics of all cells, level totals, and measured or shared sums."""
        cells = self.problem.shown
        watched = {canonical(cells, h.margin) for h in self.family.headers} | {*cells.separators}
        watched |= {m for m in map(Margin, cells.tree.levels) if cells.holders(m)}
        sizes = cells.n + sum(cells.size(m) for m in watched if m not in cells.tables)
        verdict = Verdict(r_hat_by_chance(sizes, MIN_EFFECTIVE_SIZE))
        for margin in (*cells.tables, *sorted(watched - set(cells.tables), key=str)):
            verdict.add(*diagnosed_in_pieces(cells.sum(run, margin)), self._label(margin))
        self.lacking = verdict.lacking
        return verdict.found

    def _label(self, margin: Margin):
        return lambda i: self.problem.shown.margin_label(margin, i)

    def longer(self, run: NDArray, found: Mapping[str, Any]) -> Longer | None:
        """Return a longer run, with more sweeps between draws. The earlier sweeps become burn-in."""
        thin = min(
            self.thin * max(2, min(8, math.ceil(1.25 * self.lacking))), self.method.sweeps // self.kept
        )
        if thin <= self.thin or self.method.tier == "approximate":
            return None

        def run_again(tell: Progress) -> NDArray:
            self.thin = thin
            return self._run(tell)

        seconds = self.seconds * self.chains * self.kept * thin
        return Longer(seconds, f"{thin} sweeps to a draw", run_again)

    def _run(self, tell: Progress) -> NDArray:
        return self._walk(self.kept * self.thin, self.thin, tell)[0]

    def _walk(self, sweeps: int, thin: int, tell: Progress) -> tuple[NDArray, list[NDArray]]:
        """Run all chains for a number of sweeps; return draws `(chains, sweeps / thin, n)` and counts of accepted moves."""
        layout = self.family.given(self.values)
        out = np.zeros((self.chains, sweeps // thin, self.family.cells.n), np.int64)
        tallies = [np.zeros((2, *mean.shape), np.int64) for mean in self.means]
        done, began = [0] * self.chains, time.process_time()
        flat = isinstance(self.method.prior, Flat)
        fixed = isinstance(self.method.prior, Hierarchical) and bool(self.method.prior.concentrations)

        def chain(i: int) -> None:
            block = thin * max(1, int(BLOCK_SECONDS / max(self.seconds, 1e-6)) // thin)
            while done[i] < sweeps and not self.stopped:
                some = min(block, sweeps - done[i])
                rows = out[i, done[i] // thin : (done[i] + some) // thin]
                more = (self.means[i], tallies[i], self.family.chances, thin, rows)
                walk(self.rngs[i], layout, self.states[i], flat, fixed, *more)
                done[i] += some

        run_side_by_side(self, chain, done, sweeps, tell)
        self.sweeps += sweeps
        self.seconds = (time.process_time() - began) / (self.chains * sweeps)
        return self.problem.shown.of_closed(out), tallies


def _nested(constraints: Constraints) -> bool:
    """Return True if each invariant margin is a sum of the next finer one."""
    cells, ordered = constraints.cells, sorted(constraints.invariants, key=constraints.cells.size)
    return all(cells.contains(coarse, fine) for coarse, fine in pairwise(ordered))
