"""A visitor of a studio that runs as users run it: a process, and a real browser (Playwright on the installed Chromium)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, sync_playwright

from tests.browser import RULES, axe_source, installed_browser


@dataclass
class Served:
    """A studio's process and the link that it printed."""

    process: subprocess.Popen
    link: str

    def kill(self) -> None:
        """End it without a warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


@contextmanager
def served(*arguments: str | Path) -> Iterator[Served]:
    """Run `trueup studio` with arguments."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "trueup", "studio", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    studio = Served(process, "")
    try:
        links = (m[1] for line in process.stdout if (m := re.match(r"Open: (\S+)", line)))
        studio.link = next(links, "")
        assert studio.link, "the studio printed no link"
        yield studio
    finally:
        studio.kill()


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=installed_browser(), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@dataclass
class Visitor:
    """Somebody at the page, whose interactions are counted and whose console is heard."""

    page: Page
    interactions: int = 0
    console: list[str] = field(default_factory=list)

    @classmethod
    def at(cls, browser: Browser, link: str, *, wide: int = 1280) -> Visitor:
        """Open the link in a fresh profile."""
        visitor = cls(browser.new_page(viewport={"width": wide, "height": 900}))
        visitor.page.on(
            "console",
            lambda said: visitor.console.append(said.text) if said.type in ("error", "warning") else None,
        )
        visitor.page.on("pageerror", lambda error: visitor.console.append(str(error)))
        visitor.page.goto(link)
        return visitor

    @property
    def heading(self) -> str:
        """Which page it is."""
        return self.page.locator("h1").inner_text()

    def fill(self, label: str, text: str) -> None:
        """Type into a field."""
        self.interactions += 1
        self.page.get_by_label(label).fill(text)

    def press(self, name: str) -> None:
        """Click a button."""
        self.interactions += 1
        self.page.get_by_role("button", name=name, exact=True).click()

    def drag(self, table: str, steps: int) -> None:
        """Move a slider."""
        self.interactions += 1
        slider = self.page.get_by_label(f"Slider of the margin of error of {table}", exact=True)
        slider.focus()
        for _ in range(abs(steps)):
            slider.press("ArrowLeft" if steps < 0 else "ArrowRight")

    def until(self, holds: Callable[[], bool], seconds: float = 30) -> None:
        """Wait for something that the page's policy lets no script of ours watch for."""
        for _ in range(int(10 * seconds)):
            if holds():
                return
            self.page.wait_for_timeout(100)
        raise AssertionError("it did not come to hold")

    def tab_to(self, wanted: Locator) -> None:
        """Reach an element by the Tab key alone."""
        for _ in range(400):
            if wanted.evaluate("e => e === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError("the Tab key does not reach it")

    def faults(self) -> list[str]:
        """What axe-core finds wrong with the page as it is, under its own content policy; and whether it scrolls sideways."""
        self.page.evaluate(axe_source() + "; undefined")
        found = self.page.evaluate(
            "rules => axe.run({runOnly: rules, resultTypes: ['violations']})", list(RULES)
        )
        faults = [
            f"{rule['id']}: {node['target']} {node['failureSummary']}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]
        over = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return [*faults, *([f"scrolls sideways by {over}"] if over > 0 else [])]
