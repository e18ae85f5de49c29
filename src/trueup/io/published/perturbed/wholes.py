"""Totals that a spec reads as something else: as places beside their parts, or as perturbed by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.io.published.perturbed.columns import attribute_column
from trueup.io.published.perturbed.parts import leaves_of, summed_values
from trueup.model.cells import Attribute
from trueup.model.nested import canonical
from trueup.model.records.measurements import Measurements
from trueup.model.toml import inline_table, value_text

MIN_PLACES = 4
"""One of three places is near the sum of the two others by chance."""
MIN_COUNTS = 30
"""The sum of the others that each column needs, in all columns together."""
MOST_PLACES, MOST_PARTS, MOST_COLUMNS = 3000, 100, 24
"""Places of a level, parts beside each, and columns of a margin, among which sums are looked for."""
CHANCE = 5e-3
"""The chance at which one of all places of a level is near the sum of some neighbours."""


def wholes_among_parts(measured: Measurements, rows: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Yield a note for each level with places that are about the sum of other places in every column."""
    cells = measured.cells
    yield from _sums_among_values(measured)
    for level, size in zip(cells.tree.levels, cells.tree.sizes):
        if size < MIN_PLACES:
            continue
        own = [h for h in measured.headers if h.margin.level == level]
        margins = dict.fromkeys(canonical(cells, h.margin) for h in own)
        shown = [measured.shown(margin).reshape(size, -1) for margin in margins]
        variances = [max(h.law.variance for h in own if canonical(cells, h.margin) == m) for m in margins]
        near, seen = np.ones(size, bool), 0.0
        for table, variance in zip(shown, variances):
            agrees, counts = _near_rest(table, variance)
            near, seen = near & agrees, seen + counts
        for place in np.flatnonzero(near & (seen >= MIN_COUNTS)).tolist()[:1]:
            yield (
                f"'{cells.tree.label(level, place)}' is about the sum of the {size - 1:,} other places of level '{level}' in "
                "every column: if it is their whole, say so in its table, `total = { ... }`, or all is counted twice."
            )
        if not (near & (seen >= MIN_COUNTS)).any() and size <= MOST_PLACES and shown:
            found = _sums_of_neighbours(shown, variances, rows.get(level, range(size)))
            if found:
                place, parts = next(iter(found.items()))
                others = f" and {len(found) - 1} more such places" if len(found) > 1 else ""
                yield (
                    f"'{cells.tree.label(level, place)}' is about the sum of {len(parts)} places of level '{level}' beside it, "
                    f"'{cells.tree.label(level, parts[0])}' to '{cells.tree.label(level, parts[-1])}'{others}: if they lie in "
                    "it, all is counted twice. Draft the spec anew with a list of all places and the one above each, in two "
                    "columns (for the places above all others it is empty): trueup new SPEC --published FILE --geography LIST."
                )


def _sums_among_values(measured: Measurements) -> Iterator[str]:
    """Yield a note for each attribute with values that are sums of other values in every row."""
    cells = measured.cells
    for attribute in (a for a in cells.attributes if len(a.values) > 2 and a.partition):
        own = [h for h in measured.headers if attribute.name in h.margin.attributes]
        header = max(own, key=lambda h: cells.size(h.margin), default=None)
        if header is None:
            continue
        margin = canonical(cells, header.margin)
        sizes = [
            len(next(a for a in cells.attributes if a.name == name).values) for name in margin.attributes
        ]
        shown = measured.shown(margin).reshape(-1, *sizes)
        table = np.moveaxis(shown, 1 + margin.attributes.index(attribute.name), 0).reshape(
            len(attribute.values), -1
        )
        ends = np.stack([np.ma.filled(table.astype(float), end) for end in (0.0, np.inf)], axis=2)
        found = [each for each in summed_values(ends, header.law.variance) if each.sure]
        leaves = set(range(len(ends))) - {each.value for each in found}
        wholes = [each.value for each in found if leaves_of(found, each.value) == leaves][:1]
        for each in found:
            parts = ", ".join(f"'{attribute.values[k]}'" for k in each.parts)
            yield (
                f"'{attribute.values[each.value]}' of '{attribute.name}' is about the sum of {parts} wherever they stand, so "
                f"that all is counted twice: {_without_sums(measured, attribute, leaves, wholes)}."
            )


