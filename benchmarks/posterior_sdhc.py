"""Posteriors of S-DHC tables of states and counties: time, whether chains agree, how often 90 % intervals hold the truth."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks._sdhc import TABLES, VARIANCES, Substate, substate
from benchmarks.harness import Case, Harness, Picture
from trueup.errors import ConvergenceError
from trueup.inferring import infer
from trueup.model.cells import Margin
from trueup.model.records.posterior import Posterior
from trueup.model.records.quantity import quotients
from trueup.model.records.ratios import ratio_weights

LEVEL = 0.9
LARGE, SMALL = (3143, 51, 1.0), (60, 4, 0.002)
"""Counties, states, and the group's share of all households."""
REPLICATES = 20
"""Of small groups, each with a truth of its own."""
COLUMNS = ["table", "of", "processor s", "wall s", "smallest ESS", "refused", "intervals", "held", "± s.e."]


def cases(harness: Harness) -> Iterator[Case]:
    """No peer: what is measured stands in the pictures."""
    yield from ()


def pictures(harness: Harness) -> Iterator[Picture]:
    """The eight tables at 3,143 counties; then small groups again and again, with `--full`."""
    rng, rows = np.random.default_rng(21), []
    for table in TABLES:
        rows += _rows(table, [substate(table, *LARGE, rng)], rng)
        harness.progress(table)
    yield Picture(title="3,143 counties", columns=COLUMNS, rows=rows)
    if harness.full:
        yield Picture(title="small groups in 60 counties", columns=COLUMNS, rows=small(harness))


def small(harness: Harness) -> list[list[str]]:
    """Groups of which most counties have a handful of households, a new truth each time."""
    rng, rows = np.random.default_rng(22), []
    for table in ("ph1", "ph5", "ph8"):
        rows += _rows(table, [substate(table, *SMALL, rng) for _ in range(REPLICATES)], rng)
        harness.progress(table)
    return rows


def _rows(table: str, truths: list[Substate], rng: np.random.Generator) -> Iterator[list[str]]:
    """A row for counts and one for ratios of each level that was measured."""
    held: dict[str, list[NDArray[np.float64]]] = {}
    wall, cpu, least, refused = time.perf_counter(), time.process_time(), np.inf, 0
    for each in truths:
        try:
            posterior = infer(each.measure(rng), spec=each.spec, draws=1000)
        except ConvergenceError:
            refused += 1
            continue
        least = min(least, posterior.drawn.stats["smallest_ess"])
        for name, inside in _held(posterior, each):
            held.setdefault(name, []).append(inside)
    spent = [
        f"{time.process_time() - cpu:.1f}",
        f"{time.perf_counter() - wall:.1f}",
        f"{least:.0f}",
        str(refused),
    ]
    for name, inside in held.items():
        shares = np.array([x.mean() for x in inside])
        many = sum(x.size for x in inside)
        spread = shares.std(ddof=1) / len(shares) if len(shares) > 1 else shares.var() / many
        yield [table, name, *spent, f"{many:,}", f"{shares.mean():.3f}", f"{spread**0.5:.3f}"]


def _held(posterior: Posterior, truth: Substate) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Whether intervals hold true counts and ratios; of ratios where the true denominator is not 0."""
    cells = truth.cells
    for level in VARIANCES:
        margin = Margin(level, cells.finest.attributes)
        table, true = posterior.summary(margin, LEVEL), cells.sum(truth.counts, margin)
        yield f"{level} counts", ((table["low"] <= true) & (true <= table["high"])).astype(float)
    ratios = posterior.ratio_summary(LEVEL)
    for level in VARIANCES:
        sums = cells.sum(truth.counts, Margin(level, cells.finest.attributes)).reshape(-1, cells.shape[1])
        inside = []
        for ratio in (r for r in posterior.ratios if r.denominator):
            above, below, _ = ratio_weights(cells, ratio)
            at = (ratios["level"] == level) & (ratios["quantity"] == ratio.name)
            true, defined = quotients(sums @ above, sums @ below), sums @ below > 0
            inside.append(((ratios["low"][at] <= true) & (true <= ratios["high"][at]))[defined])
        if inside:
            yield f"{level} ratios", np.concatenate(inside).astype(float)
