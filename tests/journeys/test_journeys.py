"""Ten journeys of users: in this process, and (slow) from a fresh install with the extras that each page names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import run
from tests.docs.pages import BLOCK, run_page

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGES = sorted(HERE.glob("*.md"))
HERE_ALONE = [page for page in PAGES if "docs" not in page.read_text().partition("-->")[0]]
"""What runs with the extras of the tests; the notebook needs those of the documentation."""


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


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_journey_ends_well_from_a_fresh_install(page, tmp_path):
    """The wheel's own words: nothing of this checkout is on the path."""
    text = page.read_text()
    extras = found[1] if (found := re.search(r"<!-- extras: (\S+) -->", text)) else ""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    bin_, wanted = tmp_path / "venv" / "bin", f"{ROOT}[{extras}]" if extras else str(ROOT)
    install = [bin_ / "pip", "install", "-q", "-c", ROOT / "constraints.txt", wanted]
    subprocess.run(install, check=True, timeout=900)
    folder = tmp_path / "work"
    folder.mkdir()
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for block in BLOCK.finditer(text):
        if block["name"]:
            (folder / block["name"]).write_text(block["text"])
        elif block["kind"] == "sh":
            done = subprocess.run(
                ["bash", "-euc", f'PATH="{bin_}:$PATH"\n{block["text"]}'], cwd=folder, env=clean, timeout=600
            )
            assert done.returncode == 0
        elif block["kind"] == "python":
            (folder / "page.txt").write_text(block["text"])
            told = subprocess.run(
                [bin_ / "python", "-m", "doctest", "page.txt"], cwd=folder, env=clean, timeout=600
            )
            assert told.returncode == 0
