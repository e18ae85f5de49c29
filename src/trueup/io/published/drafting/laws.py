"""Noise laws of published tables, suggested by values and surrounding text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trueup.io.published.drafting.keys import DraftedTable
from trueup.io.published.drafting.seen import SeenTable, is_number
from trueup.io.published.drafting.sums import base_of, column_numbers
from trueup.io.published.perturbed.numbers import without_mark

_THOUSANDS = re.compile(
    r"\b(in|en|em|i|w|×|x) (thousands?|1[., ]?000|tausend|milliers?|migliaia|milhares|tusen(tal)?|duizend(tallen)?|tys\.|"
    r"tysiącach|тыс\.|тысячах)|\((thousands?|tsd\.?|tys\.|тыс\.)\)|\bthousands$|['’]000\b|\b(1000|000)-?(s|tal)\b|千人|"
    r"\ben miles\b|\btsd\.",
    re.IGNORECASE | re.MULTILINE,
)
_TOLD = "read what the publisher says of it"


def _numbers(entry: DraftedTable) -> list[float]:
    """Return all numbers in the values of a table."""
    unit = unit_of(entry.seen)
    found = (x for column in entry.seen.values for x in column_numbers(column) if x is not None)
    return [round(x * unit, 6) for x in found]


def unit_of(seen: SeenTable) -> int:
    """Return the number of persons or other units for which a 1 stands, according to titles or column names."""
    names = (name for column in seen.values for name in (column.name, *column.path))
    return 1000 if _THOUSANDS.search("\n".join((seen.titles, *names))) else 1


def rounding_base(entry: DraftedTable) -> int | None:
    """Return the base of which all values in a table without noise are multiples, or None."""
    found = _numbers(entry)
    noisy = (
        entry.seen.variance is not None or bool(entry.seen.errors) or any(x < 0 or x != int(x) for x in found)
    )
    return None if noisy else base_of(found, entry.seen.titles.casefold())


def suggested_law(entry: DraftedTable, told: set[int], undecided: list[str]) -> str:
    """Return the noise law that values, titles or neighbouring tables with known rounding suggest."""
    seen = entry.seen
    found = _numbers(entry)
    said = seen.titles.casefold()
    where = f"'{seen.file}'"
    if entry.law is not None:
        return entry.law
    if any(x != int(x) for x in found) and not seen.errors:
        return _noise(entry, "gaussian", undecided)
    if seen.errors:
        return '{ name = "gaussian" }'
    if seen.variance is not None or any(x < 0 for x in found):
        return _noise(entry, "discrete-gaussian", undecided)
    if re.search(r"cell.?key|perturb|random(ly)? adjust", said) and not base_of(found, said):
        undecided.append(
            f"{where}: the law is a cell key's, by its titles; its largest change and variance are not known"
        )
        return '{ name = "cell-key", maximum = 2, change_variance = "1" }'
    beside = [base for base in told if found and all(x % base == 0 for x in found)]
    base = base_of(found, said) or max(beside, default=None)
    if base is None and (small := _small_base(entry, found)):
        undecided.append(
            f"{where}: no value is from 1 to {small - 1}, and many are just above: counts below {small} are taken to be "
            f"rounded at random to 0 or {small}, and others to be exact; {_TOLD}"
        )
        return f'{{ name = "random-rounding", base = {small}, below = {small} }}'
    if base is None:
        undecided.append(f"{where}: the law is taken as exact; {_TOLD}")
        return '{ name = "exact" }'
    if re.search(r"random(ly)?[ -]?(round|to)", said) or (base in (3,) and "nearest" not in said):
        if not re.search(r"random", said):
            undecided.append(
                f"{where}: values are multiples of {base}; whether rounded at random or to the nearest, {_TOLD}"
            )
        return f'{{ name = "random-rounding", base = {base} }}'
    if "nearest" not in said:
        undecided.append(
            f"{where}: values are multiples of {base}; whether rounded to the nearest or at random, {_TOLD}"
        )
    return f'{{ name = "rounded", base = {base}, ties = "either" }}'


def _small_base(entry: DraftedTable, found: Sequence[float]) -> int | None:
    """Return the base to which only small counts are rounded, because no value below it but 0 occurs; or None."""
    base = min((x for x in found if x > 0), default=0)
    coded = any(text and not is_number(without_mark(text)) for c in entry.seen.values for text in c.texts)
    blank = any("" in column.texts for column in entry.seen.values)
    above = [x for x in found if base < x <= 2 * base]
    often = found.count(base) >= max(3, len(above) / base)
    return (
        int(base)
        if base in (3, 5, 10) and 0 in found and not coded and not blank and often and len(above) > 11
        else None
    )


def _noise(entry: DraftedTable, name: str, undecided: list[str]) -> str:
    if entry.seen.variance is not None:
        undecided.append(f"'{entry.seen.file}': the law of its noise, '{name}' or another, {_TOLD}")
        return f'{{ name = "{name}" }}'
    undecided.append(
        f"'{entry.seen.file}': its values carry noise; sigma2 is not known, and 100 stands in its place"
    )
    return f'{{ name = "{name}", sigma2 = "100" }}'
