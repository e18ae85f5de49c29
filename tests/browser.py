"""A real browser, and what an automated checker of accessibility finds wrong with a page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
_CHECK = "rules => axe.run({runOnly: rules, resultTypes: ['violations', 'incomplete']})"


def installed_browser() -> str | None:
    """Where Chromium is."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """The Chromium of this machine, headless, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=installed_browser(), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


def heard(page: Any) -> list[str]:
    """A list that warnings and errors of a page's console are added to."""
    said: list[str] = []
    page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    return said


def axe_source() -> str:
    """The checker, which a package of Python bundles."""
    found = find_spec("axe_playwright_python")
    assert found is not None, "pip install axe-playwright-python"
    assert found.origin is not None
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def checked(page: Any) -> dict[str, Any]:
    """Hold a page, as it stands and under its own content policy, to WCAG 2.1 AA as far as axe-core can.

    Returns
    -------
    dict
        `faults`, one text for each; `tested`, the rules that found something to test and no fault; `over`, by how many pixels it
        is wider than the window.
    """
    page.evaluate(axe_source() + "; undefined")
    found = page.evaluate(_CHECK, list(RULES))
    return {
        "faults": [
            f"{rule['id']}: {node['target']} {node['failureSummary']}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ],
        "tested": [rule["id"] for rule in found["passes"]],
        "over": page.evaluate("document.documentElement.scrollWidth - window.innerWidth"),
    }


class Browser:
    """Pages of HTML in a browser, each in a fresh profile."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self._browser, self._folder = browser, folder

    @contextmanager
    def opened(self, page: str, *, dark: bool = False, width: int = 1280) -> Iterator[tuple[Any, list[str]]]:
        """Open a page; its handle, and what is written to the console."""
        path = self._folder / "page.html"
        path.write_text(page, encoding="utf-8")
        size: Any = {"width": width, "height": 1600}
        context = self._browser.new_context(viewport=size, color_scheme="dark" if dark else "light")
        shown = context.new_page()
        said = heard(shown)
        shown.goto(path.as_uri())
        yield shown, said
        context.close()

    def probe(self, page: str, script: str, **how: Any) -> Any:
        """What a function in JavaScript returns in a page that is silent."""
        with self.opened(page, **how) as (shown, said):
            found = shown.evaluate(script)
        assert said == []
        return found

    def accessibility(
        self, page: str, *, dark: bool = False, narrow: bool = False, scripts: bool = True
    ) -> dict[str, Any]:
        """Check a page for a reader who prefers dark pages, on a screen of 360 pixels, or without the page's own scripts."""
        shown = page if scripts else _SCRIPT.sub("", page)
        with self.opened(shown, dark=dark, width=360 if narrow else 1280) as (opened, _):
            opened.evaluate("for (const folded of document.querySelectorAll('details')) folded.open = true")
            return checked(opened)
