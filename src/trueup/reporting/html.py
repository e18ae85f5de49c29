"""HTML of a page: one file that loads nothing from anywhere; and its pictures by themselves."""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from trueup.files.staging import write_whole
from trueup.reporting.drawing.blocks import Column, Page, Table
from trueup.version import __version__

PICTURES = ("figure", "chart", "ridges", "map")
"""Kinds of blocks that are pictures."""
_WIDTH = 760


@dataclass(frozen=True)
class Picture:
    """A picture of a report, which a notebook shows and `save` writes as SVG.

    Attributes
    ----------
    section
        The heading under which it stands in the report.
    block
        What is drawn.
    """

    section: str
    block: Any

    @property
    def caption(self) -> str:
        """Return how to read it."""
        return self.block.caption

    @property
    def message(self) -> str:
        """Return its message, for readers who do not see it."""
        return self.block.message

    def svg(self) -> str:
        """Return the picture as one self-contained SVG document, in the colours of light or dark pages.

        It is laid out by the report's own template and style sheet, so that it is drawn by browsers and notebooks.
        """
        environment = _environment()
        drawn = environment.get_template(f"blocks/{self.block.kind}.html").render(
            block=self.block, at="picture"
        )
        inside = drawn.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"')
        return environment.get_template("picture.svg").render(
            drawn=Markup(inside),
            style=Markup(_source(environment, "page.css")),
            message=self.message,
            width=_WIDTH,
            height=_height(self.block),
        )

    def save(self, path: str | Path) -> None:
        """Write the picture to a new SVG file."""
        write_whole(Path(path), self.svg())

    def __repr__(self) -> str:
        return f"Picture of '{self.section}': {self.message}"

    def _repr_html_(self) -> str:
        text = b64encode(self.svg().encode()).decode()
        return f'<img alt="{escape(self.message)}" width="{_WIDTH}" src="data:image/svg+xml;base64,{text}">'


def _height(block: Any) -> int:
    """Return the pixels that a picture of `_WIDTH` takes, with room for names of two lines."""
    if block.kind == "map":
        return 150 + min(_WIDTH * block.height // block.width, 704)
    caption = 24 * (1 + len(block.caption) // 80)
    if block.kind in ("figure", "ridges"):
        return 120 + caption + (76 if block.kind == "ridges" else 46) * len(block.rows)
    return 470 + caption + 24 * (len(block.series) // 3)


class Report(str):
    """A self-contained HTML page, which a notebook shows and `save` writes.

    Attributes
    ----------
    pictures
        Its pictures, in the order of the page.
    """

    pictures: tuple[Picture, ...]
    title: str

    @classmethod
    def of(cls, page: Page) -> Report:
        """Write a page as one self-contained HTML document; equal pages give equal bytes."""
        made = cls(html(page))
        made.title = page.title
        made.pictures = tuple(
            Picture(section.heading, block)
            for section in page.sections
            for block in section.blocks
            if block.kind in PICTURES
        )
        return made

    def save(self, path: str | Path) -> None:
        """Write the page to a new HTML file.

        Raises
        ------
        BundleError
            If the file exists, or the disk refuses.
        """
        write_whole(Path(path), str(self))

    def __repr__(self) -> str:
        return f"Report: {self.title}\n  {len(self.pictures)} pictures\n  .save('page.html') writes it"

    def _repr_html_(self) -> str:
        style = "width:100%;height:40rem;border:0"
        return f'<iframe title="{escape(self.title)}" style="{style}" srcdoc="{escape(str(self))}"></iframe>'


def html(page: Page, more: str | None = None) -> str:
    """Write a page as one self-contained HTML document; equal pages give equal bytes.

    `more` is a package with the templates and the style sheet (`blocks.css`) of further kinds of blocks.
    """
    environment = _environment(more)
    style, script = (_source(environment, name) for name in ("page.css", "page.js"))
    style += _source(environment, "blocks.css") if more else ""
    return environment.get_template("page.html").render(
        page=page, style=Markup(style), script=Markup(script), policy=_policy(script), version=__version__
    )


def _policy(script: str) -> str:
    """Return the policy that allows this one script, inline style, and no requests."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


@cache
def _environment(more: str | None = None) -> Environment:
    environment = templates("trueup.reporting", *([more] if more else []))
    environment.filters["body"] = _body
    return environment


def templates(*packages: str) -> Environment:
    """Return the templates of packages, in which everything is escaped and unknown names are errors."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        bytecode_cache=_compiled_beside(packages[0]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _compiled_beside(package: str) -> FileSystemBytecodeCache | None:
    """Keep compiled templates beside the package's compiled modules, if that folder can be written."""
    folder = Path(str(files(package))) / "templates" / "__pycache__"
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
    return FileSystemBytecodeCache(str(folder)) if os.access(folder, os.W_OK) else None


def _body(table: Table) -> Markup:
    """Write the rows of a table, escaping whole columns because long tables have most of a page's cells."""
    first, *others = table.columns
    cells = "".join('<td class="n">%s</td>' if column.numeric else "<td>%s</td>" for column in others)
    row = f'<tr><th scope="row">%s</th>{cells}</tr>\n'
    return Markup("".join(map(row.__mod__, zip(*map(_escaped, (first, *others)), strict=True))))


def _escaped(column: Column) -> list[str]:
    if not column.cells:
        return []
    apart = "\0"  # no HTML document may hold it, so no cell does
    return str(escape(apart.join(cell.replace(apart, "") for cell in column.cells))).split(apart)


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
