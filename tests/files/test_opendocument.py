# ruff: noqa: E501
"""OpenDocument spreadsheets are read as xlsx is; hostile ones are refused in little time and memory."""

from __future__ import annotations

import tracemalloc
import zipfile

import openpyxl
import pytest

from trueup.errors import DataError
from trueup.files.workbook import open_workbook
from trueup.io.published.drafting import draft_published
from trueup.io.published.perturbed.grid import rows_of, sheets_of

NAMES = " ".join(
    f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{long}:1.0"'
    for short, long in {"office": "office", "table": "table", "text": "text", "style": "style", "draw": "drawing",
                        "fo": "xsl-fo-compatible"}.items()
)  # fmt: skip


def written(folder, sheets, head="", styles="", name="made.ods"):
    """Write a spreadsheet whose sheets hold the rows given as XML."""
    pages = "".join(
        f'<table:table table:name="{title}">{rows}</table:table>' for title, rows in sheets.items()
    )
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        out.writestr(
            "content.xml",
            f'<?xml version="1.0"?>{head}<office:document-content {NAMES}><office:automatic-styles>{styles}'
            f"</office:automatic-styles><office:body><office:spreadsheet>{pages}</office:spreadsheet></office:body>"
            "</office:document-content>",
        )
    return path


def text(value, more=""):
    return f'<table:table-cell office:value-type="string" {more}><text:p>{value}</text:p></table:table-cell>'


def number(value, more=""):
    return f'<table:table-cell office:value-type="float" office:value="{value}" {more}><text:p>shown</text:p></table:table-cell>'


def row(*cells, more=""):
    return f"<table:table-row {more}>{''.join(cells)}</table:table-row>"


EMPTY = "<table:table-cell/>"
FAR = 'table:number-columns-repeated="1000000000"'
DEEP = 'table:number-rows-repeated="1000000000"'


def test_cells_are_what_the_same_xlsx_holds(tmp_path):
    held = [
        ["Town", "Kept", None, "Share"],
        ["Ayr", 1234, 0, 0.25],
        ["Bute", -7, None, 1e20],
        [None] * 4,
        ["01", 6, True, 1],
    ]
    book = openpyxl.Workbook()
    for line in held:
        book.active.append(line)
    book.save(tmp_path / "made.xlsx")
    truth = '<table:table-cell office:value-type="boolean" office:boolean-value="true"/>'
    path = written(
        tmp_path,
        {
            "Sheet": row(text("Town"), text("Kept"), EMPTY, text("Share"))
            + row(text("Ayr"), number("1234"), number("0"), number("0.25"))
            + row(text("Bute"), number("-7"), EMPTY, number("1e20"))
            + row(f"<table:table-cell {FAR}/>", more='table:number-rows-repeated="1"')
            + row(text("01"), number("6"), truth, number("1"), f"<table:table-cell {FAR}/>")
            + row(EMPTY, more=DEEP)
        },
    )
    whole = [(line + [""] * 4)[:4] if line else line for line in rows_of(path, None)]
    assert whole == list(rows_of(tmp_path / "made.xlsx", None))


def test_repeated_rows_and_cells_stand_as_often_as_they_are_said_to(tmp_path):
    path = written(
        tmp_path,
        {
            "a": row(
                text("x"),
                number(1, 'table:number-columns-repeated="3"'),
                more='table:number-rows-repeated="2"',
            )
            + row(EMPTY, more='table:number-rows-repeated="3"')
            + row('<table:table-cell table:number-columns-repeated="2"/>', text("y"))
        },
    )
    assert list(rows_of(path, "a")) == [["x", "1", "1", "1"]] * 2 + [[]] * 3 + [["", "", "y"]]


def test_what_is_no_content_of_a_cell_is_left_out(tmp_path):
    note = "<office:annotation><text:p>a note</text:p></office:annotation>"
    inner = f'<table:table table:name="inner">{row(text("in"))}</table:table>'
    footnote = "<text:note><text:note-body><text:p>foot</text:p></text:note-body></text:note>"
    picture = "<draw:frame><draw:text-box><text:p>picture</text:p></draw:text-box></draw:frame>"
    cells = (
        f"<table:table-cell>{note}<text:p>plain<text:s text:c='2'/><text:span>text</text:span>{footnote}</text:p>{picture}{inner}</table:table-cell>",
        '<table:table-cell table:number-columns-spanned="2"><text:p>merged</text:p></table:table-cell>',
        "<table:covered-table-cell><text:p>under it</text:p></table:covered-table-cell>",
        "<table:table-cell><text:p>two</text:p><text:p>lines</text:p></table:table-cell>",
        '<table:table-cell office:value-type="date" office:date-value="2021-04-30"><text:p>30/4</text:p></table:table-cell>',
    )
    shapes = f"<table:shapes>{picture}</table:shapes>"
    path = written(tmp_path, {"first": shapes + row(*cells), "second": row(text("b"))})
    assert sheets_of(path) == ["first", "second"]
    assert list(rows_of(path, "first")) == [["plain  text", "merged", "", "two\nlines", "2021-04-30"]]
    assert list(rows_of(path, "second")) == [["b"]]


