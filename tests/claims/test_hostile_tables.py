"""Claim: nothing that a confidential table holds is told by what reads it, whatever types and bytes stand there.

Readers below (DuckDB, Arrow, pandas, polars, openpyxl) quote values in their errors and warnings. A workbook's cell that is
marked as a date and holds a large count was printed with the count and the cell's address, under a ledger too.
"""

import gzip
import io
import os
import random
import traceback
import warnings
from contextlib import redirect_stderr, suppress
from decimal import Decimal
from pathlib import Path

import duckdb
import openpyxl
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import linked_tables
from trueup.errors import TrueupError
from trueup.files import JoinedTables
from trueup.ledger.account import Account
from trueup.ledger.ledger import Ledger
from trueup.ledger.request import Terms
from trueup.model.spec import Spec, parse_spec
from trueup.releasing import pipeline
from trueup.run.local import LocalPool

WORD, NUMBER = "Sekret", 73459988
"""What is looked for in all that is said."""
PLACES = pandas.DataFrame({"block": ["11", "12", "13"]})
HEAD = """
format = 2
title = "t"
privacy = {{ unit = "person", neighbours = "add-remove"{more} }}
level = [{{ name = "all" }}, {{ name = "block", column = "block" }}]
query = [{{ name = "q", attributes = ["sex"], noise = "discrete-gaussian", rho = {{ block = "1/1000" }} }}]
table = {{ name = "t", {table} }}
attribute = [{{ name = "sex", {attribute} }}]
"""
RECORDS, SEX = 'kind = "records", counts = "visit"', 'values = ["f", "m"]'
CELLS = '[{ count = "n", where = { sex = "f" } }, { count = "a - b", where = { sex = "m" } }]'
LIMIT = ', id = "pid", contribution = { records = 2 }'
SPECS = {
    "counts": ('kind = "counts", counts = "person", count = "n"', SEX, ""),
    "wide": (f'kind = "counts", counts = "person", cell = {CELLS}', SEX, ""),
    "records": (RECORDS, SEX, ""),
    "limit": (RECORDS, SEX, LIMIT),
    "bins": (RECORDS, 'column = "age", bins = [0, 15, 65], missing = "none", other = "odd"', ""),
    "dates": (RECORDS, 'column = "day", values = ["2026-01", "2026-02"], date = "month"', ""),
}
TEXTS = [
    WORD, f"{WORD}\0", "9" * 300 + str(NUMBER), float(NUMBER), NUMBER, -NUMBER, None, f"{NUMBER}.5", f"2026-13-99{WORD}",
    f"1e400{NUMBER}", NUMBER * 10**9, f"é{WORD}", f'"{WORD}', f'{WORD}"x', f"\r{WORD}", f"a,{WORD}", NUMBER + 0.5,
]  # fmt: skip
COLUMNS = [
    lambda n: pa.array([WORD] * n),
    lambda n: pa.array([NUMBER + i for i in range(n)]),
    lambda n: pa.array([NUMBER + 0.25] * n),
    lambda n: pa.array([2**62 + NUMBER] * n),
    lambda n: pa.array([2**64 - NUMBER] * n, pa.uint64()),
    lambda n: pa.array([f"{WORD}".encode() + b"\xff"] * n),
    lambda n: pa.array([[NUMBER]] * n),
    lambda n: pa.array([{"a": WORD}] * n),
    lambda n: pa.array([NUMBER] * n, pa.timestamp("s")),
    lambda n: pa.array([NUMBER] * n, pa.date32()),
    lambda n: pa.array([NUMBER] * n, pa.duration("s")),
    lambda n: pa.array([Decimal(f"{NUMBER}.{NUMBER}")] * n),
    lambda n: pa.array([float("inf"), float("nan")] * n)[:n],
    lambda n: pa.DictionaryArray.from_arrays(pa.array([0] * n), pa.array([WORD])),
    lambda n: pa.nulls(n),
]
FORMS = ["csv", "bytes", "gz", "xlsx", "parquet", "damaged", "arrow", "pandas", "duckdb", "polars"]
BYTES = [b'"', b"\n", b"\0", b"\xff", b",", b"\r", b'""', WORD.encode(), str(NUMBER).encode()]


def honest(kind):
    if kind == "wide":
        return pandas.DataFrame({"block": ["11", "12", "13"], "n": 5, "a": 9, "b": 1})
    rows = [
        (b, s, a, d)
        for b in PLACES["block"]
        for s, a, d in (("f", "3", "2026-01-03"), ("m", "70", "2026-02-11"))
    ]
    return pandas.DataFrame(rows, columns=["block", "sex", "age", "day"]).assign(
        n=range(4, 10), pid=[*"pqrpqr"]
    )


def hostile(kind, folder, chance):
    """A table at fault, in one of the forms that are read."""
    table, form = honest(kind), chance.choice(FORMS)
    if form in ("csv", "bytes", "gz", "xlsx"):
        table = table.astype(object)
        for _ in range(chance.choice([1, 1, 2])):
            table.iat[chance.randrange(len(table)), chance.randrange(table.shape[1])] = chance.choice(TEXTS)
        return _text(table, form, folder, chance)
    held = pa.Table.from_pandas(table)
    for _ in range(chance.choice([1, 1, 2])):
        at = chance.randrange(held.num_columns)
        held = held.set_column(at, held.column_names[at], chance.choice(COLUMNS)(held.num_rows))
    if form in ("parquet", "damaged"):
        pq.write_table(held, folder / "d.parquet")
        return _damaged(folder / "d.parquet", chance) if form == "damaged" else folder / "d.parquet"
    if form == "polars":
        import polars

        return polars.from_arrow(held)
    return {"arrow": held, "pandas": held.to_pandas(), "duckdb": duckdb.from_arrow(held)}[form]


