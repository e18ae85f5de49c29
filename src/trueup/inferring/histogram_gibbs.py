"""Markov chains for histograms on a hierarchy, with moves that change one column at all places together.

One file: the tiers, and what chooses between them by seconds and memory, are one method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.chain_driver import (
    Longer,
    ask_for_less,
    chains_too_short,
    out_of_time,
    refuse_forecast,
    told_cost,
    until_long_enough,
)
from trueup.inferring.chains import (
    MIN_DIAGNOSED_DRAWS,
    ChainLimit,
    Checkpoint,
    OutOfTimeError,
    key_of,
    refuses_settings,
    thinned,
    told_in_draws,
)
from trueup.inferring.histogram_walk import HistogramWalk
from trueup.inferring.method import InferenceMethod, Progress, announce, silent
from trueup.layouts import refuses_columns
from trueup.layouts.columns import MAX_CELLS_WITH_RATE_MOVES, ColumnProblem
from trueup.layouts.prior_inputs import numbers_of_places
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.model.prior import HIERARCHICAL, Hierarchical, SplitPrior
from trueup.model.records.drawn import Drawn
from trueup.run import Deadline, cores

if TYPE_CHECKING:
    from trueup.inferring.recast import AsPlaces

WARM_UP, THIN = 100, 2
"""Sweeps before the first run, and between its draws."""
USUAL_THINNING = 12
"""Sweeps between draws that chains usually need in the end, for the prediction."""
MOST_THIN = 256
RUN_LENGTH_RATIO = 1.2
"""Ratio of the next run's length to the length that the last run's diagnostics ask for."""
MANY_DRAWS_BELOW_CELLS = 20_000
"""Cells below which more draws are judged than are asked for."""
PROBED, TIMED = 20, 200_000
"""Sweeps that are timed for the prediction, at most, and their cells: what takes turns in sweeps, and starting threads, count."""
MAX_LENGTHENING_SECONDS = 15.0
"""Seconds of a processor that making chains longer may take where no tier is asked for."""
FEW_STEPS, STEPS, SWEEPS = 15_000, 1_500_000, (500, 2000)
"""Steps of places in a sweep below which chains are tried where no tier is asked for; steps of their first run in all, and
its least and most sweeps."""
LARGE, MOST_STAGES = 30_000, 3
"""Steps of places in a sweep from which on a draw is kept after each half of a sweep's directions, from twice as many on after
each third: as many draws take less time, and each says less."""
JUDGED_DRAWS_RATIO = 2
"""Draws of so few cells that are judged for each that is asked for, at first one a sweep: every other one says less."""
WATCHED, SOME = 1 << 40, 4000
"""Counts of each table that are watched: all, and by the approximate tier so many of the lowest places' at random."""
CHAINS_ON_LARGE_PROBLEMS, MIN_STEPS_WITH_FEWER_CHAINS = 2, 45_000
"""Chains of the approximate tier where rates are not moved, and from so many steps of places in a sweep: fewer, longer ones."""
MIN_DRAWS = 100
"""Draws of each of these, at least."""
FEWEST_DRAWS = 25
"""Draws of each chain, at least, of a run that time cuts short."""
FOR_CHAINS = 0.8
"""Share of the time left that a run which must be cut short is planned for."""
MAX_CHECKED_PLACES = 30
"""Places whose posterior the approximate tier is held against chains of their own, at most."""
CHECKPOINT_SECONDS = 300.0
"""Seconds that a run is predicted to take from which on it leaves checkpoints."""
LONGER = "allow more minutes, give tier = 'approximate', or infer one place (`--within`)"
"""Remedy for chains that are too short."""
BOUNDED_DOUBT = (
    "Under this prior, in which places differ much, upper bounds on cells make large totals improbable: where noise is wide, "
    "totals may be too low."
)
BYTES_A_CELL = 60, 30
"""Bytes for each cell, and for each cell of a chain, above the draws: about what arrays of 16 cells a place take."""