def test_indents_of_places_are_read(tmp_path):
    styles = "".join(
        f'<style:style style:name="i{k}" style:family="table-cell"><style:paragraph-properties fo:margin-left="{length}"/></style:style>'
        for k, length in enumerate(("0cm", "0.353cm", "20pt"))
    )
    lines = [
        ("County", 0, 63),
        ("North", 1, 30),
        ("Ash", 2, 10),
        ("Birch", 2, 20),
        ("South", 1, 33),
        ("Cedar", 2, 33),
    ]
    body = "".join(row(text(name, f'table:style-name="i{k}"'), number(n)) for name, k, n in lines)
    path = written(tmp_path, {"a": row(text("Town"), text("Dogs")) + body}, styles=styles)
    assert [line[0] for line in rows_of(path, None, stripped=False)][1:4] == ["County", " North", "  Ash"]
    assert ("Ash", "North") in draft_published([path]).places


@pytest.mark.parametrize(
    "rows",
    [
        row(text("x", FAR)),
        row(EMPTY, f"<table:table-cell {FAR}/>", text("x")),
        row(text("x"), more=DEEP),
        row(EMPTY, more=DEEP) + row(text("x")),
        row(text("x", 'table:number-columns-repeated="16384"'), more='table:number-rows-repeated="1048576"'),
        row(text('<text:s text:c="1000000000"/>')),
        row(text("x" * 40_000)),
        row(text("x" * 32_000 + '<text:s text:c="32000"/>')),
    ],
)  # fmt: skip
def test_what_would_grow_beyond_a_sheet_is_refused_at_once(tmp_path, rows):
    path = written(tmp_path, {"a": row(text("area"), text("n")) + rows})
    tracemalloc.start()
    with pytest.raises(DataError, match="holds more than"):
        list(rows_of(path, None))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


@pytest.mark.thorough
def test_a_million_cells_of_repeated_rows_take_no_memory_but_their_rows(tmp_path):
    wide = row(text("x", 'table:number-columns-repeated="100"'), more='table:number-rows-repeated="10000"')
    path = written(tmp_path, {"a": wide})
    tracemalloc.start()
    assert sum(len(line) for line in rows_of(path, None)) == 1_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


BILLION = '<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>'


@pytest.mark.parametrize(
    ("head", "cell"),
    [
        (BILLION, text("&c;")),
        ('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>', text("&b;")),
        ("<!DOCTYPE a>", text("x")),
        ("", text("&nbsp;")),
        ("", text("x", 'table:number-columns-repeated="-1"')),
        ("", text("x", f'table:number-columns-repeated="{"9" * 5000}"')),
        ("", text("x", 'table:number-columns-repeated="1_0"')),
        ("", number("many")),
        ("", '<table:table-cell office:value-type="float"/>'),
        ("", "<table:table-cell>"),
    ],
)
def test_entities_and_damage_are_refused(tmp_path, head, cell):
    path = written(tmp_path, {"a": row(text("area"), text("n")) + row(cell, number(1))}, head)
    with pytest.raises(DataError, match="cannot be read as a workbook"):
        list(rows_of(path, None))


def test_spreadsheets_that_unpack_to_far_more_or_hold_no_content_are_refused(tmp_path):
    packed = tmp_path / "packed.ods"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out, out.open("content.xml", "w") as part:
        for _ in range(100):
            part.write(b" " * 1_000_000)
    with pytest.raises(DataError, match="expands to more"):
        sheets_of(packed)
    for name, held in (("none.ods", {"mimetype": b""}), ("text.ods", {"content.xml": b"<a/>"})):
        with zipfile.ZipFile(tmp_path / name, "w") as out:
            for part, content in held.items():
                out.writestr(part, content)
        with pytest.raises(DataError, match="cannot be read as a workbook"):
            list(rows_of(tmp_path / name, None))
    many = {f"s{k}": row(text("x")) for k in range(1_001)}
    with pytest.raises(DataError, match="more than 1,000 sheets"):
        sheets_of(written(tmp_path, many))


def test_a_spreadsheet_is_a_table_and_is_drafted(tmp_path):
    lines = [("Ayr", "12", "<5"), ("Bute", "30", "17")]
    cell = lambda value: number(value) if value.isdigit() else text(value.replace("<", "&lt;"))  # noqa: E731
    body = "".join(row(*map(cell, line)) for line in lines)
    path = written(
        tmp_path,
        {
            "notes": row(text("Counts of pets")),
            "Table 1": row(text("Town"), text("dogs"), text("cats")) + body,
        },
    )
    plain = open_workbook(path, "Table 1")
    assert plain.select(["Town", "dogs"])["dogs"].tolist() == [12, 30]
    drafted = draft_published([path]).text
    assert 'sheet = "Table 1"' in drafted
    assert '{ count = "cats", where = { "category" = "cats" } }' in drafted
    with pytest.raises(DataError, match=r"no sheet 'Table 2'.*notes, Table 1"):
        open_workbook(path, "Table 2")
