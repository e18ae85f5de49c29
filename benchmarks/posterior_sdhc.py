"""Posteriors of S-DHC tables of states and counties: time, whether chains agree, how often 90 % intervals hold the truth."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import starmap
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks._sdhc import TABLES, VARIANCES, Substate, substate
from benchmarks.harness import Case, Harness, Picture
from trueup.errors import ConvergenceError
from trueup.inferring import infer
from trueup.model.cells import Margin
from trueup.model.records.posterior import Posterior
from trueup.model.records.quantity import quotients, ratio_weights
from trueup.run.local import cores

LEVEL = 0.9
LARGE, SMALL = (3143, 51, 1.0), (60, 4, 0.002)
"""Counties, states, and the group's share of all households."""
REPLICATES, AGAIN = 20, 14
"""Truths of small groups, and of tables with ratios at full size (3 ratios of 51 states each), each measured once."""
RATIOS = ("ph1", "ph5", "ph8")
"""Tables of persons and households."""
CLASSES = {"0 to 9": 10, "10 to 99": 100, "100 to 999": 1000, "1,000 or more": np.inf}
"""Of counts, and of the denominators of ratios: names, and where each ends. Of posterior means, which whoever reads an interval
knows; and of true counts, which nobody does: of what is chosen by its true size, no posterior promises how often it is held."""
RUN = ["table", "processor s", "wall s", "smallest ESS", "largest R-hat", "allowed", "refused", "MB"]
HELD = ["table", "of", "class", "intervals", "mass", "held", "± s.e.", "mean estimate", "mean truth"]


class Found(NamedTuple):
    """Of one table: a row of `RUN`, processor seconds, and intervals by what they are of: whether each holds the truth, its
    mass, estimate and truth `(4, intervals)`."""

    run: list[str]
    seconds: float
    held: dict[tuple[str, str], list[NDArray[np.float64]]]


def cases(harness: Harness) -> Iterator[Case]:
    """No peer: what is measured stands in the pictures."""
    yield from ()


def pictures(harness: Harness) -> Iterator[Picture]:
    """The eight tables at 3,143 counties; with `--full` ratios there and small groups, again and again."""
    yield from _both(harness, "3,143 counties", [(t, LARGE, range(1), 21) for t in TABLES[5:] + TABLES[:5]])
    if harness.full:
        ratios = [(t, LARGE, range(AGAIN), 22) for t in RATIOS]
        yield from _both(harness, f"3,143 counties, {AGAIN} truths", ratios)
        small = [(t, SMALL, range(REPLICATES), 23) for t in TABLES]
        yield from _both(harness, f"small groups in 60 counties, {REPLICATES} truths", small)


def _both(harness: Harness, title: str, runs: list) -> Iterator[Picture]:
    """Infer tables, in two processes where there are two cores; one picture of runs, one of intervals."""
    began, found = time.perf_counter(), {}
    workers = min(cores(), 2)
    with ProcessPoolExecutor(workers, get_context("spawn"), max_tasks_per_child=1) as pool:
        for (table, *_), each in zip(runs, pool.map(_alone, runs), strict=True):
            found[table] = each
            harness.progress(f"{title}: {table}")
    wall, cpu = time.perf_counter() - began, sum(each.seconds for each in found.values())
    total = [f"all, {workers} processes", f"{cpu:.1f}", f"{wall:.1f}", "", "", "", "", ""]
    yield Picture(title=title, columns=RUN, rows=[*(found[t].run for t in sorted(found)), total])
    rows = [row for t in sorted(found) for row in starmap(_row(t), found[t].held.items())]
    yield Picture(title=f"{title}: intervals that hold the truth", columns=HELD, rows=rows)


