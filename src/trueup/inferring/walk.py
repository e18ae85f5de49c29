"""Markov chains on the tables of a problem: starting tables, adapted moves, and diagnostics.

One file: a chain from its start to its last check.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, InfeasibleError
from trueup.inferring.chain_driver import MIN_EFFECTIVE_SIZE, Longer
from trueup.inferring.chains import AIMED_EFFECTIVE_SIZE, ChainLimit, run_side_by_side
from trueup.inferring.components import table_moves, with_vectors
from trueup.inferring.connect import Joined, join
from trueup.inferring.method import Progress, announce, silent
from trueup.inferring.tempered import SWEEPS, Ladder, may_relax, rungs_of
from trueup.kernel.statistics.diagnostics import diagnose, r_hat_by_chance, tail_sizes
from trueup.kernel.table_walks.metropolis import Tuning, metropolis_walk, survey
from trueup.layouts.linear import LinearProblem
from trueup.layouts.rows import RowProblem
from trueup.model.cells import Margin
from trueup.model.linear_system import margin_rows
from trueup.model.nested import canonical
from trueup.run import Deadline

WARM_UP_RUNS = 8
MIN_RELATIVE_TURNS, FINENESS = 0.25, 4
"""Least turns of a cell to those of an average one, and how many turns an average one has."""
MOST_WATCHED = 4000
SECONDS_PER_KERNEL_CALL = 0.25
"""Seconds that a call of the kernel takes, about, before it listens to an interruption."""
PREDICTED_THINNING_SWEEPS = 8
"""Sweeps between draws that are usually needed in the end, for the prediction."""
STUCK = 2.0
"""R-hat of runs with several sweeps to a draw from which on chains are taken to be stuck."""
MARGIN, LEAP = 1.25, 8
"""Length of the next run over what the last one says is needed, and over the last one at most."""
SURVEYED_MOVES_PER_PATTERN = 300
"""Moves of each pattern that are tried to see whether they keep what is exact."""


@dataclass(eq=False)
class Walk:
    """The Markov chains on the tables of one problem, with their current tables and adapted moves.

    Attributes
    ----------
    problem, moves, joined
        The posterior as rows, the moves of a chain, and the proofs that these reach every table.
    rngs, points
        A generator and a table `(n,)` of each chain.
    watched
        Rows of the sums that diagnostics watch.
    spans, shares, worth, far
        Settings learnt for cells and for patterns of moves.
    moved, sweeps, left
        Share of steps of the last run that moved, number of all sweeps, and a mask of the cells that have moved.
    limit, seconds
        Time limit of the chains; processor seconds for a sweep of one chain in the last run.
    ladders
        Each chain with relaxed copies, once they are needed: its sweeps are then exchanges with them.
    kept, thin, longest
        Tables of each chain in a run, and sweeps between them, now and at most.
    lacks
        Factor by which the last run was too short.
    """

    problem: RowProblem
    moves: Any
    rngs: list[np.random.Generator]
    points: list[NDArray[np.int64]]
    joined: Joined
    watched: Any
    spans: NDArray
    shares: NDArray
    worth: NDArray
    far: NDArray | float = 0.0
    moved: float = 0.0
    sweeps: int = 0
    left: NDArray[np.bool_] | None = None
    limit: ChainLimit = field(default_factory=ChainLimit)
    seconds: float = 0.0
    stopped: bool = False
    ladders: list[Ladder] = field(default_factory=list)
    progress: Progress = silent
    kept: int = 0
    thin: int = 1
    longest: int = 1
    lacks: float = 1.0

    @property
    def chains(self) -> int:
        """Return the number of parallel chains."""
        return len(self.points)

    @property
    def connected(self) -> bool:
        """Return True if the moves are proved to reach every table, and every component has moved."""
        left = self.left
        return self.joined.known and left is not None and all(left[own].any() for own in self.joined.pieces)

    @classmethod
    def of(
        cls,
        state: LinearProblem,
        values: NDArray,
        problem: RowProblem,
        rngs,
        deadline: Deadline | None = None,
    ) -> Walk:
        """Return the Markov chains of a problem, with chosen moves and dispersed starting tables."""
        active = np.flatnonzero(problem.box[0] < problem.box[1])
        level = state.cells.tree.level
        margins = (*(h.margin for h in state.headers), *(b.margin for b in state.constraints.bounds))
        moves = table_moves(state.cells, active, {level(m.level) for m in margins})
        centre, wide = problem.estimate()
        limit = ChainLimit(deadline or Deadline.of())
        points = starts_apart(state, values, problem, centre, wide, rngs, limit.deadline)
        joined = join(problem, state.cells.shape, moves, points[0])
        moves = with_vectors(moves, joined.vectors)
        shares = survey(rngs[0], problem.rows, moves, problem.fixed, SURVEYED_MOVES_PER_PATTERN)
        shares[joined.patterns] = np.maximum(shares[joined.patterns], 1 / SURVEYED_MOVES_PER_PATTERN)
        spans = np.maximum(np.minimum(np.abs(centre) + wide, 3 * wide), 1.0)
        chances = np.ones(len(shares))
        return cls(problem, moves, rngs, points, joined, _watched(state), spans, shares, chances, limit=limit)

    @property
    def tuning(self) -> Tuning:
        """Return the adapted settings of the moves, which are constant within a run."""
        return Tuning(self.spans, self._turns(), self._chances())

    def _turns(self) -> NDArray[np.int64]:
        """Return the active cells, each repeated in proportion to its posterior variance."""
        active = self.moves.active
        variance = self.spans[active] ** 2
        often = np.maximum(variance / variance.mean(), MIN_RELATIVE_TURNS)
        return np.repeat(active, np.rint(FINENESS * often).astype(np.int64))

    def _chances(self) -> NDArray:
        """Return cumulative probabilities of the patterns of moves, 0 for patterns that break exact rows."""
        may = self.shares > 0
        worth = np.where(may, self.worth, 0.0)
        return np.cumsum(worth / worth.sum() + may / may.sum())

    def run(self, count: int, thin: int, tell: Progress = silent) -> NDArray[np.int64]:
        """Return tables `(chains, count, n)` from all chains, which continue from their current tables."""
        _, _, tuning = self.problem.rows, self.problem.fixed, self.tuning  # made before threads
        chains = self.chains
        tables = np.zeros((chains, count, self.problem.n), np.int64)
        tallies: list[NDArray] = [np.zeros((3, len(self.shares)))] * chains
        done, spent = [0] * chains, [0.0] * chains

        def one(chain: int) -> None:
            began = time.thread_time()
            tallies[chain] = self._chain(chain, tuning, thin, tables[chain], done)
            spent[chain] = time.thread_time() - began

        run_side_by_side(self, one, done, count * thin, tell)
        tried, gone, far = np.sum(tallies, axis=0)
        self.moved, self.far = float(gone.sum() / tried.sum()), far / np.maximum(tried, 1)
        self.sweeps += count * thin * self.sweeps_at_once
        self.seconds = sum(spent) / (count * thin * chains)
        moved = (tables != tables[:, :1]).any(axis=(0, 1))
        self.left = moved if self.left is None else self.left | moved
        return tables

    def _chain(self, chain: int, tuning: Tuning, thin: int, out: NDArray, done: list[int]) -> NDArray:
        """Write the tables of one chain to `out`, and return a tally of its moves."""
        drawn, some, tally = 0, 1, np.zeros((3, len(self.shares)))
        while drawn < len(out) and not self.stopped:
            began, count = time.monotonic(), min(some, len(out) - drawn)
            out[drawn : drawn + count], more = self._walked(chain, tuning, count, thin)
            tally += more
            drawn += count
            done[chain] = drawn * thin
            some = max(
                1, min(2 * some, int(count * SECONDS_PER_KERNEL_CALL / max(time.monotonic() - began, 1e-6)))
            )
        return tally

    def _walked(self, chain: int, tuning: Tuning, count: int, thin: int) -> tuple[NDArray, NDArray]:
        rng, more = self.rngs[chain], (self.moves, self.problem.box, tuning)
        if self.ladders:
            return self.ladders[chain].walk(rng, *more, count, thin, lambda: self.stopped)
        return metropolis_walk(rng, self.problem.rows, *more, self.points[chain], count, thin)

    @property
    def sweeps_at_once(self) -> int:
        """Return the number of sweeps for each recorded one, which is larger with relaxed copies."""
        return SWEEPS * len(self.ladders[0].rungs) if self.ladders else 1

    def relax(self) -> bool:
        """Give each chain relaxed copies if that may help, and return True if they were added."""
        if self.ladders or not may_relax(self.problem.rows):
            return False
        rungs = rungs_of(self.problem.rows)
        self.ladders = [Ladder(rungs, [point.copy() for _ in rungs]) for point in self.points]
        return True

    def first(self, tell: Progress) -> NDArray:
        """Adapt the moves of the chains in short runs, and return the draws of the first full run."""
        self.warm_up()
        more = self.seconds * self.kept * min(PREDICTED_THINNING_SWEEPS, self.longest)
        told = f"{self.chains} Markov chains, {self.limit.deadline.in_all(more)} predicted"
        announce(self.progress, told)
        return self.run(self.kept, 1, tell)

    def longer(self, run: NDArray, found: Mapping[str, Any]) -> Longer | None:
        """Return a longer run, with relaxed copies of stuck chains or more sweeps between draws."""
        thin = self.thin
        if thin > 1 and found["largest_r_hat"] > STUCK and self.relax():
            text, thin = "published sums allow few moves, so relaxed copies of the chains are added", 1
            seconds = self.seconds * self.sweeps_at_once
        else:
            thin = min(thin * min(max(math.ceil(MARGIN * self.lacks), 2), LEAP), self.longest)
            if thin <= self.thin:
                return None
            text, seconds = f"{thin * self.sweeps_at_once:,} sweeps to a draw", self.seconds

        def run_again(tell: Progress) -> NDArray:
            self.thin = thin
            self.tune(run)
            return self.run(self.kept, thin, tell)

        return Longer(seconds * self.chains * self.kept * thin, text, run_again)

    def warm_up(self) -> None:
        """Make short runs to adapt the size of each cell's moves and the choice of patterns."""
        for _ in range(WARM_UP_RUNS):
            self.tune(self.run(25, 2))

    def tune(self, run: NDArray[np.int64]) -> None:
        """Adapt the size of moves to a run, and prefer patterns of moves that change counts most."""
        self.spans = np.maximum(2 * run.astype(float).std(axis=(0, 1)), 1.0)
        self.worth = self.far / np.array([1, 2, 4, 4])[self.moves.kinds] + 1e-12

    def diagnosed(self, run: NDArray[np.int64]) -> dict[str, Any]:
        """Return the convergence diagnostics of single counts and of the monitored sums."""
        watched = np.concatenate([run[:, :, self.moves.active], self._sums(run)], axis=2)
        r_hat, ess = diagnose(watched)
        tails = tail_sizes(watched)
        sd = watched.std(axis=(0, 1))
        limit = r_hat_by_chance(watched.shape[2], AIMED_EFFECTIVE_SIZE)
        self.lacks = float(max(AIMED_EFFECTIVE_SIZE / ess.min(), AIMED_EFFECTIVE_SIZE / 4 / tails.min()))
        return {
            "sweeps": self.sweeps,
            "thinned_by": self.thin,
            "steps_that_moved": self.moved,
            "largest_r_hat": float(r_hat.max()),
            "r_hat_allowed": limit,
            "smallest_ess": float(ess.min()),
            "smallest_tail_ess": float(tails.min()),
            "largest_mcse_in_sds": float(1 / np.sqrt(ess[sd > 0].min(initial=np.inf))),
            "moves_known_to_connect": self.connected,
            "watched": watched.shape[2],
            "passed": bool(
                r_hat.max() <= r_hat_by_chance(watched.shape[2], MIN_EFFECTIVE_SIZE)
                and ess.min() >= MIN_EFFECTIVE_SIZE
                and tails.min() >= MIN_EFFECTIVE_SIZE / 4
            ),
            "aimed": bool(
                r_hat.max() <= limit
                and ess.min() >= AIMED_EFFECTIVE_SIZE
                and tails.min() >= AIMED_EFFECTIVE_SIZE / 4
            ),
        }

    def _sums(self, run: NDArray[np.int64]) -> NDArray:
        """Return the draws of the monitored sums in a run."""
        flat = run.reshape(-1, run.shape[2])
        return np.asarray((self.watched @ flat.T).T).reshape(*run.shape[:2], -1)


