"""Histograms on a hierarchy under the hierarchical prior: Markov chains that move a column of all places at once.

One file: the tiers, and what chooses between them by seconds and memory, are one method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.chains import (
    ESS,
    FEWEST,
    chains_agree,
    chains_too_short,
    refuse_forecast,
    refuses_settings,
    thinned,
    told_cost,
    told_in_draws,
)
from trueup.inferring.checkpoint import Checkpoint, key_of
from trueup.inferring.histogram_check import agreement
from trueup.inferring.histogram_walk import HistogramWalk
from trueup.inferring.method import InferenceMethod, Progress, announce
from trueup.layouts.columns import ColumnProblem, refuses_columns
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.model.prior import HIERARCHICAL, Hierarchical, SplitPrior
from trueup.model.records.drawn import Drawn
from trueup.run.deadline import Deadline
from trueup.run.local import cores

WARM_UP, THIN = 100, 2
"""Sweeps before the first run, and between its draws."""
USUAL = 12
"""Sweeps between draws that full chains usually need in the end, for the prediction."""
MOST_THIN = 256
LENGTHENED = 1.2
"""Length of the next run over what the last one says is needed."""
SMALL, PROBED = 20_000, 20
"""Cells below which so many sweeps are timed for the prediction: starting threads takes longer than one."""
ALL = 2
"""Draws of so few cells that are judged for each that is asked for, at first one a sweep: every other one says less."""
WATCHED, SOME = 1 << 40, 4000
"""Counts of each table that are watched: all, and by tier A so many of the lowest places' at random."""
SHORT = 2
"""Chains of tier A."""
SHORTEST = 100
"""Draws of each chain of tier A, at least."""
CHECKED = 100
"""Places whose posterior tier A is held against chains of tier B."""
LONG = 300.0
"""Seconds that a run is predicted to take from which on it leaves checkpoints."""
LONGER = "allow more minutes, take the tier 'approximate', or infer a place of its own"
"""What to do about full chains that are too short."""
MEMORY = 60, 30
"""Bytes for each cell, and for each cell of a chain, above the draws: about what arrays of 16 cells a place take."""


