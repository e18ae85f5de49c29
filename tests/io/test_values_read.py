"""Values of attributes read as the spec declares: twins in Python and SQL agree, and a record is counted once or refused."""

from __future__ import annotations

import datetime

import duckdb
import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from trueup.errors import DataError, SpecError
from trueup.files.database import Relation
from trueup.files.values import plain_text
from trueup.io.microdata.by_parts import tabulate_by_parts
from trueup.io.microdata.sql import compared_values, position_sql, value_read
from trueup.io.microdata.tabulate import read_counts
from trueup.model.problem import public_cells
from trueup.model.spec import parse_spec
from trueup.model.spec_table import AttributePart

SPEC = """
format = 2
title = "Visits"
table = { name = "visits", kind = "records", counts = "visit" }
privacy = { unit = "visit", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "place", column = "place" }]
query = [{ name = "detail", attributes = ["x"], epsilon = { place = "1/2" } }]
attribute = [{ name = "x", ATTRIBUTE }]
"""
PLACES = pd.DataFrame({"place": ["a", "b"]})
READINGS = {
    "bins": (
        "bins = [0, 15, 65]",
        {"0": "0-14", "14": "0-14", "15": "15-64", "64.0": "15-64", "999": "65 and more", "15-64": "15-64"},
    ),
    "bins and others": (
        'bins = [0, 1, 15], other = "other", missing = "unknown"',
        {
            "0": "0",
            "7": "1-14",
            "-1": "other",
            "": "unknown",
            "-" + "9" * 18: "other",
        },
    ),
    "months": (
        'date = "month", values = ["2026-01", "2026-02"], other = "other"',
        {
            "2026-01-31": "2026-01",
            "2026-02": "2026-02",
            "2026-02-01 10:30:00": "2026-02",
            "2026-02-01T10:30:00Z": "2026-02",
            "2025-12-31": "other",
        },
    ),
    "months of days before them": (
        'date = "month", form = "DD.MM.YYYY", values = ["2026-01", "2026-02"], other = "other"',
        {
            "31.01.2026": "2026-01",
            "1.2.2026": "2026-02",
            "02.01.2026 10:30": "2026-01",
            "2026-02-03": "2026-02",
            "02.12.2025": "other",
            "other": "other",
        },
    ),
    "months before days": (
        'date = "month", form = "MM/DD/YYYY", values = ["2026-01", "2026-02"]',
        {"01/02/2026": "2026-01", "2/1/2026": "2026-02"},
    ),
    "dates without a sign": (
        'date = "year", form = "YYYYMMDD", values = ["2025", "2026"]',
        {"20260203": "2026", "20251231": "2025", "2026": "2026"},
    ),
    "years": (
        'date = "year", values = ["2025", "2026"]',
        {"2025-12-31": "2025", "2026": "2026", "2026-03": "2026"},
    ),
    "folded": (
        'values = ["Not known", "Ärztin"], fold = true, other = "ELSE"',
        {
            "NOT   KNOWN": "Not known",
            " not known": "Not known",
            "Ärztin": "Ärztin",
            "äRZTIN": "ELSE",
            "else": "ELSE",
        },
    ),
    "missing": (
        'values = ["f", "m"], missing = "unknown"',
        {"f": "f", "": "unknown", " ": "unknown", "m": "m"},
    ),
    "others": (
        'values = ["f", "it\'s"], other = "other"',
        {"f": "f", "it's": "it's", "F": "other", "other": "other"},
    ),
}


def _spec(attribute: str):
    return parse_spec(SPEC.replace("ATTRIBUTE", attribute))


def _by_both(spec, table: pd.DataFrame, tmp_path) -> np.ndarray:
    """Count in Python and in DuckDB, and hold the two against each other."""
    cells = public_cells(spec, geography=PLACES)
    table.to_parquet(tmp_path / "rows.parquet")
    parts = tabulate_by_parts(
        spec, cells, tmp_path / "rows.parquet", tmp_path / "parts", np.zeros(2, np.int64)
    )
    plain = read_counts(spec, cells, table)
    assert _dense(parts, cells).tolist() == plain.tolist()
    return plain.reshape(2, -1)


