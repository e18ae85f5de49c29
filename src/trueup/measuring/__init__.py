"""measure: confidential counts in, noisy counts with their laws out. The only verb with entropy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.whole import MAX_COUNT
from trueup.io.microdata.tabulate import read_counts, refuse_overflow
from trueup.io.microdata.truncate import Limit
from trueup.measuring import entropy
from trueup.measuring.rehearsal import refuse_approximate, rehearse
from trueup.model.build import build_constraints
from trueup.model.cells import Cells
from trueup.model.constraints import refuse_broken
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.mechanism import plan_measurements
from trueup.model.problem import public_cells
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec
from trueup.model.verb import takes_records
from trueup.noise.law import Integers, Words

__all__ = ["draw", "measure", "plan_measurements", "public_cells", "read_confidential", "simulate"]


@takes_records
def measure(spec: Spec, data: Any, geography: Any = None) -> Measurements:
    """Measure confidential counts with exact noise from the operating system's randomness.

    Parameters
    ----------
    spec
        What is measured and how.
    data
        The confidential table: a path, a dataframe or a DuckDB relation.
    geography
        The public list of places; not needed where the spec declares the table's keys public.

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
    >>> from trueup.model.spec import parse_spec
    >>> spec = parse_spec('''
    ... format = 1
    ... title = "Two areas"
    ... table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
    ... privacy = { unit = "person", neighbours = "add-remove" }
    ... level = [{ name = "all" }, { name = "area", column = "area" }]
    ... query = [{ name = "total", epsilon = { all = "1/2", area = "1/2" } }]
    ... ''')
    >>> noisy = measure(spec, pandas.DataFrame({"area": ["a", "b"], "n": [3, 4]}))
    >>> noisy.guarantee.amount, [len(v) for v in noisy.values]
    (Fraction(1, 1), [1, 2])
    """
    cells = public_cells(spec, data, geography)
    headers, guarantee = plan_measurements(spec, cells)
    rehearse(headers)
    return draw(cells, read_confidential(spec, cells, data), headers, guarantee)


def limit_of(spec: Spec) -> Limit | None:
    """Return how many records a unit keeps, under a fresh key; None where the spec names no column of units."""
    return Limit.of(spec, lambda: entropy.words(32))


def read_confidential(spec: Spec, cells: Cells, data: Any, limit: Limit | None = None) -> NDArray[np.int64]:
    """Read and check the counts of all `n` cells; nothing is drawn, so nothing is spent yet.

    Where the spec names a column of units, each keeps as many records as the `limit` says, by default one with a key of
    its own. The counts, and the rules that they are held to, are those of the records that are kept.

    Raises
    ------
    SpecError, DataError, InfeasibleError
        No message holds a count.
    """
    counts = read_counts(spec, cells, data, limit or limit_of(spec))
    refuse_overflow(counts.sum(dtype=np.float64))
    refuse_broken(build_constraints(spec, cells), counts)
    return counts


def draw(
    cells: Cells, counts: NDArray[np.int64], headers: Sequence[Measured], guarantee: Guarantee
) -> Measurements:
    """Add fresh noise to the margins of `n` cell counts; the exact values for invariants.

    Raises
    ------
    PrivacyError
        Some law would be drawn approximately.
    """
    for header in headers:
        refuse_approximate(header)
    return _noised(cells, counts, headers, guarantee, entropy.words, simulation=False)


def simulate(
    cells: Cells,
    counts: NDArray[np.int64],
    headers: Sequence[Measured],
    guarantee: Guarantee,
    rng: np.random.Generator,
) -> Measurements:
    """Do the same with seeded noise, for assessment; the record is marked and never released."""
    return _noised(cells, counts, headers, guarantee, rng.bytes, simulation=True)


def _noised(cells, counts, headers, guarantee, words: Words, *, simulation: bool) -> Measurements:
    values = tuple(_values(cells, counts, header, words) for header in headers)
    return Measurements(cells, tuple(headers), values, guarantee, simulation=simulation)


def _values(cells: Cells, counts: NDArray[np.int64], header: Measured, words: Words) -> Integers:
    true = header.sums(cells, counts)
    if (true > MAX_COUNT).any() or (true < 0).any():
        raise DataError(
            f"a sum in '{header.margin}' is beyond 2^62", needed="counts whose sums stay below 2^62"
        )
    return true if header.exact else true + header.law.sample(true.size, words)
