"""Markov chains side by side in threads, whatever they walk on: how they run, what says that they agree, which draws are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.files.memory import available
from trueup.inferring.method import Progress
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.model.prior import Hierarchical
from trueup.model.tree import Tree
from trueup.run.local import cores

ESS = 400.0
"""Effective size that every watched number needs before draws are called a posterior."""
FEWEST = 1000
"""Draws that the diagnostics rest on, at least."""
AWAY = 1.0
"""Standard deviations of noise that are added to the noisy values where chains start, so that they start apart."""
CHUNK = 1 << 22
"""Draws of counts that are diagnosed at a time."""
LISTENING = 0.2
"""Seconds between two looks at an interruption."""


def refuses_settings(prior: Hierarchical, chains: int, of: str) -> str | None:
    """Say what chains that draw their concentrations do not take; None if it is fine. `of` names what the second is of."""
    if prior.shares != "uniform" or prior.covariates or prior.total.name != "flat":
        return "of the prior's parameters it takes concentrations alone"
    if len(prior.concentrations) not in (0, 2):
        return f"it takes two concentrations: of totals and of {of}"
    return "it compares chains, so it takes two or more" if chains < 2 else None


def told_cost(seconds: float, memory: float) -> str:
    """Say what time and memory (bytes) chains are predicted to take."""
    time = f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"
    return f"{time} and {memory / 1e9:.1f} GB"


def refuse_forecast(
    text: str, seconds: float, memory: float, minutes: float, tree: Tree, other: str = ""
) -> None:
    """Refuse chains that are predicted to take longer than `minutes`, or more memory (bytes) than there is.

    Parameters
    ----------
    text
        The prediction in words.
    other
        What else would take less time, if anything.

    Raises
    ------
    SpecError
        With what to do.
    """
    place = f"{tree.levels[-2]}={tree.label(tree.levels[-2], 0)}"
    remedy = f"infer one place with all below it (`--within '{place}'`, any level), or ask for fewer draws"
    if seconds > 60 * minutes:
        raise SpecError(
            f"{text}, longer than {minutes:g} minutes", remedy=f"{other}allow more `minutes`, or {remedy}"
        )
    if memory > (there := available()):
        raise SpecError(f"{text}, and {there / 1e9:.1f} GB are free", remedy=remedy)


def run_side_by_side(
    chain: Callable[[int], object],
    done: Sequence[int],
    of: int,
    tell: Progress,
    stop: Callable[[], object],
) -> None:
    """Run chains in threads, one number of `done` each; an interruption calls `stop`, for which they must look.

    Parameters
    ----------
    chain
        Runs the chain of a number.
    done, of
        The sweeps that each has made, which it writes there; how many all make together.
    """
    with ThreadPoolExecutor(min(len(done), cores())) as pool:
        running = [pool.submit(chain, number) for number in range(len(done))]
        try:
            _listen(running, done, of, tell)
        except BaseException:  # the other chains would run on
            stop()
            raise


def _listen(running: list[Future], done: Sequence[int], of: int, tell: Progress) -> None:
    """Wait for chains, and say how far they are after every twentieth of the way."""
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


def diagnosed_in_pieces(values: NDArray) -> tuple[NDArray, NDArray]:
    """R-hat and effective sizes of draws `(chains, draws, k)`, some of the numbers at a time."""
    step = max(1, CHUNK // (values.shape[0] * values.shape[1]))
    found = [diagnose(values[:, :, i : i + step]) for i in range(0, values.shape[2], step)]
    r_hat, ess = (np.concatenate(part) for part in zip(*found))
    return r_hat, ess


def chains_agree(found: Mapping[str, Any]) -> bool:
    """Whether a run's diagnostics allow to call its draws a posterior."""
    return found["smallest_ess"] >= ESS and found["largest_r_hat"] <= found["r_hat_allowed"]


def chains_too_short(sweeps: int, found: Mapping[str, Any], remedy: str) -> str:
    """Say why a run is refused."""
    return (
        f"after {sweeps:,} sweeps R-hat is {found['largest_r_hat']:.3f} (at most {found['r_hat_allowed']:.3f} is asked for) "
        f"and the smallest effective size {found['smallest_ess']:.0f} (at least {ESS:.0f}); {remedy}"
    )


def thinned(run: NDArray, draws: int) -> NDArray:
    """Return as many draws as are asked for, evenly from all chains `(chains, kept, n)`; all where there are fewer."""
    chains, kept = run.shape[:2]
    each = min(-(-draws // chains), kept)
    if each == kept:  # a copy may be as large as all else
        return run
    return run[:, np.linspace(0, kept - 1, each).round().astype(int)]


def told_in_draws(progress: Progress, draws: int) -> Progress:
    """Tell of sweeps in draws."""
    return lambda done, of: progress(done * draws // of, draws)
