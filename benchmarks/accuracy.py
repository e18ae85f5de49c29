"""What histograms on a hierarchy err by, released by the default and by its alternatives, by table and size of the true count.

Every method sees the same noise. `posterior means` and `least squares` are the two forms of `histogram-tree`; `total, cells`
and `cells only` are least squares with other settling sequences; `two passes` is the census's algorithm written anew,
without any of the package's methods. Bristol county was looked at when the method was chosen; no other population was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import _pl94, _two_passes
from benchmarks.harness import Case, Harness, Picture
from benchmarks.margins_of_error import EXAMPLE, of_districts, read, world_of
from trueup.kernel.settling.descend import Settling
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, simulate_many
from trueup.model.spec import Spec, load_spec
from trueup.reconciling.histogram_tree import HistogramTree, solution

SIZES = ((0, 0), (1, 9), (10, 99), (100, 999), (1000, 10**12))
ADJACENT, RUNS = 10, 300
MOST_PLACES = 5000
"""Places up to which `two passes` is run: its quadratic programs of a parent's children take minutes a release above."""
Release = Callable[[NDArray], NDArray]


class Population(NamedTuple):
    """True counts, and what is measured of them."""

    name: str
    cells: Cells
    constraints: Constraints
    headers: tuple[Measured, ...]
    truth: NDArray[np.int64]
    replicates: int


PARTS = ("bristol", "held out", "redistricting", "many blocks")
"""Populations that are measured together; with ``--full`` each part ends within minutes on one core."""


def populations(harness: Harness) -> Iterator[Population]:
    """Bristol at three budgets, counties that were not used in choosing, New Mexico, made-up states."""
    kinds = (_bristol, _held_out, _redistricting, _many_blocks)
    for part, populations_of in zip(PARTS, kinds, strict=True):
        if harness.part in (None, part):
            yield from populations_of(harness.full)


def _bristol(many: bool) -> Iterator[Population]:
    spec, blocks = load_spec(EXAMPLE), read("ri_blocks_2010.csv.gz")
    bristol = blocks[blocks.GEOID.str.startswith("44001")]
    for scale in (Fraction(1), Fraction(1, 4), Fraction(4)):
        name = "Bristol county" + ("" if scale == 1 else f", budget x {scale}")
        yield _real(name, scaled(spec, scale), bristol, 40 if many else 4)


def _held_out(many: bool) -> Iterator[Population]:
    spec, blocks = load_spec(EXAMPLE), read("ri_blocks_2010.csv.gz")
    for county, name in (("44005", "Newport"), ("44009", "Washington")) if many else (("44005", "Newport"),):
        held_out = blocks[blocks.GEOID.str.startswith(county)]
        yield _real(f"{name} county, held out", spec, held_out, 80 if many else 2)
    yield _real("New Mexico, held out", of_districts(spec), read("nm_vtds_2010.csv.gz"), 20 if many else 2)


def _redistricting(many: bool) -> Iterator[Population]:
    yield _made_up("redistricting tables, 800 made-up blocks x 2,016 cells", 800, 63, 5 if many else 1)


def _many_blocks(many: bool) -> Iterator[Population]:
    if many:
        yield _made_up("redistricting tables, 6,000 made-up blocks x 128 cells", 6000, 4, 2)


def scaled(spec: Spec, factor: Fraction) -> Spec:
    """The same queries with budgets times a factor."""
    given = spec.model_dump(by_alias=True, exclude_defaults=True)
    queries = [
        q | {"rho": {level: amount * factor for level, amount in query.budgets.items()}}
        for q, query in zip(given["query"], spec.queries)
    ]
    return Spec.model_validate(given | {"query": queries})


def _real(name: str, spec: Spec, table, replicates: int) -> Population:
    world = world_of(name, spec, table, replicates)
    problem = world.problem
    return Population(name, problem.cells, problem.constraints, problem.headers, world.truth, replicates)


def _made_up(name: str, blocks: int, races: int, replicates: int) -> Population:
    state = _pl94.synthetic(blocks, races)
    truth = state.truth(5, slice(0, blocks)).ravel().astype(np.int64)
    return Population(name, state.cells, state.constraints, state.headers, truth, replicates)


def methods(population: Population) -> dict[str, Release]:
    """Each method, prepared."""
    ready = {
        "posterior means": _prepared(population, HistogramTree()),
        "least squares": _prepared(population, HistogramTree(estimates="least-squares")),
        "total, cells": _settled(population, [[]]),
        "cells only": _settled(population, []),
    }
    if population.cells.shape[0] > MOST_PLACES:
        return ready
    return ready | {"two passes": lambda v: _two_passes.release(population.cells, population.headers, v)}


def _prepared(population: Population, method: HistogramTree) -> Release:
    state = method.prepare(population.constraints, population.headers)
    return lambda values: method.apply(state, values, np.random.default_rng(1)).values


def _settled(population: Population, sequence: list[list[str]]) -> Release:
    state = HistogramTree().prepare(population.constraints, population.headers)
    wanted = [state.marginal(attributes) for attributes in sequence]
    chains = [state.chain(level, wanted) for level in range(len(population.cells.tree.levels))]
    return lambda values: solution(state, values, chains, np.random.default_rng(1), Settling()).values


