"""The studio in a real browser: the whole path, by hand and by keyboard alone, on narrow and dark screens, and found again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import trueup
from tests.browser import installed_browser
from tests.conftest import skip_loudly
from tests.studio.helpers import small_table
from trueup.ledger.ledger import Ledger
from trueup.studio.steps import STEPS

pytestmark = [pytest.mark.thorough, pytest.mark.browser]
ONWARD = ("Who is protected", "Tables", "Accuracy and budget", "Take this plan", "Release")
"""The buttons from the structure to the release."""


@pytest.fixture(scope="module")
def chrome() -> Iterator:
    if installed_browser() is None:
        skip_loudly("Chromium is not installed")
    from tests.studio.visitor import chromium

    with chromium() as browser:
        yield browser


def visit(chrome, link: str, **options):
    from tests.studio.visitor import Visitor

    return Visitor.at(chrome, link, **options)


def run(*arguments):
    from tests.studio.visitor import served

    return served(*arguments)


def walk(visitor, table: Path, seconds: float = 240) -> None:
    """From a file's name to a checked release, taking the proposals, with one slider moved."""
    visitor.fill("Confidential table: a CSV or Parquet file on this machine", str(table))
    visitor.press("Propose levels and attributes")
    for name in ONWARD:
        if name == "Take this plan":
            visitor.drag("county", -4)
        visitor.press(name)
    visitor.press("Release: read the confidential table and draw the noise")
    visitor.page.wait_for_url("**/result", timeout=1000 * seconds)


def test_from_a_file_to_a_checked_release(chrome, tmp_path):
    table = small_table(tmp_path / "people.csv")
    with run("--folder", tmp_path / "work") as studio:
        visitor = visit(chrome, studio.link)
        assert "token" not in visitor.page.url
        walk(visitor, table)
        assert "Holds:" in visitor.page.content()
        assert "Fails:" not in visitor.page.content()
        assert visitor.interactions <= 25
        visitor.page.goto(visitor.page.url.replace("/result", "/explore"))
        visitor.page.get_by_label("Choose 01/003").check()
        visitor.press("Add the chosen places up")
        visitor.page.get_by_text("with probability").wait_for(timeout=60_000)
        assert visitor.console == []
        assert visitor.page.evaluate("localStorage.length + sessionStorage.length") == 0
    assert all(check.holds for check in trueup.check(tmp_path / "work" / "release"))


def test_a_slider_moves_the_budget_and_the_budget_the_margins(chrome, tmp_path):
    table = small_table(tmp_path / "people.csv")
    with run("--folder", tmp_path / "work", "--data", table) as studio:
        visitor = visit(chrome, studio.link)
        visitor.press("Propose levels and attributes")
        visitor.page.goto(visitor.page.url.replace("/structure", "/accuracy"))
        before = float(visitor.page.locator("#sum").inner_text())
        visitor.drag("county x kind x category", -40)
        visitor.until(lambda: float(visitor.page.locator("#sum").inner_text()) > 1.5 * before)
        reached = visitor.page.locator("tr[data-table='state'] .reached")
        wide = float(reached.inner_text())
        visitor.page.get_by_label("Budget that may be spent").fill("5")
        visitor.page.keyboard.press("Tab")
        visitor.until(lambda: visitor.page.locator("#sum").inner_text() == "5")
        assert float(reached.inner_text()) < wide
        visitor.page.get_by_label("Budget that may be spent").fill("nothing")
        visitor.page.keyboard.press("Tab")
        visitor.page.locator("#plan-fault").wait_for()
        assert "budget" in visitor.page.locator("#plan-fault").inner_text()


