"""Reader of OpenDocument spreadsheets (ods), row by row, with the interface of openpyxl's workbooks.

A spreadsheet is a ZIP archive whose `content.xml` holds all sheets (OASIS OpenDocument 1.3, part 3, section 9). Equal rows and
cells are written once with their number, which may be a billion in a file of one kilobyte: numbers are bounded before anything is
repeated. Document types, and so entities, are refused.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from xml.parsers import expat
from zipfile import ZipFile

from trueup.errors import DataError

MAX_ROWS, MAX_COLUMNS, MAX_TEXT, MAX_SHEETS = 1_048_576, 16_384, 32_767, 1_000
"""Rows and columns of a sheet and characters of a cell, as of xlsx, and sheets of a file."""
CHUNK = 1 << 16
_NAMESPACE = "urn:oasis:names:tc:opendocument:xmlns:"
_PREFIXES = {"table": "table", "text": "text", "office": "office", "style": "style", "drawing": "draw"}
_SHORT = {f"{_NAMESPACE}{long}:1.0": short for long, short in _PREFIXES.items()}
_SHORT[f"{_NAMESPACE}xsl-fo-compatible:1.0"] = "fo"
_LEFT_OUT = {f"table:{part}" for part in ("shapes", "dde-links", "tracked-changes")}
_LEFT_OUT |= {"office:annotation", "text:note", "text:ruby-text"}
_CELLS = ("table:table-cell", "table:covered-table-cell")
_BLANKS = {"text:tab": "\t", "text:line-break": "\n"}
_LENGTH = re.compile(r"([\d.]+)(cm|mm|in|pt)", re.ASCII)
_STEPS = {"cm": 1 / 0.353, "mm": 1 / 3.53, "in": 7.2, "pt": 0.1}
"""Steps of an indent, of ten points each, in a unit of length."""


class SpreadsheetCell(NamedTuple):
    """A cell of an OpenDocument spreadsheet, with the fields of openpyxl's cells that are read."""

    value: Any
    indent: int = 0

    @property
    def has_style(self) -> bool:
        """Return True if the cell is indented."""
        return self.indent > 0

    @property
    def alignment(self) -> SpreadsheetCell:
        """Return the cell itself, which has the attribute `indent`."""
        return self


class Spreadsheet:
    """An open OpenDocument spreadsheet, whose rows are read from the file at each request.

    Parameters
    ----------
    path, file
        The file's name, for errors, and the file.
    max_cells
        Cells that a sheet may hold once what is repeated has been expanded.
    """

    def __init__(self, path: Path, file: BinaryIO, max_cells: int) -> None:
        self.name, self.max_cells, self._held = path.name, max_cells, ZipFile(file)
        reader = _Reader(self, None)
        for _ in self.parsed(reader):
            pass
        self.sheetnames = list(dict.fromkeys(reader.sheets))

    def __getitem__(self, sheet: str) -> SpreadsheetPage:
        return SpreadsheetPage(self, sheet)

    def close(self) -> None:
        """Close the archive file of the spreadsheet."""
        self._held.close()

    def parsed(self, reader: _Reader) -> Iterator[list[tuple[int, list[SpreadsheetCell]]]]:
        """Yield each row that the parser completes as it reads the file, with its number of repetitions."""
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text, parser.ordered_attributes = True, False
        parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
        parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = reader.text, _refuse_doctype
        with self._held.open("content.xml") as xml:
            while not reader.done and (piece := xml.read(CHUNK)):
                parser.Parse(piece)
                yield reader.taken()
        if not reader.done:
            parser.Parse(b"", True)


class SpreadsheetPage:
    """A sheet of an OpenDocument spreadsheet."""

    def __init__(self, book: Spreadsheet, name: str) -> None:
        self._book, self._name = book, name

    def iter_rows(self, *, values_only: bool) -> Iterator[list[Any]]:
        """Yield the rows of the sheet down to the last nonempty one, each up to its last nonempty cell."""
        blank = 0
        for rows in self._book.parsed(_Reader(self._book, self._name)):
            for times, row in rows:
                if not row:
                    blank += times
                    continue
                yield from ([] for _ in range(blank))
                blank = 0
                for _ in range(times):
                    yield [cell.value for cell in row] if values_only else row


def _refuse_doctype(*_: Any) -> None:
    raise ValueError("it declares a document type, which no spreadsheet needs")


