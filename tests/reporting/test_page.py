"""The page as a document: structure, escaping, nothing loaded, equal bytes."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from itertools import pairwise

import pytest

from tests.reporting.page_reader import Reader
from tests.reporting.records import HOSTILE, HOSTILE_TITLE, PLAIN, RECORDS, released
from trueup.errors import SpecError
from trueup.reporting import PAGES, report
from trueup.reporting.drawing import Notice, Page, Section


@pytest.fixture(scope="module", params=RECORDS)
def page(request) -> str:
    return report(*RECORDS[request.param]())


@pytest.fixture(scope="module")
def reader(page) -> Reader:
    return Reader(page)


def test_headings_are_in_order(reader):
    levels = [int(e.tag[1]) for e in reader.all("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))


def test_has_landmarks_language_title_and_skip_link(reader):
    assert [len(reader.all(tag)) for tag in ("header", "nav", "main", "footer")] == [1, 1, 1, 1]
    assert reader.all("html")[0].get("lang") == "en"
    assert reader.all("title")[0].text
    first_link = reader.all("a")[0]
    assert first_link.get("href") == f"#{reader.all('main')[0].get('id')}"


def test_ids_are_unique_and_references_resolve(reader):
    ids = [e.get("id") for e in reader.elements if e.get("id")]
    assert len(ids) == len(set(ids))
    names = ("for", "aria-labelledby", "aria-controls")
    referred = {e.get(name) for e in reader.elements for name in names if e.get(name)}
    referred |= {e.get("href")[1:] for e in reader.all("a") if e.get("href").startswith("#")}
    assert referred <= set(ids)


def test_every_table_has_a_caption_and_scoped_headings(reader):
    tables = reader.all("table")
    assert len(tables) >= 3
    assert len(reader.all("caption")) == len(tables)
    assert all(e.text for e in reader.all("caption"))
    for heading in reader.all("th"):
        assert heading.get("scope") == ("col" if heading.inside("thead") else "row")
    assert all(row[0].tag == "th" for table in tables for row in reader.rows(table))


def test_every_picture_says_its_message(reader):
    pictures = [e for e in reader.elements if e.get("role") == "img"]
    assert pictures
    assert all(len(e.get("aria-label").split()) >= 8 for e in pictures)
    outside = [e for e in reader.all("svg") if not any(p.get("role") == "img" for p in e.parents)]
    assert all(e.get("aria-hidden") == "true" or e.inside("svg") for e in outside)


def test_every_input_has_a_label_and_every_list_of_terms_is_whole(reader):
    labelled = {e.get("for") for e in reader.all("label")}
    assert {e.get("id") for e in reader.all("input")} <= labelled
    assert len(reader.all("dt")) == len(reader.all("dd"))
    assert all(e.text for e in reader.all("dt", "dd"))


def test_nothing_from_the_record_becomes_markup(reader):
    assert len(reader.all("script")) == 1
    assert not reader.all("img", "iframe", "object", "embed", "link")
    assert not [name for e in reader.elements for name in e.attributes if name.startswith("on")]


def test_a_hostile_label_and_title_are_shown_as_text():
    reader = Reader(report(*RECORDS["release with a hostile title"]()))
    assert any(cell.text == HOSTILE for cell in reader.all("th"))
    assert reader.all("h1")[0].text == HOSTILE_TITLE


def test_the_page_loads_nothing(page, reader):
    loading = ("src", "srcset", "data", "poster", "action", "xlink:href")
    assert not [e for e in reader.elements if any(name in e.attributes for name in loading)]
    links = [e.get("href") for e in reader.elements if "href" in e.attributes]
    assert all(re.fullmatch(r"#.+|(counts/)?[\w-]+\.(parquet|json|toml)", link) for link in links)
    style = reader.all("style")[0].text
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in page.replace("http-equiv", "")


def test_the_policy_allows_the_one_script_and_no_request(reader):
    policy = next(e.get("content") for e in reader.all("meta") if e.get("http-equiv"))
    script = "".join(reader.all("script")[0].pieces)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert re.findall(r"'sha256-([^']+)'", policy) == [digest]


@pytest.mark.parametrize("kind", RECORDS)
def test_equal_records_give_equal_bytes(kind):
    assert report(*RECORDS[kind]()) == report(*RECORDS[kind]())


def test_an_unknown_record_is_refused():
    with pytest.raises(SpecError, match="no report can be made of a dict"):
        report({}, RECORDS["release"]()[1])


def test_a_new_kind_of_record_is_one_line(monkeypatch):
    class Audit:
        pass

    section = Section("audit", "An audit", (Notice("All <well>."),))
    monkeypatch.setitem(PAGES, "Audit", lambda record, spec, ledger: Page("T", "S", "", (), (section,)))
    reader = Reader(report(Audit(), released(PLAIN)[1]))
    assert [e.text for e in reader.all("h2")] == ["Contents", "An audit"]
    assert any(e.text == "All <well>." for e in reader.all("p"))
