"""A studio in a process of its own, and somebody who visits it with a real browser."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.browser import checked, heard


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


@dataclass
class Visitor:
    """Somebody at the page, whose interactions are counted and whose console is heard."""

    page: Any
    console: list[str]
    interactions: int = 0

    @classmethod
    def at(cls, browser: Any, link: str, *, wide: int = 1280, dark: bool = False, **profile: Any) -> Visitor:
        """Open a link, in a fresh profile unless one is given."""
        size = {"width": wide, "height": 900}
        context = browser.new_context(viewport=size, color_scheme="dark" if dark else "light", **profile)
        page = context.new_page()
        page.set_default_timeout(60_000)
        visitor = cls(page, heard(page))
        page.goto(link)
        return visitor

    def go(self, step: str) -> None:
        """Open a step by its address."""
        self.page.goto(f"{self.page.url.rpartition('/')[0]}/{step}")

    def fill(self, label: str, text: str) -> None:
        """Type into a field."""
        self.interactions += 1
        self.page.get_by_label(label).fill(text)

    def press(self, name: str) -> None:
        """Click a button of a form, and wait for the page that it leads to."""
        self.interactions += 1
        with self.page.expect_navigation():
            self.page.get_by_role("button", name=name, exact=True).click()

    def strike(self, name: str) -> None:
        """Reach a button by the Tab key alone, and press Enter."""
        self.tab_to(self.page.get_by_role("button", name=name, exact=True))
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def slider(self, what: str) -> Any:
        """The slider of a table, or of the counts of one of its sizes."""
        return self.page.get_by_label(f"Slider of the margin of error of {what}", exact=True)

    def drag(self, what: str, steps: int) -> None:
        """Move a slider."""
        self.interactions += 1
        for _ in range(abs(steps)):
            self.slider(what).press("ArrowLeft" if steps < 0 else "ArrowRight")

    def until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for something that the page's policy lets no script of ours watch for."""
        for _ in range(int(10 * seconds)):
            if holds():
                return
            self.page.wait_for_timeout(100)
        raise AssertionError("it did not come to hold")

    def tab_to(self, wanted: Any) -> None:
        """Reach an element by the Tab key alone."""
        for _ in range(400):
            if wanted.evaluate("e => e === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError("the Tab key does not reach it")

    def check(self) -> None:
        """Hold the page as it stands to the checker of accessibility, and to the width of the window."""
        found = checked(self.page)
        assert (self.page.url, found["faults"]) == (self.page.url, [])
        assert found["over"] <= 0, f"{self.page.url} scrolls sideways by {found['over']}"
