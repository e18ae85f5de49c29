"""Answers made from templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log10
from typing import Any

from jinja2 import Environment
from starlette.responses import HTMLResponse, Response

from trueup.errors import place_of
from trueup.reporting.html import templates
from trueup.studio.words import WORDS


def rendered(template: str, context: Mapping[str, Any], status: int = 200) -> Response:
    """Return a page."""
    text = _environment().get_template(template).render(**context, words=WORDS)
    return HTMLResponse(text, status)


@cache
def _environment() -> Environment:
    environment = templates("trueup.studio")
    environment.filters["log10"] = log10
    return environment


def refused(status: int, sentence: str) -> Response:
    """Return a page that says why nothing was done."""
    return rendered("refused.html", {"sentence": sentence}, status)


def internal(error: Exception) -> str:
    """Return the text for an unforeseen error: its kind and place, since its message may quote data."""
    return f"internal error {type(error).__name__} at {place_of(error)}; please report it"


@dataclass(frozen=True)
class ExploredPage:
    """A viewed page: a table, and the chosen places.

    Attributes
    ----------
    table, confidence, search, number
        The table, the probability of its intervals, what the names of its places hold, and the page.
    of, chosen
        The places of an area, and their level.
    summing
        Whether their sum is wanted.
    """

    table: str
    confidence: str
    search: str
    number: int
    of: str
    chosen: tuple[str, ...]
    summing: bool

    @classmethod
    def of_pairs(cls, pairs: Sequence[tuple[str, str]]) -> ExploredPage:
        """Read what a page sends: a form whose boxes mark the chosen ones of the listed places."""
        form = dict(pairs)
        go, page = form.get("go", ""), form.get("page", "")
        number = int(page) if page.isdecimal() and page.isascii() and len(page) < 8 else 0
        moved = {"next": number + 1, "before": max(0, number - 1), "show": 0}.get(go, number)
        typed = [line.strip() for line in form.get("chosen", "").splitlines() if line.strip()]
        listed = form.get("listed", "")
        of = form.get("of", "") if typed else listed
        if of == listed:
            boxes = {name: {v for n, v in pairs if n == name} for name in ("seen", "place")}
            typed = [key for key in typed if key not in boxes["seen"] - boxes["place"]]
            typed += [v for n, v in pairs if n == "place"]
        chosen = () if go == "clear" else tuple(dict.fromkeys(typed))
        return cls(
            form.get("table", ""),
            form.get("confidence") or "90%",
            form.get("search", ""),
            moved,
            of if chosen else "",
            chosen,
            go == "sum",
        )
