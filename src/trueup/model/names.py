"""Names that a spec declares and refers to."""

from __future__ import annotations

import re

from trueup.errors import did_you_mean


def refuse_alike(what: str, names: list[str]) -> None:
    """Refuse names that differ in case or punctuation alone: they become names of files and columns."""
    plain = [re.sub(r"\W", "_", name).casefold() for name in names]
    for i, name in enumerate(names):
        if (first := plain.index(plain[i])) < i:
            raise ValueError(f"{what} '{names[first]}' and '{name}' differ in case or punctuation alone")
        if inside := next((other for other in names if other.startswith(f"{name}.")), None):
            raise ValueError(f"{what} '{inside}' begins with the name of {what} '{name}' and a dot")


def refuse_repeats(what: str, names: list[str]) -> None:
    """Refuse a name that is declared twice."""
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{what} '{twice[0]}' is declared twice")


def refuse_unknown_name(name: str, names: list[str], what: str, where: str) -> None:
    """Refuse a name that is not declared, and ask for the nearest that is."""
    if name not in names:
        hint = did_you_mean(name, names) or f"declared: {', '.join(names) or 'none'}"
        raise ValueError(f"{where} names the unknown {what} '{name}'; {hint}")
