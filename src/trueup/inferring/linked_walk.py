"""Markov chains on linked tables: their moves, their diagnostics, and more steps at slow places.

One file: all of it reads and writes the one state of a chain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.chain_driver import Longer, Verdict, ask_for_less, refuse_forecast, told_cost
from trueup.inferring.chains import (
    AIMED_EFFECTIVE_SIZE,
    START_NOISE_DEVIATIONS,
    ChainLimit,
    diagnosed_in_pieces,
    run_side_by_side,
)
from trueup.inferring.method import Progress, announce, silent
from trueup.kernel.settling.split_draws import HYPERPRIOR, Hyperprior
from trueup.kernel.statistics.diagnostics import described_slopes, r_hat_by_chance
from trueup.kernel.table_walks.linked import LinkedState, linked_sweeps, near_zero_sweep
from trueup.kernel.table_walks.linked_exchange import MAX_TOTAL, exchange_sweep, fresh_sweep
from trueup.kernel.table_walks.linked_normal import NormalPlaces, normal_sweep
from trueup.kernel.table_walks.linked_prior import draw_linked_prior, normal_given_variances
from trueup.layouts.linked import LinkedProblem
from trueup.model.cells import Margin
from trueup.model.names import COUNTED_UNIT
from trueup.run import cores

BURN_IN_SWEEPS = 60
"""Sweeps before the first run."""
ROUNDS, SEEING, SETTLING = 5, 6, 0.1
"""How often, and after how many sweeps, places are looked at anew; weight of the last sweep in the centres of their laws."""
MIN_WHOLE_ACCEPTANCE = 0.5
"""A place is drawn whole where so many of its steps are accepted."""
LOW = 3.0
"""Columns may come down to zero whose centre is so many standard deviations of noise above it, or less."""
BYTES_PER_CHAIN_CELL = 200
"""Memory of a cell of a chain, without draws."""
PILOT, SLOW_SHARE = 40, 0.4
"""Sweeps of a run that says which places move slowly: their effective size is a smaller share of its draws."""
SINGLE_STEP_RANGE, MOVES_A_STEP = (8, 400), 5
"""Least and most single steps at a place in a sweep at first, and moves for each of them."""
PRIOR_DRAWS_A_STEP = 2
"""Times that a small place is drawn from its prior for each single step."""
EXCHANGES_PER_SWEEP = 20
"""Exchanges of households at a place in a sweep at first; single steps are half as many there as elsewhere."""
MOST_STEPS = 6400
"""Steps at a place in a sweep, at most."""
NEARLY, MORE = 2.0, 1.15
"""Times that a run is made longer at most, rather than begun anew with more steps; by how much more than seems to be needed."""
HELPED, THINNER = 1.5, 8
"""Factor by which more steps must raise the smallest effective size, else draws lie further apart; so many times at most."""
POOLED = Hyperprior(kappa=100.0, kappa_spread=2.0)
"""Hyperprior of pools other than the free one: median and spread of their compositions' concentrations."""


