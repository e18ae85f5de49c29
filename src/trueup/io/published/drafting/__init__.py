"""A first spec of published tables, from the files themselves: they are public, so all of them is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trueup.errors import DataError, TrueupError
from trueup.files.paths import is_csv, is_parquet, is_workbook
from trueup.io.published.drafting.joined import joined
from trueup.io.published.drafting.look import look_at
from trueup.io.published.drafting.pointers import pointers_of
from trueup.io.published.drafting.roles import SeenTable
from trueup.io.published.drafting.written import written
from trueup.io.published.perturbed import read_perturbed
from trueup.io.published.perturbed.grid import sheets_of
from trueup.model.perturbed import parse_perturbed


class PublishedDraft(NamedTuple):
    """A drafted spec.

    Attributes
    ----------
    text
        The spec in TOML.
    undecided
        What the files do not tell, in words.
    geography
        The list of places that the spec needs: the one given, or the file that points from places to those above.
    """

    text: str
    undecided: tuple[str, ...]
    geography: str | Path | None = None


def draft_published(
    files: Sequence[str | Path], title: str = "Published tables", geography: str | Path | None = None
) -> PublishedDraft:
    r"""Propose levels, margins, codes and laws of published tables, and say what could not be decided.

    Parameters
    ----------
    files
        CSV, Parquet or xlsx; of a workbook every sheet that holds a table.
    title
        Of the spec.
    geography
        The list of places, if there is one: of parent pointers, or of the columns that the files have.

    Raises
    ------
    DataError
        If a file cannot be read, or none holds a table.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "areas.csv"
    >>> _ = file.write_text("Cases by area\n\narea,cases\n01,12\n02,<5\nSource: registry\n")
    >>> print(*draft_published([file]).text.splitlines()[5:10], sep="\n")
    [[published]]
    name = "areas"
    file = "areas.csv"
    level = "area"
    count = "cases"
    """
    seen = [table for file in files for table in _tables_of(file)]
    if not seen:
        raise DataError("no table is found in the files", needed="rows of numbers below a header")
    if geography is None:
        geography = next((file for file in files if pointers_of(file) is not None), None)
    whole = joined(seen, None if geography is None else pointers_of(geography))
    text, undecided = written(whole, title)
    try:
        read_perturbed(parse_perturbed(text), list(dict.fromkeys(files)), geography)
    except TrueupError as error:
        undecided = [*undecided, f"as it stands the spec is refused: {error}"]
    return PublishedDraft(text, tuple(dict.fromkeys(undecided)), geography)


def _tables_of(source: str | Path) -> list[SeenTable]:
    path = Path(source)
    if not (is_workbook(path) or is_csv(path) or is_parquet(path)):
        raise DataError(f"'{path.name}' has an unknown ending", needed="a CSV, Parquet or xlsx file")
    if not path.is_file():
        raise DataError(f"there is no file '{path}'", remedy="check the path")
    sheets = sheets_of(path) if is_workbook(path) else [None]
    found = [table for sheet in sheets if (table := look_at(source, sheet)) is not None]
    return [table._replace(sheet=None) for table in found] if len(sheets) == 1 else found