def _text(table, form, folder, chance):
    if form == "xlsx":
        path = folder / "d.xlsx"
        table.map(lambda x: x.replace("\0", "") if isinstance(x, str) else x).to_excel(path, index=False)
        book = openpyxl.load_workbook(path)
        cell = book.active.cell(2 + chance.randrange(len(table)), 1 + chance.randrange(table.shape[1]))
        cell.value, cell.number_format = 100 * NUMBER, "yyyy-mm-dd"
        book.save(path)
        return path
    path = folder / f"d.csv{'.gz' if form == 'gz' else ''}"
    held = bytearray(table.to_csv(index=False).encode("utf-8", "surrogatepass"))
    if form == "bytes":
        at = chance.randrange(len(held))
        held[at : at + 1] = chance.choice(BYTES)
    path.write_bytes(gzip.compress(bytes(held)) if form == "gz" else bytes(held))
    return _damaged(path, chance) if form == "gz" and chance.random() < 0.5 else path


def _damaged(path, chance):
    held = bytearray(path.read_bytes())
    held[chance.randrange(4, len(held))] ^= 1 << chance.randrange(8)
    path.write_bytes(held)
    return path


def linked(chance):
    """Persons and households, one column of theirs at fault."""
    import numpy as np

    tables = linked_tables.population(np.random.default_rng(chance.randrange(99)), 8, PLACES)
    held = [pa.Table.from_pandas(t, preserve_index=False) for t in (tables.persons, tables.households)]
    which = chance.randrange(2)
    at = chance.randrange(held[which].num_columns)
    name = held[which].column_names[at]
    held[which] = held[which].set_column(at, name, chance.choice(COLUMNS)(held[which].num_rows))
    return Spec.model_validate(linked_tables.document()), JoinedTables(*held)


def told(folder, spec, data, account, parts):
    """All that a run says on its streams and in its error, with the errors below it that Python shows; and the error."""
    said, error = io.StringIO(), None
    read, write = os.pipe()
    own = os.dup(2)
    os.dup2(write, 2)
    try:
        with redirect_stderr(said), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            more = {"executor": LocalPool(1), "places": 4} if parts else {}
            run = pipeline.release if parts else pipeline.measure_only
            run(spec, data, folder / "out", geography=PLACES, account=account, **more)
    except Exception as found:
        error = found
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(write)
    with os.fdopen(read, "rb") as stream:
        below = stream.read().decode("utf-8", "replace")
    below += " ".join(str(warning.message) for warning in warned)
    return said.getvalue() + below + ("".join(traceback.format_exception(error)) if error else ""), error


def attack(folder, chance):
    """One hostile table, given to a run; what is wrong with what it said, if anything is."""
    kind = chance.choice([*SPECS, "linked"])
    if kind == "linked":
        spec, data = linked(chance)
    else:
        table, attribute, more = SPECS[kind]
        spec = parse_spec(HEAD.format(table=table, attribute=attribute, more=more))
        data = hostile(kind, folder, chance)
    account, dataset = None, spec.table.name
    if chance.random() < 0.6:
        ledger = Ledger.create(str(folder / "l.db"))
        ledger.init(dataset, {"rho": "100"}, terms=Terms(spec.privacy.unit, "add-remove", checks=99))
        account = Account(ledger, "ana")
    said, error = told(folder, spec, data, account, parts=chance.random() < 0.4)
    if account:
        said += "".join(entry.body for entry in account.ledger.entries())
    wrong = [held for held in (WORD, str(NUMBER), str(NUMBER)[:6]) if held in said]
    if error is not None and not isinstance(error, TrueupError):
        wrong.append(repr(error))
    return wrong and [
        kind,
        getattr(data, "name", type(data).__name__),
        *wrong,
        said[-500:],
    ], error is not None


def attacks(tmp_path, seed, many):
    chance, refused = random.Random(seed), 0
    for number in range(many):
        folder = tmp_path / str(number)
        folder.mkdir()
        with suppress(pa.ArrowException, ValueError, OverflowError):  # a table that cannot be made
            wrong, was_refused = attack(folder, chance)
            assert not wrong, (seed, number)
            refused += was_refused
    assert refused > many // 4, "too few tables were refused: the test has no power"


@pytest.mark.thorough
def test_no_value_of_a_hostile_table_is_told(tmp_path):
    attacks(tmp_path, 47, 16)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_no_value_of_many_hostile_tables_is_told(tmp_path, seed):
    attacks(tmp_path, seed, 250)


@pytest.mark.parametrize("ledger", [False, True])
def test_a_cell_marked_as_a_date_is_not_quoted(tmp_path, ledger):
    """The warning of openpyxl held the cell and its value."""
    path, book = tmp_path / "d.xlsx", openpyxl.Workbook()
    for row in (["block", "sex", "n"], ["11", "f", 5], ["11", "m", 100 * NUMBER]):
        book.active.append(row)
    book.active["C3"].number_format = "yyyy-mm-dd"
    book.save(path)
    account = None
    if ledger:
        account = Account(Ledger.create(str(tmp_path / "l.db")), "ana")
        account.ledger.init("t", {"rho": "1"}, terms=Terms("person", "add-remove"))
    table, attribute, more = SPECS["counts"]
    spec = parse_spec(HEAD.format(table=table, attribute=attribute, more=more))
    said, error = told(tmp_path, spec, Path(path), account, parts=False)
    assert isinstance(error, TrueupError)
    assert str(NUMBER) not in said
    assert ("C3" in said, "row 2" in said) == (False, not ledger)
