"""A studio in this process: a small table, a project in a new folder, and a client that was let in."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from starlette.testclient import TestClient

from trueup.studio.pages import application
from trueup.studio.project import Project
from trueup.studio.security import Keys
from trueup.studio.steps import Studio

PORT = 8123
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"
SECRET = 98_767
"""A count that stands in the table, and nowhere else unless it leaked."""


def small_table(path: Path, counties: int = 2) -> Path:
    """Persons by sex and age in some counties each of two states."""
    rows = ["state,county,female_young,female_old,male_young,male_old"]
    rows += [
        f"{s:02d},{c:03d},{20 + c},{30 + s},{25 + c},{SECRET if s == 1 and c == 1 else 15}"
        for s in (1, 2)
        for c in range(1, 2 * counties, 2)
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


@dataclass
class Visit:
    """A client of a studio, and the studio."""

    studio: Studio
    keys: Keys
    client: TestClient
    table: Path

    @classmethod
    def of(cls, folder: Path, bundle: Path | None = None, shapes: Path | str = "") -> Visit:
        """A studio with nothing decided, visited with its link."""
        keys = Keys(PORT)
        folder.mkdir(exist_ok=True)
        studio = Studio(None if bundle else Project.at(folder / "project"), bundle, str(shapes))
        visit = cls(studio, keys, stranger(studio, keys), small_table(folder / "people.csv"))
        assert visit.client.get(keys.link).status_code == 200
        return visit

    @property
    def revision(self) -> int:
        """That of the project now."""
        return self.studio.open_project.choices.revision

    def post(self, path: str, *, revision: int | None = None, origin: str | None = ORIGIN, **form: str):
        """Send a form as the page would."""
        now = self.revision if revision is None else revision
        headers = {"origin": origin} if origin else {}
        return self.client.post(path, data={"revision": str(now), **form}, headers=headers)

    def posted(self, path: str, page: str) -> dict[str, str]:
        """What the form of a page would send to a path, as it is filled in."""
        text = self.client.get(page).text
        form = re.search(rf'<form method="post" action="{path[1:]}".*?</form>', text, re.DOTALL)
        assert form, text
        found = {}
        for tag in re.findall(r"<input[^>]*>", form[0]):
            held = dict(re.findall(r'(?<=\s)(\w+)="([^"]*)"', tag))
            if "name" in held and (
                held.get("type") not in ("checkbox", "radio") or re.search(r"\bchecked\b", tag)
            ):
                found[held["name"]] = held.get("value", "on")
        for name, options in re.findall(r'<select[^>]*name="(\w+)"[^>]*>(.*?)</select>', form[0], re.DOTALL):
            chosen = re.search(r'value="([^"]*)" selected', options) or re.search(r'value="([^"]*)"', options)
            found[name] = chosen[1] if chosen else ""
        return found

    def draft(self) -> None:
        """Name the table."""
        assert (
            self.post("/table", table=str(self.table), places="", title="People", unit="person").status_code
            == 200
        )

    def wait(self, page: str, seconds: float = 400) -> dict:
        """Wait for the job that a page names, and return how it ended."""
        found = re.search(r'data-job="([\w-]+)"', self.client.get(page).text)
        until = time.monotonic() + seconds
        while found and time.monotonic() < until:
            progress = self.client.get(f"/job/{found[1]}").json()
            if progress["state"] != "running":
                return progress
            time.sleep(0.1)
        return {"state": "over"}


def stranger(studio: Studio, keys: Keys, host: str = ORIGIN, client: str = "127.0.0.1") -> TestClient:
    """Somebody without link or cookie."""
    return TestClient(application(studio, keys), base_url=host + keys.home, client=(client, 50_000))
