"""Chains behind the released counts of a tree: their time, predicted and held, and whether they have mixed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, SpecError
from trueup.inferring.released.tree import ReleasedTree
from trueup.kernel.released.tree import DRAWN
from trueup.kernel.statistics.diagnostics import diagnose, r_hat_by_chance
from trueup.model.records.drawn import Drawn
from trueup.run import Deadline, told_time

Integers = NDArray[np.int64]

CHAINS, MIN_DIAGNOSED_DRAWS, WARM_UP = 4, 1000, 100
TIMED_STEPS = 3
"""Steps of which the quickest predicts the time of the others; the first may compile kernels."""
ESS = 400.0
"""Effective size that every count of the tree needs before draws are called a posterior."""


def draw_tree(
    tree: ReleasedTree,
    draws: int,
    rng: np.random.Generator,
    sweeps: int,
    progress: Callable[[int, int], Any],
    deadline: Deadline,
    chain_of: Callable[[ReleasedTree, np.random.Generator], Any],
) -> Drawn:
    """Run chains, doubled until every count of the tree has mixed, or `sweeps` or the time is spent.

    Raises
    ------
    ConvergenceError
        If the time is spent before the first run is finished.
    SpecError
        If it is predicted not to be finished in time.
    """
    chains = [chain_of(tree, child).step for child in rng.spawn(CHAINS)]
    kept, thin = -(-max(draws, MIN_DIAGNOSED_DRAWS) // CHAINS), 1
    _refuse_slow(chains[0], CHAINS * (WARM_UP + kept), deadline)
    for chain in chains:
        _run(chain, WARM_UP, 1, deadline)
    while True:
        began = time.monotonic()
        run = np.empty((CHAINS, kept, tree.counts.size), np.int64)
        for i, chain in enumerate(chains):
            run[i] = _run(chain, kept, thin, deadline)
            progress(draws * (i + 1) // CHAINS, draws)
        r_hat, ess = diagnose(run)
        allowed = r_hat_by_chance(tree.counts.size, ESS)
        agree = r_hat.max() <= allowed and ess.min() >= ESS
        late = 2 * (time.monotonic() - began) > deadline.left()
        if agree or late or 2 * thin * kept > sweeps:
            break
        thin *= 2
    more = "allow more `minutes`" if late else f"allow more sweeps, sweeps = {4 * sweeps} below [infer]"
    refused = (
        ""
        if agree
        else f"R-hat {r_hat.max():.3f} (at most {allowed:.3f} is asked for), effective draws {ess.min():.0f} (at "
        f"least {ESS:.0f}) after {thin * kept:,} sweeps; {more}"
    )
    each = np.linspace(0, kept - 1, min(-(-draws // CHAINS), kept)).round().astype(int)
    leaves = tree.problem.nested.nodes[-1]
    stats = {"chains": CHAINS, "thinned_by": thin, "largest_r_hat": float(r_hat.max()),
             "r_hat_allowed": allowed, "smallest_ess": float(ess.min())}  # fmt: skip
    counts = np.ascontiguousarray(run[:, each][:, :, leaves])
    found = {"r_hat": r_hat[leaves], "ess": ess[leaves], "refused": refused, "stats": stats}
    return Drawn(counts, independent=False, connected=_connected(tree), **found)


def _refuse_slow(step: Callable[[], Integers], steps: int, deadline: Deadline) -> None:
    """Refuse so many steps of a chain if those that are timed are too slow for the time left."""
    seconds = np.inf
    for _ in range(TIMED_STEPS):
        began = time.monotonic()
        step()
        seconds = min(seconds, time.monotonic() - began)
    if steps * seconds > (left := deadline.left()) > 0:
        raise SpecError(
            f"{steps:,} steps of Markov chains are predicted to take {told_time(steps * seconds)}, longer than the "
            f"{told_time(left)} that are left of {deadline.allowed / 60:g} minutes",
            remedy="allow more `minutes`, or use the measurements with 'tree-exact', where they are public",
        )


def _connected(tree: ReleasedTree) -> bool:
    """Return True if one step may lead from any true counts to any others.

    Behind a draw the auxiliary numbers, of full support, are all that a step remembers. Behind a mode, or where totals were
    summed, it is the noisy counts, and noise without bounds makes any of them possible given any true ones.
    """
    unbounded = all(h.law.open_ended for h in tree.problem.headers if not h.exact)
    return unbounded or (tree.release == DRAWN and not tree.summed)


def spent(deadline: Deadline, done: str) -> ConvergenceError:
    """Return the error for chains whose time was spent."""
    return deadline.spent("released-multinomial", done, "allow more `minutes`, or ask for fewer draws")


def _run(step: Callable[[], Integers], count: int, thin: int, deadline: Deadline) -> Integers:
    """Return `(count, nodes)` counts, `thin` steps apart."""
    out = []
    for done in range(count):
        if deadline.passed:
            raise spent(deadline, f"{done} of {count} draws of a chain")
        for _ in range(thin):
            true = step()
        out.append(true)
    return np.array(out)
