"""Bundles of format 1: in memory one table of measurements for each header, by parts as now without a seal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files.source import open_table
from trueup.io.bundle.manifest import header_in
from trueup.model.header import Measured


def read_headers(folder: Path, manifest: Mapping[str, Any]) -> list[tuple[Measured, NDArray[np.int64]]]:
    """Read the measurements of a bundle that was made in memory: each header with its values."""
    return [_read_header(folder / "public", entry) for entry in manifest["headers"]]


def _read_header(public: Path, entry: Mapping[str, Any]) -> tuple[Measured, NDArray[np.int64]]:
    table = open_table(public / entry["file"])
    header = header_in(entry, table.select(["group"])["group"] if entry["some_groups"] else None)
    value = "exact" if header.exact else "noisy"
    return header, table.select([value])[value].astype(np.int64)
