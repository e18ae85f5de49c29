"""First specs of published tables, drafted from the public files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from trueup.errors import DataError
from trueup.files import is_csv, is_parquet, is_workbook
from trueup.io.published.drafting.above import all_above, write_indented_places
from trueup.io.published.drafting.apart import of_finest_kind
from trueup.io.published.drafting.deviations import listed_variances, lists_beside
from trueup.io.published.drafting.joined import joined
from trueup.io.published.drafting.keys import Pointers, pointers_of
from trueup.io.published.drafting.laws import listed_transitions
from trueup.io.published.drafting.look import look_at, texts_of
from trueup.io.published.drafting.lookups import places_looked_up, with_listed_places, without_list
from trueup.io.published.drafting.seen import SeenTable, is_number
from trueup.io.published.drafting.trial import Drafted
from trueup.io.published.drafting.written import written
from trueup.io.published.perturbed.grid import rows_of, sheets_of

MOST_NOTES = 100_000
"""Characters of the sheets without a table that are looked through for notes."""


class PublishedDraft(NamedTuple):
    """A drafted spec in TOML, with its list of places and notes on what could not be decided.

    Attributes
    ----------
    text
        The spec in TOML.
    undecided
        Notes on what the files do not tell.
    geography
        The list of places that the spec needs: the one given, or the file that points from places to those above.
    places
        The list itself, as pairs of a place and the one above, where indents of a table tell it and no file has it.
    columns
        The names that the spec gives the columns of the list.
    files
        Files that the spec reads.
    """

    text: str
    undecided: tuple[str, ...]
    geography: str | Path | None = None
    places: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, str] = ("", "")
    files: tuple[str, ...] = ()


def draft_published(
    files: Sequence[str | Path], title: str = "Published tables", geography: str | Path | None = None
) -> PublishedDraft:
    r"""Propose levels, margins, codes and noise laws of published tables, and list what could not be decided.

    Parameters
    ----------
    files
        CSV, Parquet, xlsx or ods; of a workbook every sheet that holds a table.
    title
        Title of the spec.
    geography
        The list of places, if there is one: of parent pointers, or of the columns that the files have.

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
    once = tuple(dict.fromkeys(files))
    looked = [table for file in once for table in _tables_of(file)]
    seen = [table for table in looked if table.values]
    shares = [table for table in looked if not table.values]
    if shares and not seen:
        raise DataError(
            f"the files hold only percentages or rates (column '{shares[0].left[0].name}' of '{shares[0].file}')",
            needed="counts: the tables that the percentages were computed from",
            remedy="give the file of these counts; if the column holds counts, take percent signs and words for shares out of it",
        )
    if not seen:
        raise DataError(
            "no table was found in the files",
            needed="rows of numbers below a header",
            remedy="write numbers that stand within text into cells of their own; or write the spec by hand, with `skip`, "
            "`header` and `below` for the place of the table (docs/perturbed.md)",
        )
    beside = [*lists_beside(files, seen)]
    seen, variances, noise = listed_variances(beside, seen)
    seen, law, of_law = listed_transitions(beside, seen)
    seen, listed, of_places = _with_places(seen, files, geography)
    draft = joined(seen, listed.pointers)
    text, known = written(draft, title, variances, law)
    columns = (listed.pointers.id, listed.pointers.parent) if listed.pointers else ("", "")
    read = tuple(dict.fromkeys(entry.seen.file for entry in draft.entries))
    with TemporaryDirectory() as folder:
        file = listed.file
        if listed.rows:
            file = write_indented_places(Path(folder) / "places.csv", columns, listed.rows)
        drafted = Drafted(draft, title, law, has_variances=bool(variances))
        trial = drafted.tried(text, [file for file in once if Path(file).name in read], file)
    of_shares = [
        f"'{table.sheet or table.file}' holds percentages alone, and is left out" for table in shares
    ]
    said = tuple(dict.fromkeys([*of_shares, *noise, *of_law, *of_places, *known, *trial.said]))
    return PublishedDraft(trial.text, said, listed.file, tuple(listed.rows), columns, read)


