"""Answers made from templates."""

from __future__ import annotations

from collections.abc import Mapping
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
