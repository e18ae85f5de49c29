"""Census counts that items read from the folder of data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from papers.item import Setting
from trueup.errors import DataError
from trueup.files.source import open_table
from trueup.files.table import select

COUNTIES = "us_counties_2010.csv"
"""One row a county: `state_name`, `county_name` and `pop`, the population in the 2010 Census."""


def counts_by_state(setting: Setting) -> dict[str, NDArray[np.int64]]:
    """Population of every county by state, both in the file's order.

    Raises
    ------
    DataError
        If a population is no whole number of at least 0, besides what `open_table` and `select` refuse.
    """
    columns = select(open_table(setting.file(COUNTIES)), ["state_name", "pop"])
    states, counts = np.asarray(columns["state_name"]), _whole(columns["pop"])
    return {str(state): counts[states == state] for state in dict.fromkeys(states.tolist())}


def _whole(given: NDArray) -> NDArray[np.int64]:
    """Read populations; the counts are public, yet the message names the column alone."""
    try:
        counts = np.asarray(given).astype(np.float64)
    except (TypeError, ValueError):
        counts = np.full(1, np.nan)
    if not np.all((counts >= 0) & (counts == np.rint(counts))) or not counts.size:
        raise DataError(
            f"column 'pop' of '{COUNTIES}' is no population", needed="whole numbers of at least 0"
        )
    return counts.astype(np.int64)


def county_counts(setting: Setting, state: str) -> NDArray[np.int64]:
    """Population of every county of a state, in the file's order.

    Raises
    ------
    DataError
        If the file has no county of that state.
    """
    counts = counts_by_state(setting).get(state)
    if counts is None:
        raise DataError(f"'{COUNTIES}' has no county of {state}", needed="every county of the 2010 Census")
    return counts
