"""Claim: no error quotes a value of a confidential table, or a password; faults are named by file and row."""

from __future__ import annotations

import re
import traceback

import duckdb
import numpy as np
import pandas
import pytest

from tests.parameters import one_in
from trueup.errors import DataError, InfeasibleError, TrueupError
from trueup.files.source import open_table
from trueup.io.microdata.by_parts import tabulate_by_parts
from trueup.measuring import read_confidential
from trueup.model.problem import public_cells
from trueup.model.spec import parse_spec

SECRET = "123-45-6789"
GEOGRAPHY = pandas.DataFrame({"state": ["01", "01", "02"], "county": ["001", "003", "001"]})
RECORDS = """
format = 2
title = "People"
table = { name = "people", kind = "records", counts = "person" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "state", column = "state" }, { name = "county", column = "county" }]
attribute = [{ name = "sex", values = ["f", "m"] }]
query = [{ name = "total", epsilon = { county = "1/2" } }]
"""
COUNTS = RECORDS.replace('kind = "records"', 'kind = "counts", count = "n"')
WIDE = COUNTS.replace(
    'count = "n"',
    'cell = [{ count = "females", where = { sex = "f" } }, { count = "males", where = { sex = "m" } }]',
)
ROWS = {"state": ["01", "02", "01"], "county": ["001", "001", "003"], "sex": ["f", "m", "f"]}
ON_PLACES = {
    "state": ["01", "02", "01"],
    "county": ["001", "001", "003"],
    "females": ["7", "8", "9"],
    "males": ["1"] * 3,
}


def _with(rows: dict, column: str, value) -> dict:
    """The table with another value in its third row."""
    return {**rows, column: [*rows[column][:2], value]}


_COUNTED = {**ROWS, "n": ["7", "8", "9"]}
FAULTS = {
    "a stray key": (RECORDS, _with(ROWS, "county", SECRET)),
    "a stray key of a state": (RECORDS, _with(ROWS, "state", SECRET)),
    "a stray category": (RECORDS, _with(ROWS, "sex", SECRET)),
    "a missing category": (RECORDS, _with(ROWS, "sex", None)),
    "a missing key": (RECORDS, _with(ROWS, "county", None)),
    "a stray key of a table of counts": (COUNTS, _with(_COUNTED, "county", SECRET)),
    "a stray category of a table of counts": (COUNTS, _with(_COUNTED, "sex", SECRET)),
    "a count that is text": (COUNTS, _with(_COUNTED, "n", SECRET)),
    "a count that is a fraction": (COUNTS, _with(_COUNTED, "n", "6789.5")),
    "a count below zero": (COUNTS, _with(_COUNTED, "n", "-6789")),
    "a stray key of a wide table": (WIDE, _with(ON_PLACES, "county", SECRET)),
    "a count of a wide table that is text": (WIDE, _with(ON_PLACES, "males", SECRET)),
}


def _csv(folder, rows):
    pandas.DataFrame(rows).to_csv(folder / "data.csv", index=False)
    return folder / "data.csv"


def _folder(folder, rows):
    """One row a file, so that the third row is the first of the third file."""
    (folder / "data").mkdir()
    for i in range(3):
        pandas.DataFrame(rows)[i : i + 1].to_parquet(folder / "data" / f"part-{i}.parquet")
    return folder / "data"


def _frame(folder, rows):
    return pandas.DataFrame(rows)


def _relation(folder, rows):
    return duckdb.connect().read_csv(str(_csv(folder, rows)), all_varchar=True)


SOURCES = {"csv": _csv, "folder": _folder, "frame": _frame, "relation": _relation}


def _in_memory(spec, cells, data, folder):
    return read_confidential(spec, cells, data)


def _by_parts(spec, cells, data, folder):
    return tabulate_by_parts(spec, cells, data, folder / "counts", np.zeros(3, int))


def _refused(text, rows, source, read, folder) -> str:
    """What is said of the table at fault, with all that its traceback says."""
    spec = parse_spec(text)
    data, cells = SOURCES[source](folder, rows), public_cells(spec, geography=GEOGRAPHY)
    with pytest.raises(DataError) as caught:
        read(spec, cells, data, folder)
    assert not (folder / "counts").exists()
    return str(caught.value) + "".join(traceback.format_exception_only(caught.value))


def says_where(said: str, source: str) -> bool:
    """Whether the third row is named."""
    where = r"row 1 of '[^']*part-2\.parquet'" if source == "folder" else r"row 3\b"
    return re.search(where, said) is not None


def quotes(said: str) -> bool:
    """Whether a part of the confidential value is quoted."""
    return any(part in said for part in (SECRET, "6789", "123"))


@pytest.mark.parametrize(
    ("source", "read"),
    [(name, _in_memory) for name in ("csv", "folder", "frame")]
    + [(name, _by_parts) for name in ("csv", "folder", "relation")],
)
@pytest.mark.parametrize("fault", one_in(2, FAULTS))
def test_a_fault_is_named_by_its_row_and_not_quoted(tmp_path, fault, source, read):
    said = _refused(*FAULTS[fault], source, read, tmp_path)
    assert not quotes(said)
    assert says_where(said, source), said
    assert "column '" in said


def test_the_test_above_sees_a_quoted_key():
    """As the message was before: the place and no row."""
    before = f"a row names the place '01/{SECRET}', which is no place of level 'county' in the geography"
    assert quotes(before)
    assert not says_where(before, "csv")


@pytest.mark.parametrize("read", [_in_memory, _by_parts])
def test_rows_that_name_one_cell_are_named_and_not_the_cell(tmp_path, read):
    rows = {name: [*column, column[1]] for name, column in _COUNTED.items()}
    said = _refused(COUNTS, rows, "csv", read, tmp_path)
    assert "row 2 of 'data.csv' (line 3) and row 4 of 'data.csv' (line 5) are about the same cell" in said
    assert "02" not in said


def test_a_missing_column_does_not_show_the_header_which_may_be_a_row(tmp_path):
    path = tmp_path / "headless.csv"
    path.write_text(f"01,001,{SECRET}\n01,003,m\n")
    for column in ("state", SECRET[:-1] + "8"):
        spec = parse_spec(RECORDS.replace('column = "state"', f'column = "{column}"'))
        with pytest.raises(DataError, match="has no column") as caught:
            read_confidential(
                spec, public_cells(spec, geography=GEOGRAPHY.assign(**{column: GEOGRAPHY.state})), path
            )
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ('bounds = [{ level = "county", upper = 0 }]', "bound of 'county'"),
        ('zeros = [{ sex = "m" }]', "structural zero"),
        ('linear = ["f >= m + 1"]', "'f >= m + 1' at level 'county'"),
    ],
)
def test_a_broken_rule_is_named_without_the_place(rule, named):
    spec = parse_spec(RECORDS + f"[constraints]\n{rule}\n")
    cells = public_cells(spec, geography=GEOGRAPHY)
    with pytest.raises(InfeasibleError, match=re.escape(named)) as caught:
        read_confidential(spec, cells, pandas.DataFrame(ROWS))
    assert not re.search(r"00\d|0[12]/", str(caught.value))


@pytest.mark.parametrize("address", ["postgresql://clerk:hunter2@host/db", "s3a://key:hunter2@bucket/people"])
def test_no_password_of_a_source_is_shown(address):
    with pytest.raises(TrueupError, match="at a remote address") as caught:
        open_table(address)
    assert "hunter2" not in str(caught.value)
