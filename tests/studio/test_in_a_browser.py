"""The studio in a real browser: the whole path, by hand and by keyboard alone, wide and narrow, light and dark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

import trueup
from tests.studio.helpers import small_table
from trueup.demo.synthetic import made_up_shapes
from trueup.ledger.ledger import Ledger

pytestmark = [pytest.mark.thorough, pytest.mark.browser]
ONWARD = ("Who is protected", "Tables", "Accuracy and budget", "Take this plan", "Release")
"""The buttons from the structure to the release."""
RELEASE = "Release: read the confidential table and draw the noise"
SLIDER = "Slider of the margin of error of "
TABLE = "Confidential table: a CSV or Parquet file on this machine"
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(16, 22, 29)"}


def visit(chrome, link: str, **options):
    from tests.studio.visitor import Visitor

    return Visitor.at(chrome, link, **options)


def run(*arguments):
    from tests.studio.visitor import served

    return served(*arguments)


@pytest.fixture(scope="module")
def studio(tmp_path_factory) -> Iterator:
    """One studio for the walks of this file, which begins with the demonstration."""
    folder = tmp_path_factory.mktemp("walks") / "work"
    with run("--folder", folder, "--demo") as served:
        served.folder = folder
        yield served


@pytest.fixture(scope="module")
def door(chrome, studio):
    """Somebody who opened the link; others enter with the same profile, as further tabs do."""
    return visit(chrome, studio.link)


def enter(chrome, door, **screen):
    """A visitor with a screen of their own, let in by the cookie of the link that was used."""
    return visit(chrome, door.page.url, storage_state=door.page.context.storage_state(), **screen)


def paper(visitor) -> str:
    return visitor.page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_demonstration_by_keyboard_alone_on_a_narrow_dark_screen(chrome, studio, door):
    visitor = enter(chrome, door, wide=360, dark=True)
    page = visitor.page
    assert "token" not in page.url
    assert paper(visitor) == PAPER["dark"]
    visitor.check()
    visitor.tab_to(page.locator(".term").first)
    assert page.locator(".tip").first.is_visible()
    page.keyboard.press("Escape")
    assert not page.locator(".tip").first.is_visible()
    visitor.strike("Propose levels and attributes")
    for name in ONWARD:
        visitor.check()
        if name == "Take this plan":
            visitor.tab_to(visitor.slider("county"))
            page.keyboard.press("ArrowLeft")
            assert visitor.slider("county").get_attribute("aria-valuetext").endswith(" counts")
        visitor.strike(name)
    visitor.check()
    visitor.strike(RELEASE)
    page.wait_for_url("**/result", timeout=200_000)
    visitor.check()
    assert "Fails:" not in page.content()
    visitor.go("explore")
    visitor.tab_to(page.locator("#map"))
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert len(page.locator("#chosen").input_value().splitlines()) == 2
    visitor.tab_to(page.get_by_role("checkbox").first)
    page.keyboard.press("Space")
    assert len(page.locator("#chosen").input_value().splitlines()) in (1, 3)
    visitor.check()
    visitor.go("words")
    visitor.check()
    assert visitor.console == []
    choose_by_mouse(enter(chrome, door))


def choose_by_mouse(visitor) -> None:
    """On the map and in the list, from page to page."""
    visitor.go("explore")
    page, chosen = visitor.page, visitor.page.locator("#chosen")
    shape = page.locator("#map path").nth(7)
    shape.click()
    key = shape.get_attribute("data-key")
    assert chosen.input_value() == key
    assert shape.get_attribute("aria-selected") == "true"
    page.get_by_label("Name or code holds").fill(key)
    page.keyboard.press("Enter")
    page.get_by_text("1 counts, page 1 of 1").wait_for()
    assert chosen.input_value() == key, "searching loses no choice"
    page.get_by_label(f"Choose {key}").uncheck()
    assert chosen.input_value() == ""
    assert page.locator("#map [aria-selected=true]").count() == 0
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    visitor.check()
    assert visitor.console == []


def test_another_server_of_this_machine_is_sent_no_cookie(chrome, door):
    asked = []

    class Listening(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Listening) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        visitor = enter(chrome, door)
        reply = visitor.page.request.get(f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()
    assert reply.status == 204
    assert [headers["cookie"] for headers in asked] == [None]
    assert any(cookie["name"].startswith("trueup-studio") for cookie in visitor.page.context.cookies())


@pytest.mark.slow
def test_the_path_on_rhode_islands_blocks(chrome, studio, door, data_dir, capsys):
    """In the studio that held the demonstration: from a file's name to a checked release, one slider moved."""
    visitor, begun = enter(chrome, door), time.monotonic()
    assert paper(visitor) == PAPER["light"]
    visitor.fill(TABLE, str(data_dir / "ri_blocks_2010.csv.gz"))
    visitor.page.get_by_label("Outlines of the places").fill("")
    visitor.press("Propose levels and attributes")
    for name in ONWARD:
        if name == "Take this plan":
            visitor.drag("county", -4)
        visitor.check()
        visitor.press(name)
    visitor.fill("New folder of the bundle", str(studio.folder / "blocks"))
    visitor.press(RELEASE)
    visitor.page.wait_for_url("**/result", timeout=200_000)
    with capsys.disabled():
        print(f"\n{visitor.interactions} interactions, {time.monotonic() - begun:.0f} s")
    visitor.check()
    assert visitor.interactions <= 25
    assert "Fails:" not in visitor.page.content()
    visitor.go("structure")
    visitor.page.get_by_label("Leading characters of level 2").fill("two")
    visitor.press("Who is protected")
    visitor.page.get_by_role("alert").wait_for()
    visitor.check()
    assert len(visitor.console) == 1
    assert "422" in visitor.console[0], "the refusal is all that was said"


