"""The lines by which a spec reads sums of some values beside these: a recode, and an entry of their rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable


def way_to_keep(table: SeenTable, column: SeenColumn, inner: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what a spec declares so that sums of some values are read beside them, if no two of them overlap.

    Parameters
    ----------
    table
        The table without the rows of the sums.
    column
        The column of the attribute, with all of them.
    inner
        The sums, and the values that each holds.
    """

    def finest(value: str) -> list[str]:
        return [part for each in inner[value] for part in finest(each)] if value in inner else [value]

    groups = {value: finest(value) for value in inner}
    held = [part for parts in groups.values() for part in parts]
    if not held or len(set(held)) < len(held) or not set(held) <= set(column.held):
        return []
    rest = [value for value in dict.fromkeys(column.held) if value not in (*held, *inner)]
    groups |= {value: [value] for value in rest if not TOTAL.fullmatch(value)}
    name = f"{column.name} (sums)"
    others = [each.name for each in table.attributes if each.name != column.name]
    only = {**table.only, column.name: [*inner]}
    return [
        "whether these sums say more than their parts, as they do where values are not exact. To read them, too, write below the "
        f"attribute '{column.name}': [[attribute.recode]], name = {_q(name)}, {toml_line('groups', groups)}; and a copy of the "
        f"entry with another name, without its `total` of '{column.name}', with {toml_line('columns', {name: column.name})}, "
        f'{toml_line("only", only)}, attributes = {_q([name, *others])} and unlisted = "unknown"'
    ]


def toml_line(key: str, pairs: Mapping[str, object]) -> str:
    """Return the line of a spec that gives a table of pairs.

    Examples
    --------
    >>> toml_line("only", {"sex": ["f", "m"]})
    'only = { "sex" = ["f", "m"] }'
    """
    return f"{key} = {{ {', '.join(f'{_q(name)} = {_q(said)}' for name, said in pairs.items())} }}"


def _q(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
