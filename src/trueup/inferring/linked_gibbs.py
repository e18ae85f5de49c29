"""Persons and the households that they live in, jointly: Markov chains under the hierarchical prior, at every level."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.chains import (
    AWAY,
    ESS,
    FEWEST,
    chains_agree,
    chains_too_short,
    diagnosed_in_pieces,
    refuses_settings,
    run_side_by_side,
    thinned,
    told_in_draws,
)
from trueup.inferring.method import InferenceMethod, Progress, announce
from trueup.kernel.settling.posterior_mean import HYPERPRIOR, Hyperprior
from trueup.kernel.statistics.diagnostics import r_hat_by_chance
from trueup.kernel.table_walks.linked import LinkedState, linked_sweeps
from trueup.kernel.table_walks.linked_prior import draw_linked_prior
from trueup.layouts.linked import LinkedProblem, refuses_linked
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.model.prior import HIERARCHICAL, Hierarchical, SplitPrior
from trueup.model.records.drawn import Drawn
from trueup.model.stacking import COUNTED

WARM_UP, THIN = 60, 2
"""Sweeps before the first run, and between its draws."""
STEPS, EACH = (8, 400), 5
"""Least and most steps at a place in a sweep at first, and moves for each of them."""
MOST_STEPS = 6400
"""Steps at a place in a sweep, at most."""
LONGER = "allow more `minutes`, or infer a place of its own (`--within`)"
"""What to do about chains that are too short."""
POOLED = Hyperprior(kappa=100.0, kappa_spread=2.0)
"""Of pools other than the free one: median and spread of the concentrations of their compositions."""


@dataclass(frozen=True)
class LinkedGibbs(InferenceMethod):
    """The posterior of persons and households, or of counts under rules `k households <= persons <= K households`.

    The prior: a flat total of households; the number of each place is split among its parts by a Dirichlet-multinomial law
    with a concentration for each level; kinds of households at a lowest place are Dirichlet-multinomial around the composition of
    the place above, and so are kinds of persons given their number, which households determine, or which is beta-binomial
    between what households hold at least and at most. Concentrations and compositions are drawn with the counts.

    Draws are those of chains that agree: every count of every level, and persons per household, with an effective size of 400;
    else they are refused.

    Attributes
    ----------
    prior
        `hierarchical`; with `concentrations` of totals and of compositions, two numbers, these are given.
    chains
        Number of chains.
    minutes
        Longest time that a run is made longer within.

    References
    ----------
    Janicki et al., "Bayesian methods to improve the accuracy of differentially private measurements of constrained
    parameters", section 3, for the rules; its prior is flat.
    """

    prior: SplitPrior = HIERARCHICAL
    chains: int = 4
    minutes: float = 10.0

    name: ClassVar[str] = "linked-gibbs"
    title: ClassVar[str] = "persons and households jointly: Markov chains under the hierarchical prior"
    structures: ClassVar[frozenset[str]] = frozenset({"joined", "general"})
    priors: ClassVar[tuple[type, ...]] = (Hierarchical,)

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Nonnegative counts, pairs of rules alone, noise of unbounded laws."""
        wrong = refuses_settings(self.prior, self.chains, "compositions")
        return wrong or refuses_linked(constraints, headers)

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> Any:
        """Nothing depends on constraints and laws alone."""
        return constraints, tuple(headers)

    def apply(
        self, state: Any, values: NDArray, draws: int, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        """Run chains longer until they agree; what came before is warm-up."""
        constraints, headers = state
        problem = LinkedProblem(constraints, headers, tuple(split(values, headers, constraints.cells)))
        announce(progress, "finding tables to start from")
        walk = LinkedWalk.of(problem, rng.spawn(self.chains), self.prior.concentrations)
        kept, thin, began = -(-max(draws, FEWEST) // self.chains), THIN, time.perf_counter()
        announce(progress, f"warming up: {WARM_UP} sweeps")
        walk.run(WARM_UP, 1)
        while True:
            run = walk.run(kept, thin, told_in_draws(progress, draws))
            announce(progress, "comparing the chains")
            found = walk.diagnosed(run)
            enough = chains_agree(found)
            more = walk.prolonged()
            spent = time.perf_counter() - began
            if enough or spent + walk.seconds * kept * thin * more > 60 * self.minutes:
                break  # times decide what is refused, never what is drawn
            thin *= 2 if more < 1.5 else 1
            announce(progress, f"chains are too short: {more:.1f} times the steps")
        status = "solved" if enough else chains_too_short(walk.sweeps, found, LONGER)
        stats = {"draws": draws, "interrupted": False, "chains": self.chains, **found}
        return Drawn(
            thinned(run, draws),
            independent=False,
            connected=problem.connected,
            status=status,
            stats=stats,
            tables=tuple(walk.margins),
        )


@dataclass(eq=False)
class LinkedWalk:
    """Chains on one problem.

    Attributes
    ----------
    problem
        Columns, links, moves.
    rngs, states
        A generator and a state of each chain.
    learn
        Whether concentrations are drawn as well as compositions.
    steps
        `(leaves,)` steps at each place in a sweep.
    sweeps, stopped, seconds
        Of each chain so far; whether it was interrupted; of one sweep of all chains, at last.
    slowest
        `(leaves,)` smallest effective size of the counts and ratios of each lowest place, at last.
    """

    problem: LinkedProblem
    rngs: list[np.random.Generator]
    states: list[LinkedState]
    learn: bool
    steps: NDArray[np.int64]
    sweeps: int = 0
    stopped: bool = False
    seconds: float = 0.0
    slowest: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(
        cls, problem: LinkedProblem, rngs: list[np.random.Generator], given: Sequence[float] = ()
    ) -> LinkedWalk:
        """Start chains apart: the first near the values, others near noisier ones."""
        a, kappa = given or (HYPERPRIOR.a, POOLED.kappa)
        starts = [problem.start(rng, AWAY * (chain > 0)) for chain, rng in enumerate(rngs)]
        steps = int(np.clip(len(problem.links.changes) // EACH, *STEPS))
        states = [problem.state(x, a, kappa) for x in starts]
        return cls(problem, rngs, states, not given, np.full(problem.cells.shape[0], steps))

    def run(self, kept: int, thin: int, tell: Progress = lambda done, of: None) -> NDArray:
        """Move every chain on by `kept * thin` sweeps; return draws `(chains, kept, n)`."""
        n, began = self.problem.cells.n, time.perf_counter()
        out = np.empty((len(self.states), kept, n), np.int32)
        _ = self.problem.moves, self.problem.known, self.problem.places, self.problem.widest  # before threads
        done = [0] * len(self.states)
        run_side_by_side(
            lambda c: self._chain(c, out[c], thin, done), done, kept * thin * len(done), tell, self._stop
        )
        self.sweeps += kept * thin
        self.seconds = (time.perf_counter() - began) / (kept * thin)
        return out

    def _stop(self) -> None:
        self.stopped = True

    def _chain(self, chain: int, out: NDArray, thin: int, done: list[int]) -> None:
        problem, rng, state = self.problem, self.rngs[chain], self.states[chain]
        n = problem.links.slack.shape[1]
        pool_of = problem.links.pool_of
        for i in range(len(out)):
            if self.stopped:
                return
            for _ in range(thin):
                linked_sweeps(
                    rng,
                    problem.places,
                    problem.known,
                    problem.moves,
                    pool_of,
                    state,
                    problem.widest,
                    self.steps,
                    1,
                )
                self._prior(rng, state)
            out[i] = state.x[:, :n].ravel()
            done[chain] = thin * (i + 1)

    def _prior(self, rng: np.random.Generator, state: LinkedState) -> None:
        """Draw compositions and concentrations, pool by pool."""
        for g, columns in enumerate(self.problem.links.pools):
            kappa = HYPERPRIOR if g == 0 else POOLED
            hyper = np.array([HYPERPRIOR.a, HYPERPRIOR.a_spread, kappa.kappa, kappa.kappa_spread])
            draw_linked_prior(rng, self.problem.places, state, columns, g, hyper, self.learn)

    def diagnosed(self, run: NDArray) -> dict[str, Any]:
        """What the record says of a run: R-hat and effective sizes of every count of every level, and of ratios."""
        worst, least, watched = 1.0, np.inf, 0
        self.slowest = np.full(self.problem.cells.shape[0], np.inf)
        for level, values in self._watched(run):
            r_hat, ess = diagnosed_in_pieces(values)
            worst, least, watched = max(worst, r_hat.max()), min(least, ess.min()), watched + len(ess)
            if level == self.problem.cells.tree.levels[-1]:
                self.slowest = np.minimum(self.slowest, ess.reshape(len(self.slowest), -1).min(axis=1))
        return {
            "sweeps": self.sweeps,
            "largest_r_hat": float(worst),
            "r_hat_allowed": r_hat_by_chance(watched, ESS, 2 * len(run)),
            "smallest_ess": float(least),
            "watched": watched,
            "moves_known_to_connect": self.problem.connected,
        }

    def prolonged(self) -> float:
        """Give places whose counts move slowly more steps, and others fewer; how many times the steps of all that is."""
        before = self.steps.sum()
        needed = self.steps * np.clip(1.5 * ESS / self.slowest, 0.5, 8.0)
        self.steps = np.clip(np.ceil(needed), STEPS[0], MOST_STEPS).astype(np.int64)
        return float(self.steps.sum() / before)

    def _watched(self, run: NDArray) -> Iterator[tuple[str, NDArray]]:
        """Levels with counts of each, and there persons per household of each link."""
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
        """Tables that are reported: every level's counts, and of two tables their totals."""
        cells = self.problem.cells
        found = [Margin(level, cells.finest.attributes) for level in cells.tree.levels]
        if self.problem.constraints.joined is not None:
            found = [m for each in found for m in (Margin(each.level, (COUNTED,)), each)]
        return found
