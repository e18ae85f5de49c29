"""Parallel Markov chains on the histograms of a hierarchy, with their convergence diagnostics.

One file: what chains draw, what they save to go on from, and what judges them are the same arrays.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.inferring.chain_driver import MIN_EFFECTIVE_SIZE, Verdict
from trueup.inferring.chains import (
    MAX_DRAWS_DIAGNOSED_AT_ONCE,
    START_NOISE_DEVIATIONS,
    ChainLimit,
    Checkpoint,
    OutOfTimeError,
    diagnosed_in_pieces,
    run_side_by_side,
)
from trueup.inferring.method import Progress
from trueup.kernel.histogram import marginalise
from trueup.kernel.settling.split_draws import HYPERPRIOR
from trueup.kernel.statistics.diagnostics import described_draws, described_slopes, r_hat_by_chance
from trueup.kernel.table_walks.columns import ChainState, Directions, TreeMessages
from trueup.kernel.table_walks.rate_moves import histogram_sweeps
from trueup.layouts.columns import ColumnProblem
from trueup.model.cells import Cells, Margin
from trueup.model.nested import reported_margins
from trueup.model.prior import FLAT
from trueup.run import Deadline, cores

CELLS_AT_ONCE = 100_000
"""Cells that are moved in one go, in several sweeps: an interruption waits for them."""
LISTENING = 0.1
"""Seconds of a processor that these may take, by the last run: where many tables were measured a cell takes longer."""
STEPS_AT_ONCE = 300_000
"""Steps of places along directions that are made in one go of one sweep, for the same reason: a fifth of a second."""
MAX_ROUNDED_SHARE = 0.5
"""Share of steps that rounding may leave out. One that has no mass left is as if rejected, whichever table of its window is the
present one, which keeps the law: chains move less, which their sizes say. Where most are left out they hardly move."""
MAX_TOTAL_IN_32_BITS = 1 << 29
"""Total up to which counts are kept in 32 bits: chains may come to twice as many."""
MIN_TIMED_SECONDS = 0.05
"""Seconds of a processor that a run must take to say what wall time it takes."""
RATE_AT_FIRST = 0.1
"""First rate of uninhabited places, at every level."""


class _Part(NamedTuple):
    """The share of one chain in a run: its name in checkpoints, first draw, thinning and draws."""

    run: str
    first: int
    thin: int
    out: NDArray


@dataclass(eq=False)
class HistogramWalk:
    """The Markov chains on the histograms of one problem.

    Attributes
    ----------
    problem, moves
        Places and tables; directions.
    rngs, states
        A generator and a state of each chain.
    learn
        True to draw concentrations, factors and the rates of uninhabited places as well as compositions.
    keep
        Checkpoints, where there are to be any.
    stages
        Stages in which the directions of a sweep are taken; a draw may be kept after each.
    taken, limit
        Stages of each chain so far; the time limit of the chains.
    left_out
        Directions of each chain left out because rounding left no mass.
    stopped, concentrations
        True if the run was interrupted; `(chains, kept, p)` concentrations of the last run's draws, with the mean rate of
        uninhabited places and coefficients of covariates.
    spent, seconds, slower
        Seconds of a processor: of each chain in the last run, and of a sweep of one chain there; how many times as long that
        takes in wall time, as others use the processors too.
    """

    problem: ColumnProblem
    moves: Directions
    rngs: list[np.random.Generator]
    states: list[ChainState]
    learn: bool = True
    keep: Checkpoint | None = None
    stages: int = 1
    taken: int = 0
    limit: ChainLimit = field(default_factory=ChainLimit)
    left_out: list[int] = field(default_factory=list)
    stopped: bool = False
    spent: list[float] = field(default_factory=list)
    seconds: float = 0.0
    slower: float = 1.0
    concentrations: NDArray = field(default_factory=lambda: np.zeros((0, 0, 0)))

    @classmethod
    def of(
        cls,
        problem: ColumnProblem,
        rngs: list[np.random.Generator],
        given: Sequence[float] = (),
        deadline: Deadline | None = None,
    ) -> HistogramWalk:
        """Start chains at different tables: a default release, and releases of values with more noise.

        Parameters
        ----------
        given
            Concentrations of totals and of cells, and perhaps the rate of uninhabited places (none without it), factors 1; if
            empty, all are learnt.
        """
        parameters = given or (HYPERPRIOR.a, HYPERPRIOR.kappa, RATE_AT_FIRST)
        # All starts before any state: a start takes more memory than a state, and what it leaves free is in pieces.
        limit = ChainLimit(deadline or Deadline.of())
        starts = [
            _start(problem, rng, START_NOISE_DEVIATIONS * (chain > 0), limit.deadline)
            for chain, rng in enumerate(rngs)
        ]
        wide = max(int(x.sum(dtype=np.int64)) for x in starts) > MAX_TOTAL_IN_32_BITS
        starts = [x.astype(np.int64 if wide else np.int32) for x in starts]
        moves = problem.moves(starts)
        states = [problem.state(x, *parameters) for x in starts]
        return cls(problem, moves, rngs, states, not given, limit=limit)

    def run(
        self,
        kept: int,
        thin: int,
        tell: Progress,
        *,
        saved: bool = False,
        before: NDArray | None = None,
        least: int | None = None,
    ) -> NDArray:
        """Move every chain by `kept * thin` stages; return draws `(chains, kept, n)` in the smallest integer type that fits.

        An interruption ends all chains within a sweep, or some short ones. A run to be `saved` leaves checkpoints, where there
        are to be any, and goes on from those that it has left. Draws `before` it, whose `concentrations` stand, are its first.
        If time ends the run, the draws made so far are returned, if each chain has at `least` so many.
        """
        keep = self.keep if saved else None
        self.left_out = self.left_out or [0] * len(self.states)
        threads = min(len(self.states), cores())
        out = np.empty((len(self.states), kept, self.problem.cells.n), self._type())
        levels = len(self.problem.cells.tree.levels)
        first = 0 if before is None else before.shape[1]
        learnt = np.empty((len(self.states), kept, 2 * levels - 1 + len(self.states[0].slope)))
        if before is not None:
            out[:, :first], learnt[:, :first] = before, self.concentrations
        self.concentrations = learnt
        self.taken -= first * thin
        self.spent = [0.0] * len(self.states)
        at = [first] * len(self.states) if keep is None else self._resumed(keep, thin, out, first)
        done, works = [thin * n for n in at], SimpleQueue()
        for _ in range(threads):
            works.put(self.problem.work())
        name = run_name(out, thin) if keep else ""
        began = time.monotonic()
        try:
            run_side_by_side(
                self,
                lambda c: self._chain(c, _Part(name, at[c], thin, out[c]), works, done),
                done,
                kept * thin,
                tell,
            )
        except OutOfTimeError:
            if least is None:
                raise
            chosen, kept = self._come_far(np.array(done) // thin, least)
            out, self.concentrations = out[chosen, :kept], learnt[chosen, :kept]
        spent, made = sum(self.spent), sum(done) - thin * sum(at)
        if spent > MIN_TIMED_SECONDS:
            self.slower = max(1.0, (time.monotonic() - began) * threads / spent)
        self.taken += kept * thin
        self.seconds = self.stages * spent / max(made, 1)
        return out

    def _come_far(self, made: NDArray[np.int64], least: int) -> tuple[list[int], int]:
        """Keep the chains with the most draws, and return their numbers and the draws common to all."""
        most = np.sort(made)[::-1]
        many = 2 + int(np.argmax(most[1:] * np.arange(2, len(made) + 1)))
        if (kept := int(most[many - 1])) < least:
            raise OutOfTimeError
        chosen = np.flatnonzero(made >= kept)[:many].tolist()
        for held in (self.states, self.rngs, self.left_out):
            held[:] = [held[c] for c in chosen]
        return chosen, kept

    def _type(self) -> Any:
        """Return the smallest integer type that holds the largest total of a place."""
        last = self.problem.places.level_ptr[-2]
        largest = max(int(state.total[last:].max(initial=0)) for state in self.states)
        return (
            np.int16
            if largest < 10_000 and self.moves.longest_single.max(initial=1.0) <= 100
            else self.states[0].x.dtype
        )

    def begun(self, chains: int, kept: int) -> int | None:
        """Return the sweeps between draws of the checkpointed run, or None if that run has another length."""
        last = self.keep.run.split("x") if self.keep else []
        return int(last[2]) if last[:2] == [str(chains), str(kept)] else None

    def _resumed(self, keep: Checkpoint, thin: int, out: NDArray, first: int) -> list[int]:
        """Restore chains from their checkpoints, and return the number of draws of each; begin a run if there are none."""
        run = run_name(out, thin)
        if run != keep.run:
            for chain in range(len(self.states)):
                self._save(run, chain, first, out[chain, :first])
            keep.begin(run)
        at = []
        for chain, state in enumerate(self.states):
            done = 0
            for piece in keep.load(run, chain, self.rngs[chain]):
                held = piece.arrays
                out[chain, done : piece.draws] = held["draws"]
                self.concentrations[chain, done : piece.draws] = held["learnt"]
                self.left_out[chain], self.taken = held["counted"].tolist()
                done = piece.draws
                for name, array in state._asdict().items():
                    array[...] = held[name]
            at.append(done)
        return at

    def _save(self, run: str, chain: int, done: int, draws: NDArray) -> None:
        """Save a chain's state, and its draws since the last checkpoint."""
        assert self.keep is not None
        learnt = self.concentrations[chain, done - len(draws) : done]
        counted = np.array([self.left_out[chain], self.taken])
        state = self.states[chain]._asdict()
        self.keep.save(
            run, chain, done, self.rngs[chain], draws=draws, learnt=learnt, counted=counted, **state
        )

    def _chain(self, chain: int, part: _Part, works: Any, done: list[int]) -> None:
        work: TreeMessages = works.get()
        began = time.thread_time()  # what others run beside it does not change what is predicted
        try:
            self._sweeps(chain, part, work, done)
        finally:
            self.spent[chain] = time.thread_time() - began
            works.put(work)  # others may wait for it, to hear that they are stopped

    def _sweeps(self, chain: int, part: _Part, work: TreeMessages, done: list[int]) -> None:
        quick = int(LISTENING / self.seconds) if self.seconds > 0.0 else CELLS_AT_ONCE
        most = max(min(CELLS_AT_ONCE // self.problem.cells.n, quick), 1) if self.stages == 1 else 1
        state, thin = self.states[chain], part.thin
        whole = max(most // thin, 1)  # draws at a time; of large problems one takes several times
        p, room = self.problem, np.zeros((2, *state.theta.shape))
        prior = p.open, p.alike, room, HYPERPRIOR, self.learn
        kept = np.empty((whole - 1, *state.x.shape), state.x.dtype)
        drawn = saved = part.first
        while drawn < len(part.out) and not self.stopped:
            here = done[chain] % thin
            count = min(most, thin * min(whole, len(part.out) - drawn) - here)
            fresh = (here + count) // thin
            learnt = self.concentrations[chain, drawn : drawn + fresh]
            if not self._move(chain, work, prior, (done[chain], count, thin), kept, learnt):
                return
            done[chain] += count
            if not fresh:
                continue
            part.out[drawn : drawn + fresh - 1] = kept[: fresh - 1].reshape(-1, state.x.size)
            drawn += fresh
            part.out[drawn - 1] = state.x.ravel()
            if part.run and self.keep and (drawn == len(part.out) or self.keep.due(chain)):
                self._save(part.run, chain, drawn, part.out[saved:drawn])
                saved = drawn

    def _move(
        self,
        chain: int,
        work: TreeMessages,
        prior: tuple[Any, ...],
        sweeps: tuple[int, int, int],
        *kept: NDArray,
    ) -> bool:
        """Run sweeps of one chain, and return False if the chain was stopped before their end.

        `prior`, `sweeps` and `kept` have the form that `histogram_sweeps` takes.
        """
        p, rng, state = self.problem, self.rngs[chain], self.states[chain]
        numbered = sweeps[0] // self.stages, *sweeps[1:]
        for part in self._parts(sweeps[0]) if sweeps[1] == 1 else ((0, self.directions, True),):
            if self.stopped:
                return False
            self.left_out[chain] += histogram_sweeps(
                rng, p.places, p.tables, self.moves, state, work, prior, numbered, part, kept
            )
        return True

    def _parts(self, taken: int) -> list[tuple[int, int, bool]]:
        """Return the ranges of directions in a stage's kernel calls, and whether a sweep ends there."""
        many, stage = -(-self.steps // (self.stages * STEPS_AT_ONCE)), taken % self.stages
        first, last = (self.directions * k // self.stages for k in (stage, stage + 1))
        if many == 1:
            return [(first, last, last == self.directions)]
        ends = np.linspace(first, last, many + 1).astype(int).tolist()
        rest = [(last, last, True)] if last == self.directions else []
        return [*((a, b, False) for a, b in pairwise(ends)), *rest]

    def diagnosed(self, run: NDArray, most: int, rng: np.random.Generator) -> dict[str, Any]:
        """Return a run's convergence diagnostics: R-hat and effective sample sizes of each table's counts.

        Parameters
        ----------
        most
            Largest number of counts of a table that are diagnosed; of a larger table, so many are chosen at random.
        """
        cells = self.problem.cells
        sizes = (min(cells.size(margin), most) for margin in self.margins)
        verdict = Verdict(r_hat_by_chance(sum(sizes), MIN_EFFECTIVE_SIZE, 2 * len(run)))
        for level, margins in groupby(self.margins, lambda margin: margin.level):
            for margin, some, r_hat, ess in sizes_of(cells, run, level, margins, most, rng):
                verdict.add(r_hat, ess, lambda i, m=margin, s=some: cells.margin_label(m, int(s[i])))
        a = self.concentrations.reshape(-1, self.concentrations.shape[2])
        names = [
            f"{what} of '{lv}'" for what in ("totals", "cells") for lv in self.problem.cells.tree.levels[1:]
        ]
        return {
            "sweeps": self.sweeps,
            **verdict.found,
            "moves_known_to_connect": self.problem.connected,
            "directions_left_out": sum(self.left_out),
            "concentrations": {name: described_draws(x) for name, x in zip(names, a.T)},
            "uninhabited": described_draws(a[:, len(names)]),
            **described_slopes(self.problem.public.names, a[:, len(names) + 1 :]),
        }

    @property
    def sweeps(self) -> int:
        """Return the number of whole sweeps that each chain has made."""
        return self.taken // self.stages

    @property
    def directions(self) -> int:
        """Return the number of directions along which a sweep moves every table."""
        return len(self.moves.singles) + int(self.moves.turns.sum())

    @property
    def steps(self) -> int:
        """Return the number of steps at lowest places in a sweep, to which its time is proportional."""
        return self.directions * self.problem.cells.shape[0]

    @property
    def rounded(self) -> str:
        """Return why draws are refused if rounding prevented too many steps, else an empty text."""
        left = sum(self.left_out)
        tried = self.directions * self.taken * len(self.states) // self.stages
        if left <= MAX_ROUNDED_SHARE * tried:
            return ""
        return f"rounding errors prevented {left:,} of {tried:,} steps; infer one place, or use method 'lattice-moves'"

    @property
    def margins(self) -> tuple[Margin, ...]:
        """Return the margins whose posterior tables are reported."""
        return reported_margins(self.problem.cells, [h.margin for h in self.problem.headers])


def run_name(out: NDArray, thin: int) -> str:
    """Return the name of a run in checkpoints, from its numbers of chains, draws and sweeps between draws."""
    return f"{out.shape[0]}x{out.shape[1]}x{thin}"


def _start(
    problem: ColumnProblem, rng: np.random.Generator, away: float, deadline: Deadline
) -> NDArray[np.int64]:
    """Return a starting table: the default release, or else whole numbers near the least-squares counts."""
    try:
        return problem.start(rng, away)
    except ConvergenceError:  # seldom: what the general chains need is not imported before
        from trueup.inferring.walk import start_near
        from trueup.layouts.linear import LinearProblem
        from trueup.layouts.rows import RowProblem

        linear = LinearProblem(problem.constraints, problem.headers)
        values = np.concatenate(problem.values)
        rows = RowProblem.of(linear, values, FLAT)
        found = start_near(linear, values, rows, rows.estimate()[0], deadline)
        return found.reshape(problem.cells.shape[0], -1)


def sizes_of(
    cells: Cells, run: NDArray, level: str, margins: Iterable[Margin], most: int, rng: np.random.Generator
) -> Iterator[tuple[Margin, NDArray, NDArray, NDArray]]:
    """Yield each table of a level, with its groups and their R-hat and effective sample sizes."""
    last = level == cells.tree.levels[-1]
    tables = run.reshape(*run.shape[:2], cells.shape[0], -1) if last else _place_tables(cells, run, level)
    if (
        tables.size < MAX_DRAWS_DIAGNOSED_AT_ONCE
    ):  # draws of a count side by side are summed and compared several times as fast
        tables = np.ascontiguousarray(tables.transpose(2, 3, 0, 1)).transpose(2, 3, 0, 1)
    for margin in margins:
        some = max(most * tables.shape[2] // cells.size(margin), 1) if last else tables.shape[2]
        own, rows = tables, np.arange(tables.shape[2])
        if some < tables.shape[2]:
            rows = np.sort(rng.choice(tables.shape[2], some, replace=False))
            own = tables[:, :, rows]
        values = marginalise(own, cells.marginal(margin.attributes)).reshape(*run.shape[:2], -1)
        each = values.shape[2] // len(rows)
        groups = (rows[:, None] * each + np.arange(each)).ravel()
        yield margin, groups, *diagnosed_in_pieces(values)


def _place_tables(cells: Cells, run: NDArray, level: str) -> NDArray:
    """Return draws of the tables of one level's places, `(chains, draws, places, cells)`."""
    finest = Margin(level, cells.finest.attributes)
    step = max(
        1, MAX_DRAWS_DIAGNOSED_AT_ONCE // (run.shape[0] * cells.n)
    )  # sums of narrow counts are wide: some draws at a time
    pieces = [cells.sum(run[:, i : i + step], finest) for i in range(0, run.shape[1], step)]
    return np.concatenate(pieces, axis=1).reshape(
        *run.shape[:2], cells.tree.sizes[cells.tree.level(level)], -1
    )
