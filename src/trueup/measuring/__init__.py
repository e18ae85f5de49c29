"""Measuring: noise is added to confidential counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import shake_256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.source import frame_library
from trueup.files.values import MAX_COUNT
from trueup.io.microdata.tabulate import read_counts, refuse_overflow
from trueup.io.microdata.truncate import Limit
from trueup.measuring import entropy
from trueup.model.build import build_constraints
from trueup.model.cells import Cells
from trueup.model.constraints import Constraints, refuse_broken
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured, draw_noise
from trueup.model.mechanism import left_out_law
from trueup.model.problem import Problem
from trueup.model.records.measurements import LeftOut, Measurements
from trueup.model.spec import Spec
from trueup.model.verb import takes_records
from trueup.noise.law import Integers, Law, Words


@takes_records
def measure(
    spec: Spec | Problem | str | Path, data: Any, geography: Any = None, *, expect_rows: int | None = None
) -> Measurements:
    """Measure confidential counts, with exact noise from the operating system's randomness.

    Parameters
    ----------
    spec
        The spec of the measurements: a Problem, a spec or the path of one.
    data
        The confidential table: a path, a dataframe or a DuckDB relation.
    geography
        The public list of places; not needed with a Problem, or where the spec declares the table's keys public.
    expect_rows
        Number of rows that the table must have; by default at least one.

    Returns
    -------
    Measurements
        Publishable: noisy counts (and declared invariants), their laws, the guarantee.

    Raises
    ------
    SpecError, DataError, InfeasibleError
        Before any noise is drawn; no message holds a count.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo import AREAS
    >>> noisy = measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [3, 4]}))
    >>> noisy.guarantee.amount, [len(v) for v in noisy.values]
    (Fraction(1, 1), [1, 2])
    """
    problem = Problem.of(spec, geography, data=data, rows=expect_rows)
    rehearse(problem.headers, problem.left_out)
    limit = limit_of(problem.spec)
    counts = read_confidential(problem.spec, problem.cells, data, limit, problem.constraints, problem.rows)
    drawn = draw(problem.cells, counts, problem.headers, problem.guarantee)
    drawn = replace(drawn, left_out=draw_left_out(problem.spec, limit))
    return drawn.of(problem, frame_library(data))


def limit_of(spec: Spec) -> Limit | None:
    """Return the limit on each unit's records with a new secret key, or None if the spec names no units."""
    return Limit.of(spec, lambda: entropy.words(32))


def read_confidential(
    spec: Spec,
    cells: Cells,
    data: Any,
    limit: Limit | None = None,
    constraints: Constraints | None = None,
    rows: int | None = None,
) -> NDArray[np.int64]:
    """Read and check the confidential counts `(n,)` of all cells, before noise is drawn.

    Where the spec names a column of units, each keeps as many records as the `limit` says, by default one with a key of
    its own. The counts, and the rules that they are held to, are those of the records that are kept. `rows` is as for
    `read_counts`.

    Raises
    ------
    SpecError, DataError, InfeasibleError
        No message holds a count.
    """
    limit = limit or limit_of(spec)
    if spec.table.join is None:
        counts = read_counts(spec, cells, data, limit, rows)
    else:
        from trueup.io.microdata.join import linked_records

        with linked_records(spec, data, limit) as records:
            counts = read_counts(spec, cells, records, rows=rows)
    refuse_overflow(counts.sum(dtype=np.float64))
    refuse_broken(constraints or build_constraints(spec, cells), counts)
    return counts


def draw(
    cells: Cells, counts: NDArray[np.int64], headers: Sequence[Measured], guarantee: Guarantee
) -> Measurements:
    """Return every measured margin of cell counts `(n,)` with noise added; invariants stay exact."""
    return _noised(cells, counts, headers, guarantee, entropy.words, simulation=False)


def draw_left_out(spec: Spec, limit: Limit | None) -> LeftOut | None:
    """Return the noisy number of records that a limit left out, or None if the spec does not measure it."""
    part, law = spec.left_out, left_out_law(spec)
    if part is None or law is None or limit is None:
        return None
    value = limit.beyond(part.most) + int(law.sample(1, entropy.words)[0])
    return LeftOut(law, value, part.most)


@takes_records
def simulate(problem: Problem, counts: NDArray[np.int64], rng: np.random.Generator) -> Measurements:
    """Return simulated measurements of made-up counts `(n,)`, with seeded noise.

    Parameters
    ----------
    problem
        The spec with its cells.
    counts
        (n,) whole numbers in the order of the problem's cells.
    rng
        Random generator of the noise: the same state gives the same record.

    Raises
    ------
    DataError
        There is not one count for each cell, or sums of the counts are beyond 2^62.

    Examples
    --------
    >>> from trueup.demo import AREAS
    >>> import pandas
    >>> problem = Problem.of(AREAS, pandas.DataFrame({"area": ["a", "b"]}))
    >>> noisy = simulate(problem, np.array([300, 400]), np.random.default_rng(1))
    >>> noisy.simulation, noisy.problem is problem
    (True, True)
    """
    if np.shape(counts) != (problem.cells.n,):
        raise DataError(
            f"the counts have shape {np.shape(counts)}",
            needed=f"shape ({problem.cells.n},): one whole number for each cell, in the order of the cells",
            remedy="give a table as a vector: counts.ravel()",
        )
    drawn = _noised(problem.cells, counts, problem.headers, problem.guarantee, rng.bytes, simulation=True)
    return drawn.of(problem, None)


def _noised(cells, counts, headers, guarantee, words: Words, *, simulation: bool) -> Measurements:
    true = [_sums(cells, counts, header) for header in headers]
    noise = draw_noise(headers, true, 1, words)
    values = tuple(t + v[0] for t, v in zip(true, noise))
    return Measurements(cells, tuple(headers), values, guarantee, simulation=simulation)


def _sums(cells: Cells, counts: NDArray[np.int64], header: Measured) -> Integers:
    true = header.sums(cells, counts)
    weights = header.margin.weights
    if weights:  # of either sign
        beyond = counts.sum(dtype=float) * max(map(abs, weights)) > MAX_COUNT
    else:
        beyond = (true > MAX_COUNT).any() or (true < 0).any()
    if beyond:
        raise DataError(
            f"a sum in '{header.margin}' is beyond 2^62", needed="counts whose sums stay below 2^62"
        )
    return true


def rehearse(headers: Iterable[Measured], more: Law | None = None) -> None:
    """Draw once from every noise law and discard the draws, to compile everything that drawing needs.

    Tables, walks and compiled kernels are made ready on the way, on public things alone: what fails here fails before a
    confidential count is read and before a budget is charged.

    Raises
    ------
    TrueupError
        A law cannot be drawn.

    Examples
    --------
    >>> from trueup.model.cells import Margin
    >>> from trueup.noise import DiscreteLaplace
    >>> rehearse([Measured("total", Margin("all"), DiscreteLaplace("1/2"))])
    """
    headers = tuple(headers)
    alone = {header.law: None for header in headers if not header.law.joint} | (
        {} if more is None else {more: None}
    )
    for header in headers:
        law: Any = header.law
        if law.joint:
            law.sample(law.bound.n, public_words())
    for law in alone:
        law.sample(1, public_words())


def public_words() -> Words:
    """Return a source of random words that are not secret, for draws that will be discarded.

    Examples
    --------
    >>> len(public_words()(5))
    5
    """
    taken = 0

    def words(count: int) -> bytes:
        nonlocal taken
        taken += 1
        return shake_256(taken.to_bytes(8, "little")).digest(count)

    return words
