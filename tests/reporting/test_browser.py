"""The page in a real browser: pictures drawn, tables sorted and searched, no complaint on the console."""

from __future__ import annotations

import json

import pytest

from tests.reporting.records import CROSSED, PLAIN, RECORDS, released
from trueup.reporting import report

pytestmark = [pytest.mark.browser, pytest.mark.thorough]

# Run inside the page, after its own script.
PROBE = """() => {
const look = {};
const box = (e) => e.getBoundingClientRect();
look.bars = Array.from(document.querySelectorAll(".picture rect.bar"), (e) => box(e).width);
look.fill = getComputedStyle(document.querySelector(".picture .bar")).fill;
look.paper = getComputedStyle(document.body).backgroundColor;
look.overflow = document.documentElement.scrollWidth - window.innerWidth;
look.fixed = Array.from(document.querySelectorAll(".skip"), (e) => box(e).right <= 0);
const table = Array.from(document.querySelectorAll("table.sortable")).at(-1);
const column = () => Array.from(table.tBodies[0].rows, (r) => r.cells[1 + look.at].textContent);
look.at = Array.from(table.tHead.rows[0].cells).slice(1).findIndex((e) => e.textContent.startsWith("Released count"));
const heading = table.tHead.rows[0].cells[1 + look.at];
look.before = column();
heading.querySelector("button").click();
look.up = [heading.getAttribute("aria-sort"), column()];
heading.querySelector("button").click();
look.down = [heading.getAttribute("aria-sort"), column()];
const input = table.closest("details").querySelector("input");
look.searchable = !input.closest(".tools").hidden;
const first = table.tBodies[0].rows[0].cells[0].textContent;
input.value = first.toUpperCase();
input.dispatchEvent(new Event("input"));
look.found = Array.from(table.tBodies[0].rows).filter((r) => !r.hidden).map((r) => r.cells[0].textContent);
look.wanted = first;
look.said = input.closest(".tools").querySelector("[role=status]").textContent;
return look;
}"""


@pytest.fixture(scope="module")
def page() -> str:
    return report(*released(PLAIN, blocks=40))


def test_the_page_as_published_is_silent_and_drawn(browser, page):
    with browser.opened(page) as (shown, said):
        dump = shown.content()
    assert said == []
    assert dump.count('role="img"') == len(page.pictures) == 5
    assert dump.count("<svg") > 20
    assert dump.count("<button") > 6, "the script ran under the page's own policy"


def test_the_console_is_heard(browser, page):
    """The test above can fail: a foreign script is refused, and the refusal is heard."""
    with browser.opened(page.replace("</body>", "<script>let a = 1;</script></body>")) as (shown, said):
        assert shown.content().count("<button") > 6
    assert any("Content Security Policy" in line for line in said)


def number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def test_tables_sort_and_search(browser, page):
    look = browser.probe(page, PROBE)
    assert look["searchable"]
    assert look["up"] == ["ascending", sorted(look["before"], key=number)]
    assert look["down"][0] == "descending"
    assert [number(t) for t in look["down"][1]] == sorted(map(number, look["before"]), reverse=True)
    assert look["found"] == [look["wanted"]]
    assert look["said"] == "1 row found"


@pytest.mark.parametrize("width", [360, 500, 1280])
def test_bars_are_drawn_and_the_page_does_not_scroll_sideways(browser, width):
    look = browser.probe(report(*released(CROSSED)), PROBE, width=width)
    assert max(look["bars"]) > 50
    assert look["overflow"] <= 0
    assert look["fixed"] == [True]


def test_dark_and_light_differ(browser, page):
    light, dark = browser.probe(page, PROBE), browser.probe(page, PROBE, dark=True)
    assert (light["paper"], dark["paper"]) == ("rgb(255, 255, 255)", "rgb(16, 22, 29)")
    assert light["fill"] != dark["fill"]


def test_a_screenshot_shows_more_than_paper(browser, page):
    with browser.opened(page) as (shown, _):
        shot = shown.screenshot()
    assert shot[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(shot) > 40_000


@pytest.mark.parametrize(
    ("record", "how"),
    [
        ("release with attributes and invariants", {}),
        ("release with attributes and invariants", {"dark": True, "narrow": True}),
        ("release with attributes and invariants", {"narrow": True, "scripts": False}),
        ("release with attributes and invariants", {"dark": True, "scripts": False}),
        ("assessment", {"dark": True}),
        ("posterior with ratios", {"narrow": True}),
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(given) or "plain",
)
def test_a_page_passes_the_accessibility_checker(browser, record, how):
    look = browser.accessibility(report(*RECORDS[record]()), **how)
    assert look["faults"] == []
    assert "color-contrast" in look["tested"]
    assert look["over"] <= 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_with_a_map_passes_the_accessibility_checker(browser, dark, tmp_path):
    ring = [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]
    shape = {"type": "Polygon", "coordinates": [ring]}
    features = [{"type": "Feature", "properties": {"state": "01"}, "geometry": shape}]
    (tmp_path / "places.geojson").write_text(json.dumps({"features": features}))
    page = report(*released(PLAIN), shapes=tmp_path / "places.geojson")
    assert browser.accessibility(page, dark=dark, narrow=not dark)["faults"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "rule", "narrow"),
    [
        ("--ink: #17212e", "--ink: #b0b0b0", "color-contrast", True),
        ('<html lang="en">', "<html>", "html-has-lang", False),
        ('role="img" aria-label=', 'role="img" title2=', "role-img-alt", True),
    ],
)
def test_the_accessibility_checker_sees_a_fault(browser, page, old, new, rule, narrow):
    assert old in page
    faults = browser.accessibility(page.replace(old, new), narrow=narrow)["faults"]
    assert any(fault.startswith(rule) for fault in faults)