@pytest.mark.slow
def test_the_comparison_on_rhode_islands_blocks(chrome, tmp_path, data_dir, capsys):
    with run("--folder", tmp_path / "work", "--data", data_dir / "ri_blocks_2010.csv.gz") as studio:
        visitor = visit(chrome, studio.link)
        visitor.press("Propose levels and attributes")
        for name in ONWARD[:-1]:
            visitor.press(name)
        begun = time.monotonic()
        visitor.press("Compare on a made-up population")
        visitor.page.get_by_text("What the methods do").wait_for()
        took = time.monotonic() - begun
        with capsys.disabled():
            print(f"\nthe comparison {took:.1f} s")
        visitor.check()
        assert took < 20


@pytest.mark.slow
def test_sliders_by_table_and_by_size_and_a_fixed_budget(chrome, tmp_path):
    """Three tabs of one studio: what one sees, the others find; the older one changes nothing."""
    table = small_table(tmp_path / "people.csv", counties=4)
    with run("--folder", tmp_path / "work", "--data", table) as studio:
        visitor = visit(chrome, studio.link)
        page = visitor.page
        visitor.press("Propose levels and attributes")
        visitor.go("accuracy")
        total = page.locator("#sum")
        before = float(total.inner_text())
        visitor.drag("county x kind x category", -40)
        visitor.until(lambda: float(total.inner_text()) > 1.5 * before)
        visitor.press("Sliders by size of the count")
        more = page.get_by_role("button", name="Sizes of the counts of county x kind x category")
        more.click(timeout=150_000)
        visitor.check()
        row = page.locator("tr[data-of='county x kind x category']").last
        size = row.locator(".slide").get_attribute("aria-label").removeprefix(SLIDER)
        before = float(total.inner_text())
        visitor.drag(size, -30)
        visitor.until(lambda: float(total.inner_text()) > 1.5 * before)
        wanted = float(row.locator(".margin").input_value())
        visitor.until(lambda: float(row.locator(".reached").inner_text()) <= 1.03 * wanted)
        reached = page.locator("tr[data-table='state'] .reached")
        wide = float(reached.inner_text())
        twice = str(2 + 2 * int(float(total.inner_text())))
        page.get_by_label("Budget that may be spent").fill(twice)
        page.keyboard.press("Tab")
        visitor.until(lambda: total.inner_text() == twice)
        assert float(reached.inner_text()) < wide
        page.get_by_label("Budget that may be spent").fill("nothing")
        page.keyboard.press("Tab")
        page.locator("#plan-fault").wait_for()
        assert "budget" in page.locator("#plan-fault").inner_text()
        older = page.context.new_page()
        older.goto(page.url)
        page.get_by_label("Budget that may be spent").fill("")
        visitor.press("Plan, and stay")
        assert page.get_by_label(f"A margin is wanted of {size}").is_checked()
        older.get_by_role("button", name="Take this plan").click()
        older.get_by_role("alert").wait_for()
        assert "older" in older.get_by_role("alert").inner_text()