def test_by_keyboard_alone(chrome, tmp_path):
    table = small_table(tmp_path / "people.csv")
    with run("--folder", tmp_path / "work") as studio:
        visitor = visit(chrome, studio.link)
        page = visitor.page
        visitor.tab_to(page.get_by_label("Confidential table: a CSV or Parquet file on this machine"))
        page.keyboard.type(str(table))
        for name in (
            "Propose levels and attributes",
            *ONWARD,
            "Release: read the confidential table and draw the noise",
        ):
            if name == "Take this plan":
                slider = page.get_by_label("Slider of the margin of error of county", exact=True)
                visitor.tab_to(slider)
                page.keyboard.press("ArrowLeft")
                assert slider.get_attribute("aria-valuetext").endswith(" counts")
            visitor.tab_to(page.get_by_role("button", name=name, exact=True))
            with page.expect_navigation():
                page.keyboard.press("Enter")
        page.wait_for_url("**/result", timeout=120_000)
        page.goto(page.url.replace("/result", "/table"))
        visitor.tab_to(page.locator(".term").first)
        assert page.locator(".tip").first.is_visible()
        page.keyboard.press("Escape")
        assert not page.locator(".tip").first.is_visible()
        assert visitor.console == []


def test_no_page_has_a_fault_of_accessibility(chrome, designed):
    """Light and dark, 360 pixels wide and 1,280."""
    with run("--folder", designed) as studio:
        visitor = visit(chrome, studio.link)
        here, faults = visitor.page.url.removesuffix("/table"), {}

        def look(page: str) -> None:
            for scheme, paper in PAPER.items():
                visitor.page.emulate_media(color_scheme=scheme)
                assert visitor.page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
                for wide in (360, 1280):
                    visitor.page.set_viewport_size({"width": wide, "height": 900})
                    faults[page, scheme, wide] = visitor.faults()

        for page in (*STEPS, "explore"):
            visitor.page.goto(f"{here}/{page}")
            look(page)
        visitor.page.goto(f"{here}/structure")
        visitor.page.get_by_label("Leading characters of level 2").fill("two")
        visitor.press("Who is protected")
        visitor.page.get_by_role("alert").wait_for()
        visitor.page.wait_for_load_state()
        look("a refusal")
        assert not any(faults.values()), {at: found for at, found in faults.items() if found}


PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(16, 22, 29)"}


@pytest.fixture(scope="module")
def designed(tmp_path_factory, chrome):
    """A project's folder after the whole path, with a comparison."""
    home = tmp_path_factory.mktemp("designed")
    table = small_table(home / "people.csv")
    with run("--folder", home / "work") as studio:
        visitor = visit(chrome, studio.link)
        walk(visitor, table)
        visitor.page.goto(visitor.page.url.replace("/result", "/methods"))
        visitor.press("Compare on a made-up population")
        visitor.page.get_by_text("What the methods do").wait_for(timeout=120_000)
        assert visitor.console == []
    return home / "work"


def test_a_release_outlives_a_killed_studio_and_is_charged_once(chrome, tmp_path):
    table, ledger = small_table(tmp_path / "people.csv"), tmp_path / "ledger.db"
    with run("--folder", tmp_path / "work") as studio:
        visitor = visit(chrome, studio.link)
        visitor.fill("Confidential table: a CSV or Parquet file on this machine", str(table))
        visitor.press("Propose levels and attributes")
        for name in ONWARD:
            visitor.press(name)
        visitor.page.locator("#ledger").fill(str(ledger))
        visitor.page.locator("#analyst").fill("ana")
        visitor.page.locator("#cap").fill("rho=100")
        visitor.press("Release: read the confidential table and draw the noise")
        assert "Releasing" in visitor.page.content()
        visitor.page.close()
        studio.kill()
    with run("--folder", tmp_path / "work") as studio:
        visitor = visit(chrome, studio.link)
        visitor.page.goto(visitor.page.url.replace("/table", "/release"))
        visitor.page.get_by_text("Released into").or_(
            visitor.page.get_by_text("Checked from")
        ).first.wait_for(timeout=120_000)
        visitor.page.goto(visitor.page.url.rpartition("/")[0] + "/release")
        visitor.press("Release: read the confidential table and draw the noise")
        time.sleep(1)
        visitor.page.goto(visitor.page.url.rpartition("/")[0] + "/result")
        assert "Holds:" in visitor.page.content()
    actions = [entry.fields["action"] for entry in Ledger.open(str(ledger)).entries()]
    assert (actions.count("reserve"), actions.count("commit")) == (1, 1)


