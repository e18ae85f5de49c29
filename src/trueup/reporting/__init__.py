"""Reports: one self-contained HTML page about any result of trueup.

A kind of record is a file that lays out its `Page` and one line in `PAGES`. The report computes
nothing private: it reads records and imports no verb.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.files.writing import write_whole
from trueup.model.verb import takes_records
from trueup.reporting.drawing import Column, Page, Table
from trueup.reporting.sections.origin import Ledger
from trueup.version import __version__

if TYPE_CHECKING:
    from trueup.model.perturbed import PerturbedSpec
    from trueup.model.spec import Spec

PICTURES = ("figure", "chart", "ridges", "map")
"""Kinds of blocks that are pictures."""
_WIDTH = 760


@dataclass(frozen=True)
class Picture:
    """A picture of a report; notebooks show it, and it can be saved as SVG.

    Attributes
    ----------
    section
        The heading under which it stands in the report.
    block
        The block that is drawn.
    """

    section: str
    block: Any

    @property
    def caption(self) -> str:
        """Return the sentence on how to read the picture."""
        return self.block.caption

    @property
    def message(self) -> str:
        """Return the message of the picture as text, for readers who do not see it."""
        return self.block.message

    def svg(self) -> str:
        """Return the picture as a self-contained SVG document, in colours for light or dark pages.

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
    """Return the height (pixels) that a picture needs at the width `_WIDTH`."""
    if block.kind == "map":
        return 150 + min(_WIDTH * block.height // block.width, 704)
    caption = 24 * (1 + len(block.caption) // 80)
    if block.kind in ("figure", "ridges"):
        return 120 + caption + (76 if block.kind == "ridges" else 46) * len(block.rows)
    return 470 + caption + 24 * (len(block.series) // 3)


class Report(str):
    """A report as a self-contained HTML page; notebooks show it, and it can be saved as a file.

    Attributes
    ----------
    pictures
        Its pictures, in the order of the page.
    """

    pictures: tuple[Picture, ...]
    title: str

    @classmethod
    def of(cls, page: Page) -> Report:
        """Return the report of a laid-out page; equal pages give equal bytes."""
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
    """Return a page as one self-contained HTML document; equal pages give equal bytes.

    `more` is a package with the templates and the style sheet (`blocks.css`) of further kinds of blocks.
    """
    environment = _environment(more)
    style, script = (_source(environment, name) for name in ("page.css", "page.js"))
    style += _source(environment, "blocks.css") if more else ""
    return environment.get_template("page.html").render(
        page=page, style=Markup(style), script=Markup(script), policy=_policy(script), version=__version__
    )


def _policy(script: str) -> str:
    """Return the content security policy of a report, which allows its own script and styles but no requests."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


@cache
def _environment(more: str | None = None) -> Environment:
    environment = templates("trueup.reporting", *([more] if more else []))
    environment.filters["body"] = _body
    return environment


def templates(*packages: str) -> Environment:
    """Return a loader for the page templates of packages; all values in templates are escaped."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        bytecode_cache=_compiled_beside(packages[0]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _compiled_beside(package: str) -> FileSystemBytecodeCache | None:
    """Return a cache of compiled templates beside the package's compiled modules, or None if that folder is read-only."""
    folder = Path(str(files(package))) / "templates" / "__pycache__"
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
    return FileSystemBytecodeCache(str(folder)) if os.access(folder, os.W_OK) else None


def _body(table: Table) -> Markup:
    """Return the HTML rows of a table; values are escaped by whole columns."""
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


def _page(home: str) -> Callable[..., Page]:
    """Return the function that lays out the page of a kind of result."""
    module, _, name = f"trueup.reporting.pages.{home}".rpartition(".")
    return lambda *given, **options: getattr(import_module(module), name)(*given, **options)


PAGES: dict[str, Callable[..., Page]] = {
    "Measurements": _page("release.measurements_page"),
    "Release": _page("release.release_page"),
    "Allocation": _page("assessment.plan_page"),
    "Assessment": _page("assessment.assessment_page"),
    "Posterior": _page("posterior.posterior_page"),
}
"""The layout of every kind of record, by its name, so that no record is imported for another's page."""


@takes_records
def report(
    record: Any,
    spec: Spec | PerturbedSpec | None = None,
    *,
    ledger: Ledger = None,
    level: float | str = "90%",
    shapes: str | Path | None = None,
    areas: Mapping[str, NDArray] | None = None,
) -> Report:
    """Write the report of a result as one self-contained HTML page.

    Parameters
    ----------
    record
        `Measurements`, `Release`, a planned `Allocation`, an `Assessment` or a `Posterior`.
    spec
        The spec that it was made from; by default the one that it knows.
    ledger
        Entries of the ledger on the release, by name; None if no ledger was kept.
    level
        For a release, the probability with which an error is no larger than its margin.
    shapes
        For a release, a GeoJSON file with shapes of places for a map. A property of each shape holds the key of its place.
    areas
        For a posterior, requested areas that are not in the hierarchy, which the page pictures first; see
        `trueup.inferring.questions.infer_areas`.

    Returns
    -------
    Report
        The page, a text with `save(path)` and `pictures`. It loads nothing; equal records give equal bytes.

    Raises
    ------
    SpecError
        If there is no report for that kind of record, or it was made without its spec.

    Examples
    --------
    >>> import pandas, trueup
    >>> from trueup.demo import AREAS
    >>> noisy = trueup.measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}))
    >>> page = report(trueup.reconcile(noisy))
    >>> [picture.section for picture in page.pictures]
    ['What the numbers say', 'What it cost', 'Expected error', 'What reconciliation changed']
    >>> report(3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    trueup.errors.SpecError: no report can be made of a int. Needed: one of Measurements, Release, ...
    """
    kind = next((kind.__name__ for kind in type(record).__mro__ if kind.__name__ in PAGES), None)
    if kind is None:
        raise SpecError(
            f"no report can be made of a {type(record).__name__}", needed=f"one of {', '.join(PAGES)}"
        )
    stated = getattr(record, "spec", None) if spec is None else spec
    if stated is None:
        raise SpecError(
            f"the {type(record).__name__} was made without its spec", remedy="give it: report(record, spec)"
        )
    lay_out, options = PAGES[kind], {}
    if kind == "Release":
        options = {"level": level, "shapes": shapes}
    elif shapes is not None:
        raise SpecError(f"shapes of places are given for a {kind}", needed="a Release, or no shapes")
    if kind == "Posterior":
        options = {"areas": areas}
    elif areas is not None and kind != "Release":
        raise SpecError(f"areas are given for a {kind}", needed="a Posterior, or no areas")
    return Report.of(lay_out(record, stated, ledger, **options))
