"""A drafted spec as TOML, with the laws and codes that values and titles suggest."""

from __future__ import annotations

import json
import re
from collections import Counter

from trueup.io.published.drafting.joined import Draft, DraftedKey, DraftedTable, column_numbers
from trueup.io.published.drafting.roles import SeenColumn, is_number
from trueup.model.published_codes import read_interval

_BASE = re.compile(r"(?:base(?: of)?|nearest|multiples? of|to)\s+(\d{1,4})", re.IGNORECASE)
_TOLD = "read what the publisher says of it"


def written(whole: Draft, title: str) -> tuple[str, list[str]]:
    """The spec, and what is undecided."""
    undecided = list(whole.undecided)
    parts = [_entry(entry, whole, name, undecided) for entry, name in zip(whole.entries, _names(whole))]
    levels = [_level(level) for level in whole.levels]
    attributes = [
        f"[[attribute]]\nname = {_q(a.name)}\nvalues = {_list(a.values)}\n" for a in whole.attributes
    ]
    head = [
        "format = 1",
        f"title = {_q(title)}",
        'table = { name = "published", counts = "unit" }',
        f"level = [{', '.join(levels)}]",
        "",
    ]
    undecided.append("what is counted: `counts` says 'unit'")
    return "\n".join([*head, *attributes, *parts]), undecided


def _q(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _list(values: list[str]) -> str:
    return f"[{', '.join(map(_q, values))}]"


def _table(pairs: dict[str, str]) -> str:
    return "{ " + ", ".join(f"{_q(a)} = {_q(b)}" for a, b in pairs.items()) + " }"


def _level(level: DraftedKey) -> str:
    more = f", column = {_q(level.column)}" if level.column else ""
    return f"{{ name = {_q(level.name)}{more}{f', prefix = {level.prefix}' if level.prefix else ''} }}"


def _names(whole: Draft) -> list[str]:
    names = [entry.seen.sheet or entry.seen.file.rpartition(".")[0] for entry in whole.entries]
    return [name if names.count(name) == 1 else f"{name} {k + 1}" for k, name in enumerate(names)]


def _entry(entry: DraftedTable, whole: Draft, name: str, undecided: list[str]) -> str:
    seen = entry.seen
    lines = ["[[published]]", f"name = {_q(name)}", f"file = {_q(seen.file)}", f"level = {_q(entry.level)}"]
    if seen.sheet:
        lines.append(f"sheet = {_q(seen.sheet)}")
    if seen.headless:
        lines.append("header = 0")
        undecided.append(f"'{seen.file}' has no header: columns are named by their positions")
    if entry.columns:
        lines.append(f"columns = {_table(entry.columns)}")
    if entry.attributes and not entry.cells:
        lines.append(f"attributes = {_list(entry.attributes)}")
    if entry.cells:
        cells = [
            f"  {{ count = {_q(c.name)}{f', where = {_table(where)}' if where else ''} }},"
            for c, where in entry.cells
        ]
        lines += ["cell = [", *cells, "]"]
    else:
        lines.append(f"count = {_q(seen.values[0].name)}")
    if entry.totals:
        lines.append(f"total = {_table(entry.totals)}")
    if seen.variance is not None and not entry.cells:
        lines.append(f"variance = {_q(seen.variance.name)}")
    lines += [f"law = {_law(entry, undecided)}", *_codes(entry, undecided), *_unlisted(entry)]
    return "\n".join([*lines, ""])


def _unlisted(entry: DraftedTable) -> list[str]:
    """A long table that leaves cells out."""
    seen = entry.seen
    if entry.cells or not seen.attributes:
        return []
    keys = list(zip(*(column.texts for column in (*seen.places, *seen.attributes))))
    every = 1
    for column in (*seen.places[-1:], *seen.attributes):
        every *= len(set(column.held))
    return [] if len(set(keys)) >= every else ['unlisted = "unknown"']


def _texts(columns: list[SeenColumn]) -> list[str]:
    return [text for column in columns for text in column.texts]


def _codes(entry: DraftedTable, undecided: list[str]) -> list[str]:
    """Codes that say no interval by themselves; what they mean is not known."""
    seen = entry.seen
    texts = Counter(
        text for text in _texts(seen.values) if not is_number(text) and read_interval(text) is None
    )
    if not texts:
        return []
    for code in texts:
        shown = "an empty cell" if not code else f"'{code}'"
        legend = re.search(re.escape(code) + r"\s*[=:]\s*([^;|\n]{3,60})", seen.titles) if code else None
        undecided.append(
            f"'{seen.file}': what {shown} says ({texts[code]:,} times)"
            + (f'; the file says: "{legend[1].strip()}"' if legend else "")
            + '; it is taken as "unknown"'
        )
    return [f"codes = {_table(dict.fromkeys(texts, 'unknown'))}"]


def _law(entry: DraftedTable, undecided: list[str]) -> str:
    """The law that values and titles suggest."""
    seen = entry.seen
    found = [x for column in seen.values for x in column_numbers(column) if x is not None]
    said = seen.titles.casefold()
    where = f"'{seen.file}'"
    if any(x != int(x) for x in found):
        return _noise(entry, "gaussian", undecided)
    if seen.variance is not None or any(x < 0 for x in found):
        return _noise(entry, "discrete-gaussian", undecided)
    if re.search(r"cell.?key|perturb", said) and not _base_of(found, said):
        undecided.append(
            f"{where}: the law is a cell key's, by its titles; its largest change and variance are not known"
        )
        return '{ name = "cell-key", maximum = 2, change_variance = "1" }'
    base = _base_of(found, said)
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


def _noise(entry: DraftedTable, name: str, undecided: list[str]) -> str:
    if entry.seen.variance is not None and not entry.cells:
        undecided.append(f"'{entry.seen.file}': the law of its noise, '{name}' or another, {_TOLD}")
        return f'{{ name = "{name}" }}'
    undecided.append(
        f"'{entry.seen.file}': its values carry noise; sigma2 is not known, and 100 stands in its place"
    )
    return f'{{ name = "{name}", sigma2 = "100" }}'


def _base_of(found: list[float], said: str) -> int | None:
    """The base of a rounding: the largest that all values are multiples of, as the titles say or as many values show."""
    told = [int(base) for base in _BASE.findall(said) if 2 <= int(base) <= 1000] if "round" in said else []
    bases = [base for base in (1000, 100, 10, 5, 3) if all(x % base == 0 for x in found)]
    named = next((base for base in told if all(x % base == 0 for x in found)), None)
    several = len({x for x in found if x}) >= 4 or len(found) >= 12
    return named or (bases[0] if bases and several else None)
