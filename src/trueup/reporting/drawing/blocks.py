"""Blocks of a page: sections of texts, facts, tables and figures, without any markup.

Each kind of block has the template of its name in `templates/blocks/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from trueup.reporting.drawing.charts import Chart
from trueup.reporting.drawing.map import Map
from trueup.reporting.drawing.pictures import Figure, Ridges


@dataclass(frozen=True, init=False)
class Text:
    """A paragraph for each sentence group."""

    kind: ClassVar[str] = "text"
    paragraphs: tuple[str, ...]

    def __init__(self, *paragraphs: str) -> None:
        object.__setattr__(self, "paragraphs", paragraphs)


@dataclass(frozen=True)
class Notice:
    """A paragraph that must not be overlooked."""

    kind: ClassVar[str] = "notice"
    text: str


@dataclass(frozen=True)
class FoldedText:
    """Paragraphs folded under one line: details for interested readers."""

    kind: ClassVar[str] = "fold"
    summary: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Terms with their values."""

    kind: ClassVar[str] = "facts"
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading with the unit, and one text per row."""

    heading: str
    cells: Sequence[str]
    numeric: bool = False


@dataclass(frozen=True)
class Table:
    """A table; its first column names the rows.

    Attributes
    ----------
    caption
        What it shows.
    columns
        Columns of equal length.
    note
        What a reader must know of it, such as that rows are left out.
    summary
        If given, the table is folded away under this line, and can be searched and sorted.
    unfolded
        Whether a folding table starts open.
    """

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[Column, ...]
    note: str = ""
    summary: str = ""
    unfolded: bool = False

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return len(self.columns[0].cells)


@dataclass(frozen=True)
class Links:
    """Files beside the page: path and what each holds."""

    kind: ClassVar[str] = "links"
    rows: tuple[tuple[str, str], ...]


Block = Text | Notice | FoldedText | Facts | Table | Links | Figure | Chart | Ridges | Map


@dataclass(frozen=True)
class Section:
    """A heading with its blocks; `id` is its anchor."""

    id: str
    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes
    ----------
    title, subtitle
        What the report is about, and what kind of report it is.
    warning
        If given, stands above everything else.
    summary
        The few facts that a hurried reader needs.
    sections
        The body, in order.
    opening
        What it says in plain words, a paragraph each.
    """

    title: str
    subtitle: str
    warning: str
    summary: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    opening: tuple[str, ...] = ()