@dataclass(frozen=True)
class HistogramGibbs(InferenceMethod):
    """The posterior of histograms on a hierarchy with crossing margins, under splits of totals and compositions.

    The prior: a flat total; the total of each place is split among its parts by a Dirichlet-multinomial law with a
    concentration for each level, at the lowest level among those that are inhabited, each with a probability that is
    estimated too; the cells of a lowest place given its total are Dirichlet-multinomial around the composition
    of the place above, and compositions are Dirichlet around those above them. Concentrations and compositions are
    drawn with the counts, so that their uncertainty is in the intervals.

    Tier C, full chains: until every reported count has an effective size of 400 and all chains agree, else refused. Tier A,
    approximate: two chains of a fixed length, which are not required to have converged, held against tier B (chains on one
    place and those below it, the rest a normal law) at 100 places. Which ran stands in the record.

    Attributes
    ----------
    prior
        `hierarchical`; with `concentrations` of totals and of cells, two numbers, these are given, and all places are inhabited.
    tier
        `full`, `approximate`, or `auto`: full where that is predicted to take `minutes` at most, and approximate where full
        chains do not pass in that time. Equal sources give equal draws of one tier; which `auto` chooses depends on the machine.
    chains
        Number of full chains.
    minutes
        Longest time that a run may be predicted to take.

    References
    ----------
    Teh, Jordan, Beal and Blei (2006), "Hierarchical Dirichlet processes", for compositions.
    """

    prior: SplitPrior = HIERARCHICAL
    tier: Literal["auto", "full", "approximate"] = "auto"
    chains: int = 4
    minutes: float = 10.0

    name: ClassVar[str] = "histogram-gibbs"
    title: ClassVar[str] = "histograms on a hierarchy: Markov chains that move a column of all places at once"
    continues: ClassVar[bool] = True
    structures: ClassVar[frozenset[str]] = frozenset({"histogram"})
    priors: ClassVar[tuple[type, ...]] = (Hierarchical,)

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Nonnegative counts, noise of unbounded laws, measurements of whole levels."""
        wrong = refuses_settings(self.prior, self.chains, "cells")
        return wrong or refuses_columns(constraints, headers)

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> _State:
        """Nothing depends on constraints and laws alone."""
        return _State(constraints, tuple(headers))

    def apply(
        self,
        state: _State,
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        checkpoint: Path | None = None,
        deadline: Deadline | None = None,
    ) -> Drawn:
        """Choose a tier by what it is predicted to cost, and draw; with checkpoints where it is predicted to take `LONG`."""
        problem = state.problem(values)
        key = key_of(
            values, draws, state.headers, replace(self, minutes=0, tier="auto"), rng.bit_generator.state
        )
        announce(progress, "finding tables to start from: the default release of the noisy values")
        walk = HistogramWalk.of(problem, rng.spawn(self.chains), self.prior.concentrations)
        walk.run(1, 1, _silent)  # makes the kernels ready
        walk.run(1, PROBED if problem.cells.n < SMALL else 1, _silent)  # times do not decide what is run
        plan = self.plan(problem, walk.seconds, draws)
        announce(progress, plan.text)
        if checkpoint is not None and (plan.seconds > LONG or checkpoint.exists()):
            walk.keep = Checkpoint.of(checkpoint, key)
            announce(progress, f"checkpoints in '{checkpoint}': the same command goes on from them")
        run = self._approximate if plan.tier == "approximate" else self._full
        drawn = run(walk, plan, draws, rng, progress)
        return replace(drawn, refused=drawn.refused or walk.rounded)

    def plan(self, problem: ColumnProblem, seconds: float, draws: int) -> Plan:
        """Predict what tiers cost, and choose.

        Parameters
        ----------
        seconds
            Of a processor, of one sweep of one chain.

        Raises
        ------
        SpecError
            If the tier that is asked for is predicted to take longer than `minutes`, or more memory than there is.
        """
        kept = -(-max(draws, FEWEST) // self.chains)
        sweeps = WARM_UP + kept * USUAL
        full = Plan(
            "full", self.chains, sweeps, sweeps * seconds * max(1.0, self.chains / cores()), problem, draws
        )
        each = max(-(-draws // SHORT), SHORTEST)
        short = WARM_UP + each
        approximate = Plan(
            "approximate", SHORT, short, short * seconds * max(1.0, SHORT / cores()), problem, draws
        )
        fits = full.seconds <= 60 * self.minutes
        chosen = full if self.tier == "full" or (self.tier == "auto" and fits) else approximate
        chosen.refuse(self.minutes)
        return chosen

    def _full(
        self, walk: HistogramWalk, plan: Plan, draws: int, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        """Make the run longer until it passes: of what was drawn before, as many draws are kept as lie so many sweeps apart."""
        each = plan.judged
        kept, first = each * -(-max(draws, FEWEST) // self.chains), THIN // each
        if (begun := walk.begun(self.chains, kept)) is None:
            walk.run(1, WARM_UP - walk.sweeps, _warming(progress))
        run, thin = None, begun or first
        while True:
            run = walk.run(kept, thin, told_in_draws(progress, draws), saved=True, before=run)
            announce(progress, "comparing the chains")
            found = walk.diagnosed(run, WATCHED, rng)
            enough = chains_agree(found)
            longer = min(max(math.ceil(LENGTHENED * ESS / found["smallest_ess"]), 2), 8)
            # Times decide what is refused, never what is drawn.
            most = 60 * self.minutes / max(1, self.chains / cores())
            too_long = walk.seconds * (walk.sweeps + kept * thin * longer) > most
            if enough or thin * longer > MOST_THIN // each or too_long:
                break
            announce(progress, f"chains are too short: {thin * longer} sweeps to a draw")
            run = None if thin == first else run[:, longer - 1 :: longer]  # the first run is warm-up too
            walk.concentrations = walk.concentrations[:, longer - 1 :: longer]
            thin *= longer
        if not enough and self.tier == "auto":
            return self._judged(walk, run, plan, found, rng, progress)
        return Drawn(
            thinned(run, draws),
            independent=False,
            connected=walk.problem.connected,
            refused="" if enough else chains_too_short(walk.sweeps, found, LONGER),
            stats=self._stats("C: full chains", plan, len(run), found),
            tables=tuple(walk.margins),
        )

    def _approximate(
        self, walk: HistogramWalk, plan: Plan, draws: int, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        """Run two chains of a fixed length."""
        walk.rngs, walk.states = walk.rngs[:SHORT], walk.states[:SHORT]
        if walk.begun(SHORT, plan.sweeps - WARM_UP) is None:
            walk.run(1, WARM_UP - walk.sweeps, _warming(progress))
        run = walk.run(plan.sweeps - WARM_UP, 1, told_in_draws(progress, draws), saved=True)
        announce(progress, "comparing the chains")
        return self._judged(walk, run, plan, walk.diagnosed(run, SOME, rng), rng, progress)

    def _judged(
        self,
        walk: HistogramWalk,
        run: NDArray,
        plan: Plan,
        found: dict[str, Any],
        rng: np.random.Generator,
        progress: Progress,
    ) -> Drawn:
        """Say how far chains agree that are not required to, and hold them against tier B."""
        announce(progress, f"holding {CHECKED} places against chains of their own")
        check = agreement(walk, run, CHECKED, rng, progress)
        text = (
            f"Tier A, approximate: {len(run)} Markov chains of {walk.sweeps:,} sweeps of all places, not required to have "
            f"converged (largest R-hat {found['largest_r_hat']:.2f}, smallest effective size {found['smallest_ess']:.0f} "
            f"of {found['watched']:,} counts watched). {check.text}"
        )
        stats = self._stats("A: approximate", plan, len(run), found) | {"check": check.record}
        kept = thinned(run, plan.draws)
        return Drawn(kept, independent=False, approximate=text, stats=stats, tables=tuple(walk.margins))

    @staticmethod
    def _stats(tier: str, plan: Plan, chains: int, found: dict[str, Any]) -> dict[str, Any]:
        return {
            "draws": plan.draws,
            "interrupted": False,
            "tier": tier,
            "chains": chains,
            **plan.record,
            **found,
        }


@dataclass(frozen=True, eq=False)
class Plan:
    """What a tier is predicted to cost."""

    tier: str
    chains: int
    sweeps: int
    seconds: float
    problem: ColumnProblem
    draws: int

    @property
    def judged(self) -> int:
        """Draws that are judged for each that is asked for."""
        return ALL if self.tier == "full" and self.problem.cells.n < SMALL else 1

    @property
    def memory(self) -> float:
        """Bytes, the draws that are kept included."""
        fewest = FEWEST if self.tier == "full" else SHORT * SHORTEST
        n, kept = self.problem.cells.n, self.judged * max(self.draws, fewest)
        return n * (MEMORY[0] + MEMORY[1] * self.chains + 2 * kept) + 150e6

    @property
    def text(self) -> str:
        """The prediction in words."""
        return (
            f"{'full chains' if self.tier == 'full' else 'approximate'}: {self.chains} Markov chains of about "
            f"{self.sweeps:,} sweeps, {told_cost(self.seconds, self.memory)} predicted"
        )

    @property
    def record(self) -> dict[str, Any]:
        """For the record."""
        return {"predicted_seconds": round(self.seconds, 1), "predicted_bytes": round(self.memory)}

    def refuse(self, minutes: float) -> None:
        """Refuse what takes too long or does not fit."""
        other = 'take tier = "approximate", or ' if self.tier == "full" else ""
        refuse_forecast(self.text, self.seconds, self.memory, minutes, self.problem.cells.tree, other)


@dataclass(frozen=True, eq=False)
class _State:
    constraints: Constraints
    headers: tuple[Measured, ...]

    def problem(self, values: NDArray) -> ColumnProblem:
        """The problem of one row of values."""
        return ColumnProblem(
            self.constraints, self.headers, tuple(split(values, self.headers, self.constraints.cells))
        )


def _silent(done: int, of: int) -> None:
    pass


def _warming(progress: Progress) -> Progress:
    return lambda done, of: announce(progress, f"warming up: {done:,} of {of:,} sweeps")
