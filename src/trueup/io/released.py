"""Released counts in a table of their own, as statistical offices publish them, with their spec."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from trueup.errors import SpecError
from trueup.files.source import open_table
from trueup.io.microdata.tabulate import read_counts
from trueup.model.problem import Problem, public_cells, spec_and_text
from trueup.model.reading import Reading
from trueup.model.records.release import ReleasedCounts
from trueup.model.spec import Spec
from trueup.model.verb import entry_of

METHODS = ("multinomial-mode", "multinomial-sample")
"""Methods whose released counts have a posterior of their own."""
RELEASED = "released"
"""The column of released counts, as bundles and exports name it."""


def read_released(spec: Spec | Problem | str | Path, source: Any, geography: Any = None) -> ReleasedCounts:
    """Read counts that a multinomial method released without its measurements.

    Parameters
    ----------
    spec
        How they were made: levels and attributes, the noise of each query, and under `[reconcile]` the method.
    source
        A row for each finest count: columns of its place and attributes, and `released` or the column of counts that the spec
        names. Cells without a row are zero.
    geography
        All places; by default those of the rows.

    Raises
    ------
    SpecError
        The spec names no method whose released counts have a posterior.
    DataError
        A column is missing, or a row is of no known cell.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo import AREAS
    >>> spec = AREAS.model_copy(update={"reconcile": {"method": "multinomial-mode"}})
    >>> read_released(spec, pandas.DataFrame({"area": ["a", "b"], "released": [300, 400]}))
    Released counts: Two areas
      2 finest cells, no measurements
      released by the method 'multinomial-mode'
    """
    stated, text = spec_and_text(spec)
    name, parameters = entry_of(stated.reconcile)
    if name not in METHODS:
        raise SpecError(
            "released counts alone have a posterior where a multinomial method made them, and the spec names "
            + (repr(name) if name else "none"),
            needed='[reconcile] method = "multinomial-mode" or "multinomial-sample"',
            remedy="where noisy counts were published, give them: they say more",
        )
    table = open_table(source)
    column = RELEASED if RELEASED in table.columns() else stated.table.count or RELEASED
    if isinstance(spec, Problem) or geography is not None:
        problem = Problem.of(spec, geography)
    else:  # places that were published need no list of their own
        listed = stated.model_copy(update={"table": stated.table.model_copy(update={"keys": "public"})})
        problem = Problem(stated, public_cells(listed, source), text)
    reading = Reading.of(stated)
    counted = reading.table.model_copy(update={"kind": "counts", "count": column})
    return ReleasedCounts(
        problem,
        read_counts(replace(reading, table=counted), problem.cells, source),
        {"method": name} | parameters,
    )
