"""The frame of `python -m papers`: verdicts, selection, skips by name, exit codes, the page."""

from __future__ import annotations

import gzip
import json
from typing import ClassVar

import pytest
import typer
from typer.testing import CliRunner

import papers as frame
from papers import __main__ as command
from papers.item import Found, Item, Setting, outcome
from papers.row import claim, compare, corrected, furthest, held, likely, limit, printed, shown
from trueup.errors import DataError, SpecError


class Wrong(Item):
    """An item whose figure is not the printed one."""

    name: ClassVar[str] = "wrong-table"
    paper: ClassVar[str] = "Nobody (1900)"
    place: ClassVar[str] = "Table 0"
    shows: ClassVar[str] = "One and one."
    catches: ClassVar[tuple[str, ...]] = ("one 2 too high",)

    def run(self, setting: Setting) -> Found:
        return Found((compare("sum", "2", 3.0), shown("product", "", 1.0)))


class NeedsFile(Wrong):
    """An item that needs a file."""

    name: ClassVar[str] = "needs-file"
    files: ClassVar[tuple[str, ...]] = ("nowhere.csv",)


class NeedsPackage(Wrong):
    """An item that needs a package."""

    name: ClassVar[str] = "needs-package"
    packages: ClassVar[tuple[str, ...]] = ("no_such_package_anywhere",)


@pytest.fixture
def app():
    app = typer.Typer()
    command.register(app)
    app.command("other")(lambda: None)  # one command alone would lose its name
    return app


@pytest.mark.parametrize(
    ("paper", "ours", "errors", "verdict"),
    [
        ("0.7", 0.74, (0, 0), "agrees"),
        ("0.7", 0.76, (0, 0), "differs"),
        ("0.7", 0.76, (0.01, 0), "agrees"),
        ("0.7", 0.76, (0, 0.01), "agrees"),
        ("100", 105.4, (0.6, 0.8), "agrees"),  # five times hypot(.6, .8), and half a unit
        ("100", 105.6, (0.6, 0.8), "differs"),
        ("100", float("nan"), (1, 1), "differs"),
    ],
)
def test_both_errors_and_rounding_make_the_tolerance(paper, ours, errors, verdict):
    assert compare("x", paper, ours, ours_error=errors[0], paper_error=errors[1]).verdict == verdict


def test_a_figure_that_cannot_fail_is_shown_only():
    assert compare("mean within rules", "0.0", 0.0, possible=(0.0, 0.0)).verdict == "shown only"
    assert compare("share", "50", 90.0, ours_error=11.0, possible=(0.0, 100.0)).verdict == "shown only"
    assert compare("share", "50", 90.0, ours_error=7.0, possible=(0.0, 100.0)).verdict == "differs"
    assert compare("mean", "50", 90.0, ours_error=9.0, possible=(0.0, float("inf"))).verdict == "agrees"


def test_a_figure_that_0_would_pass_for_is_shown_only():
    assert compare("mean", "50", 90.0, ours_error=11.0).verdict == "shown only"
    assert compare("mean", "50", 120.0, ours_error=11.0).verdict == "differs"
    assert compare("variance", "0.0", 0.01, ours_error=0.01).verdict == "agrees"


def test_figures_without_print_are_held_to_what_is_right():
    assert held("variance", 1.9, 1.84, ours_error=0.01).verdict == "differs"
    assert held("variance", 1.86, 1.84, ours_error=0.01).verdict == "agrees"
    assert held("variance", 1.86, 1.84, ours_error=0.4).verdict == "shown only"  # 0 would pass
    assert held("bias", 0.1, 0.0, ours_error=0.03).verdict == "agrees"
    assert held("bias", float("nan"), 0.0, ours_error=0.03).verdict == "differs"


def test_the_largest_of_many_deviations_may_be_larger_than_one_alone(rng):
    assert 5.8 < limit(100) < 5.9
    found = rng.normal(size=100)
    found[3] = 5.5
    assert furthest("means", found, 0.0, 1.0).verdict == "agrees"
    assert furthest("mean", found[3:4], 0.0, 1.0).verdict == "differs"
    found[3] = 6.0
    assert furthest("means", found, 0.0, 1.0).verdict == "differs"


def test_a_rare_printed_draw_differs():
    verdicts = [likely("norm", "44", "", p, least=1e-3).verdict for p in (2e-3, 1e-4)]
    assert verdicts == ["agrees", "differs"]


def test_the_first_line_counts_what_is_asserted_and_what_is_not(app):
    done = [outcome(Wrong(), Setting()), outcome(NeedsFile(), Setting())]
    first = command.counted(done)
    assert first.startswith("2 figures: 0 agree, 1 differ, 1 shown only (nothing asserted), 0 cannot match")
    assert first.endswith("1 of 2 items have none")
    output = CliRunner().invoke(app, ["reproduce", "zhu-variances", "--quick"]).stdout
    assert output.splitlines()[0].startswith("6 figures: 6 agree, 0 differ, 0 shown only")
    assert "Tells from the right version: a law whose scale is 1 % off" in output


def test_a_wrong_printed_figure_is_held_to_the_right_one():
    assert corrected("total", "35", 25, 25, "cells add up to 25").verdict == "cannot match"
    assert corrected("total", "35", 35, 25, "cells add up to 25").verdict == "differs"


def test_the_worst_verdict_is_the_item_s():
    rows = [
        shown("a", "1", 2),
        compare("b", "1", 1),
        corrected("c", "1", 2, 2, "misprint"),
        claim("d", "", "", False),
    ]
    statuses = [Found(tuple(rows[:k])).status for k in (1, 2, 3, 4)]
    assert statuses == ["shown only", "agrees", "cannot match", "differs"]


