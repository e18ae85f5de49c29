"""A small specification and table that tests of input, verbs and commands share."""

from __future__ import annotations

from pathlib import Path

SPEC = """
format = 2
title = "Areas"
table = { name = "areas", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "state", column = "state" }, { name = "county", column = "county" }]
query = [{ name = "total", epsilon = { all = "1/4", state = "1/4", county = "1/2" } }]
"""

TABLE = """state,county,n
02,001,30
01,003,7
01,001,0
"""
TRUTH = (0, 7, 30)
"""Counts of 01/001, 01/003 and 02/001: places are ordered by their keys."""


def write_areas(folder: Path, *, spec: str = SPEC, table: str = TABLE) -> tuple[Path, Path]:
    """Write the spec and the table into a folder; return both paths."""
    spec_path, table_path = folder / "areas.toml", folder / "areas.csv"
    spec_path.write_text(spec)
    table_path.write_text(table)
    return spec_path, table_path
