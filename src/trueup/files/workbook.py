"""Reader of workbooks (xlsx and ods) as tables, and writer of xlsx workbooks.

An xlsx workbook is a ZIP archive of XML (ECMA-376). Rows are written from templates, whole columns are escaped at once: packages
that make an object for each cell take several times as long, and one takes a label in angle brackets for markup of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from warnings import catch_warnings
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
from markupsafe import escape
from numpy.typing import NDArray

from trueup.errors import DataError, TrueupError
from trueup.files import OPENDOCUMENT, Held

MAX_UNPACKED_BYTES, MAX_CELLS = 500_000_000, 20_000_000
"""Bytes that a workbook may unpack to, and cells that are read of it."""
ALWAYS_UNPACKED_BYTES, DENSEST, MEMBERS = 20_000_000, 100, 10_000
"""Bytes to which any workbook may unpack, how many times its own size a larger one may, and its parts."""


def open_workbook(path: Path, sheet: str | None = None) -> Held:
    """Read one sheet of a workbook as a table.

    Parameters
    ----------
    path, sheet
        The file, and the sheet's name; by default the first.

    Raises
    ------
    DataError
        If the file, the sheet or the header is missing or damaged, or the extra `excel` is not installed.
    """
    with opened_workbook(path) as book:
        rows = _filled_rows(path, sheet_of(path, book, sheet))
    return Held(f"'{path.name}'", _sheet_columns(path, rows))


@contextmanager
def opened_workbook(path: Path) -> Iterator[Any]:
    """Open a workbook until the end of a `with` block, and turn the reader's errors into DataErrors.

    Links to others are not followed, its word on its own size is not believed, and one that unpacks to far more is not opened.
    """
    try:
        with path.open("rb") as file, catch_warnings(action="ignore"):  # openpyxl's quote cells
            _refuse_packed(path, file)
            with closing(_book(path, file)) as book:
                yield book
    except TrueupError:
        raise
    except FileNotFoundError:
        raise DataError(f"there is no file '{path}'", remedy="check the path") from None
    except Exception:  # whatever a damaged file makes the reader stumble over
        raise DataError(
            f"'{path.name}' cannot be read as a workbook", remedy="save it again as .xlsx or CSV"
        ) from None


def _book(path: Path, file: BinaryIO) -> Any:
    if path.name.lower().endswith(OPENDOCUMENT):
        from trueup.files.opendocument import Spreadsheet

        return Spreadsheet(path, file, MAX_CELLS)
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise DataError(
            f"'{path.name}' is a workbook", needed="package openpyxl", remedy="pip install 'trueup[excel]'"
        ) from None
    return load_workbook(file, read_only=True, data_only=True, keep_links=False)


def sheet_of(path: Path, book: Any, sheet: str | None) -> Any:
    """Return the named sheet of an open workbook, by default the first one."""
    if sheet is not None and sheet not in book.sheetnames:
        raise DataError(
            f"'{path.name}' has no sheet '{sheet}'", needed=f"one of: {', '.join(book.sheetnames)}"
        )
    page = book[sheet or book.sheetnames[0]]
    if hasattr(page, "reset_dimensions"):
        page.reset_dimensions()
    return page


def _refuse_packed(path: Path, file: BinaryIO) -> None:
    """Refuse a workbook whose archive expands far beyond its own size."""
    with ZipFile(file) as held:
        unpacked, members = sum(part.file_size for part in held.infolist()), len(held.infolist())
    allowed = min(MAX_UNPACKED_BYTES, max(ALWAYS_UNPACKED_BYTES, DENSEST * path.stat().st_size))
    if unpacked > allowed or members > MEMBERS:
        raise DataError(
            f"'{path.name}' expands to more than {allowed:,} bytes or {MEMBERS:,} parts",
            remedy="save the table as CSV or Parquet",
        )


def _filled_rows(path: Path, sheet: Any) -> list[list[Any]]:
    """Return the header and every nonempty row below it."""
    rows: list[list[Any]] = []
    for row in sheet.iter_rows(values_only=True):
        held = list(row[: len(rows[0])] if rows else row)
        if rows and all(value is None for value in held):
            continue
        while not rows and held and held[-1] is None:
            held.pop()
        rows.append(held)
        if len(rows) * len(rows[0]) > MAX_CELLS:
            raise DataError(f"'{path.name}' holds more than {MAX_CELLS:,} cells", remedy="save it as CSV")
    return rows


def _sheet_columns(path: Path, rows: list[list[Any]]) -> dict[str, NDArray]:
    header = [str(name).strip() for name in (rows[0] if rows else []) if name is not None]
    if not header or len(set(header)) < len(header):
        raise DataError(
            f"the header of '{path.name}' {'has a repeated name' if header else 'is empty'}",
            needed="a header row with a different name for each column",
            remedy="keep one header row above the data; pandas (reset_index) and R (pivot_longer) write such tables",
        )
    width = len(rows[0])
    at = [k for k, name in enumerate(rows[0]) if name is not None]
    body = [row + [None] * (width - len(row)) for row in rows[1:] if any(value is not None for value in row)]
    return {name: np.array([row[k] for row in body], dtype=object) for name, k in zip(header, at)}


ROWS_PER_WRITE = 1 << 14
"""Rows that are written at a time."""
MAX_CELL_CHARACTERS = 32_767
"""Characters of a cell."""
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_LIKE_AN_ESCAPE = re.compile("_(?=x[0-9A-Fa-f]{4}_)")  # which Excel would read as a character
_PLAIN, _TEXT, _HEADING = range(3)
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"


@dataclass(frozen=True, eq=False)
class Sheet:
    """A sheet of a workbook to write: name, columns, and column widths.

    Attributes
    ----------
    name
        Name that Excel accepts: at most 31 characters, without `[]:*?/\\`.
    columns
        Equally long columns by their headings; masked or NaN where a cell is empty.
    text
        Headings of the columns that hold text, whatever it looks like.
    widths
        Characters that each column shows.
    """

    name: str
    columns: Mapping[str, Sequence[Any] | NDArray]
    text: frozenset[str]
    widths: tuple[int, ...]


def workbook_of(sheets: Sequence[Sheet], title: str) -> bytes:
    """Return a workbook as bytes with the given sheets; equal sheets give equal bytes.

    Examples
    --------
    >>> from openpyxl import load_workbook
    >>> held = workbook_of([Sheet("a", {"key": ["01", "=1+1"], "n": np.array([3, 4])}, frozenset({"key"}), (8, 8))], "Title")
    >>> [[cell.value for cell in row] for row in load_workbook(BytesIO(held))["a"]]
    [['key', 'n'], ['01', 3], ['=1+1', 4]]
    """
    held = BytesIO()
    with ZipFile(held, "w", ZIP_DEFLATED) as book:
        for name, text in _archive_parts([sheet.name for sheet in sheets], title).items():
            book.writestr(_archive_entry(name), _XML + text)
        for number, sheet in enumerate(sheets, 1):
            with book.open(_archive_entry(f"xl/worksheets/sheet{number}.xml"), "w") as file:
                for piece in _sheet(sheet):
                    file.write(piece.encode())
    return held.getvalue()


def _archive_entry(name: str) -> ZipInfo:
    entry = ZipInfo(name)  # dated 1980, so that equal tables give equal files
    entry.compress_type = ZIP_DEFLATED
    return entry


def _sheet(sheet: Sheet) -> Iterator[str]:
    """Yield the XML of a sheet in batches of rows; the heading stays in view when the sheet is scrolled."""
    yield (
        f'{_XML}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" '
        'activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><cols>'
    )
    for at, width in enumerate(sheet.widths, 1):
        yield f'<col min="{at}" max="{at}" width="{width}" customWidth="1"/>'
    yield (
        "</cols><sheetData><row>"
        + "".join(_text_cell(_HEADING) % t for t in escaped(list(sheet.columns)))
        + "</row>"
    )
    cells = [_text_cell(_TEXT) if name in sheet.text else "%s" for name in sheet.columns]
    row = f"<row>{''.join(cells)}</row>"
    size = len(next(iter(sheet.columns.values()), ()))
    for start in range(0, size, ROWS_PER_WRITE):
        some = [
            escaped(column[start : start + ROWS_PER_WRITE])
            if name in sheet.text
            else _number_cells(column[start : start + ROWS_PER_WRITE])
            for name, column in sheet.columns.items()
        ]
        yield "".join(map(row.__mod__, zip(*some, strict=True)))
    yield "</sheetData></worksheet>"


def _text_cell(style: int) -> str:
    return f'<c s="{style}" t="inlineStr"><is><t xml:space="preserve">%s</t></is></c>'


def escaped(texts: Sequence[Any] | NDArray) -> list[str]:
    """Return texts escaped for XML, with a replacement for each character that XML does not allow.

    Examples
    --------
    >>> escaped(["a & b", "<r>", "x\\x00"])
    ['a &amp; b', '&lt;r&gt;', 'x\\ufffd']
    """
    plain = [_NOT_IN_XML.sub("\ufffd", text) for text in map(str, np.asarray(texts, dtype=object).tolist())]
    whole = str(escape("\0".join(text[:MAX_CELL_CHARACTERS] for text in plain)))
    return _LIKE_AN_ESCAPE.sub("_x005F_", whole).split("\0") if plain else []


def _number_cells(values: Any) -> list[str]:
    """Return the XML of cells with numbers. A missing number gives an empty cell."""
    known = np.ma.masked_invalid(values) if np.asarray(values).dtype.kind == "f" else np.ma.asarray(values)
    return ["<c/>" if value is None else f"<c><v>{value}</v></c>" for value in known.tolist()]


def _archive_parts(names: Sequence[str], title: str) -> dict[str, str]:
    """Return all parts of the workbook's archive other than the sheets."""
    numbers = range(1, len(names) + 1)
    sheets = "".join(
        f'<sheet name="{n}" sheetId="{i}" r:id="rId{i}"/>' for i, n in zip(numbers, escaped(names))
    )
    links = "".join(
        f'<Relationship Id="rId{i}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{i}.xml"/>'
        for i in numbers
    )
    kinds = "".join(
        f'<Override PartName="/xl/worksheets/sheet{i}.xml" ContentType="{_KIND}.worksheet+xml"/>'
        for i in numbers
    )
    return {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_KIND}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{_KIND}.styles+xml"/>'
        '<Override PartName="/docProps/core.xml" ContentType="application/vnd.openxmlformats-package.core-properties+xml"/>'
        f"{kinds}</Types>",
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
        f'<Relationship Id="rId2" Type="{_PACKAGE}/relationships/metadata/core-properties" Target="docProps/core.xml"/>'
        "</Relationships>",
        "docProps/core.xml": f'<cp:coreProperties xmlns:cp="{_PACKAGE}/metadata/core-properties" '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{escaped([title])[0]}</dc:title>'
        "<dc:creator>trueup</dc:creator></cp:coreProperties>",
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{sheets}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{links}'
        f'<Relationship Id="rId{len(names) + 1}" Type="{_OFFICE}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": _STYLES,
    }


_STYLES = (
    f'<styleSheet xmlns="{_MAIN}"><fonts count="2"><font><sz val="11"/><name val="Calibri"/></font>'
    '<font><b/><sz val="11"/><name val="Calibri"/></font></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill></fills>'
    '<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
    '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
    '<cellXfs count="3"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>'
    '<xf numFmtId="49" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>'
    '<xf numFmtId="49" fontId="1" fillId="0" borderId="0" xfId="0" applyNumberFormat="1" applyFont="1"/></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
)
"""Plain cells, text, and headings, in the order of the numbers of styles; 49 is Excel's format of text."""
