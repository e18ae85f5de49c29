"""Running of Markov chains until their diagnostics pass or their time is spent.

*How long is enough.* An interval between two quantiles of S independent draws holds a mass of mean 1 - alpha and standard
deviation sqrt(alpha (1 - alpha) / S): 3 points of a 90 % interval at S = 100. By the curvature of the law at its ends it holds
z alpha / 2 (1 - alpha / 2) / (S f(z)) less on average, z its end and f the density there: .76 / S under a normal law, less
than a point at S = 100. So intervals hold about as often as stated. That size is `MIN_EFFECTIVE_SIZE`. A table passes if at
least `MIN_SUFFICIENT_SHARE` of its counts have it, with an R-hat within the limit of chance; in a small table all counts must.
Counts that fall short are counted, and the worst are named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, SpecError
from trueup.files.memory import available
from trueup.inferring.chains import ChainLimit, OutOfTimeError, thinned, told_in_draws
from trueup.inferring.method import Progress, announce
from trueup.model.records.drawn import Drawn
from trueup.model.tree import Tree
from trueup.run import Deadline, cores, told_time

MOST_APART = 2.0
"""Largest R-hat of chains that time ended and that still give a rough answer: their starts are well forgotten."""
MIN_EFFECTIVE_SIZE, MIN_SUFFICIENT_SHARE = 100.0, 0.95
"""Effective size of a count that its interval needs, and the share of a table's counts that must have it."""


def told_cost(seconds: float, memory: float) -> str:
    """Return the predicted time and memory (bytes) of chains as text."""
    return f"{told_time(seconds)} and {memory / 1e9:.1f} GB"


def refuse_forecast(
    text: str, seconds: float, memory: float, deadline: Deadline, remedy: str, other: str = ""
) -> None:
    """Refuse chains that are predicted to take more time than is left, or more memory (bytes) than there is.

    Parameters
    ----------
    text, seconds
        The prediction in words; wall time.
    remedy, other
        Advice that saves time and memory; further advice that saves time, if there is any.
    """
    if seconds > (left := deadline.left()):
        raise SpecError(
            f"{text}; that is longer than the {told_time(max(left, 0.0))} left of {deadline.allowed / 60:g} minutes",
            remedy=f"{other}allow more `minutes`, or {remedy}",
        )
    if memory > (there := available()):
        raise SpecError(f"{text}, but only {there / 1000000000.0:.1f} GB are free", remedy=remedy)


def ask_for_less(tree: Tree) -> str:
    """Return advice, as text, to infer one place of a tree or to ask for fewer draws."""
    place = f"{tree.levels[-2]}={tree.label(tree.levels[-2], 0)}" if len(tree.levels) > 1 else ""
    within = f"infer one place with all below it (`--within '{place}'`, any level), or " if place else ""
    return f"{within}ask for fewer draws"


class Longer(NamedTuple):
    """A proposed longer run of Markov chains.

    Attributes
    ----------
    seconds
        Processor seconds that this is predicted to take, for all chains together.
    text
        The amount by which the run grows, in words.
    run
        Does it: `(chains, kept, n)` draws.
    """

    seconds: float
    text: str
    run: Callable[[Progress], NDArray]


class Engine(Protocol):
    """The interface of a set of Markov chains that can be run, diagnosed and run for longer."""

    @property
    def limit(self) -> ChainLimit:
        """Return the time limit of the chains."""
        ...

    @property
    def chains(self) -> int:
        """Return the number of parallel chains."""
        ...

    def diagnosed(self, run: NDArray) -> dict[str, Any]:
        """Return a run's diagnostics: `smallest_ess`, `largest_r_hat`, `r_hat_allowed` and `passed`; some engines add `aimed`."""
        ...

    def longer(self, run: NDArray, found: Mapping[str, Any]) -> Longer | None:
        """Return a proposal for a longer run, or None if the run has reached its largest length."""
        ...


@dataclass(frozen=True, eq=False)
class Judged:
    """A run of chains with its diagnostics.

    Attributes
    ----------
    first, run
        Draws `(chains, kept, n)` of the first run, and of the last one that was finished.
    found
        Its diagnostics.
    late
        True if time ended the run.
    """

    first: NDArray
    run: NDArray
    found: dict[str, Any]
    late: bool

    @property
    def enough(self) -> bool:
        """Return True if the run passed its diagnostics, so that its draws may be called a posterior."""
        return self.found["passed"]

    def drawn(self, draws: int, sweeps: int, remedy: str, *, weak: bool, connected: bool) -> Drawn:
        """Return the draws with their record; those of a too short run are approximate if they may be `weak`, else refused."""
        chains, approximate, refused = len(self.run), "", ""
        if not self.enough and weak:
            approximate = not_converged(chains, sweeps, self.found)
        elif not self.enough:
            refused = chains_too_short(sweeps, self.found, remedy)
        tier = "approximate" if approximate else "chains"
        return Drawn(
            thinned(self.run, draws),
            independent=False,
            connected=connected,
            refused=refused,
            approximate=approximate,
            stats={"draws": draws, "interrupted": False, "chains": chains, "tier": tier, **self.found},
        )

    @property
    def rough(self) -> bool:
        """Return True if time ended the run and the chains agree well enough for a rough answer."""
        return self.late and self.found["largest_r_hat"] <= MOST_APART