def test_a_second_studio_on_a_folder_is_refused(tmp_path):
    with (
        run("--folder", tmp_path / "work"),
        pytest.raises(AssertionError, match="no link"),
        run("--folder", tmp_path / "work"),
    ):
        pass


@pytest.mark.slow
def test_the_path_on_the_demonstration(chrome, tmp_path):
    with run("--folder", tmp_path / "work", "--demo") as studio:
        visitor = visit(chrome, studio.link)
        visitor.page.goto(visitor.page.url.replace("/table", "/structure"))
        for name in ONWARD:
            visitor.press(name)
        visitor.press("Release: read the confidential table and draw the noise")
        visitor.page.wait_for_url("**/result", timeout=600_000)
        assert "Fails:" not in visitor.page.content()
        assert visitor.console == []


@pytest.mark.slow
def test_the_path_on_rhode_islands_blocks(chrome, tmp_path, capsys):
    begun = time.monotonic()
    with run("--folder", tmp_path / "work") as studio:
        visitor = visit(chrome, studio.link)
        visitor.page.set_default_timeout(120_000)
        walk(visitor, _data("ri_blocks_2010.csv.gz"), seconds=900)
        assert "Fails:" not in visitor.page.content()
        assert visitor.interactions <= 25
        took, interactions = time.monotonic() - begun, visitor.interactions
        visitor.page.goto(visitor.page.url.replace("/result", "/methods"))
        begun = time.monotonic()
        visitor.press("Compare on a made-up population")
        visitor.page.get_by_text("What the methods do").wait_for(timeout=120_000)
        compared = time.monotonic() - begun
        with capsys.disabled():
            print(f"\n{interactions} interactions, {took:.0f} s; the comparison {compared:.1f} s")
        assert compared < 20


@pytest.mark.slow
def test_a_slider_answers_within_a_tenth_of_a_second(chrome, tmp_path, capsys):
    """64 tables (11 queries on 6 levels) by 25,181 places, after the first plan; the median in the browser."""
    import pandas

    places = pandas.read_csv(_data("ri_blocks_2010.csv.gz"), dtype=str, usecols=["GEOID"]).rename(
        columns={"GEOID": "geocode"}
    )
    places.to_csv(tmp_path / "places.csv", index=False)
    (tmp_path / "records.csv").write_text("geocode,hhgq,votingage,hispanic,cenrace\n")
    spec = Path(__file__).parents[2] / "examples" / "pl94.toml"
    given = ("--spec", spec, "--data", tmp_path / "records.csv", "--geography", tmp_path / "places.csv")
    with run("--folder", tmp_path / "work", *given) as studio:
        visitor = visit(chrome, studio.link)
        visitor.page.set_default_timeout(120_000)
        visitor.page.goto(visitor.page.url.replace("/table", "/accuracy"))
        assert visitor.page.locator("tr[data-table]").count() >= 64

        def moves() -> list[float]:
            return visitor.page.evaluate("performance.getEntriesByName('slider').map(e => e.duration)")

        for table in ("county", "block group", "block x votingage"):
            for step in (-1, -1, -1, 1, 1):
                before = len(moves())
                visitor.drag(table, step)
                visitor.until(lambda before=before: len(moves()) > before)
                visitor.until(
                    lambda: not visitor.page.locator("#note").inner_text()
                )  # the whole plan followed
        took = sorted(moves())
        with capsys.disabled():
            print(f"\n{len(took)} moves: median {took[len(took) // 2]:.0f} ms, slowest {took[-1]:.0f} ms")
        assert len(took) >= 15
        assert took[len(took) // 2] < 100


def _data(name: str) -> Path:
    folder = os.environ.get("TRUEUP_TEST_DATA")
    if not folder or not (Path(folder) / name).exists():
        return skip_loudly("TRUEUP_TEST_DATA does not name a folder with the census test data")
    return Path(folder) / name
