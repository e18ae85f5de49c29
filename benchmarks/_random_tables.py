"""Random small tables of counts with specs that measure them: what margins of error are held against on many at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells
from trueup.model.problem import Problem
from trueup.model.spec import parse_spec
from trueup.model.tree import Tree

LEVELS = ("all", "region", "area", "block")


class RandomTable(NamedTuple):
    """A problem, its true counts (n,), and what they are like, in words."""

    problem: Problem
    truth: NDArray[np.int64]
    words: str


def random_table(number: int, most: int = 1500) -> RandomTable:
    """Draw a table: one of two to four levels with up to two attributes and at most so many cells.

    Examples
    --------
    >>> table = random_table(3)
    >>> table.truth.size == table.problem.cells.n, table.truth.min() >= 0
    (True, True)
    """
    rng = np.random.default_rng([number, 46])
    levels = LEVELS[: int(rng.integers(2, 5))]
    sizes = [int(n) for n in rng.integers(2, 7, rng.choice(3, p=[0.4, 0.35, 0.25]))]
    combinations = int(np.prod(sizes, dtype=np.int64))
    places = int(np.exp(rng.uniform(np.log(6), np.log(most / combinations))))
    tree = _places(levels, places, rng)
    kind, totals = _totals(places, rng)
    truth = _cells(totals, combinations, rng)
    epsilon = float(np.exp(rng.uniform(np.log(0.02), np.log(8))))
    spec = parse_spec(_spec(levels, sizes, epsilon, rng))
    problem = Problem(spec, Cells(tree, Problem.of(spec, tree).cells.attributes))
    words = f"{len(levels)} levels, {places} places x {combinations}, {kind}, epsilon {epsilon:.2g}"
    return RandomTable(problem, truth.ravel(), words)


def _places(levels: tuple[str, ...], places: int, rng: np.random.Generator) -> Tree:
    """Each level's places are runs of the next one's, of random lengths."""
    columns: list[dict] = [{levels[-1]: np.arange(places)}]
    above = np.arange(places)
    for name in levels[-2:0:-1]:
        starts = rng.random(above.max() + 1) < rng.uniform(0.1, 0.5)
        above = np.cumsum(np.append(True, starts[1:]))[above] - 1
        columns.append({name: above})
    return Tree.from_columns(levels, [{}, *columns[::-1]])


def _totals(places: int, rng: np.random.Generator) -> tuple[str, NDArray[np.int64]]:
    size = float(np.exp(rng.uniform(np.log(2), np.log(500))))
    kinds = {
        "alike": lambda: rng.poisson(size, places),
        "skewed": lambda: np.rint(size * rng.gamma(0.6, 1 / 0.6, places)),
        "heavy-tailed": lambda: np.rint(np.minimum(size * rng.pareto(1.3, places), 1e7)),
        "mostly empty": lambda: rng.poisson(size, places) * (rng.random(places) < rng.uniform(0.05, 0.4)),
        "two sizes": lambda: rng.poisson(np.where(rng.random(places) < 0.5, size / 20, size)),
    }
    kind = list(kinds)[int(rng.integers(len(kinds)))]
    return kind, kinds[kind]().astype(np.int64)


def _cells(totals: NDArray[np.int64], combinations: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Split each place's total by shares around common ones."""
    common = rng.dirichlet(np.full(combinations, float(rng.choice([0.4, 2.0]))))
    shares = rng.dirichlet(common * float(rng.choice([2.0, 30.0, 1000.0])) + 1e-3, totals.size)
    return rng.multinomial(totals, shares)


def _spec(levels: tuple[str, ...], sizes: list[int], epsilon: float, rng: np.random.Generator) -> str:
    names = [f"a{i}" for i in range(len(sizes))]
    exact = rng.random() < 0.2
    tables: list[tuple[list[str], list[str]]] = [
        ([], [level for level in levels[exact:] if rng.random() < 0.75])
    ]
    if len(sizes) == 2 and rng.random() < 0.6:
        tables.append((names[:1], [levels[-1]]))
    if sizes and rng.random() < 0.5:
        tables.append((names[-1:], [level for level in levels if rng.random() < 0.5]))
    measured = {tuple(a): list(at) for a, at in tables if at}
    measured[tuple(names)] = sorted({*measured.get(tuple(names), []), levels[-1]}, key=levels.index)
    slots = [(a, level) for a, at in measured.items() for level in at]
    shares = rng.dirichlet(np.full(len(slots), 3.0))
    noise, key = (("discrete-laplace", "epsilon"), ("discrete-gaussian", "rho"))[int(rng.integers(2))]
    total = epsilon if key == "epsilon" else epsilon**2 / 8
    budget = {slot: max(round(total * share, 8), 1e-6) for slot, share in zip(slots, shares, strict=True)}
    queries = "\n".join(
        f'[[query]]\nname = "{" x ".join(a) or "total"}"\nattributes = {list(a)}\nnoise = "{noise}"\n{key} = {{ '.replace(
            "'", '"'
        )
        + ", ".join(f'{level} = "{budget[a, level]:.8f}"' for level in at)
        + " }"
        for a, at in measured.items()
    )
    columns = "\n".join(f'[[level]]\nname = "{level}"\ncolumn = "{level}"' for level in levels[1:])
    values = "\n".join(
        f'[[attribute]]\nname = "{name}"\nvalues = {[f"v{i}" for i in range(n)]}'.replace("'", '"')
        for name, n in zip(names, sizes, strict=True)
    )
    rules = '[constraints]\ninvariants = [{ level = "all" }]\n' if exact else ""
    return f"""format = 2
title = "random"
[table]
name = "random"
kind = "counts"
counts = "person"
count = "n"
[privacy]
unit = "person"
neighbours = "add-remove"
[[level]]
name = "all"
{columns}
{values}
{queries}
{rules}"""