def until_long_enough(
    engine: Engine, first: Callable[[Progress], NDArray], draws: int, progress: Progress
) -> Judged:
    """Run chains for longer and longer, until they pass, reach their largest length, or run out of time.

    Parameters
    ----------
    first
        Warms chains up, and makes the first run.

    Raises
    ------
    OutOfTimeError
        If time is spent before the first run is finished.
    """
    tell = told_in_draws(progress, draws)
    begun = run = first(tell)
    while True:
        announce(progress, "comparing the Markov chains")
        found = engine.diagnosed(run)
        if found["passed"] and found.get("aimed", True):
            return Judged(begun, run, found, False)
        longer = engine.longer(run, found)
        if longer is None:
            return Judged(begun, run, found, False)
        if not engine.limit.allows(longer.seconds, engine.chains):
            return Judged(begun, run, found, True)
        wall = longer.seconds / min(engine.chains, cores())
        announce(
            progress,
            f"the Markov chains are too short; {longer.text}, {engine.limit.deadline.in_all(wall)} predicted",
        )
        try:
            run = longer.run(tell)
        except OutOfTimeError:
            return Judged(begun, run, found, True)


def out_of_time(method: str, sweeps: int, deadline: Deadline, remedy: str) -> ConvergenceError:
    """Return the error for time that was spent before chains had any result."""
    return deadline.spent(method, f"{sweeps:,} sweeps of its first run", remedy)


def chains_too_short(sweeps: int, found: Mapping[str, Any], remedy: str) -> str:
    """Return the reason, as text, for refusing a run of Markov chains that is too short."""
    return (
        f"after {sweeps:,} sweeps R-hat is {found['largest_r_hat']:.3f} (at most {found['r_hat_allowed']:.3f} is allowed) "
        f"and the smallest effective size {found['smallest_ess']:.0f} (at least {MIN_EFFECTIVE_SIZE:.0f} is needed)"
        f"{_short(found)}; {remedy}"
    )


def not_converged(chains: int, sweeps: int, found: Mapping[str, Any]) -> str:
    """Return a sentence about chains that are kept although they have not converged."""
    return (
        f"Tier 'approximate': {chains} Markov chains of {sweeps:,} sweeps that have not converged (largest R-hat "
        f"{found['largest_r_hat']:.2f}, smallest effective size {found['smallest_ess']:.0f}{_short(found)}): "
        "intervals are rough, and would differ with another seed."
    )


def _short(found: Mapping[str, Any]) -> str:
    short = found.get("counts_that_fall_short", 0)
    return f"; {short:,} of {found['watched']:,} counts fail these limits" if short else ""


@dataclass
class Verdict:
    """Convergence diagnostics collected table by table, which show whether a run of chains is long enough.

    Attributes
    ----------
    allowed
        The largest R-hat that counts reach by chance.
    lacking
        Factor by which the run is too short: `MIN_EFFECTIVE_SIZE` over the size that all but the slowest counts have.

    Examples
    --------
    >>> verdict = Verdict(1.05)
    >>> verdict.add(np.full(40, 1.0), np.append(np.full(39, 200.0), 50.0), lambda i: f"count {i}")
    >>> verdict.passed, verdict.found["counts_that_fall_short"], verdict.found["fall_short_most"]
    (True, 1, ['count 39'])
    """

    allowed: float
    worst: float = 1.0
    least: float = np.inf
    watched: int = 0
    short: int = 0
    lacking: float = 1.0
    passed: bool = True
    named: tuple[tuple[float, str], ...] = ()

    def add(self, r_hat: NDArray, ess: NDArray, label: Callable[[int], str]) -> None:
        """Add the diagnostics of one table, in which `label` names the count at a position."""
        self.worst, self.least = max(self.worst, float(r_hat.max())), min(self.least, float(ess.min()))
        bad = np.flatnonzero(~((r_hat <= self.allowed) & (ess >= MIN_EFFECTIVE_SIZE)))
        self.watched, self.short = self.watched + len(ess), self.short + len(bad)
        self.passed = self.passed and len(bad) <= (1 - MIN_SUFFICIENT_SHARE) * len(ess)
        common = np.quantile(ess, 1 - MIN_SUFFICIENT_SHARE, method="inverted_cdf")
        self.lacking = max(self.lacking, MIN_EFFECTIVE_SIZE / max(float(common), 1.0))
        first = bad[np.argsort(ess[bad])[:MAX_NAMED_COUNTS]]
        found = [*self.named, *((float(ess[i]), label(int(i))) for i in first)]
        self.named = tuple(sorted(found)[:MAX_NAMED_COUNTS])

    @property
    def found(self) -> dict[str, Any]:
        """Return the diagnostics for the record."""
        return {
            "largest_r_hat": self.worst,
            "r_hat_allowed": self.allowed,
            "smallest_ess": self.least,
            "watched": self.watched,
            "passed": self.passed,
            "lacking": self.lacking,
            "counts_that_fall_short": self.short,
            "fall_short_most": [name for _, name in self.named],
        }


MAX_NAMED_COUNTS = 5
"""Counts that fall short and are named."""