@dataclass(eq=False)
class LinkedWalk:
    """The Markov chains on the linked tables of one problem.

    Attributes
    ----------
    problem
        Columns, links, moves.
    rngs, states
        A generator and a state of each chain.
    learn
        True to draw concentrations as well as compositions.
    laws
        Normal laws of the places that are drawn whole, one object for each chain.
    steps
        `(leaves,)` single steps at each place in a sweep.
    width, draws
        `(leaves,)` columns of a place that are drawn at a time, where places are drawn whole, and how often in a sweep; how often
        households are exchanged, where they are.
    small
        `(leaves, n)` columns that may come down to zero, which are drawn one at a time as well; none of small places, which
        are drawn from their prior.
    sweeps, stopped, seconds
        Sweeps of each chain so far; True if the run was interrupted; latest seconds of one sweep of all chains.
    slowest
        `(leaves,)` smallest effective size of the counts and ratios of each lowest place, in the last run.
    limit
        Time limit of the chains.
    slopes
        `(chains, kept, p)` coefficients of covariates, of the last run's draws.
    fewer
        Values of `steps` and `draws` before their last increase.
    kept, thin
        Draws of each chain in a run, and sweeps between them.
    least
        Smallest effective size in the run before places were given more steps.
    """

    problem: LinkedProblem
    rngs: list[np.random.Generator]
    states: list[LinkedState]
    laws: list[NormalPlaces]
    learn: bool
    steps: NDArray[np.int64]
    width: NDArray[np.int64]
    draws: NDArray[np.int64]
    small: NDArray[np.bool_]
    sweeps: int = 0
    stopped: bool = False
    seconds: float = 0.0
    slowest: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    limit: ChainLimit = field(default_factory=ChainLimit)
    slopes: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0, 0)))
    fewer: tuple[NDArray[np.int64], NDArray[np.int64]] = field(init=False)
    progress: Progress = silent
    kept: int = 0
    thin: int = 1
    least: float = 0.0

    @classmethod
    def of(
        cls, problem: LinkedProblem, rngs: list[np.random.Generator], given: Sequence[float] = ()
    ) -> LinkedWalk:
        """Start chains at different tables: the first near the measured values, others near noisier ones."""
        a, kappa = given or (HYPERPRIOR.a, POOLED.kappa)
        starts = [problem.start(rng, START_NOISE_DEVIATIONS * (chain > 0)) for chain, rng in enumerate(rngs)]
        many = int(np.clip(len(problem.links.changes) // MOVES_A_STEP, *SINGLE_STEP_RANGE)) // (
            1 + problem.exchanged
        )
        states = [problem.state(x, a, kappa) for x in starts]
        laws = [problem.normal(s) for s in states if problem.whole]
        leaves, *kinds = problem.cells.shape
        steps, width, draws = (
            np.full(leaves, k) for k in (many, prod(kinds), EXCHANGES_PER_SWEEP if problem.exchanged else 1)
        )
        small = np.zeros((leaves, problem.links.slack.shape[1]), bool)
        return cls(problem, rngs, states, laws, not given, steps, width, draws, small)

    @property
    def chains(self) -> int:
        """Return the number of parallel chains."""
        return len(self.states)

    def first(self, tell: Progress) -> NDArray:
        """Measure the time of a sweep, run the burn-in, and return the first draws."""
        announce(self.progress, "measuring the time of a sweep")
        if self.problem.whole:
            self._narrow()
        else:
            self.run(1, 1)  # what is compiled is loaded
            self.run(SEEING, 1)
        self._refuse()
        announce(self.progress, f"burn-in: {BURN_IN_SWEEPS} sweeps")
        self.warm_up()
        self._refuse()  # places that move slowly get more steps
        return self.run(self.kept, self.thin, tell)

    def _refuse(self) -> None:
        """Announce the predicted cost of the chains, and refuse a run that takes too long."""
        text, seconds, memory = self.forecast()
        refuse_forecast(text, seconds, memory, self.limit.deadline, ask_for_less(self.problem.cells.tree))
        announce(self.progress, f"{text}; {self.limit.deadline.in_all(seconds)}")

    def forecast(self) -> tuple[str, float, float]:
        """Return the predicted cost of the shortest run as text, with seconds and bytes."""
        sweeps = BURN_IN_SWEEPS + PILOT + self.kept * self.thin
        seconds = (sweeps - self.sweeps) * self.seconds
        memory = self.problem.cells.n * self.chains * (BYTES_PER_CHAIN_CELL + 4.0 * self.kept) + 150e6
        text = f"{self.chains} Markov chains of {sweeps:,} sweeps or more, {told_cost(seconds, memory)} predicted"
        return text, seconds, memory

    def warm_up(self) -> None:
        """Run the rest of the burn-in, and a pilot run to find the places at which chains mix slowly."""
        self.run(BURN_IN_SWEEPS - self.sweeps, 1)
        if self.problem.whole or self.problem.exchanged:
            pilot = self.run(PILOT, 1)
            self.diagnosed(pilot)
            self.seconds *= self._prolong(SLOW_SHARE * len(self.states) * PILOT, 1.0)

    def _narrow(self) -> None:
        """Reduce the columns drawn together at places where draws of whole tables are often rejected."""
        n, steps = self.width.copy(), self.steps
        self.steps = np.zeros_like(steps)
        for _ in range(ROUNDS):
            self.run(SEEING, 1)
            taken = sum(laws.taken for laws in self.laws) / sum(laws.tried for laws in self.laws)
            for laws in self.laws:
                laws.tried[:], laws.taken[:] = 0, 0
            self.width = np.where(taken < MIN_WHOLE_ACCEPTANCE, -(-self.width // 2), self.width)
            self.draws = np.rint(n / self.width / np.maximum(taken, MIN_WHOLE_ACCEPTANCE)).astype(np.int64)
            self.steps = np.where(self.width < n, steps // 2, 0)
            centre = np.mean([laws.centre for laws in self.laws], axis=0)
            whole = centre[:, self.problem.links.pools[0]].sum(axis=1, keepdims=True) > MAX_TOTAL
            self.small = whole & (centre < LOW * self.problem.widest[self.problem.units])

    def run(self, kept: int, thin: int, tell: Progress = silent) -> NDArray:
        """Move every chain by `kept * thin` sweeps; return draws `(chains, kept, n)`."""
        n, began = self.problem.cells.n, time.perf_counter()
        out = np.empty((len(self.states), kept, n), np.int32)
        self.slopes = np.empty((len(self.states), kept, len(self.problem.public.names)))
        for part in (
            "moves",
            "known",
            "places",
            "widest",
            "units",
            *["forms"][: self.problem.whole or self.problem.exchanged],
            *["pools"][: self.problem.exchanged],
        ):  # before threads
            getattr(self.problem, part)
        done = [0] * len(self.states)
        run_side_by_side(self, lambda c: self._chain(c, out[c], thin, done), done, kept * thin, tell)
        self.sweeps += kept * thin
        self.seconds = (time.perf_counter() - began) / (kept * thin)
        return out

    def _chain(self, chain: int, out: NDArray, thin: int, done: list[int]) -> None:
        problem, rng, state = self.problem, self.rngs[chain], self.states[chain]
        n = problem.links.slack.shape[1]
        pool_of = problem.links.pool_of
        moved = (problem.places, problem.known, problem.moves, pool_of, state, problem.widest)
        for i in range(len(out)):
            for _ in range(thin):
                if self.stopped:
                    return
                if problem.whole:
                    laws = self.laws[chain]
                    if self.sweeps < BURN_IN_SWEEPS:  # later the laws must not follow the chain
                        laws.centre[:] += SETTLING * (state.x[:, :n] - laws.centre)
                    normal_sweep(
                        rng,
                        problem.places,
                        normal_given_variances(rng, problem.known, state.gap),
                        problem.forms,
                        pool_of,
                        state,
                        laws,
                        self.width,
                        self.draws,
                    )
                    fresh_sweep(
                        rng,
                        problem.places,
                        problem.known,
                        problem.forms,
                        pool_of,
                        state,
                        PRIOR_DRAWS_A_STEP * self.steps,
                    )
                    passes = np.ceil(self.draws * self.width / n).astype(np.int64)
                    near_zero_sweep(rng, *moved, problem.units, self.small, passes)
                if problem.exchanged:
                    exchange_sweep(
                        rng, problem.places, problem.known, problem.forms, problem.pools, state, self.draws
                    )
                linked_sweeps(rng, *moved, self.steps, 1)
                self._prior(rng, state)
            out[i] = state.x[:, :n].ravel()
            self.slopes[chain, i] = state.slope
            done[chain] = thin * (i + 1)

    def _prior(self, rng: np.random.Generator, state: LinkedState) -> None:
        """Draw the prior's compositions and concentrations, given the tables."""
        for g, columns in enumerate(self.problem.links.pools):
            kappa = HYPERPRIOR if g == 0 else POOLED
            hyper = np.array([HYPERPRIOR.a, HYPERPRIOR.a_spread, kappa.kappa, kappa.kappa_spread])
            draw_linked_prior(rng, self.problem.places, state, columns, g, hyper, self.learn)

    def diagnosed(self, run: NDArray) -> dict[str, Any]:
        """Return a run's R-hat and effective sample sizes of all counts and all persons per household."""
        watched = [(level, *diagnosed_in_pieces(values)) for level, values in self._watched(run)]
        verdict = Verdict(
            r_hat_by_chance(sum(len(ess) for *_, ess in watched), AIMED_EFFECTIVE_SIZE, 2 * len(run))
        )
        self.slowest = np.full(self.problem.cells.shape[0], np.inf)
        cells, seen = self.problem.cells, set[str]()
        for level, r_hat, ess in watched:
            counts = (
                Margin(level, cells.finest.attributes) if level not in seen else None
            )  # ratios follow them
            seen.add(level)
            verdict.add(
                r_hat,
                ess,
                lambda i, m=counts, at=level: cells.margin_label(m, i) if m else f"a ratio of '{at}'",
            )
            if level == self.problem.cells.tree.levels[-1]:
                self.slowest = np.minimum(self.slowest, ess.reshape(len(self.slowest), -1).min(axis=1))
        found = verdict.found
        return {
            "sweeps": self.sweeps,
            **found,
            "aimed": found["smallest_ess"] >= AIMED_EFFECTIVE_SIZE
            and found["largest_r_hat"] <= found["r_hat_allowed"],
            "moves_known_to_connect": self.problem.connected,
            **described_slopes(self.problem.public.names, self.slopes),
        }

    def longer(self, run: NDArray, found: Mapping[str, Any]) -> Longer:
        """Return a longer run, with more draws, more steps at slow places, or more sweeps between draws.

        A run that is nearly long enough goes on; else places that move slowly get more steps, and where that does not help draws
        lie further apart.
        """
        lacks = MORE * AIMED_EFFECTIVE_SIZE / found["smallest_ess"] - 1.0
        nearly = lacks < NEARLY and found["largest_r_hat"] <= found["r_hat_allowed"]
        more, apart = 1.0, 1
        if not nearly and found["smallest_ess"] > HELPED * self.least:
            more, self.least = self._prolong(1.5 * AIMED_EFFECTIVE_SIZE, 0.5), found["smallest_ess"]
            apart = 2 if more < HELPED else 1
        elif not nearly:  # what moves slowly is not a place
            more, apart, self.least = self._shortened(), int(np.clip(np.ceil(lacks), 2, THINNER)), np.inf
        length = int(np.ceil(lacks * run.shape[1])) if nearly else self.kept

        def run_on(tell: Progress) -> NDArray:
            self.thin *= apart
            fresh = self.run(length, self.thin, tell)
            # Moved as before, what is there may stay.
            return np.concatenate([run, fresh], axis=1) if nearly else fresh

        seconds = self.seconds * min(self.chains, cores()) * length * self.thin * apart * more
        return Longer(seconds, f"{more * apart * length / self.kept:.1f} times the steps", run_on)

    def _shortened(self) -> float:
        """Undo the last increase of steps, and return the factor by which the total changes."""
        now = self.steps.sum() + self.draws.sum()
        self.steps, self.draws = self.fewer
        return float((self.steps.sum() + self.draws.sum()) / now)

    def _prolong(self, size: float, least: float) -> float:
        """Set the steps of every place for an effective sample size of `size`; return the total's growth."""
        self.fewer = self.steps, self.draws
        before = self.steps.sum() + self.draws.sum()
        times = np.clip(size / self.slowest, least, 8.0)
        self.steps = np.minimum(np.ceil(self.steps * times), MOST_STEPS).astype(np.int64)
        self.draws = np.minimum(np.rint(self.draws * times).clip(1), MOST_STEPS).astype(np.int64)
        return float((self.steps.sum() + self.draws.sum()) / before)

    def _watched(self, run: NDArray) -> Iterator[tuple[str, NDArray]]:
        """Yield the monitored draws: the counts of each level, and the persons per household."""
        cells = self.problem.cells
        for level in cells.tree.levels:
            values = cells.sum(run, Margin(level, cells.finest.attributes))
            yield level, values
            table = values.reshape(*run.shape[:2], -1, run.shape[2] // cells.shape[0])
            for persons, households in self.problem.links.linked:
                above, below = table[..., persons].sum(axis=3), table[..., households].sum(axis=3)
                yield level, above / np.maximum(below, 1)

    @property
    def margins(self) -> list[Margin]:
        """Return the margins whose tables are reported: counts of every level, and totals of both tables."""
        cells = self.problem.cells
        found = [Margin(level, cells.finest.attributes) for level in cells.tree.levels]
        if self.problem.constraints.joined is not None:
            found = [m for each in found for m in (Margin(each.level, (COUNTED_UNIT,)), each)]
        return found