def _row(table: str):
    """A row of `HELD`; the error is that between truths, or of independent intervals where there is one truth."""

    def row(of: tuple[str, str], inside: list[NDArray[np.float64]]) -> list[str]:
        shares, sizes = np.array([x[0].mean() for x in inside]), np.array([x.shape[1] for x in inside])
        share = np.average(shares, weights=sizes)
        apart = (sizes / sizes.sum()) ** 2 @ (shares - share) ** 2
        error = apart * len(sizes) / (len(sizes) - 1) if len(sizes) > 1 else share * (1 - share) / sizes[0]
        _, mass, estimate, true = np.concatenate(inside, axis=1).mean(axis=1)
        figures = f"{mass:.3f}", f"{share:.3f}", f"{error**0.5:.3f}", f"{estimate:.3f}", f"{true:.3f}"
        return [table, *of, f"{sizes.sum():,}", *figures]

    return row


def _alone(given: tuple[str, tuple[int, int, float], range, int]) -> Found:
    """Make, measure and infer a table, again and again; each truth has a seed of its own, so that a few may be run alone."""
    table, size, truths, seed = given
    held, spent, stats, refused = {}, [0.0, 0.0], [], 0
    for k in truths:
        rng = np.random.default_rng([seed, TABLES.index(table), k])
        truth = substate(table, *size, rng)
        measured = truth.measure(rng)
        began = time.process_time(), time.perf_counter()
        try:
            posterior = infer(measured, spec=truth.spec, draws=1000)
        except ConvergenceError:
            refused += 1
            continue
        finally:
            spent = [spent[0] + time.process_time() - began[0], spent[1] + time.perf_counter() - began[1]]
        stats.append(posterior.drawn.stats)
        for of, inside in _held(posterior, truth):
            if inside.size:
                held.setdefault(of, []).append(inside)
    least = min((s["smallest_ess"] for s in stats), default=np.nan)
    worst = max((s["largest_r_hat"] for s in stats), default=np.nan)
    allowed = max((s["r_hat_allowed"] for s in stats), default=np.nan)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    figures = [*(f"{x:.1f}" for x in spent), f"{least:.0f}", f"{worst:.3f}", f"{allowed:.3f}"]
    return Found([table, *figures, str(refused), f"{memory:.0f}"], spent[0], held)


def _held(posterior: Posterior, truth: Substate) -> Iterator[tuple[tuple[str, str], NDArray[np.float64]]]:
    """Intervals of counts and ratios, in all and by size; of ratios where the true denominator is not 0."""
    cells = truth.cells
    for level in VARIANCES:
        margin = Margin(level, cells.finest.attributes)
        table, true = posterior.summary(margin, LEVEL), cells.sum(truth.counts, margin)
        yield from _by_size(f"{level} counts", _intervals(table, true), table["mean"], true)
    ratios = posterior.ratio_summary(LEVEL)
    for level in VARIANCES:
        margin = Margin(level, cells.finest.attributes)
        sums = cells.sum(truth.counts, margin).reshape(-1, cells.shape[1])
        means = posterior.summary(margin, LEVEL)["mean"].reshape(sums.shape)
        found, sizes = [], []
        for ratio in (r for r in posterior.ratios if r.denominator):
            above, below, _ = ratio_weights(cells, ratio)
            at = (ratios["level"] == level) & (ratios["quantity"] == ratio.name)
            true, defined = quotients(sums @ above, sums @ below), sums @ below > 0
            found.append(_intervals({name: column[at] for name, column in ratios.items()}, true)[:, defined])
            sizes.append(np.stack([means @ below, sums @ below])[:, defined])
        if found:
            yield from _by_size(f"{level} ratios", np.hstack(found), *np.hstack(sizes))


def _intervals(table: Mapping[str, NDArray], true: NDArray) -> NDArray[np.float64]:
    inside = (table["low"] <= true) & (true <= table["high"])
    return np.array([inside, table["mass"], table["mean"], true], float)


def _by_size(
    of: str, found: NDArray[np.float64], estimate: NDArray, true: NDArray
) -> Iterator[tuple[tuple[str, str], NDArray[np.float64]]]:
    yield (of, "all"), found
    for by, size in ("estimate", estimate), ("truth", true):
        least = 0.0
        for name, end in CLASSES.items():
            yield (of, f"{by} {name}"), found[:, (size >= least) & (size < end)]
            least = end
