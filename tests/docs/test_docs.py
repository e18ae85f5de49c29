"""The documentation: tutorials run from top to bottom, references name everything, links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import trueup
from tests.command import run
from tests.docs.pages import run_page
from trueup.ledger.ledger import Ledger
from trueup.ledger.request import keys_taken
from trueup.model.spec import load_spec
from trueup.model.verb import argument_names

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
ONE_TABLE = [page for page in TUTORIALS if "budget data" not in page.read_text()]
"""Tutorials whose account is not declared several tables one after the other."""
LONG = ("several-tables",)
"""Those that take longest; they are run from top to bottom all the same."""
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def succeeds(*words: str) -> None:
    done = run(*words)
    assert done.returncode == 0, f"trueup {' '.join(words)}: {done.stderr}"


@pytest.mark.thorough
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_page(page, tmp_path, succeeds) >= 4


@pytest.mark.thorough
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[pytest.mark.slow] * (p.stem in LONG)) for p in ONE_TABLE],
    ids=lambda p: p.stem,
)
def test_a_tutorial_runs_under_a_ledger_without_a_new_question(page, tmp_path, monkeypatch):
    """A right description of the table costs nothing; one check has to be left for a wrong one."""
    monkeypatch.chdir(tmp_path)
    charged = []

    def under_a_ledger(*words: str) -> None:
        if words[0] in ("release", "measure"):
            spec = load_spec(words[1])
            at = words.index("--ledger") if "--ledger" in words else len(words)
            words = (*words[:at], *words[at + 4 :], "--ledger", "strict.db", "--analyst", "ana")
            terms = ["--unit", spec.privacy.unit, "--neighbours", spec.privacy.neighbours, "--checks", "1"]
            terms += [word for column in keys_taken(spec) for word in ("--public-keys", column)]
            caps = [word for cap in ("epsilon=99", "rho=99", "delta=1/2") for word in ("--cap", cap)]
            succeeds("budget", "init", "strict.db", "--dataset", spec.table.name, *terms, *caps)
            charged.append(spec.table.name)
        succeeds(*words)

    run_page(page, tmp_path, under_a_ledger)
    shown = Ledger.open("strict.db").state().shown if charged else {}
    assert not [dataset for dataset in charged if shown[dataset].counted]
    assert charged or page.stem == "planning"


def test_a_tutorial_that_does_not_run_is_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    for text in (
        "```sh\ntrueup explain missing.toml\n```\n",
        "```python\n>>> 1 + 1\n3\n\n```\n",
        "```sh\nls\n```\n",
    ):
        page.write_text(text)
        with pytest.raises(AssertionError):
            run_page(page, tmp_path, succeeds)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_to_files(page):
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []


def pages_of_users() -> list[Path]:
    """The pages that say what to do: tutorials and those of the chapter after them."""
    chapters = re.findall(r":caption: (.+?)\n.*?\n\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)
    held = dict(chapters)
    return [DOCS / f"{name}.md" for chapter in ("Tutorials", "How to") for name in held[chapter].split()]


INSIDE = re.compile(
    r"processor (time|second)|took [\d.]+ (second|minute)|test suite|\(tests?\)|\btests/", re.IGNORECASE
)


def test_pages_of_users_give_no_timings_and_name_no_tests():
    """They stand on the pages that say how it works, and in benchmarks.md."""
    assert len(pages_of_users()) > 15
    assert INSIDE.search("took 2.8 processor seconds")
    found = {
        page.name: told.group() for page in pages_of_users() if (told := INSIDE.search(page.read_text()))
    }
    assert not found


def test_every_page_is_in_the_table_of_contents():
    listed = set(re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text(), re.MULTILINE))
    assert {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES} - {"index"} == listed


def entries(heading: str) -> dict[str, str]:
    """The entries of one chapter of the page on Python, by their names."""
    chapter = (DOCS / "python.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return dict(part.split("\n", 1) for part in chapter.split("\n### ")[1:])


def test_every_public_name_is_documented():
    text = (DOCS / "python.md").read_text()
    assert set(trueup.__all__) - {"__version__", "arrays", "theory"} <= set(
        re.findall(r"^### (\w+)$", text, re.MULTILINE)
    )
    assert set(entries("Arrays")) == set(trueup.arrays.__all__)
    assert set(entries("Theory")) == set(trueup.theory.__all__) - set(trueup.arrays.__all__)


def test_every_argument_of_a_verb_is_described():
    verbs = entries("Verbs")
    for name in ("measure", "reconcile", "infer", "ask", "changes", "assess", "report"):
        missing = [each for each in argument_names(getattr(trueup, name)) if f"`{each}`" not in verbs[name]]
        assert not missing, name
    assert "sizes=..." in verbs["assess"]
    assert "options" not in verbs["assess"]


@pytest.mark.parametrize(("script", "page"), [("commands", "commands"), ("api", "python")])
def test_a_reference_is_current(script, page):
    made = subprocess.run([sys.executable, DOCS / f"{script}.py"], capture_output=True, text=True, check=True)
    assert made.stdout == (DOCS / f"{page}.md").read_text(), f"run: python docs/{script}.py > docs/{page}.md"