def _watched(state: LinearProblem) -> Any:
    """Return a row for each monitored sum: totals of places, also by attribute, and measured sums."""
    cells = state.cells
    kept = cells.coarsest.attributes
    each = [(), *((a.name,) for a in cells.attributes if a.partition)]
    all_margins = [Margin(level, (*kept, *more)) for more in each for level in cells.tree.levels]
    measured = [canonical(cells, h.margin) for h in state.headers]
    several = [m for m in dict.fromkeys([*all_margins, *measured]) if canonical(cells, m) != cells.finest]
    sizes = np.cumsum([cells.size(m) for m in several])
    rows = [margin_rows(cells, m) for m, size in zip(several, sizes) if size <= MOST_WATCHED]
    return scipy.sparse.vstack([scipy.sparse.csr_array((0, cells.n)), *rows], format="csr")


START_SDS = 3
"""Distance of chains' starts from the centre of a rough posterior, in its standard deviations."""
START_SECONDS, MIN_START_SECONDS = 60.0, 1.0
"""Seconds in which a table to start from is sought, and those that are left to it past a deadline."""


def starts_apart(
    state, values, problem: RowProblem, centre, wide, rngs, deadline: Deadline
) -> list[NDArray[np.int64]]:
    """Return starting tables that lie far apart, each pair at opposite ends."""
    starts, away = [], np.zeros(len(centre))
    for chain, rng in enumerate(rngs):
        away = (
            -away
            if chain % 2
            else START_SDS * rng.normal(size=len(centre)) * np.minimum(wide, 1 + np.abs(centre))
        )
        starts.append(start_near(state, values, problem, centre + away, deadline))
    return starts


