"""Census counts that items read from the folder of data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from papers.item import Setting
from trueup.errors import DataError
from trueup.files import select
from trueup.files.source import open_table

COUNTIES = "us_counties_2010.csv"
"""One row a county: `state_name`, `county_name` and `pop`, the population in the 2010 Census."""
BLOCKS = "ri_blocks_2010.csv.gz"
"""One row a census block of Rhode Island: `GEOID` and `pop`, the population in the 2010 Census."""
GROUP = 12
"""Leading digits of a block's GEOID that name its block group."""


def counts_by_state(setting: Setting) -> dict[str, NDArray[np.int64]]:
    """Population of every county by state, both in the file's order.

    Raises
    ------
    DataError
        If a population is no whole number of at least 0, besides what `open_table` and `select` refuse.
    """
    columns = select(open_table(setting.file(COUNTIES)), ["state_name", "pop"])
    states, counts = np.asarray(columns["state_name"]), _whole(columns["pop"], COUNTIES)
    return {str(state): counts[states == state] for state in dict.fromkeys(states.tolist())}


def block_counts(setting: Setting, group: str) -> NDArray[np.int64]:
    """Population of every block of a block group, in ascending order.

    Raises
    ------
    DataError
        If the file has no block of that group, besides what `counts_by_state` refuses.
    """
    columns = select(open_table(setting.file(BLOCKS)), ["GEOID", "pop"])
    inside = np.array([str(block)[:GROUP] == group for block in columns["GEOID"]])
    if not inside.any():
        raise DataError(f"'{BLOCKS}' has no block of {group}", needed="every block of the 2010 Census")
    return np.sort(_whole(columns["pop"], BLOCKS)[inside])


def _whole(given: NDArray, file: str) -> NDArray[np.int64]:
    """Read populations; the counts are public, yet the message names the column alone."""
    try:
        counts = np.asarray(given).astype(np.float64)
    except (TypeError, ValueError):
        counts = np.full(1, np.nan)
    if not np.all((counts >= 0) & (counts == np.rint(counts))) or not counts.size:
        raise DataError(f"column 'pop' of '{file}' is no population", needed="whole numbers of at least 0")
    return counts.astype(np.int64)
