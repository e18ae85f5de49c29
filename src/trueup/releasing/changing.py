"""Changes between two releases of the same places, with the uncertainty from noise.

One file: places and values are paired for the comparison alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from trueup.errors import BundleError, DataError, SpecError, did_you_mean
from trueup.files import require
from trueup.files.source import open_table
from trueup.files.target import refuse_file
from trueup.files.values import as_text, without_blanks
from trueup.files.writing import write_csv, write_parquet
from trueup.io.bundle.kept_posterior import is_posterior, read_posterior
from trueup.io.bundle.read import read_release
from trueup.model.cells import Cells, Margin
from trueup.model.nested import canonical
from trueup.model.records.answer import CountChanges
from trueup.model.records.asked import ask_draws
from trueup.model.records.places_asked import Names
from trueup.model.records.posterior import Posterior
from trueup.model.records.quantity import describe_draws, described_where_defined
from trueup.model.records.release import Release
from trueup.model.records.together import two_periods
from trueup.model.statements import limited_sentence
from trueup.model.tables import probability_of

BEFORE, AFTER = "before", "after"
"""Columns of a crosswalk."""


def years_between(old: Cells, new: Cells, margin: Margin) -> str:
    """Return words for the number of years between the dates in two releases; refuse other differences in values."""
    said = []
    for kept, known in zip(new.kept(margin), old.kept(old.margin(margin))):
        years = _shift(known.values, kept.values) if kept.name == known.name else None
        if years is None:
            raise SpecError(
                f"'{kept.name}' has different values in the two releases",
                needed="the same values, or a recode with the same groups in both; months or years may differ by the same "
                "number of years throughout",
            )
        if years:
            of = "1 year" if years == 1 else f"{years} years"
            said.append(f"Each '{kept.name}' is compared with the one {of} before.")
    return " ".join(said)


_DATE = re.compile(r"(\d{4})(-\d{2})?", re.ASCII)


def _shift(before: Sequence[str], after: Sequence[str]) -> int | None:
    """Return the number of years by which all dates moved, or None if values of the two releases cannot be paired.

    Examples
    --------
    >>> _shift(["2025-01", "2025-02", "unknown"], ["2026-01", "2026-02", "unknown"])
    1
    >>> _shift(["2024", "2025"], ["2025", "2026"]) is None  # the same year is in both
    True
    """
    if list(before) == list(after):
        return 0
    dates = [text for text in before if _DATE.fullmatch(text)]
    first = next((b for a, b in zip(before, after) if a in dates), "")
    if not _DATE.fullmatch(first) or {*dates} & {*after}:
        return None
    years = int(first[:4]) - int(dates[0][:4])
    moved = [f"{int(text[:4]) + years:04}{text[4:]}" if text in dates else text for text in before]
    return years if years > 0 and moved == list(after) else None


Groups = tuple[NDArray[np.int64], NDArray[np.int64]]
"""For every place of the first and of the second record the group in which it is compared."""


def place_groups(old: Cells, new: Cells, level: str, crosswalk: Any) -> Groups:
    """Join places by keys and a crosswalk into groups that consist of the same units in both releases."""
    names = [cells.tree.labels(level) for cells in (old, new)]
    at = [{name: i for i, name in enumerate(held)} for held in names]
    known = [_last_parts(cells, level) | held for cells, held in zip((old, new), at)]
    pairs = [] if crosswalk is None else _pairs(crosswalk, known, level)
    listed = [set(side) for side in zip(*pairs)] or [set(), set()]
    pairs += [
        (at[0][name], at[1][name])
        for name in names[0]
        if name in at[1] and at[0][name] not in listed[0] and at[1][name] not in listed[1]
    ]
    left, right = (
        (np.array(side, np.int64) for side in zip(*pairs)) if pairs else (np.zeros(0, np.int64),) * 2
    )
    for which, held, found in zip(("first", "second"), names, (left, right)):
        if (lost := np.setdiff1d(np.arange(len(held)), found)).size:
            raise DataError(
                f"place '{held[lost[0]]}' of level '{level}' occurs only in the {which} release ({lost.size:,} such "
                "places)",
                remedy="give a crosswalk of places, with columns 'before' and 'after'",
            )
    n = len(names[0])
    links = coo_array((np.ones(left.size), (left, right + n)), shape=(n + len(names[1]),) * 2)
    part = connected_components(links, directed=False)[1]
    _, order = np.unique(part[n:], return_index=True)
    rank = np.empty(order.size, np.int64)  # groups in the order of the second record's places
    rank[np.argsort(order)] = np.arange(order.size)
    return rank[part[:n]], rank[part[n:]]


def _last_parts(cells: Cells, level: str) -> dict[str, int]:
    """Return the places of a level by the last part of the key, or no places if that part does not identify them."""
    tree, at = cells.tree, cells.tree.level(level)
    last = list(tree.keys[at].values())[-1].tolist() if tree.keys and tree.keys[at] else []
    return {str(part): place for place, part in enumerate(last)} if len(set(last)) == len(last) else {}


def _pairs(crosswalk: Any, at: list[dict[str, int]], level: str) -> list[tuple[int, int]]:
    source = open_table(crosswalk)
    require(source, [BEFORE, AFTER])
    rows = source.select([BEFORE, AFTER])
    sides = [without_blanks(as_text(np.asarray(rows[name]))).tolist() for name in (BEFORE, AFTER)]
    for column, side, known in zip((BEFORE, AFTER), sides, at):
        if (wrong := next((text for text in side if text not in known), None)) is not None:
            guess = did_you_mean(wrong, known)
            raise DataError(
                f"column '{column}' of {source.name} names '{wrong}', which is no place of level '{level}'"
                + (f"; {guess}" if guess else ""),
                needed=f"keys such as '{next(iter(known))}'",
            )
    return [(at[0][one], at[1][two]) for one, two in zip(*sides)]


Record = Release | Posterior


def changes(
    before: Record | str | Path,
    after: Record | str | Path | None = None,
    table: Margin | str | None = None,
    *,
    crosswalk: Any = None,
    question: str | None = None,
    level: float | str = 0.9,
    periods: tuple[str, str] | None = None,
) -> CountChanges:
    """Return the change in every count of a table between two releases, with intervals.

    The two have noise of their own, so that their errors are independent. Of releases, margins of error are added by squares;
    errors of places that are summed as if they were unrelated, which is no less than what they are in a hierarchy, where the
    parts of a whole err against each other. Of posteriors, draws are subtracted.

    Parameters
    ----------
    before, after
        Two releases, or two posteriors; or their folders. Or the first alone: a posterior of several periods.
    table
        Its name, such as `"county"` or `"county x sex"`; by default the totals of the lowest level.
    crosswalk
        A table of places that were split, merged or renamed: columns `before` and `after`, a row for each pair that overlaps.
        Places that it joins are compared as one; those that it does not list must be in both.
    question
        For posteriors, in place of a table: a question such as the share `"'county, sex=f' / county"`; see `trueup.ask`.
    level
        Probability of each interval by itself; of releases one of 50, 80, 90, 95 and 99 %.
    periods
        The two periods to compare of a posterior of several periods; by default its last two.

    Raises
    ------
    SpecError
        If the two are one release, are of two kinds, do not have the table, or no margin of error of it is known.
    DataError
        If a place is in one of them alone and the crosswalk does not say where it went.

    Examples
    --------
    >>> import pandas, trueup
    >>> from trueup.demo import AREAS
    >>> years = [pandas.DataFrame({"area": ["a", "b"], "n": n}) for n in ([300, 400], [900, 410])]
    >>> one, two = (trueup.reconcile(trueup.measure(AREAS, year)) for year in years)
    >>> str(changes(one, two).direction[0])
    'more'
    """
    old = _read(before)
    if after is None:
        old, new = two_periods(old, periods)
    elif periods is not None:
        raise SpecError(
            "periods are given together with two records",
            needed="either two records, or one posterior of several periods",
        )
    else:
        new = _read(after)
        _refuse_unlike(old, new)
    level = probability_of(level)
    if question is not None:
        return _asked(
            old, new, question, level, "table" * bool(table) or "crosswalk" * (crosswalk is not None)
        )
    tree = new.cells.tree
    margin = new.cells.margin(table or Margin(tree.levels[-1], new.cells.coarsest.attributes))
    if not table and margin.level not in old.cells.tree.levels:
        raise SpecError(
            f"the first release has no level '{margin.level}'",
            needed=f"one of {', '.join(old.cells.tree.levels)}",
        )
    margin = canonical(new.cells, margin)
    shifted = years_between(old.cells, new.cells, margin)
    groups = place_groups(old.cells, new.cells, margin.level, crosswalk)
    compare = _released if isinstance(new, Release) else _drawn
    figures = compare(old, new, margin, groups, level)  # pyright: ignore[reportArgumentType]
    labels = _labels(new.cells, margin, groups[1])
    return CountChanges(
        margin,
        labels,
        figures,
        level,
        (_digest(old), _digest(new)),
        " ".join(filter(None, (_promise(old, new, level), _left_out(old, new, level), shifted))),
    )


def write_change(found: CountChanges, out: Path) -> None:
    """Write the rows of a change to a new CSV or Parquet file."""
    writers = {".csv": write_csv, ".parquet": write_parquet}
    if out.suffix not in writers:
        raise BundleError(
            f"'{out.name}' has an unknown file extension", needed=f"one of {', '.join(writers)}"
        )
    refuse_file(out)
    writers[out.suffix](out, found.columns())


def _promise(old: Record, new: Record, level: float) -> str:
    if isinstance(old, Posterior) and isinstance(new, Posterior):
        both = dict.fromkeys((old.promise, new.promise))  # of both, as limits on records may differ
        if _digest(old) == _digest(new):
            return f"The two are periods of one posterior, whose prior links them. {new.promise}"
        return f"The two are taken to be unrelated before anything was published. {' '.join(both)}"
    each = [limited_sentence(record.spec) for record in (old, new)]
    both = (
        each[:1]
        if each[0] == each[1]
        else [
            f"{when}: {said or 'every record is counted.'}" for when, said in zip(("Before", "After"), each)
        ]
    )
    of = " of what is counted" if any(both) else ""
    said = f"Each interval holds the true change{of} in about {100 * level:.3g} of 100 cases, by forecast."
    return " ".join(filter(None, (said, *both)))


def _left_out(old: Record, new: Record, level: float) -> str:
    """Return the change in the number of records that a limit leaves out, if both releases measured it."""
    found = [record.left_out for record in (old, new) if isinstance(record, Release) and record.left_out]
    if len(found) < 2:
        return ""
    unit = new.spec.privacy.unit if new.spec else "unit"
    values, reaches = zip(*((alone.value, alone.margin_of_error(level)) for alone in found))
    moved, reach = values[1] - values[0], math.ceil(math.hypot(*reaches))
    most = " and ".join(dict.fromkeys(f"{alone.most:,}" for alone in found))
    return (
        f"Left out were about {max(values[0], 0):,} before and {max(values[1], 0):,} after, a change of {moved:+,} "
        f"(±{reach:,}), where of each {unit} at most {most} of those left out are counted."
    )


def _read(given: Record | str | Path) -> Record:
    if isinstance(given, Release | Posterior):
        return given
    folder = Path(given)
    return read_posterior(folder) if is_posterior(folder) else read_release(folder)


def _digest(record: Record) -> str:
    return record.source if isinstance(record, Posterior) else record.measurements.digest


def _refuse_unlike(old: Record, new: Record) -> None:
    if isinstance(old, Release) != isinstance(new, Release):
        raise SpecError("a release is compared with a posterior", needed="two releases, or two posteriors")
    if _digest(old) == _digest(new):
        raise SpecError(
            "both records were made from the same measurements, so that their noise is the same",
            needed="two releases with separate measurements",
        )


def _summed_groups(values: NDArray, groups: NDArray[np.int64]) -> NDArray:
    """Sum values `(..., places, k)` over groups of places to `(..., groups, k)`."""
    order = np.argsort(groups, kind="stable")
    return np.add.reduceat(
        values[..., order, :], np.searchsorted(groups[order], np.arange(groups.max() + 1)), axis=-2
    )


def _released(
    old: Release, new: Release, margin: Margin, groups: Groups, level: float
) -> Mapping[str, NDArray]:
    counts, squares = [], []
    for record, own in zip((old, new), groups):
        error = record.margin_of_error(margin, level)
        if error is None:
            raise SpecError(
                f"the margin of error of '{margin}' is not known",
                needed=f"one of {', '.join(map(str, record.published))}",
                remedy="compare posteriors (`trueup infer`), which know every table"
                if record.cells.holds(margin)
                else "",
            )
        counts.append(_summed_groups(record.sums(margin).reshape(own.size, -1), own).ravel())
        squares.append(_summed_groups(np.square(np.asarray(error, float)).reshape(own.size, -1), own).ravel())
    moved, reach = counts[1] - counts[0], np.ceil(np.sqrt(squares[0] + squares[1]) - 1e-9)
    return {
        "before": counts[0],
        "after": counts[1],
        "change": moved,
        "low": moved - reach,
        "high": moved + reach,
    }


def _drawn(
    old: Posterior, new: Posterior, margin: Margin, groups: Groups, level: float
) -> Mapping[str, NDArray]:
    """Return posterior figures of the change in every count: statistics of differences of draws."""
    sums = []
    for record, own in zip((old, new), groups):
        draws = record.sums(margin)
        draws = draws.reshape(-1, own.size, draws.shape[2] // own.size)
        sums.append(_summed_groups(draws, own).reshape(draws.shape[0], -1))
    many = min(map(len, sums))
    before, after = (held[:many].astype(np.int64) for held in sums)
    found = describe_draws((after - before)[None], level, independent=True)
    return {
        "before": before.mean(axis=0),
        "after": after.mean(axis=0),
        "change": found["mean"],
        "low": found["low"],
        "high": found["high"],
        "probability of growth": (after > before).mean(axis=0),
    }


def _asked(old: Record, new: Record, question: str, level: float, beside: str) -> CountChanges:
    """Return the change in the answer to a question at every place, from the draws of two posteriors."""
    if not isinstance(old, Posterior) or not isinstance(new, Posterior) or beside:
        given = f"a question and a {beside}" if beside else "questions about releases"
        raise SpecError(
            f"{given} cannot be given for this comparison",
            needed=f"a question, two posteriors (`trueup infer`) that answer it, and no {beside or 'release'}",
        )
    first, second = (ask_draws(question, Names(each.cells), each.draws) for each in (old, new))
    if first.event:
        raise SpecError(
            f"'{question}' is a comparison, whose answer is yes or no",
            needed="a question whose answer is a number, such as a count or a share",
            remedy="ask for the number itself, without the comparison",
        )
    names = [each.names or (question,) for each in (first, second)]
    if alone := sorted(set(names[0]) ^ set(names[1])):
        raise SpecError(
            f"'{alone[0]}' occurs in only one of the two posteriors",
            needed="a question about places that both have",
        )
    places = [names[0].index(name) for name in names[1]]
    before, after = first.draws.reshape(-1, len(names[0]))[:, places], second.draws.reshape(-1, len(names[1]))
    many = min(len(before), len(after))
    before, after = (np.asarray(each[:many], float) for each in (before, after))
    found = described_where_defined(
        (after - before)[None], lambda held, _: describe_draws(held, level, independent=True)
    )
    figures = {
        "before": np.ma.masked_invalid(before).mean(axis=0).filled(np.nan),
        "after": np.ma.masked_invalid(after).mean(axis=0).filled(np.nan),
        "change": found["mean"],
        "low": found["low"],
        "high": found["high"],
        "probability of growth": (after > before).mean(axis=0),
    }
    labels = {second.level or "question": np.array(names[1], dtype=object)}
    table = Margin(second.level or new.cells.tree.levels[0])
    sources = _digest(old), _digest(new)
    return CountChanges(table, labels, figures, level, sources, _promise(old, new, level), question)


def _labels(cells: Cells, margin: Margin, groups: NDArray[np.int64]) -> dict[str, NDArray]:
    """Return columns with the label of each group of places and the attribute values."""
    names = np.array(cells.tree.labels(margin.level), dtype=object)
    places = [
        " + ".join(names[groups == group]) if joined else names[np.flatnonzero(groups == group)[0]]
        for group, joined in enumerate(np.bincount(groups) > 1)
    ]
    sizes = [recode.size for recode in cells.kept(margin)]
    grid = np.indices((len(places), *sizes)).reshape(1 + len(sizes), -1)
    columns = {margin.level: np.array(places, dtype=object)[grid[0]]}
    return columns | {
        r.name: np.array(r.values, dtype=object)[i] for r, i in zip(cells.kept(margin), grid[1:])
    }
