"""Bundles of format 1: in memory one table of measurements for each header, by parts as now without a seal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError
from trueup.io.bundle.manifest import header_in
from trueup.io.bundle.typed import read_typed
from trueup.model.cells import Cells
from trueup.model.header import Measured


def read_headers(
    folder: Path, manifest: Mapping[str, Any], cells: Cells
) -> list[tuple[Measured, NDArray[np.int64]]]:
    """Read the measurements of a bundle that was made in memory: each header with its values."""
    return [_read_header(folder / "public", entry, cells) for entry in manifest["headers"]]


def _read_header(public: Path, entry: Mapping[str, Any], cells: Cells) -> tuple[Measured, NDArray[np.int64]]:
    header = header_in(entry)
    value, some = "exact" if header.exact else "noisy", bool(entry["some_groups"])
    size = cells.size(header.margin)
    columns = read_typed(
        public / entry["file"], {value: "whole"} | ({"group": "whole"} if some else {}), size
    )
    groups, values = columns.get("group"), columns[value].astype(np.int64)
    if not (len(values) == size if groups is None else _are_groups(groups, size)):
        raise BundleError(
            f"'{entry['file']}' does not hold the values of '{header.query}'", remedy="restore the bundle"
        )
    return header_in(entry, groups), values


def _are_groups(groups: NDArray, size: int) -> bool:
    """Whether these are groups of a margin of that size, in order."""
    return bool(len(groups) and groups[0] >= 0 and groups[-1] < size and (np.diff(groups) > 0).all())
