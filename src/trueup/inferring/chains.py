"""Common code of Markov chains run side by side in threads: time limits, convergence diagnostics, and thinning of draws."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.files.memory import available
from trueup.inferring.method import Progress
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.model.prior import Hierarchical
from trueup.model.tree import Tree
from trueup.run import Deadline, told_time
from trueup.run.local import cores

ESS = 400.0
"""Effective size of every watched number at which chains are not made longer."""
MIN_DIAGNOSED_DRAWS = 1000
"""Draws that the diagnostics rest on, at least."""
AWAY = 1.0
"""Standard deviations of noise that are added to the noisy values where chains start, so that they start apart."""
CHUNK = 1 << 22
"""Draws of counts that are diagnosed at a time."""
LISTENING = 0.2
"""Seconds between two looks at an interruption."""


def refuses_settings(prior: Hierarchical, of: str, chains: int = 2) -> str | None:
    """Return the reason why settings do not suit chains that draw their concentrations, or None; `of` names the second one."""
    if prior.shares != "uniform" or prior.covariates or prior.total.name != "flat":
        return "of the prior's parameters it takes concentrations alone"
    if len(prior.concentrations) not in (0, 2):
        return f"it takes two concentrations: of totals and of {of}"
    return "it compares chains, so it takes two or more" if chains < 2 else None


def told_cost(seconds: float, memory: float) -> str:
    """Return the predicted time and memory (bytes) of chains in words."""
    return f"{told_time(seconds)} and {memory / 1e9:.1f} GB"


class OutOfTimeError(Exception):
    """Chains stopped because their time is spent; the caller decides what follows."""


@dataclass
class ChainLimit:
    """The time that chains may take.

    Attributes
    ----------
    deadline
        In wall time.
    processor
        Seconds of a processor, all threads together, that they may take from now on.
    """

    deadline: Deadline = field(default_factory=Deadline.of)
    processor: float = math.inf
    began: float = field(default_factory=time.process_time)

    @property
    def passed(self) -> bool:
        """Return True if either limit is reached."""
        return self.deadline.passed or time.process_time() - self.began >= self.processor

    def allows(self, processor: float, chains: int) -> bool:
        """Return True if so many seconds of processor time of that many parallel chains fit in the time left."""
        wall = processor / min(chains, cores())
        return wall <= self.deadline.left() and processor <= self.processor - (
            time.process_time() - self.began
        )


def refuse_forecast(
    text: str, seconds: float, memory: float, deadline: Deadline, tree: Tree, other: str = ""
) -> None:
    """Refuse chains that are predicted to take more time than is left, or more memory (bytes) than there is.

    Parameters
    ----------
    text
        The prediction in words.
    seconds
        Of wall time.
    other
        What else would take less time, if anything.
    """
    place = f"{tree.levels[-2]}={tree.label(tree.levels[-2], 0)}" if len(tree.levels) > 1 else ""
    within = f"infer one place with all below it (`--within '{place}'`, any level), or " if place else ""
    remedy = f"{within}ask for fewer draws"
    if seconds > (left := deadline.left()):
        minutes = f"{deadline.allowed / 60:g} minutes"
        raise SpecError(
            f"{text}, longer than the {told_time(max(left, 0.0))} that are left of {minutes}",
            remedy=f"{other}allow more `minutes`, or {remedy}",
        )
    if memory > (there := available()):
        raise SpecError(f"{text}, and {there / 1e9:.1f} GB are free", remedy=remedy)


def run_side_by_side(
    chain: Callable[[int], object],
    done: Sequence[int],
    of: int,
    tell: Progress,
    stop: Callable[[], object],
    limit: ChainLimit,
) -> None:
    """Run chains in threads, one counter of `done` each; an interruption calls `stop`, which the chains must check.

    Parameters
    ----------
    chain
        Runs the chain of a number.
    done, of
        The sweeps that each has made, which it writes there; how many all make together.
    """
    if limit.passed:
        raise OutOfTimeError
    with ThreadPoolExecutor(min(len(done), cores())) as pool:
        running = [pool.submit(chain, number) for number in range(len(done))]
        try:
            _listen(running, done, of, tell, limit)
        except BaseException:  # the other chains would run on
            stop()
            raise


def _listen(running: list[Future], done: Sequence[int], of: int, tell: Progress, limit: ChainLimit) -> None:
    """Wait for chains, and report progress after every twentieth of the way."""
    told = 0
    while True:
        finished, left = wait(running, timeout=LISTENING)
        for each in finished:
            each.result()
        if not left or sum(done) >= told + of / 20:
            told = sum(done)
            tell(told, of)
        if not left:
            return
        if limit.passed:
            raise OutOfTimeError


def diagnosed_in_pieces(values: NDArray) -> tuple[NDArray, NDArray]:
    """Return R-hat and effective sample sizes of draws `(chains, draws, k)`, computed for some quantities at a time."""
    step = max(1, CHUNK // (values.shape[0] * values.shape[1]))
    found = [diagnose(values[:, :, i : i + step]) for i in range(0, values.shape[2], step)]
    r_hat, ess = (np.concatenate(part) for part in zip(*found))
    return r_hat, ess


def thinned(run: NDArray, draws: int) -> NDArray:
    """Return as many draws as are asked for, evenly from all chains `(chains, kept, n)`; all if there are fewer."""
    chains, kept = run.shape[:2]
    each = min(-(-draws // chains), kept)
    if each == kept:  # a copy may be as large as all else
        return run
    return run[:, np.linspace(0, kept - 1, each).round().astype(int)]


def told_in_draws(progress: Progress, draws: int) -> Progress:
    """Return a progress function that reports sweeps as draws."""
    return lambda done, of: progress(done * draws // of, draws)