def _without_sums(
    measured: Measurements, attribute: Attribute, leaves: set[int], wholes: Sequence[int]
) -> str:
    """Return a spec entry that leaves out, or declares as totals, the values that are sums of other values."""
    kept, whole = ([attribute.values[k] for k in sorted(each)] for each in (leaves, wholes))
    declared = f"if so, declare values = {value_text(kept)} and, in the entry of "
    published = getattr(measured.spec, "published", ())
    part = next((part for part in published if attribute.name in part.attributes), None)
    if part is None:
        names = [name for k, name in enumerate(attribute.values) if k not in leaves and name not in whole]
        ways = [f"leave out the `cell` of {value_text(names)}"] if names else []
        ways += [f"take `where` out of the `cell` of {value_text(whole)}"] if whole else []
        return declared + "its tables, " + " and ".join(ways)
    column = attribute_column(measured.spec, attribute.name)  # pyright: ignore
    labels = [label for label in part.total_of(column) if label] or whole
    rows = dict(part.only) | {part.columns.get(column, column): [*kept, *labels]}
    total = f" and total = {inline_table({column: labels[0]})}" if labels else ""
    return declared + f"'{part.name}', only = {inline_table(rows)}{total}"


def _sums_of_neighbours(
    shown: Sequence[NDArray], variances: Sequence[float], order: Sequence[int]
) -> dict[int, list[int]]:
    """Return the places that are about the sum of their neighbours in a given order, each with these neighbours."""
    some = [table[:, :MOST_COLUMNS] for table in shown]
    values = np.concatenate([np.ma.filled(table.astype(float), np.nan) for table in some], axis=1)
    variance = np.concatenate([np.full(table.shape[1], v) for table, v in zip(some, variances)])
    found: dict[int, list[int]] = {}
    for places in (np.asarray(order), np.asarray(order)[::-1]):
        for at, place in enumerate(places.tolist()):
            parts = places[at + 1 : at + 1 + MOST_PARTS]
            sums = np.cumsum(values[parts], axis=0)
            size = np.arange(2, len(parts) + 2)[:, None]
            own, known = values[place], ~np.isnan(sums) & ~np.isnan(values[place])
            allowed = np.minimum(4 * np.sqrt(size * variance), np.maximum(3.0, 0.1 * np.abs(own)))
            near = (np.abs(sums - own) <= allowed + 1e-9) | ~known
            odds = np.where(known, np.minimum((2 * allowed + 1) / np.maximum(np.abs(own), 1.0), 1.0), 1.0)
            chance = 3 * len(values) * np.exp(np.log(odds).sum(axis=1))
            counted = np.where(known, own, 0.0).sum(axis=1) >= MIN_COUNTS
            good = np.flatnonzero(near.all(axis=1) & (chance < CHANCE) & counted & (size[:, 0] > 2))
            if good.size and place not in found:
                found[place] = parts[: good[-1] + 1].tolist()
    return found


def _near_rest(shown: NDArray, variance: float) -> tuple[NDArray[np.bool_], NDArray]:
    """Return a mask `(places,)` of places about equal to the sum of all others in every column, and this sum."""
    whole = np.asarray(shown[:, ~np.ma.getmaskarray(shown).any(axis=0)], float)
    rest = whole.sum(axis=0) - whole
    off = np.abs(whole - rest)
    allowed = 4 * np.sqrt(len(whole) * variance)
    near = (off <= allowed) & (off <= np.maximum(3, 0.1 * rest))
    return near.all(axis=1), rest.sum(axis=1)