class _Reader:
    """Handlers of an XML parser that collect the rows of one sheet or the names of all sheets."""

    def __init__(self, book: Spreadsheet, sheet: str | None) -> None:
        self.book, self.sheet = book, sheet
        self.sheets: list[str] = []
        self.done = self.inside = self._open = False
        self.indents: dict[str, int] = {}
        self._style = ""
        self._left_out = self._cells = self._rows = 0
        self._found: list[tuple[int, list[SpreadsheetCell]]] = []
        self._times = 1
        self._row: list[SpreadsheetCell] = []
        self._blank = 0  # empty cells that no other has followed
        self._cell: dict[str, str] | None = None
        self._paragraphs: list[str] | None = None
        self._length = 0

    def taken(self) -> list[tuple[int, list[SpreadsheetCell]]]:
        """Return the rows of the sheet that the parser has found since the last call."""
        found, self._found = self._found, []
        return found

    def start(self, name: str, attributes: dict[str, str]) -> None:
        name = _short(name)
        if self._left_out or name in _LEFT_OUT or name.startswith("draw:"):
            self._left_out += 1
        elif name == "table:table":
            self._start_table(attributes)
        elif self.inside:
            self._start_inside(name, attributes)
        elif name == "style:style":
            self._style = _shortened(attributes).get("style:name", "")
        elif name == "style:paragraph-properties":
            self.indents[self._style] = _steps(_shortened(attributes).get("fo:margin-left", ""))

    def _start_table(self, attributes: dict[str, str]) -> None:
        if self._open:  # a table within a cell
            self._left_out = 1
            return
        self._open = True
        self.sheets.append(_shortened(attributes).get("table:name", ""))
        if len(self.sheets) > MAX_SHEETS:
            raise self._larger(f"{MAX_SHEETS:,} sheets")
        self.inside = not self.done and self.sheets[-1] == self.sheet

    def _start_inside(self, name: str, attributes: dict[str, str]) -> None:
        if name == "table:table-row":
            self._row, self._blank = [], 0
            self._times = _number(_shortened(attributes).get("table:number-rows-repeated"))
        elif name in _CELLS:
            self._cell, self._paragraphs, self._length = _shortened(attributes), [], 0
        elif name == "text:p" and self._paragraphs is not None:
            self._paragraphs.append("")
        elif name == "text:s":
            self.text(" " * min(_number(_shortened(attributes).get("text:c")), MAX_TEXT + 1))
        elif name in _BLANKS:
            self.text(_BLANKS[name])

    def text(self, text: str) -> None:
        if self._left_out or not self._paragraphs:
            return
        self._length += len(text)
        if self._length > MAX_TEXT:
            raise self._larger(f"{MAX_TEXT:,} characters in a cell")
        self._paragraphs[-1] += text

    def end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
            return
        name = _short(name)
        if name == "table:table":
            self.inside, self.done, self._open = False, self.inside, False
        elif self.inside and name in _CELLS and self._cell is not None:
            self._end_cell(self._cell, covered=name != _CELLS[0])
        elif self.inside and name == "table:table-row":
            self._end_row()

    def _end_cell(self, told: dict[str, str], *, covered: bool) -> None:
        text, self._cell, self._paragraphs = "\n".join(self._paragraphs or ()), None, None
        times = _number(told.get("table:number-columns-repeated"))
        value = None if covered else _value(told, text)
        if value is None:
            self._blank += times
            return
        if len(self._row) + self._blank + times > MAX_COLUMNS:
            raise self._larger(f"{MAX_COLUMNS:,} columns")
        self._row += [SpreadsheetCell(None)] * self._blank
        self._row += [SpreadsheetCell(value, self.indents.get(told.get("table:style-name", ""), 0))] * times
        self._blank = 0

    def _end_row(self) -> None:
        blank = not self._row
        self._found.append((min(self._times, MAX_ROWS), self._row))
        self._rows += self._times
        self._cells += 0 if blank else len(self._row) * self._times
        if not blank and self._rows > MAX_ROWS:
            raise self._larger(f"{MAX_ROWS:,} rows")
        if self._cells > self.book.max_cells:
            raise self._larger(f"{self.book.max_cells:,} cells")

    def _larger(self, than: str) -> DataError:
        return DataError(
            f"'{self.book.name}' holds more than {than}", remedy="save the table as CSV or Parquet"
        )


def _short(name: str) -> str:
    """Return the name of an XML element with the usual prefix of its namespace."""
    space, _, local = name.rpartition(" ")
    return f"{_SHORT.get(space, '?')}:{local}"


def _shortened(attributes: dict[str, str]) -> dict[str, str]:
    return {_short(name): value for name, value in attributes.items()}


def _number(text: str | None) -> int:
    """Return the number of repetitions that an attribute of an XML element states, at least one."""
    if text is None:
        return 1
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError("the number of repetitions of a cell is not a whole number")
    return max(int(text), 1)


def _value(told: dict[str, str], text: str) -> Any:
    """Return the value of a cell as openpyxl does, or None for an empty cell."""
    kind = told.get("office:value-type")
    if kind in ("float", "percentage", "currency"):
        value = float(told["office:value"])
        return int(value) if value.is_integer() and abs(value) < 1e15 else value
    if kind == "boolean":
        return told["office:boolean-value"] == "true"
    if kind == "date":
        with suppress(ValueError):
            return datetime.datetime.fromisoformat(told["office:date-value"])
    return told.get("office:string-value", text) or None


def _steps(length: str) -> int:
    found = _LENGTH.fullmatch(length)
    return min(round(float(found[1]) * _STEPS[found[2]]), 99) if found else 0
