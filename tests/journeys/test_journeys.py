"""Ten journeys of users: in this process, and (slow) from a fresh install with the extras that each page names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.command import run
from tests.docs.pages import BLOCK, run_page

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGES = sorted(HERE.glob("*.md"))
HERE_ALONE = [page for page in PAGES if "docs" not in page.read_text().partition("-->")[0]]
"""What runs with the extras of the tests; the notebook needs those of the documentation."""
INSTALLED = 600 << 20
"""Bytes that an install without extras may take, with all that it needs."""


def succeeds(*words: str) -> None:
    done = run(*words)
    assert done.returncode == 0, f"trueup {' '.join(words)}: {done.stderr}"


def test_there_are_ten():
    assert len(PAGES) == 10


@pytest.mark.thorough
@pytest.mark.parametrize("page", HERE_ALONE, ids=lambda page: page.stem)
def test_a_journey_ends_well(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_page(page, tmp_path, succeeds) >= 1


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Callable[[str], Path]:
    """Make a fresh environment with this package and extras, one for each set of extras; return where its programs are."""
    folder = tmp_path_factory.mktemp("installed")

    @cache
    def install(extras: str) -> Path:
        venv = folder / (extras.replace(",", "-") or "bare")
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        wanted = f"{ROOT}[{extras}]" if extras else str(ROOT)
        install = [venv / "bin" / "pip", "install", "-q", "-c", ROOT / "constraints.txt", wanted]
        subprocess.run(install, check=True, timeout=900)
        return venv / "bin"

    return install


def told(*command: str | Path, folder: Path, path: Path | None = None) -> str:
    """Run a command outside this checkout; return what it says, and fail where it does."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        clean["PATH"] = f"{path}{os.pathsep}{clean['PATH']}"
    done = subprocess.run(command, cwd=folder, env=clean, timeout=600, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_journey_ends_well_from_a_fresh_install(page, installed, tmp_path):
    """The wheel's own words: nothing of this checkout is on the path."""
    text = page.read_text()
    bin_ = installed(found[1] if (found := re.search(r"<!-- extras: (\S+) -->", text)) else "")
    for block in BLOCK.finditer(text):
        if block["name"]:
            (tmp_path / block["name"]).write_text(block["text"])
        elif block["kind"] == "sh":
            told("bash", "-euc", block["text"], folder=tmp_path, path=bin_)
        elif block["kind"] == "python":
            (tmp_path / "page.txt").write_text(block["text"])
            told(bin_ / "python", "-m", "doctest", "page.txt", folder=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_install_without_extras_is_small_and_stands_alone(installed, tmp_path):
    bin_ = installed("")
    where = told(bin_ / "python", "-c", "import trueup; print(trueup.__file__)", folder=tmp_path)
    packages = Path(where.strip()).parents[1]
    assert packages.is_relative_to(bin_.parent)
    size = sum(
        file.stat().st_size for file in packages.rglob("*") if file.is_file() and "pip" not in file.parts
    )
    assert size < INSTALLED
