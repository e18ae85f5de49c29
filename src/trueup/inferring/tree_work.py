"""Limits on the cost of exact messages on a tree: passes are counted beforehand, time is read between evaluations."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.run import Deadline

Integers = NDArray[np.int64]

DIRECT = 1500.0
"""Counts of a window up to which each of another's entries is multiplied by all of them; wider ones take a Fourier transform."""
TRANSFORM = 40.0
"""Multiplications for each entry of a wider one, and each doubling of a family."""
RATE = 1e9
"""Multiplications in a second, at least."""
GRID_WINDOW_COUNTS = 300.0
"""Counts of a leaf's window from which on grids are as exact and many times as fast."""
BASE_SECONDS, SECONDS_A_NODE = 3.0, 2.6e-5
"""Seconds of a processor that evaluations by exact messages may take together, and that are added for each node to the power
3/2: grids take longer there, while hyperparameters of exact messages are sought on a sample."""
MAX_DEPTHS_TRIED = 4
"""Depths of tables that are tried at one point of the hyperparameters: each costs up to twice the one before."""
GRID_TIME_SHARE = 0.5
"""Share of a command's time after which trees are left to grids."""
EVALUATIONS, JUDGED, MOST_UNUSUAL = 40, 3, 2.0
"""Hyperparameters at which a tree is usually solved, of how many the least time says how long these will take, and how many
times as much of one is counted: in others kernels are compiled, or other work slows them."""


class TooCostly(Exception):
    """Exact messages that would cost more than allowed."""


@dataclass(eq=False)
class AllowedWork:
    """The time that exact messages may take.

    Attributes
    ----------
    seconds
        Of a processor that evaluations of hyperparameters may take together.
    deadline, share
        Of the command, and how much of its time may be spent: the rest is left for grids.
    tries
        How often tables are deepened for one point of the hyperparameters.
    ended, times
        Reading of the processor's clock after the last evaluation, and seconds of each but the first.
    """

    seconds: float = np.inf
    deadline: Deadline = field(default_factory=Deadline.of)
    share: float = 1.0
    tries: float = np.inf
    ended: float | None = None
    times: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, nodes: int, deadline: Deadline) -> AllowedWork:
        """Return the work allowed for a tree of so many nodes."""
        return cls(BASE_SECONDS + SECONDS_A_NODE * nodes**1.5, deadline, GRID_TIME_SHARE, MAX_DEPTHS_TRIED)

    def refuse_wide(self, low: NDArray, high: NDArray) -> None:
        """Refuse exact tables for leaves so uncertain that grids are cheaper."""
        if np.isfinite(self.seconds) and np.median(np.asarray(high, float) - low) > GRID_WINDOW_COUNTS:
            raise TooCostly

    def begin_pass(self, multiplications: float) -> None:
        """Allow one pass up the tree."""
        if multiplications > RATE * min(self.seconds, self.deadline.left(self.share)):
            raise TooCostly

    def end_evaluation(self) -> None:
        """Count one point of the hyperparameters."""
        now = time.process_time()
        if self.ended is not None:
            self.times.append(now - self.ended)
        self.ended = now
        usual = min(self.times[-JUDGED:]) if len(self.times) >= JUDGED else 0.0
        spent = sum(min(one, MOST_UNUSUAL * usual) for one in self.times)
        if spent + usual * max(EVALUATIONS - len(self.times), 0) > self.seconds:
            raise TooCostly


def spent_exactly(deadline: Deadline) -> ConvergenceError:
    """Return the error for exact messages that were asked for and take more time than there is."""
    return ConvergenceError(
        f"exact messages would take longer than the {deadline.allowed / 60:g} minutes allowed",
        remedy="take the tier 'approximate', or allow more minutes",
    )


def pass_cost(child_ptr: Integers, low: NDArray, high: NDArray) -> float:
    """Return about how many multiplications one pass up a tree with windows `low..high` takes.

    Examples
    --------
    >>> pass_cost(np.array([1, 3, 3, 3]), np.zeros(3), np.array([18.0, 9.0, 9.0])) > 200
    True
    """
    width = np.maximum(np.asarray(high, float) - np.asarray(low, float) + 1.0, 0.0)
    inner = np.flatnonzero(np.diff(child_ptr))
    if not len(inner):
        return float(width.sum())
    sums = np.add.reduceat(width[child_ptr[0] :], child_ptr[inner] - child_ptr[0])
    doublings = np.log2(np.diff(child_ptr)[inner] + 1.0)
    return float((sums * np.minimum(sums, DIRECT) + TRANSFORM * sums * doublings).sum())
