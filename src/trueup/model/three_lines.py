"""Short displays of records in notebooks and consoles, without confidential values."""

from __future__ import annotations

from html import escape


class ThreeLines:
    """A record displayed by its lines: what it is, and two lines of facts."""

    def _lines(self) -> tuple[str, str, str]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n  ".join(self._lines())

    def _repr_html_(self) -> str:
        title, *more = map(escape, self._lines())
        rows = "".join(f"<tr><td style='text-align:left'>{line}</td></tr>" for line in more)
        return f"<table><thead><tr><th style='text-align:left'>{title}</th></tr></thead><tbody>{rows}</tbody></table>"