def _dense(parts, cells) -> np.ndarray:
    dense = np.zeros((cells.shape[0], cells.n // cells.shape[0]), np.int64)
    for part in range(parts.parts):
        place, cell, count = parts.read(part)
        dense[place, cell] = count
    return dense.ravel()


@pytest.mark.parametrize("name", READINGS)
def test_values_are_read_alike_in_python_and_in_duckdb(name, tmp_path):
    attribute, wanted = READINGS[name]
    spec = _spec(attribute)
    values = list(spec.attributes[0].values)
    table = pd.DataFrame({"place": ["a", "b"] * len(wanted), "x": np.repeat(list(wanted), 2)})
    counts = _by_both(spec, table, tmp_path)
    assert counts.sum() == len(table)  # each record in one cell
    assert counts[0].tolist() == [list(wanted.values()).count(value) for value in values]
    assert spec == parse_spec(spec.text())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bins", "-1"),
        ("bins", "x"),
        ("bins", ""),
        ("years", "2024-01-01"),
        ("missing", "x"),
        ("months", ""),
        ("months", "31.01.2026"),
        ("months", "2026-01-311"),
        ("months", "2026-13-01"),
        ("months before days", "13/01/2026"),
        ("months before days", "03/01/2026"),
        ("months of days before them", "31-01-2026"),
        ("dates without a sign", "20261301"),
        ("bins and others", "x"),
        ("bins and others", "1.5"),
        ("bins and others", "9" * 30),
        ("folded", ""),
    ],
)
def test_what_has_no_value_is_refused_by_both_without_showing_it(name, text, tmp_path):
    spec = _spec(READINGS[name][0])
    good = next(iter(READINGS[name][1]))
    table = pd.DataFrame({"place": ["a", "a"], "x": [good, text]})
    with pytest.raises(DataError) as told:
        read_counts(spec, public_cells(spec, geography=PLACES), table)
    table.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(DataError) as also:
        tabulate_by_parts(
            spec,
            public_cells(spec, geography=PLACES),
            tmp_path / "rows.parquet",
            tmp_path / "parts",
            np.zeros(2, np.int64),
        )
    assert "'x'" in str(told.value)
    assert "'x'" in str(also.value)


@pytest.mark.parametrize(
    ("attribute", "text", "needed", "remedies", "unfit"),
    [
        (
            READINGS["months"][0].replace(', other = "other"', ""),
            "31.01.2026",
            "dates such as 2026-03-14, in one of: 2026-01, 2026-02",
            ['form = "DD.MM.YYYY"'],
            ["fold", "bins", "date"],
        ),
        (READINGS["years"][0], "2024", "one of: 2025, 2026", ['other = "other"'], ["fold", "bins", "date"]),
        (
            READINGS["bins"][0],
            "-1",
            "whole numbers from 0",
            ['other = "other"'],
            ["fold", "bins", "date", "form"],
        ),
        (
            'values = ["Male", "Female"]',
            "MALE",
            "one of: Male, Female",
            ["fold = true", 'other = "other"'],
            ["bins", "date"],
        ),
        ('values = ["2025", "2026"]', "2025-03-01", "one of: 2025, 2026", ['date = "year"'], ["fold"]),
    ],
)
def test_a_remedy_of_a_refused_value_fits_the_attribute_and_works(attribute, text, needed, remedies, unfit):
    table = pd.DataFrame({"place": ["a"], "x": [text]})
    spec = _spec(attribute)
    with pytest.raises(DataError) as told:
        read_counts(spec, public_cells(spec, geography=PLACES), table)
    assert needed in told.value.needed
    for remedy in remedies:
        key = remedy.partition(" ")[0]
        assert key in told.value.remedy
        mended = _spec(f"{attribute}, {remedy}")
        assert read_counts(mended, public_cells(mended, geography=PLACES), table).sum() == 1
    assert not [key for key in unfit if f"`{key} =" in told.value.remedy]


def test_other_is_not_advised_for_sums_in_a_table_of_counts():
    spec = parse_spec(
        SPEC.replace("ATTRIBUTE", 'values = ["f", "m"]').replace(
            'kind = "records"', 'kind = "counts", count = "n"'
        )
    )
    table = pd.DataFrame({"place": ["a"] * 3, "x": ["f", "m", "Total"], "n": [1, 2, 3]})
    with pytest.raises(DataError, match="leave out rows of sums such as Total") as told:
        read_counts(spec, public_cells(spec, geography=PLACES), table)
    assert "all other values" not in str(told.value)


