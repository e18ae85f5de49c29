"""Tables that somebody else published, stored in a bundle: values of every header with their groups.

Other measurements are of all groups of a margin, and whole; these are of some, and may be fractions. `public/published.parquet`
holds them, one row a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError
from trueup.files.writing import write_parquet
from trueup.io.bundle.manifest import header_in
from trueup.io.bundle.strict import read_typed
from trueup.model.cells import Cells
from trueup.model.header import Measured

FILE = "published.parquet"
LARGEST = 2.0**63 - 2.0**10
"""No value is larger: the largest double that is a whole number of 64 bits."""


def write_published(
    public: Path, cells: Cells, headers: Sequence[Measured], values: Sequence[NDArray], connection: Any
) -> None:
    """Write the values of all headers."""
    groups = [np.arange(cells.size(h.margin)) if h.groups is None else h.groups for h in headers]
    columns = {
        "header": np.repeat(np.arange(len(headers)), [len(each) for each in groups]),
        "group": np.concatenate(groups),
        "value": np.concatenate([np.asarray(each, np.float64) for each in values]),
    }
    write_parquet(public / FILE, columns, connection)


def read_published(
    public: Path, cells: Cells, manifest: Mapping[str, Any]
) -> tuple[list[Measured], list[NDArray]]:
    """Read headers and values."""
    stated = [header_in(entry) for entry in manifest["headers"]]
    most = sum(cells.size(header.margin) for header in stated)
    rows = read_typed(public / FILE, {"header": "whole", "group": "whole", "value": "number"}, most)
    headers, found = [], []
    for k, header in enumerate(stated):
        here = rows["header"] == k
        groups = np.asarray(rows["group"][here], np.int64)
        size = cells.size(header.margin)
        if not len(groups) or groups.min() < 0 or groups.max() >= size or (np.diff(groups) <= 0).any():
            raise BundleError(
                f"'{FILE}' does not hold the values of '{header.query}'", remedy="restore the bundle"
            )
        values = np.asarray(rows["value"][here], np.float64)
        if not (np.abs(values) <= LARGEST).all() or (header.law.discrete and (values % 1).any()):
            raise BundleError(
                f"'{FILE}' holds a value of '{header.query}' that its noise cannot give",
                remedy="restore the bundle",
            )
        headers.append(
            Measured(header.query, header.margin, header.law, None if len(groups) == size else groups)
        )
        found.append(values.astype(np.int64) if header.law.discrete else values)
    return headers, found
