"""From a page to HTML: one file, nothing loaded from anywhere."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from trueup.reporting.drawing.blocks import Column, Page, Table
from trueup.version import __version__


def html(page: Page) -> str:
    """Write a page as one self-contained HTML document; equal pages give equal bytes."""
    environment = _environment()
    style, script = (_source(environment, name) for name in ("page.css", "page.js"))
    return environment.get_template("page.html").render(
        page=page, style=Markup(style), script=Markup(script), policy=_policy(script), version=__version__
    )


def _policy(script: str) -> str:
    """Allow this one script, inline style, and no request to anywhere."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("trueup.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["body"] = _body
    return environment


def _body(table: Table) -> Markup:
    """Write the rows of a table; columns are escaped whole, since a long table has most of a page's cells."""
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