class _Places(NamedTuple):
    """The list of places: its file if there is one, its parents, and its rows if no file has them."""

    file: str | Path | None
    pointers: Pointers | None
    rows: Sequence[tuple[str, str]] = ()


def _with_places(
    seen: list[SeenTable], files: Sequence[str | Path], geography: str | Path | None
) -> tuple[list[SeenTable], _Places, list[str]]:
    """Return the tables with places from a list, which is given, found in a file, or derived from sums."""
    geography, pointers = _places_of(files, geography)
    listed, more = places_looked_up(files, seen) if geography is None else None, []
    seen, said = _without_lists(seen, listed.pointers.places if listed else frozenset())
    if listed:
        seen, more = without_list(seen, listed)
    elif geography is None:
        seen, listed, more = all_above(seen)
    places = _Places(geography, listed.pointers, listed.rows) if listed else _Places(geography, pointers)
    if places.pointers:
        seen = [with_listed_places(table, places.pointers.places) for table in seen]
    else:
        seen = [of_finest_kind(table) for table in seen]
    return seen, places, [*said, *more]


def _without_lists(seen: list[SeenTable], places: frozenset[str]) -> tuple[list[SeenTable], list[str]]:
    """Return the tables that share a key with the longest table, and notes on the others."""
    longest = max(seen, key=lambda table: len(table.values[0].texts) * len(table.values))
    known = {text for key in longest.keys for text in key.held} | places
    known |= {column.name for column in (*longest.keys, *longest.values)}
    lists = [
        table
        for table in seen
        if table.file != longest.file
        and (
            not known & {text for key in table.keys for text in (*key.held, key.name)}
            or _repeats_codes(table)
        )
    ]
    said = [
        f"'{table.file}' is taken for a list, and left out; if it holds counts, draft it alone"
        for table in lists
    ]
    return [table for table in seen if all(table is not each for each in lists)], said


def _repeats_codes(table: SeenTable) -> bool:
    """Return True if all numbers of a table are codes that also occur in its key columns."""
    codes = {text for key in table.keys for text in key.held}
    for column in table.values:
        numbers = [int(text) for text in column.held if text.isdigit()]
        rising = all(b in (a + 1, 1) for a, b in pairwise(numbers)) and numbers[:1] == [1]
        codes |= set(column.held) if rising else set()
    return all(text in codes for column in table.values for text in column.held if is_number(text))


def _places_of(
    files: Sequence[str | Path], geography: str | Path | None
) -> tuple[str | Path | None, Pointers | None]:
    """Return the list of places, given or found in a file, and its columns of parent pointers."""
    if geography is not None:
        return geography, pointers_of(geography)
    found = ((file, pointers_of(file)) for file in files)
    return next((pair for pair in found if pair[1] is not None), (None, None))


def _tables_of(source: str | Path) -> list[SeenTable]:
    path = Path(source)
    if not (is_workbook(path) or is_csv(path) or is_parquet(path)):
        raise DataError(
            f"'{path.name}' has an unknown file extension", needed="a CSV, Parquet, xlsx or ods file"
        )
    if not path.is_file():
        raise DataError(f"there is no file '{path}'", remedy="check the path")
    sheets = sheets_of(path) if is_workbook(path) else [None]
    by_sheet: dict[str | None, list[SeenTable]] = {
        sheet: [
            table
            for table in look_at(source, sheet)  # but a table of contents
            if not any(len(key.held) > 1 and set(key.held) <= set(sheets) for key in table.keys)
        ]
        for sheet in sheets
    }
    notes = "\n".join(
        texts_of(rows_of(source, sheet))
        for sheet, tables in by_sheet.items()
        if sheet and not any(table.values for table in tables)
    )
    found = [
        table._replace(titles=f"{table.titles}\n{notes[:MOST_NOTES]}") if notes else table
        for tables in by_sheet.values()
        for table in tables
    ]
    return [table._replace(sheet=None) for table in found] if len(sheets) == 1 else found
