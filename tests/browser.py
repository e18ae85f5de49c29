"""Pages in a real browser, and what an automated checker of accessibility finds wrong with them."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
]
DARK = "--blink-settings=preferredColorScheme=0"
"""The option of Chromium for readers who prefer dark pages."""
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")

# A page of 360 pixels stands in a frame, since headless windows are at least 500 wide.
_CHECK = """
addEventListener("load", async () => {
  const inside = frames.length ? frames[0] : window;
  for (const folded of inside.document.querySelectorAll("details")) folded.open = true;
  const found = await inside.axe.run({runOnly: %s, resultTypes: ["violations", "incomplete"]});
  const say = (rule) => rule.nodes.map((node) => `${rule.id}: ${node.target} ${node.failureSummary}`);
  const faults = found.violations.flatMap(say);
  const tested = found.passes.map((rule) => rule.id);
  document.title = JSON.stringify({faults, tested, wide: inside.document.documentElement.scrollWidth});
});
"""


class Browser:
    """A headless Chromium with a fresh profile for every page."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder

    def open(self, page: str, *more: str, size: tuple[int, int] = (1280, 1600)) -> tuple[str, list[str]]:
        """Return what the page became and what was written to the console."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / "page.html"
        path.write_text(page, encoding="utf-8")
        profile = self.folder / "profile"
        command = [self.program, *FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"]
        done = subprocess.run(
            [*command, *more, path.as_uri()], capture_output=True, text=True, timeout=120, check=True
        )
        shutil.rmtree(profile, ignore_errors=True)
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    def probe(self, page: str, script: str, *more: str, size: tuple[int, int] = (1280, 1600)) -> dict:
        """Run a script in the page, whose policy would forbid it; what it leaves in the title as JSON is returned."""
        dump, console = self.open(_with_script(page, script), "--dump-dom", *more, size=size)
        assert console == []
        title = re.search(r"<title>(.*?)</title>", dump, re.DOTALL)
        assert title is not None
        return json.loads(html.unescape(title[1]))

    def accessibility(
        self, page: str, *, dark: bool = False, narrow: bool = False, scripts: bool = True
    ) -> dict:
        """Hold a page to WCAG 2.1 AA as far as axe-core can.

        Parameters
        ----------
        page
            The HTML of the page.
        dark, narrow
            For a reader who prefers dark pages; on a screen of 360 pixels.
        scripts
            Whether the page's own scripts run.

        Returns
        -------
        dict
            `faults`, one text for each; `tested`, the rules that found something to test and no fault; `wide`, in pixels.
        """
        shown = page if scripts else _SCRIPT.sub("", page)
        check = _CHECK % json.dumps(RULES)
        if narrow:
            inner = html.escape(_with_script(shown, axe_source()))
            frame = f'<iframe style="width:360px;height:900px;border:0" srcdoc="{inner}"></iframe>'
            shown = f'<!DOCTYPE html><html lang="en"><body>{frame}</body></html>'
        else:
            check = f"{axe_source()}\n{check}"
        more = (DARK,) if dark else ()
        return self.probe(shown, check, "--virtual-time-budget=60000", *more)


def _with_script(page: str, script: str) -> str:
    head, _, tail = _POLICY.sub("", page).rpartition("</body>")
    kept = script.replace("</script", "<\\/script")
    return f"{head}<script>{kept}</script></body>{tail}"


def axe_source() -> str:
    """The checker, which a package of Python bundles."""
    found = find_spec("axe_playwright_python")
    assert found is not None, "pip install axe-playwright-python"
    assert found.origin is not None
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def installed_browser() -> str | None:
    """Where Chromium is."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
