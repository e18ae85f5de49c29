"""The columns of figures in tables, which stand beside keys of places, readable names and attributes.

One list for all who write tables: a key or an attribute of the same name would be overwritten in some of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from trueup.model.names import refuse_repeats
from trueup.model.spec_table import AttributePart, Level

MEASURED = ("noisy", "exact", "margin of error")
RELEASED = ("released", "noisy", "margin of error")
COUNTED = ("count", "standard_error")
"""In the tables of a bundle."""
DESCRIBED = ("label", "mean", "sd", "median", "low", "high", "mass", "mcse", "ess", "r_hat")
"""Of a posterior."""
DRAWN = ("chain", "draw", "count")
ASSESSED = ("method", "budget", "statistic", "about", "value", "mc_error")
FIGURES = frozenset({*MEASURED, *RELEASED, *COUNTED, *DESCRIBED, *DRAWN, *ASSESSED})


def refuse_taken_columns(
    levels: Sequence[Level], attributes: Sequence[AttributePart], keys: Iterable[str]
) -> None:
    """Refuse levels, keys of places and attributes of which two, or one and a figure, are one column of a table.

    Parameters
    ----------
    levels, attributes
        As the spec declares them; a level's readable names are the column `LEVEL name`.
    keys
        The columns of keys.

    Raises
    ------
    ValueError
        Naming the first, and how to call it otherwise.

    Examples
    --------
    >>> refuse_taken_columns([Level(name="all"), Level(name="part", column="Mean")], [], ["all", "Mean"])
    Traceback (most recent call last):
    ValueError: column 'Mean' is called as a column of figures in tables: rename it in the files and in the spec
    """
    views = [view for attribute in attributes for view in attribute.views]
    names = [f"{level.name} name" for level in levels if level.label]
    columns = list(keys)
    refuse_repeats("published column", [name.casefold() for name in (*columns, *names, *views)])
    others = {name.casefold() for name in views}
    if both := [level.name for level in levels if level.name.casefold() in others]:
        raise ValueError(f"'{both[0]}' is a level and an attribute: name one of them otherwise")
    remedies = {
        "attribute": 'name it otherwise, and say where it stands: column = "..."',
        "level": "name it otherwise",
        "column": "rename it in the files and in the spec",
    }
    declared = {"attribute": views, "level": [level.name for level in levels], "column": columns}
    for what, each in declared.items():
        if taken := [name for name in each if _plain(name) in _TAKEN]:
            raise ValueError(
                f"{what} '{taken[0]}' is called as a column of figures in tables: {remedies[what]}"
            )


def _plain(name: str) -> str:
    """A name without case and punctuation, as DuckDB and SDMX tell columns apart."""
    return re.sub(r"\W", "_", name).casefold()


_TAKEN = frozenset(map(_plain, FIGURES))
