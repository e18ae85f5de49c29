"""Column names reserved for figures in tables, beside keys of places, readable names and attributes.

One list for all who write tables: a key or an attribute of the same name would be overwritten in some of them.
"""

from __future__ import annotations

import re

MEASURED = ("noisy", "exact", "margin of error")
RELEASED = ("released", "noisy", "margin of error")
COUNTED = ("count", "standard_error")
"""In the tables of a bundle."""
DESCRIBED = ("label", "mean", "sd", "median", "low", "high", "mass", "mcse", "ess", "r_hat")
"""Of a posterior."""
DRAW_COLUMNS = ("chain", "draw", "count")
ASSESSED = ("method", "budget", "statistic", "about", "value", "mc_error")
FIGURES = frozenset({*MEASURED, *RELEASED, *COUNTED, *DESCRIBED, *DRAW_COLUMNS, *ASSESSED})


def is_figure(name: str) -> bool:
    """Return True if a name is that of a figure's column but for case and punctuation, which DuckDB and SDMX ignore.

    Examples
    --------
    >>> is_figure("Margin_of_error"), is_figure("margin")
    (True, False)
    """
    return bare_name(name) in _TAKEN


def bare_name(name: str) -> str:
    """Return a name without case and punctuation."""
    return re.sub(r"\W", "_", name).casefold()


_TAKEN = frozenset(map(bare_name, FIGURES))
