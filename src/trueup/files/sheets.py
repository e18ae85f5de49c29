"""Write workbooks (xlsx) of tables: a batch of rows at a time, text typed as text.

A workbook is a ZIP archive of XML (ECMA-376). Rows are written from templates, whole columns are escaped at once: packages that
make an object for each cell take several times as long, and one takes a label in angle brackets for markup of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
from markupsafe import escape
from numpy.typing import NDArray

BATCH = 1 << 14
"""Rows that are written at a time."""
LONGEST_TEXT = 32_767
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
    """A sheet of a workbook.

    Attributes
    ----------
    name
        As Excel takes it: at most 31 characters, without `[]:*?/\\`.
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
    """Write sheets as one workbook; equal sheets give equal bytes.

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
    """Yield the XML of a sheet: its heading stays in view, then rows in batches."""
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
    for start in range(0, size, BATCH):
        some = [
            escaped(column[start : start + BATCH])
            if name in sheet.text
            else _number_cells(column[start : start + BATCH])
            for name, column in sheet.columns.items()
        ]
        yield "".join(map(row.__mod__, zip(*some, strict=True)))
    yield "</sheetData></worksheet>"


def _text_cell(style: int) -> str:
    return f'<c s="{style}" t="inlineStr"><is><t xml:space="preserve">%s</t></is></c>'


def escaped(texts: Sequence[Any] | NDArray) -> list[str]:
    """Return texts escaped for XML, all at once; characters that XML does not allow are replaced.

    Examples
    --------
    >>> escaped(["a & b", "<r>", "x\\x00"])
    ['a &amp; b', '&lt;r&gt;', 'x\\ufffd']
    """
    plain = [_NOT_IN_XML.sub("\ufffd", text) for text in map(str, np.asarray(texts, dtype=object).tolist())]
    whole = str(escape("\0".join(text[:LONGEST_TEXT] for text in plain)))
    return _LIKE_AN_ESCAPE.sub("_x005F_", whole).split("\0") if plain else []


def _number_cells(values: Any) -> list[str]:
    """Write cells of numbers, empty for missing ones."""
    known = np.ma.masked_invalid(values) if np.asarray(values).dtype.kind == "f" else np.ma.asarray(values)
    return ["<c/>" if value is None else f"<c><v>{value}</v></c>" for value in known.tolist()]


def _archive_parts(names: Sequence[str], title: str) -> dict[str, str]:
    """Return all parts of the archive except the sheets."""
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