def start_near(state, values, problem: RowProblem, target: NDArray, deadline: Deadline) -> NDArray[np.int64]:
    """Return a table near a target that satisfies all hard rules, searched for in a limited time."""
    seconds = min(START_SECONDS, max(deadline.left(), MIN_START_SECONDS))
    low, high = problem.box
    target = np.clip(np.rint(target), low, high)
    matrix, least, most = problem.limits
    if not matrix.shape[0]:
        return target.astype(np.int64)
    n, one = len(target), scipy.sparse.eye_array(len(target), format="csr")
    # |x - target| lies below a variable of its own, which is minimised.
    rows = scipy.sparse.block_array([[matrix, None], [one, -one], [one, one]], format="csr")
    ends = (
        np.concatenate([least, np.full(n, -np.inf), target]),
        np.concatenate([most, target, np.full(n, np.inf)]),
    )
    found: Any = scipy.optimize.milp(
        np.concatenate([np.zeros(n), np.ones(n)]),
        constraints=scipy.optimize.LinearConstraint(rows, *ends),
        integrality=np.concatenate([np.ones(n), np.zeros(n)]),
        bounds=scipy.optimize.Bounds(
            np.concatenate([low, np.zeros(n)]), np.concatenate([high, np.full(n, np.inf)])
        ),
        options={"time_limit": seconds, "mip_rel_gap": 0.2},
    )
    if found.x is None:
        if found.status == 2:
            raise no_counts(state, values)
        raise ConvergenceError(
            f"no table of {n:,} counts that satisfies all rules was found in {seconds:.0f} s",
            needed="fewer counts: at most some thousands if rules overlap",
            remedy="infer one place or one table, or relax a rule; for standard errors alone, `trueup release` takes tables of "
            "any size",
        )
    return np.clip(np.rint(found.x[:n]), low, high).astype(np.int64)


def no_counts(state: LinearProblem, values: NDArray) -> InfeasibleError:
    """Return the error that no table agrees with the exact values, naming contradictory rows if found."""
    error = state.conflict(values, integer=True)
    return error or InfeasibleError(
        "no table of whole numbers satisfies the constraints within the bounds of the noise",
        remedy="check that the noise laws, values and constraints belong to the same tables",
    )