class Figure(NamedTuple):
    """Root mean squared error and bias (counts) of a class of counts of a table."""

    table: str
    size: str
    counts: int
    rmse: float
    bias: float
    squares: NDArray[np.float64]
    """Mean squared error of each replicate."""


def figures(population: Population, harness: Harness) -> dict[str, list[Figure]]:
    """By method, tables and size classes."""
    found: dict[str, list[list]] = {}
    ready = methods(population)
    for replicate in range(population.replicates):
        harness.progress(f"{population.name}: {replicate + 1} of {population.replicates}")
        rng = np.random.default_rng([8, replicate])
        values = simulate_many(population.cells, population.truth, population.headers, rng, 1)[0]
        for name, release in ready.items():
            found.setdefault(name, []).append(list(_errors(population, release(values))))
    return {name: [_figure(parts) for parts in zip(*rows)] for name, rows in found.items()}


def _errors(population: Population, counts: NDArray) -> Iterator[tuple[str, str, NDArray]]:
    """Errors of every table of the lowest level by size of the true count, of totals above, of adjacent places."""
    cells, truth = population.cells, population.truth
    lowest = cells.tree.levels[-1]
    tables = {h.margin for h in population.headers if h.margin.level == lowest}
    for margin in sorted(tables | {Margin(lowest), cells.finest}, key=lambda m: (len(m.attributes), str(m))):
        true = cells.sum(truth, margin)
        error = cells.sum(counts, margin) - true
        yield str(margin), "all", error
        for low, high in SIZES:
            inside = (true >= low) & (true <= high)
            yield str(margin), f"{low}-{high}" if high < 10**6 else f"{low} up", error[inside]
    totals = cells.sum(counts, Margin(lowest)) - cells.sum(truth, Margin(lowest))
    start = np.random.default_rng(5).integers(0, len(totals) - ADJACENT, RUNS)
    yield f"{ADJACENT} adjacent", "all", totals[start[:, None] + np.arange(ADJACENT)].sum(axis=1)
    for level in cells.tree.levels[:-1]:
        yield level, "all", cells.sum(counts, Margin(level)) - cells.sum(truth, Margin(level))


def _figure(parts) -> Figure:
    """Of one class, over replicates."""
    table, size, _ = parts[0]
    errors = np.concatenate([p[2] for p in parts])
    if not errors.size:
        return Figure(table, size, 0, 0.0, 0.0, errors)
    squares = np.array([(p[2] ** 2).mean() for p in parts])
    return Figure(
        table, size, len(parts[0][2]), float(np.sqrt(squares.mean())), float(errors.mean()), squares
    )


def cases(harness: Harness) -> Iterator[Case]:
    """The time of one reconciliation: 800 blocks of 2,016 cells, and Bristol county's of 16."""
    for population in populations(harness):
        if "budget" in population.name or "held out" in population.name:
            continue
        values = simulate_many(
            population.cells, population.truth, population.headers, np.random.default_rng(1), 1
        )[0]
        ready = methods(population)
        ours = ready.pop("posterior means")
        peer = ready["least squares"]
        runs: dict = {"least squares": lambda values=values, peer=peer: peer(values)}
        yield from harness.compare(
            population.name, lambda values=values, ours=ours: ours(values), runs, memory=False
        )


def pictures(harness: Harness) -> Iterator[Picture]:
    """Two tables a population: RMSE (bias) of every method, and where the default errs more than the census's method."""
    for population in populations(harness):
        found = figures(population, harness)
        first = next(iter(found.values()))
        rows = [
            [f.table, f.size, f"{f.counts:,}", *(_text(found[name][i]) for name in found)]
            for i, f in enumerate(first)
            if f.counts
        ]
        title = f"RMSE (bias), {population.name}, {population.replicates} replicates"
        yield Picture(title=title, columns=["table", "true count", "counts", *found], rows=rows)
        title = f"Where the default errs more, {population.name}, {population.replicates} replicates"
        columns = ["table", "true count", "counts", "RMSE / its RMSE", "standard errors"]
        yield Picture(title=title, columns=columns, rows=list(_larger(found)))


def _larger(found: dict[str, list[Figure]]) -> Iterator[list[str]]:
    """Classes in which the default's RMSE is larger than `two passes` has; the same noise is in both, so they are paired."""
    for ours, its in zip(found["posterior means"], found.get("two passes", []), strict=False):
        if ours.rmse > its.rmse:
            ratio = ours.rmse / its.rmse if its.rmse else np.inf
            chance = f"{_standard_errors(ours.squares - its.squares):.1f}"
            yield [ours.table, ours.size, f"{ours.counts:,}", f"{ratio:.3f}", chance]


def _standard_errors(differences: NDArray[np.float64]) -> float:
    """How many of its standard errors the mean of replicates lies above 0."""
    return differences.mean() / (differences.std(ddof=1) / np.sqrt(differences.size))


def _text(figure: Figure) -> str:
    return f"{figure.rmse:.3g} ({figure.bias:+.2f})"
