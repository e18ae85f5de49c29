"""Census counts that items read from the folder of data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.io.table import open_table
from trueup.reproduce.item import Setting

COUNTIES = "us_counties_2010.csv"
"""One row a county: `state_name`, `county_name` and `pop`, the population in the 2010 Census."""


def counts_by_state(setting: Setting) -> dict[str, NDArray[np.int64]]:
    """Population of every county by state, both in the file's order."""
    columns = open_table(setting.file(COUNTIES)).select(["state_name", "pop"])
    states, counts = np.asarray(columns["state_name"]), np.asarray(columns["pop"]).astype(np.int64)
    return {str(state): counts[states == state] for state in dict.fromkeys(states.tolist())}


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
