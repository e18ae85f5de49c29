"""First specs of published tables, drafted from the whole of the public files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from trueup.errors import DataError, TrueupError
from trueup.files import is_csv, is_parquet, is_workbook
from trueup.io.published.drafting.above import all_above, write_indented_places
from trueup.io.published.drafting.apart import of_finest_kind
from trueup.io.published.drafting.deviations import listed_variances, lists_beside
from trueup.io.published.drafting.joined import joined
from trueup.io.published.drafting.kept_sums import way_without_totals, without_totals
from trueup.io.published.drafting.keys import Draft, Pointers, pointers_of
from trueup.io.published.drafting.laws import listed_transitions
from trueup.io.published.drafting.look import look_at, texts_of
from trueup.io.published.drafting.lookups import places_looked_up, with_listed_places, without_list
from trueup.io.published.drafting.seen import SeenTable, is_number
from trueup.io.published.drafting.sums import sums_missed
from trueup.io.published.drafting.written import written
from trueup.io.published.perturbed import read_perturbed
from trueup.io.published.perturbed.agreeing import SumsKept, sums_kept
from trueup.io.published.perturbed.grid import rows_of, sheets_of
from trueup.model.perturbed import parse_perturbed
from trueup.noise.laws.undrawn import Exact
from trueup.noise.perturbed import CountInterval, Rounded

NEAREST, RANDOM = Rounded.name, "random-rounding"
MOST_NOTES = 100_000
"""Characters of the sheets without a table that are looked through for notes."""


class PublishedDraft(NamedTuple):
    """A drafted spec in TOML, with the list of places that it needs and what could not be decided.

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
    r"""Propose levels, margins, codes and laws of published tables, and list what could not be decided.

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
    tables = {file: _tables_of(file) for file in files}
    seen = [table for each in tables.values() for table in each]
    if not seen:
        raise DataError(
            "no table was found in the files",
            needed="rows of numbers below a header",
            remedy="if numbers stand in the middle of text, write them into cells of their own; or write the spec by hand as "
            "docs/perturbed.md shows, with `skip`, `header` and `below` for the place of the table",
        )
    beside = [*lists_beside(files, seen)]
    seen, variances, noise = listed_variances(beside, seen)
    seen, law, of_law = listed_transitions(beside, seen)
    geography, pointers = _places_of(files, geography)
    listed = places_looked_up(files, seen) if geography is None else None
    seen, lists = _without_lists(seen, listed.pointers.places if listed else frozenset())
    if listed:
        pointers, places = listed.pointers, listed.rows
        seen, said = without_list(seen, listed)
        lists += said
    else:
        seen, pointers, places, said = all_above(seen) if geography is None else (seen, pointers, [], [])
        lists += said
    seen = (
        [with_listed_places(t, pointers.places) for t in seen]
        if pointers
        else [of_finest_kind(table) for table in seen]
    )
    draft = joined(seen, pointers)
    text, known = written(draft, title, variances, law)
    columns = (pointers.id, pointers.parent) if pointers else ("", "")
    read = tuple(dict.fromkeys(entry.seen.file for entry in draft.entries))
    undecided = [*noise, *of_law, *lists, *known]
    try:
        with TemporaryDirectory() as folder:
            listed = (
                write_indented_places(Path(folder) / "places.csv", columns, places) if places else geography
            )
            given = [file for file in tables if Path(file).name in read]
            measured = read_perturbed(parse_perturbed(text), given, listed)
            laws = {header.law.name for header in measured.headers} - {CountInterval.name}
            is_known = bool(variances) or _has_errors(draft)
            added = SumsKept() if is_known else sums_kept(measured, [*laws - {Exact.name}], shown=True)
            if added.chance < CERTAIN_CHANCE:
                text, todo = _without_totals(draft, text, title, law)
                undecided.append(_said_of_added(added, todo))
                measured = read_perturbed(parse_perturbed(text), given, listed)
            elif not is_known and (asked := sums_kept(measured, [*laws], shown=True)).chance < OPEN_CHANCE:
                undecided.append(
                    f"whether totals were added from the published cells: all {asked.kept} published sums equal those of their "
                    "published parts. If so, and if values are perturbed, they tell nothing more than the cells and have to be "
                    f"left out: {way_without_totals(draft)}"
                )
        if sums_missed(measured, NEAREST):
            nearest = rf'name = "{NEAREST}", base = (\d+), ties = "either"'
            text = re.sub(nearest, r'name = "random-rounding", base = \1', text)
            undecided.append("sums of parts exclude rounding to the nearest: it is taken to be at random")
        if not added.kept and (hidden := sums_kept(measured, (NEAREST, RANDOM))).chance < CERTAIN_CHANCE:
            undecided.append(_said_of_added(hidden, way_without_totals(draft)))
        if missed := sums_missed(measured, Exact.name):
            undecided.append(missed.said())
        undecided += [text for text in getattr(measured.spec, "noted", ()) if "is about the sum" in text]
    except TrueupError as error:
        undecided.append(f"as it stands the spec is refused: {error}")
    return PublishedDraft(text, tuple(dict.fromkeys(undecided)), geography, tuple(places), columns, read)


CERTAIN_CHANCE, OPEN_CHANCE = 1e-3, 0.1
"""Chances of sums that agree, at which totals are taken for added from perturbed cells, and at which it is asked."""


def _said_of_added(found: SumsKept, todo: str) -> str:
    """Return a note that published sums equal the sums of their parts, although the law would make them differ."""
    return (
        f"all {found.kept} published sums equal the sums of their published parts, as they would with a chance below "
        f"{CERTAIN_CHANCE:g} if each were perturbed by itself: they are taken for added from perturbed cells, so that they tell "
        f"nothing more; {todo}"
    )


def _has_errors(draft: Draft) -> bool:
    """Return True if a table gives errors or variances beside its values."""
    return any(entry.seen.errors or entry.seen.variance is not None for entry in draft.entries)


def _without_totals(draft: Draft, text: str, title: str, law: str | None) -> tuple[str, str]:
    """Return the spec without totals, or unchanged if totals cannot be told from cells, and a note on what to do."""
    if (finest := without_totals(draft)) is None:
        return text, way_without_totals(draft)
    return written(finest, title, {}, law)[0], "they are left out"


def _without_lists(seen: list[SeenTable], places: frozenset[str]) -> tuple[list[SeenTable], list[str]]:
    """Leave out tables that share no key with the longest table; return the other tables and notes."""
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
    """Return the list of places and its parent pointers: the given one, or the first file that has parent pointers."""
    if geography is not None:
        return geography, pointers_of(geography)
    found = ((file, pointers_of(file)) for file in files)
    return next((pair for pair in found if pair[1] is not None), (None, None))


def _lists_sheets(table: SeenTable, sheets: Sequence[str | None]) -> bool:
    """Return True if a key column of a table lists names of the workbook's sheets."""
    return any(len(key.held) > 1 and set(key.held) <= set(sheets) for key in table.keys)


def _tables_of(source: str | Path) -> list[SeenTable]:
    path = Path(source)
    if not (is_workbook(path) or is_csv(path) or is_parquet(path)):
        raise DataError(
            f"'{path.name}' has an unknown file extension", needed="a CSV, Parquet, xlsx or ods file"
        )
    if not path.is_file():
        raise DataError(f"there is no file '{path}'", remedy="check the path")
    sheets = sheets_of(path) if is_workbook(path) else [None]
    by_sheet = {sheet: look_at(source, sheet) for sheet in sheets}
    by_sheet = {
        sheet: [t for t in tables if not _lists_sheets(t, sheets)] for sheet, tables in by_sheet.items()
    }
    notes = "\n".join(
        texts_of(rows_of(source, sheet)) for sheet, tables in by_sheet.items() if sheet and not tables
    )
    found = [
        table._replace(titles=f"{table.titles}\n{notes[:MOST_NOTES]}") if notes else table
        for tables in by_sheet.values()
        for table in tables
    ]
    return [table._replace(sheet=None) for table in found] if len(sheets) == 1 else found
