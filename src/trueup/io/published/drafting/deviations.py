"""Lists of the noise of tables, columns or categories, published in files of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from trueup.files import is_parquet, is_workbook
from trueup.io.published.drafting.apart import label_of
from trueup.io.published.drafting.keys import DraftedTable
from trueup.io.published.drafting.kinds import VARIANCE, error_of
from trueup.io.published.drafting.look import best_rows
from trueup.io.published.drafting.seen import SeenColumn, SeenTable, is_number
from trueup.io.published.drafting.sums import column_numbers
from trueup.io.published.perturbed.grid import Row, sheets_of
from trueup.io.published.perturbed.under_law import ERRORS

MOST_NAMES = 1000
"""Rows or columns of a list."""
_VARIANCE = re.compile(rf"{VARIANCE.pattern}|.*(sigma|σ) ?(2|²|\^2|squared).*", re.IGNORECASE)
_DEVIATION = re.compile(
    r".*(standard[ _-]?deviat|std[ ._-]*dev|stdev|(?<![^\W_])(sd|std|sigma)(?![^\W_])|σ|desvio|desviaci|[eé]cart[ _-]?type|"
    r"scarto|deviazione|standard(abweichung|afwijking|avvik|afvigelse)|keskihajonta|odchylen|odchylka|odchýlka|szórás|abatere|"
    r"standart sapma|стандартное отклонение|среднеквадратич|τυπική απόκλιση|標準偏差|标准差|標準差|표준편차).*",
    re.IGNORECASE,
)


class ListBeside(NamedTuple):
    """A short file or sheet that may be a list, with the tables in other files or sheets."""

    name: str
    rows: list[Row]
    others: list[SeenTable]


def listed_variances(
    lists: Sequence[ListBeside], seen: Sequence[SeenTable]
) -> tuple[list[SeenTable], dict[str, str], list[str]]:
    """Return the tables without a list of noise, the variance of each name in the list, and notes.

    Names are those of tables, of columns of values or of values of attributes.
    """
    for name, rows, others in lists:
        known = {each.casefold() for table in others for each in _names(table)}
        for way in (rows, [*map(list, zip_longest(*rows, fillvalue=""))]):
            if found := _named_variances(way, known):
                said = (
                    f"'{name}' is taken for a list of the noise of columns, categories or tables, by its words: each variance "
                    "has an entry of its own, and the noise is taken for normal"
                )
                return others, found, [said]
    return [*seen], {}, []


def lists_beside(files: Sequence[str | Path], seen: Sequence[SeenTable]) -> Iterator[ListBeside]:
    """Yield each short file or sheet that may be a list, with the tables in other files or sheets."""
    for file in files:
        for sheet in _sheets(file):
            others = [t for t in seen if (t.file, t.sheet) != (Path(file).name, sheet)]
            own = [t for t in seen if all(t is not other for other in others)]
            if not others or any(len(t.values[0].texts) > MOST_NAMES for t in own):
                continue
            rows = best_rows(file, sheet)[0]
            if len(rows) <= MOST_NAMES and all(len(row) <= MOST_NAMES for row in rows):
                yield ListBeside(sheet or Path(file).name, rows, others)


def _sheets(file: Any) -> Sequence[str | None]:
    path = Path(file)
    sheets = sheets_of(path) if is_workbook(path) else [None]
    return [] if is_parquet(path) else sheets if len(sheets) > 1 else [None]


def _names(table: SeenTable) -> Iterator[str]:
    """Yield the names by which a list of noise may refer to a table, its columns or its attribute values."""
    yield from (label_of(table), table.file, Path(table.file).stem)
    for column in table.values:
        yield from (column.name, *column.path)
    for column in table.attributes:
        yield from column.held


def _named_variances(rows: Sequence[Row], known: set[str]) -> dict[str, str]:
    """Return the variance of each name in a list of noise, or an empty dict if a name is unknown."""
    for at, row in enumerate(rows):
        columns = [
            SeenColumn(heading, (heading,), [line[k] if k < len(line) else "" for line in rows[at + 1 :]])
            for k, heading in enumerate(row)
        ]
        roots = [_root_of(column) for column in columns]
        first = next((k for k, root in enumerate(roots) if root is not None), None)
        if first is None:
            continue
        numbers, root = column_numbers(columns[first]), roots[first]
        others = [column for column, own in zip(columns, roots) if own is None and column.held]
        if any(2 * sum(map(is_number, column.held)) > len(column.held) for column in others):
            return {}  # counts with an error each
        for column in others:
            pairs = [(text.casefold(), x) for text, x in zip(column.texts, numbers) if x is not None]
            told = {name: _variance_text(x, root) for name, x in pairs if x >= 0}
            if len(told) == len(pairs) > 1 and len(told.keys() & known) >= max(2, len(told) - 1):
                return told
    return {}


def _root_of(column: SeenColumn) -> Decimal | None:
    """Return the number of standard deviations in one unit of an error column; 0 for variances, else None."""
    if _VARIANCE.fullmatch(column.name):
        return Decimal(0)
    if _DEVIATION.fullmatch(column.name):
        return Decimal(1)
    kind = error_of(column)
    return Decimal(ERRORS[kind].numerator) / ERRORS[kind].denominator if kind else None


def _variance_text(number: float, root: Decimal | None) -> str:
    given = Decimal(repr(number))
    return f"{(given / root) ** 2 if root else given:.10f}".rstrip("0").rstrip(".")


def entries_by_variance(entry: DraftedTable, variances: Mapping[str, str]) -> list[DraftedTable]:
    """Split an entry of the drafted spec into one entry for each variance in a list of noise."""
    seen = entry.seen
    every = variances.get(label_of(seen).casefold(), variances.get(Path(seen.file).stem.casefold()))
    every = variances.get(seen.file.casefold(), every)
    cells = {
        id(column): _told([column.name, *column.path, *where.values()], variances)
        for column, where in entry.cells
    }
    if any(cells.values()):
        groups = list(dict.fromkeys(cells.values()))
        parts = [[cell for cell in entry.cells if cells[id(cell[0])] == told] for told in groups]
        return [
            replace(
                entry,
                cells=own,
                law=_normal_law_text(entry, told or every),
                seen=seen._replace(values=[column for column, _ in own]),
            )
            for told, own in zip(groups, parts)
        ]
    for column in seen.attributes:
        by_text = {text: _told([text], variances) for text in dict.fromkeys(column.texts)}
        groups = list(dict.fromkeys(by_text.values()))
        if any(groups) and column.name not in seen.only:
            return [
                _of_rows(entry, column, [t for t in by_text if by_text[t] == told], told or every)
                for told in groups
            ]
    return [replace(entry, law=_normal_law_text(entry, every))]


def _normal_law_text(entry: DraftedTable, sigma2: str | None) -> str | None:
    """Return the spec's text for normal noise with a given variance, or None without a variance."""
    if sigma2 is None or not float(sigma2):
        return '{ name = "exact" }' if sigma2 else None
    broken = any(
        x is not None and x != int(x) for column in entry.seen.values for x in column_numbers(column)
    )
    return f'{{ name = "{"" if broken else "discrete-"}gaussian", sigma2 = "{sigma2}" }}'


def _told(names: Sequence[str], variances: Mapping[str, str]) -> str | None:
    return next((variances[name.casefold()] for name in names if name.casefold() in variances), None)


def _of_rows(entry: DraftedTable, column: SeenColumn, texts: list[str], sigma2: str | None) -> DraftedTable:
    """Return an entry for the rows in which a column has given texts, with a variance of its own."""
    rows = entry.seen.of_rows([text in texts for text in column.texts])
    only = {**rows.only, column.name: texts[0] if len(texts) == 1 else texts}
    return replace(entry, law=_normal_law_text(entry, sigma2), seen=rows._replace(only=only))
