"""From a page to HTML: one file, nothing loaded from anywhere."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from trueup.reporting.drawing.blocks import Page
from trueup.version import __version__


def html(page: Page) -> str:
    """Write a page as one self-contained HTML document; equal pages give equal bytes."""
    environment = _environment()
    style, script = (_source(environment, name) for name in ("page.css", "page.js"))
    return environment.get_template("page.html").render(
        page=page, style=Markup(style), script=Markup(script), policy=_policy(script), version=__version__
    )


def _policy(script: str) -> str:
    """Allow this one script, inline style, and no request to anywhere."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("trueup.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