@pytest.mark.slow
def test_a_release_is_stopped_begun_again_and_outlives_a_killed_studio(chrome, tmp_path):
    table, ledger = small_table(tmp_path / "people.csv"), tmp_path / "ledger.db"
    with run("--folder", tmp_path / "work", "--data", table) as studio:
        with pytest.raises(AssertionError, match="no link"), run("--folder", tmp_path / "work"):
            pass  # a second studio on the folder is refused
        visitor = visit(chrome, studio.link)
        visitor.press("Propose levels and attributes")
        for name in ONWARD:
            visitor.press(name)
        visitor.page.locator("#ledger").fill(str(ledger))
        visitor.page.locator("#analyst").fill("ana")
        visitor.page.locator("#cap").fill("rho=100")
        visitor.press(RELEASE)
        visitor.press("Stop the release")
        visitor.page.get_by_text("It was stopped.").wait_for()
        assert not (tmp_path / "work" / "release").exists()
        visitor.press(RELEASE)
        visitor.page.get_by_role("heading", name="Releasing").wait_for()
        visitor.page.close()
        studio.kill()
    shapes = tmp_path / "counties.geojson"
    shapes.write_text(json.dumps(made_up_shapes(["01001", "01003", "02001", "02003"], (2, 5), "GEOID")))
    with run("--folder", tmp_path / "work", "--shapes", shapes) as studio:
        visitor = visit(chrome, studio.link)
        visitor.go("release")
        visitor.page.get_by_text("Released into").or_(
            visitor.page.get_by_text("Checked from")
        ).first.wait_for()
        visitor.go("release")
        visitor.press(RELEASE)  # a release that is there is returned as it is
        visitor.page.get_by_text("Released into").wait_for()
        visitor.go("result")
        assert "Holds:" in visitor.page.content()
        assert "Fails:" not in visitor.page.content()
        visitor.go("explore")
        for at in (0, 2):
            visitor.page.locator("#map path").nth(at).click()
        visitor.press("Add the chosen places up")
        visitor.page.get_by_text("The true count lies between").wait_for()
        visitor.check()
        assert visitor.page.url.endswith("/area"), "no place stands in an address"
    state = Ledger.open(str(ledger)).state()
    assert len(state.reserved.keys() - state.returned) == len(state.commits) == 1
    assert all(check.holds for check in trueup.check(tmp_path / "work" / "release"))


@pytest.mark.slow
def test_a_slider_answers_within_a_tenth_of_a_second(chrome, tmp_path, data_dir, capsys):
    """64 tables (11 queries on 6 levels) by 25,181 places, after the first plan; the median in the browser."""
    import pandas

    blocks = pandas.read_csv(data_dir / "ri_blocks_2010.csv.gz", dtype=str, usecols=["GEOID"])
    blocks.rename(columns={"GEOID": "geocode"}).to_csv(tmp_path / "places.csv", index=False)
    (tmp_path / "records.csv").write_text("geocode,hhgq,votingage,hispanic,cenrace\n")
    spec = Path(__file__).parents[2] / "examples" / "pl94.toml"
    given = ("--spec", spec, "--data", tmp_path / "records.csv", "--geography", tmp_path / "places.csv")
    with run("--folder", tmp_path / "work", *given) as studio:
        visitor = visit(chrome, studio.link)
        page = visitor.page
        visitor.go("accuracy")
        assert page.locator("tr[data-table]").count() >= 64
        begun = time.monotonic()
        visitor.press("Sliders by size of the count")
        page.locator("button.more").first.wait_for()
        simulated = time.monotonic() - begun

        def moves() -> list[float]:
            return page.evaluate("performance.getEntriesByName('slider').map(e => e.duration)")

        page.locator("button.more").last.click()
        label = page.locator("tr.size:visible .slide").last.get_attribute("aria-label")
        for what in ("county", "block group", label.removeprefix(SLIDER)):
            for step in (-1, -1, -1, 1, 1):
                before = len(moves())
                visitor.drag(what, step)
                visitor.until(lambda before=before: len(moves()) > before)
                visitor.until(lambda: not page.locator("#note").inner_text())  # the whole plan followed
        took = sorted(moves())
        with capsys.disabled():
            print(
                f"\n{len(took)} moves: median {took[len(took) // 2]:.0f} ms, slowest {took[-1]:.0f} ms; "
                f"margins by size took {simulated:.0f} s"
            )
        assert len(took) >= 15
        assert took[len(took) // 2] < 100