def test_columns_of_dates_and_of_numbers_are_read(tmp_path):
    spec = _spec('date = "month", values = ["2026-01", "2026-02"], missing = "no date"')
    dates = pd.to_datetime(pd.Series(["2026-01-05", "2026-02-28", None, "2026-02-01"]))
    table = pd.DataFrame({"place": ["a"] * 4, "x": dates})
    assert _by_both(spec, table, tmp_path)[0].tolist() == [1, 2, 1]
    days = table.assign(
        x=[datetime.date(2026, 1, 1), datetime.date(2026, 2, 1), None, datetime.date(2026, 2, 3)]
    )
    assert read_counts(spec, public_cells(spec, geography=PLACES), days).tolist()[:3] == [1, 2, 1]
    numbers = pd.DataFrame({"place": ["a"] * 3, "x": [3, 15, 70]})
    (tmp_path / "more").mkdir()
    assert _by_both(_spec("bins = [0, 15, 65]"), numbers, tmp_path / "more")[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("bins = [15, 0]", "not in increasing order"),
        ('bins = [0, 15], values = ["young", "old"]', "both bins and values"),
        ('bins = [0, 15], date = "month"', "both bins and dates"),
        ('values = ["a", "A"], fold = true', "twice"),
        ('date = "week", values = ["1"]', "month"),
        ('date = "month", values = ["March"], other = "other"', "'March' is not a month"),
        ('date = "month", values = ["2026-13"]', "'2026-13' is not a month"),
        ('date = "year", values = ["2026-03"]', "'2026-03' is not a year"),
        ('bins = ["0", "3"]', "bins 1 is not a whole number"),
        ("bins = [true, 3]", "bins 1 is not a whole number"),
        ('values = ["a"], fold = "yes"', "fold"),
        ('date = "month", values = ["2026-01"], form = "DD.MM"', "'DD.MM' does not describe a month"),
        ('date = "month", values = ["2026-01"], form = "YYYY"', "'YYYY' does not describe a month"),
        ('date = "month", values = ["2026-01"], form = "YYYY-DD-MM"', "does not describe a month"),
        ('date = "month", values = ["2026-01"], form = "DD.MM/YYYY"', "does not describe a month"),
        ('values = ["2026-01"], form = "DD.MM.YYYY"', "does not describe a date"),
    ],
)
def test_readings_that_contradict_themselves_are_refused(attribute, said):
    with pytest.raises(SpecError, match=said):
        _spec(attribute)


def test_a_random_text_has_one_value_at_most(rng):
    """In Python and SQL, over texts of the characters that matter."""
    parts = [
        AttributePart(name="x", bins=(0, 10), other="o", missing="m", fold=True),
        AttributePart(name="x", values=("2026-01",), date="month", other="o"),
        AttributePart(name="x", values=("2026-01", "1110-11"), date="month", other="o", form="DD.MM.YYYY"),
        AttributePart(name="x", values=("1110", "1101"), date="year", other="o", form="YYYYMMDD"),
        AttributePart(name="x", values=("a b", "0"), fold=True, other="o"),
    ]
    letters = list("0123456789-T: ab A.+Z")
    texts = ["".join(rng.choice(letters, rng.integers(1, 12))) for _ in range(400)]
    texts += ["".join(rng.choice(list("01.-"), rng.integers(4, 11))) for _ in range(400)]
    texts += [f"{day}.{month}.1110" for day in ("1", "01", "00", "32") for month in ("1", "11", "13", "00")]
    connection = duckdb.connect()
    connection.register("given", pd.DataFrame({"x": texts}))
    table = Relation("given", connection.table("given"))
    for part in parts:
        rows = connection.sql(f"SELECT {position_sql(part, table)} AS at FROM given").fetchall()
        domain = compared_values(part)
        for text, (at,) in zip(texts, rows):
            value = value_read(part, plain_text(text))
            assert (domain.index(value) if value in domain else None) == at, text


def test_parts_are_refused_where_persons_are_counted():
    with pytest.raises(ValidationError, match="number of persons"):
        AttributePart(name="x", values=("0", "1"), persons={}, other="o")


def _counted_in_memory(spec, cells, path, folder):
    return read_counts(spec, cells, path).tolist()


def _counted_by_parts(spec, cells, path, folder):
    part = tabulate_by_parts(spec, cells, path, folder / str(path.stat().st_size), np.zeros(2, int)).read(0)
    counts = np.zeros(cells.shape, int)
    counts[part.place, part.cell] = part.count
    return counts.ravel().tolist()


@pytest.mark.parametrize("count", [_counted_in_memory, _counted_by_parts])
def test_counts_of_single_ages_are_added_up_in_their_range(count, tmp_path):
    text = SPEC.replace('kind = "records"', 'kind = "counts", count = "n"').replace(
        "ATTRIBUTE", "bins = [0, 15]"
    )
    spec, path = parse_spec(text), tmp_path / "ages.csv"
    cells = public_cells(spec, geography=PLACES)
    rows = pd.DataFrame({"place": ["a", "a", "b", "a"], "x": [3, 4, 3, 20], "n": [5, 6, 7, 8]})
    rows.to_csv(path, index=False)
    assert count(spec, cells, path, tmp_path) == [11, 8, 7, 0]
    pd.concat([rows, rows[1:2]]).to_csv(path, index=False)  # a row that stands twice is not added
    with pytest.raises(DataError, match=r"line 3\) and row 5 .* about the same cell"):
        count(spec, cells, path, tmp_path)