def test_a_printed_figure_must_be_a_number():
    with pytest.raises(SpecError, match="no number"):
        printed("about 3")


@pytest.mark.parametrize(
    ("kind", "status", "words"),
    [(NeedsFile, "needs data", "nowhere.csv"), (NeedsPackage, "needs package", "no_such_package_anywhere")],
)
def test_what_is_missing_is_said_by_name(kind, status, words):
    done = outcome(kind(), Setting())
    assert (done.status, done.found.rows) == (status, ())
    assert words in done.needs


def test_every_item_is_described_and_named_once():
    items = frame.select("all")
    assert len({item.name for item in items}) == len(items)
    for item in items:
        assert item.paper
        assert item.place
        assert item.shows.endswith(".")
        assert type(item).__doc__


def test_an_unknown_item_is_refused_with_a_hint():
    with pytest.raises(SpecError, match="did you mean 'zhu-variances'"):
        frame.select("zhu-variance")


def test_quick_runs_are_fewer_and_never_too_few():
    assert [Setting(quick=True).runs(n) for n in (80_000, 1_000, 100)] == [1_600, 200, 100]


def test_figures_depend_on_the_seed_alone():
    first, again, other = (
        frame.reproduce("zhu-variances", Setting(seed, quick=True))[0].found for seed in (1, 1, 2)
    )
    assert first == again != other


def test_a_difference_is_a_failure_and_the_rest_still_runs(app, monkeypatch):
    quick = next(kind for kind in frame.ITEMS if kind.name == "zhu-variances")
    monkeypatch.setattr(frame, "ITEMS", (quick, NeedsFile, Wrong))
    monkeypatch.setattr(command, "WORKERS", 1)
    done = CliRunner().invoke(app, ["reproduce", "all", "--quick", "--json"])
    assert done.exit_code == 1
    statuses = [item["status"] for item in json.loads(done.stdout)["items"]]
    assert statuses[1:] == ["needs data", "differs"]


MALFORMED = {
    "text for counts": "state_name,pop\nIllinois,many\nIllinois,3\n",
    "a missing count": "state_name,pop\nIllinois,\nIllinois,3\n",
    "half a person": "state_name,pop\nIllinois,2.5\nIllinois,3\n",
    "a count below 0": "state_name,pop\nIllinois,-2\nIllinois,3\n",
    "no such column": "state_name,people\nIllinois,2\n",
    "no rows": "state_name,pop\n",
    "nothing": "",
    "no text": "\x00\x01\x02",
}


QUICKEST = {("zhu-figure-1", "text for counts"), ("zhu-figure-4", "nothing")}
"""Items and files of the default suite: each begins a run of all items anew."""


def of_blocks(content: str) -> str:
    """The same, for blocks of the group that items read."""
    return content.replace("state_name", "GEOID").replace("Illinois", "440090510003001")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param(
            name, content, id=f"{name}-{kind}", marks=() if (name, kind) in QUICKEST else pytest.mark.slow
        )
        for name in ("zhu-figure-1", "zhu-figure-4", "dharangutte-figure-2")
        for kind, content in MALFORMED.items()
    ],
)
def test_a_malformed_file_is_its_item_s_error_and_the_rest_still_runs(
    name, content, app, tmp_path, monkeypatch
):
    [file] = next(kind for kind in frame.ITEMS if kind.name == name).files
    (tmp_path / file).write_bytes(
        gzip.compress(of_blocks(content).encode()) if file.endswith("gz") else content.encode()
    )
    kinds = tuple(kind for kind in frame.ITEMS if kind.name in (name, "zhu-variances"))
    monkeypatch.setattr(frame, "ITEMS", kinds)
    monkeypatch.setattr(command, "WORKERS", 1)
    out = tmp_path / "out"
    arguments = ["reproduce", "all", "--quick", "--json", "--data-dir", str(tmp_path), "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    found = {item["name"]: item for item in json.loads(done.stdout)["items"]}
    assert found["zhu-variances"]["status"] == "agrees"
    assert found[name]["status"] == "error"
    assert file in found[name]["needs"]
    assert "No figures: " in (out / "reproduce.html").read_text()


def test_the_list_asks_for_no_data(app, tmp_path, monkeypatch):
    absent = str(tmp_path / "absent")
    monkeypatch.setenv("TRUEUP_TEST_DATA", absent)
    for arguments in (["reproduce"], ["reproduce", "--list"], ["reproduce", "--list", "--data-dir", absent]):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    refused = CliRunner().invoke(app, ["reproduce", "zhu-variances", "--quick"])
    assert isinstance(refused.exception, DataError)
    assert "is no folder" in str(refused.exception)


def test_page_and_json_are_written_together_or_refused_before_any_work(app, tmp_path):
    arguments = ["reproduce", "zhu-variances", "--quick", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["reproduce.html", "reproduce.json"]
    assert "186.67" in (tmp_path / "out" / "reproduce.html").read_text()
    assert "is not empty" in str(CliRunner().invoke(app, arguments).exception)


@pytest.mark.thorough
def test_items_run_in_processes_as_they_do_here(monkeypatch):
    two = tuple(kind for kind in frame.ITEMS if kind.name in ("zhu-variances", "zhu-new-mexico"))
    monkeypatch.setattr(frame, "ITEMS", two)
    here, there = (frame.reproduce("all", Setting(quick=True), workers=workers) for workers in (1, 2))
    assert [each.found for each in here] == [each.found for each in there]
    assert len(here) == 2