@dataclass(frozen=True)
class HistogramGibbs(InferenceMethod):
    """The posterior of histograms on a hierarchy with crossing margins, under the hierarchical prior.

    The prior: a total that is flat, given the bounds of places too; the total of each place is split among its parts by a
    Dirichlet-multinomial law with a concentration for each level, in equal shares or those of public numbers
    (`Hierarchical.shares`, `covariates`), at the lowest level among those that are inhabited, each
    with a probability that is estimated too; the cells of a lowest place given its total are Dirichlet-multinomial around
    the composition of the place above, and compositions are Dirichlet around those above them. Concentrations and
    compositions are drawn with the counts, so that their uncertainty is in the intervals.

    Tier `chains`: until at least 19 of 20 counts of every table have the effective size that their intervals need, and agree
    (`chain_driver`), else refused; counts that fall short are named. Tier `approximate`: chains of a fixed length, which are not
    required to agree. Its means are compared with chains on single places and all places below, given a normal law for the rest.
    The record states the tier.

    Equal sources give equal draws of one tier, unless time ends `approximate` early, which the record states. If no tier is
    given, the choice depends on time, and so on the machine: `chains` if they pass in 15 seconds of a processor, else
    `approximate`; on small problems that is the first run of the same chains.

    Attributes
    ----------
    prior
        `hierarchical`; with `concentrations` of totals and of cells, two numbers, these are given, and all places are inhabited.
    tier
        `chains`, `approximate`, or `auto`.
    chains
        Number of chains.

    References
    ----------
    Teh, Jordan, Beal and Blei (2006), "Hierarchical Dirichlet processes", for compositions.
    """

    prior: SplitPrior = HIERARCHICAL
    tier: Literal["auto", "chains", "approximate"] = "auto"
    chains: int = 4

    name: ClassVar[str] = "histogram-gibbs"
    title: ClassVar[str] = "histograms on a hierarchy: Markov chains that move a column of all places at once"
    continues: ClassVar[bool] = True
    structures: ClassVar[frozenset[str]] = frozenset({"histogram", "margins"})
    priors: ClassVar[tuple[type, ...]] = (Hierarchical,)

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Return the reason why this method does not fit the constraints and laws, or None."""
        wrong = refuses_settings(self.prior, "cells", self.chains)
        if wrong is None and constraints.structure() == "margins":
            if not self.prior.even:
                return "shares and covariates are public numbers of places, and the table has no places"
            if (laid := _as_places(constraints, headers)) is None:
                return "a table without places needs nested invariants, and an attribute that no recode or condition names"
            constraints, headers = laid.constraints, laid.headers
        return wrong or refuses_columns(constraints, headers)

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> Any:
        """Return constraints and headers unchanged."""
        return constraints, tuple(headers)

    def apply(
        self,
        state: Any,
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        checkpoint: Path | None = None,
        deadline: Deadline | None = None,
    ) -> Drawn:
        """Choose an accuracy tier by its predicted cost, and draw the counts by Markov chains.

        Raises
        ------
        SpecError
            If not even its shortest run is predicted to fit in the time that is left, or in memory.
        ConvergenceError
            If time is spent before anything can be said.
        """
        deadline = deadline or Deadline.of()
        constraints, headers = state
        if constraints.structure() == "margins" and (laid := _as_places(constraints, headers)):
            own, more = laid.values(values, headers), (draws, rng, progress, checkpoint, deadline)
            return laid.restored(self.apply((laid.constraints, laid.headers), own, *more))
        parts, given = tuple(split(values, headers, constraints.cells)), self.prior.concentrations
        public = numbers_of_places(self.prior, constraints.cells.tree)
        problem = ColumnProblem(constraints, headers, parts, a=given[0] if given else 0.0, public=public)
        key = key_of(values, draws, headers, replace(self, tier="auto"), rng.bit_generator.state)
        announce(progress, "finding starting tables by the default method of release")
        walk = HistogramWalk.of(problem, rng.spawn(self.chains), given, deadline)
        try:
            walk.run(1, 1, silent)  # makes the kernels ready
            timed = max(min(PROBED, TIMED // problem.cells.n), 1)
            walk.run(1, timed, silent)  # times do not decide what is run
            plan = self.plan(walk, draws).within(deadline)
            plan.refuse(deadline)
            announce(progress, f"{plan.text}; {deadline.in_all(plan.seconds)}")
            if checkpoint is not None and (plan.seconds > CHECKPOINT_SECONDS or checkpoint.exists()):
                walk.keep = Checkpoint.of(checkpoint, key)
                announce(progress, f"checkpoints are in '{checkpoint}'; the same command continues from them")
            drawn = self._drawn(walk, plan, draws, rng, progress)
        except OutOfTimeError:
            raise out_of_time(self.name, walk.sweeps, deadline, LONGER) from None
        return replace(drawn, refused=drawn.refused or walk.rounded)

    def plan(self, walk: HistogramWalk, draws: int) -> Plan:
        """Return the chosen accuracy tier and its predicted cost.

        Parameters
        ----------
        walk
            Chains that have run: `seconds` of a processor are those of a sweep of one chain.
        """
        n, steps = walk.problem.cells.n, walk.steps
        judged, each = _judged_ratio(walk), -(-max(draws, MIN_DIAGNOSED_DRAWS) // self.chains)
        kept, sweeps, few = judged * each, int(np.clip(STEPS // steps, *SWEEPS)), steps < FEW_STEPS
        thin = -(-sweeps // kept) if few else THIN // judged
        if self.tier == "chains" or (self.tier == "auto" and few):
            most = np.inf if self.tier == "chains" else MAX_LENGTHENING_SECONDS
            usual = max(each * USUAL_THINNING, kept * thin)
            return Plan("chains", self.chains, kept, thin, usual, walk, draws, most)
        if few:
            return Plan("approximate", self.chains, kept, thin, kept * thin, walk, draws)
        chains = (
            CHAINS_ON_LARGE_PROBLEMS
            if n > MAX_CELLS_WITH_RATE_MOVES or steps >= MIN_STEPS_WITH_FEWER_CHAINS
            else self.chains
        )
        each = max(-(-draws // chains), MIN_DRAWS)
        stages = 1 if n > MAX_CELLS_WITH_RATE_MOVES else min(1 + steps // LARGE, MOST_STAGES)
        return Plan(
            "approximate", chains, each, 1, each, walk, draws, warm_up=stages * WARM_UP, stages=stages
        )

    def _drawn(
        self, walk: HistogramWalk, plan: Plan, draws: int, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        walk.rngs, walk.states = walk.rngs[: plan.chains], walk.states[: plan.chains]
        walk.stages, walk.taken = plan.stages, plan.stages * walk.taken
        chains = _Chains(walk, plan, rng, progress, plan.thin)
        if plan.tier == "approximate":
            return self._judged(walk, chains.first(told_in_draws(progress, draws)), plan, rng, progress)
        judged = until_long_enough(chains, chains.first, draws, progress)
        if not judged.enough and self.tier == "auto":
            walk.limit = ChainLimit(walk.limit.deadline)
            chains.back()
            return self._judged(walk, judged.first, replace(plan, tier="approximate"), rng, progress)
        return Drawn(
            thinned(judged.run, draws),
            independent=False,
            connected=walk.problem.connected,
            refused="" if judged.enough else chains_too_short(walk.sweeps, judged.found, LONGER),
            stats=_stats(plan, judged.found),
        )

    def doubt(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Return the known objection to upper bounds on cells under this prior, or None if there are none."""
        cells = (b for b in constraints.bounds if b.margin.attributes or b.where)
        return BOUNDED_DOUBT if any(b.upper is not None for b in cells) else None

    def _judged(
        self, walk: HistogramWalk, run: NDArray, plan: Plan, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        """Return the draws of the approximate tier, with figures on their agreement with other chains."""
        from trueup.inferring.histogram_check import agreement

        announce(progress, "comparing the Markov chains")
        found = walk.diagnosed(run, SOME, rng)
        announce(progress, "comparing places with separate Markov chains")
        try:
            check = agreement(walk, run, plan.checked, rng, progress)
        except OutOfTimeError:  # the draws stand: what is missing is a check
            check = agreement(walk, run, 0, rng, progress)
        text = (
            f"Tier 'approximate': {len(run)} Markov chains of {walk.sweeps:,} sweeps of all places, not required to have "
            f"converged (largest R-hat {found['largest_r_hat']:.2f}, smallest effective size {found['smallest_ess']:.0f} "
            f"of {found['watched']:,} counts watched, of which {found['counts_that_fall_short']:,} fall short of what their "
            f"intervals need). {check.text}"
        )
        kept = thinned(run, plan.draws)
        made = kept.shape[0] * kept.shape[1]
        if made < plan.draws:
            text += f" Time ended them after {made:,} of {plan.draws:,} draws."
        ran = {"chains": len(run), "check": check.record, "interrupted": made < plan.draws}
        stats = _stats(plan, found) | ran
        return Drawn(kept, independent=False, approximate=text, stats=stats)


def _as_places(constraints: Constraints, headers: Sequence[Measured]) -> AsPlaces | None:
    """Return a single-place table as a histogram whose places are an attribute's values, or None."""
    from trueup.inferring.recast import AsPlaces

    return AsPlaces.of(constraints, headers)


def _judged_ratio(walk: HistogramWalk) -> int:
    """Return the number of draws that are diagnosed for each requested draw."""
    return JUDGED_DRAWS_RATIO if walk.problem.cells.n < MANY_DRAWS_BELOW_CELLS else 1


def _stats(plan: Plan, found: Mapping[str, Any]) -> dict[str, Any]:
    return {"draws": plan.draws, "interrupted": False, "chains": plan.chains, **plan.record, **found}


@dataclass(eq=False)
class _Chains:
    """The Markov chains of a histogram, in the form in which runs are made and lengthened.

    A run is made longer with draws that lie further apart: of what was drawn before, as many are kept as do so already.
    """

    walk: HistogramWalk
    plan: Plan
    rng: np.random.Generator
    progress: Progress
    thin: int
    begun: tuple[NDArray, int, list[int]] | None = None

    @property
    def chains(self) -> int:
        """Return the number of chains that run side by side."""
        return len(self.walk.states)

    @property
    def limit(self) -> ChainLimit:
        """Return the time limit of the chains."""
        return self.walk.limit

    def first(self, tell: Progress) -> NDArray:
        """Run the burn-in and the first draws, or resume them from checkpoints."""
        walk, plan = self.walk, self.plan
        if (begun := walk.begun(plan.chains, plan.kept)) is None:
            walk.run(1, max(plan.warm_up - walk.taken, 1), _warming(self.progress, walk.stages))
        self.thin = begun or self.thin
        run = walk.run(plan.kept, self.thin, tell, saved=True, least=plan.least)
        self.begun = walk.concentrations, walk.taken, walk.left_out.copy()
        walk.limit = ChainLimit(walk.limit.deadline, plan.most)  # compiling and the first run are not counted
        return run

    def back(self) -> None:
        """Reset learnt settings, stages and failed moves to their state after the first run."""
        assert self.begun is not None
        self.walk.concentrations, self.walk.taken, self.walk.left_out = self.begun

    def diagnosed(self, run: NDArray) -> dict[str, Any]:
        """Return the convergence diagnostics of all counts in a run."""
        return self.walk.diagnosed(run, WATCHED, self.rng)

    def longer(self, run: NDArray, found: Mapping[str, Any]) -> Longer | None:
        """Return a longer run, with more sweeps between draws if the effective sample sizes require it."""
        times = min(max(math.ceil(RUN_LENGTH_RATIO * found["lacking"]), 2), 8)
        if self.thin * times > MOST_THIN // _judged_ratio(self.walk):
            return None
        again = self.thin == self.plan.thin  # the first run is warm-up too
        held = 0 if again else len(range(times - 1, self.plan.kept, times))
        seconds = self.walk.seconds * self.chains * self.thin * times * (self.plan.kept - held)

        def run_on(tell: Progress) -> NDArray:
            walk = self.walk
            walk.concentrations = walk.concentrations[:, times - 1 :: times]
            before = None if again else run[:, times - 1 :: times]
            self.thin *= times
            return walk.run(self.plan.kept, self.thin, tell, saved=True, before=before)

        return Longer(seconds, f"{self.thin * times} sweeps to a draw", run_on)


@dataclass(frozen=True, eq=False)
class Plan:
    """A planned run of Markov chains of one accuracy tier, with its predicted cost.

    Attributes
    ----------
    tier, chains, kept, thin
        Name of the tier; number of chains; draws of each that are diagnosed; and stages between draws in the first run.
    usual
        Stages of each chain that are usually needed in all.
    draws, most
        Number of requested draws; processor seconds that lengthening the chains may take.
    warm_up, checked
        Stages before the first run; number of places whose posterior is compared with chains of their own.
    stages
        Stages in which the directions of a sweep are taken.
    """

    tier: str
    chains: int
    kept: int
    thin: int
    usual: int
    walk: HistogramWalk
    draws: int
    most: float = np.inf
    warm_up: int = WARM_UP
    checked: int = MAX_CHECKED_PLACES
    stages: int = 1

    @property
    def seconds(self) -> float:
        """Return the predicted wall time in seconds, including the final check against single places."""
        each, side, check = self.walk.seconds / self.stages, max(1.0, self.chains / cores()), 0.0
        first = self.kept * self.thin
        longer = min(each * (self.usual - first), self.most / self.chains)
        chains = (each * (self.warm_up + first) + longer) * side
        if self.tier == "approximate" and self.checked:
            from trueup.inferring.histogram_check import sweeps

            check = self.walk.seconds * sweeps(self.walk.problem, self.checked)
        return (chains + check) * self.walk.slower

    @property
    def memory(self) -> float:
        """Return the predicted memory in bytes, including stored draws."""
        n = self.walk.problem.cells.n
        return n * (BYTES_A_CELL[0] + BYTES_A_CELL[1] * self.chains + 2 * self.kept * self.chains) + 150e6

    @property
    def text(self) -> str:
        """Return the plan and its predicted cost as text."""
        return (
            f"tier '{self.tier}': {self.chains} Markov chains of about {(self.warm_up + self.usual) // self.stages:,} sweeps, "
            f"{told_cost(self.seconds, self.memory)} predicted"
        )

    @property
    def record(self) -> dict[str, Any]:
        """Return the plan's figures as a dict for the posterior's record."""
        return {
            "tier": self.tier,
            "predicted_seconds": round(self.seconds, 1),
            "predicted_bytes": round(self.memory),
        }

    @property
    def shortest(self) -> float:
        """Return the wall time in seconds that is predicted if the first run already passes."""
        return replace(self, usual=self.kept * self.thin).seconds

    @property
    def least(self) -> int | None:
        """Return the smallest number of draws of each chain that suffices, or None if all are required."""
        return FEWEST_DRAWS if self.tier == "approximate" or np.isfinite(self.most) else None

    def within(self, deadline: Deadline) -> Plan:
        """Return this plan, or one without checks or with fewer draws if it does not fit in the time left."""
        unchecked = replace(self, checked=0)
        if self.least is None or self.shortest <= deadline.left():
            return self
        if unchecked.shortest <= deadline.left():
            return unchecked
        sweep = self.walk.seconds / self.stages * self.walk.slower * max(1.0, self.chains / cores())
        sweeps = int(FOR_CHAINS * deadline.left() / max(sweep, 1e-9))
        warm_up = min(self.warm_up, sweeps // 3)
        kept = min(self.kept, sweeps - warm_up)
        short = replace(unchecked, tier="approximate", kept=kept, thin=1, usual=kept, warm_up=warm_up)
        return self if kept < self.least else short

    def refuse(self, deadline: Deadline) -> None:
        """Refuse a planned run that takes too long or does not fit in memory."""
        other = 'give tier = "approximate", or ' if self.tier == "chains" else ""
        less = ask_for_less(self.walk.problem.cells.tree)
        refuse_forecast(self.text, self.shortest, self.memory, deadline, less, other)


def _warming(progress: Progress, stages: int) -> Progress:
    return lambda done, of: announce(progress, f"burn-in: {done // stages:,} of {of // stages:,} sweeps")
