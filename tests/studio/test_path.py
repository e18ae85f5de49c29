"""The whole path through the pages: from a table's header to a checked release and its files."""

from __future__ import annotations

import io
import re
import time
import zipfile
from fractions import Fraction

import pytest

import trueup
from tests.studio.helpers import ORIGIN, SECRET, Visit
from trueup.ledger.ledger import Ledger

pytest.importorskip("starlette")


OWN = {"origin": ORIGIN}
STEPS = ("structure", "protected", "tables", "accuracy", "methods")


@pytest.fixture
def visit(tmp_path) -> Visit:
    return Visit.of(tmp_path / "work")


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Visit:
    """A studio that went the whole path, with a ledger; the release was asked for four times."""
    visit = Visit.of(tmp_path_factory.mktemp("studio") / "work")
    walk(visit)
    ledger = visit.studio.open_project.folder / "ledger.db"
    form = visit.posted("/release", "/release") | {"ledger": str(ledger), "analyst": "ana", "cap": "rho=100"}
    for _ in range(3):  # a double click, and a page that was sent again
        visit.client.post("/release", data=form, headers=OWN)
    visit.wait("/release")
    visit.client.post("/release", data=form | {"revision": str(visit.revision)}, headers=OWN)
    visit.wait("/release")
    return visit


def walk(visit: Visit) -> None:
    """Take every proposal as it stands."""
    visit.draft()
    for step in STEPS:
        answer = visit.client.post(f"/{step}", data=visit.posted(f"/{step}", f"/{step}"), headers=OWN)
        assert answer.status_code == 200, answer.text


@pytest.mark.thorough
def test_from_a_header_to_a_checked_release(released):
    page = released.client.get("/result").text
    assert "Holds:" in page
    assert "Fails:" not in page
    out = released.studio.open_project.folder / "release"
    assert all(check.holds for check in trueup.check(out))
    assert zipfile.ZipFile(io.BytesIO(released.client.get("/download/tables.zip").content)).namelist()
    for name in ("tables.xlsx", "report.html", "spec.toml", "public.zip"):
        assert released.client.get(f"/download/{name}").status_code == 200


@pytest.mark.thorough
def test_no_count_of_the_table_is_kept_or_shown(released):
    kept = released.studio.open_project.folder
    texts = [p.read_text() for p in (kept / "spec.toml", kept / "studio.json", *kept.glob("jobs/*/*"))]
    texts += [released.client.get(f"/{step}").text for step in (*STEPS, "table", "release", "result")]
    assert SECRET in map(int, released.table.read_text().split()[1].split(","))
    assert not any(str(SECRET) in text.replace(",", "") for text in texts)


@pytest.mark.thorough
def test_a_release_that_is_asked_for_again_is_charged_once(released):
    ledger = Ledger.open(str(released.studio.open_project.folder / "ledger.db"))
    actions = [entry.fields["action"] for entry in ledger.entries()]
    assert actions.count("reserve") == 1
    assert actions.count("commit") == 1


@pytest.mark.thorough
def test_a_bundle_is_explored(released, tmp_path):
    reader = Visit.of(tmp_path / "reader", bundle=released.studio.open_project.folder / "release")
    page = reader.client.get("/explore", params={"table": "county", "confidence": "95%"}).text
    assert "01/001" in page
    area = {"of": "county", "place": ["01/003", "02/003"]}
    until = time.monotonic() + 60
    found = ""
    while "with probability" not in found and time.monotonic() < until:
        found = reader.client.post("/area", data=area, headers=OWN).text
        time.sleep(0.2)
    assert "with probability" in found, found
    assert reader.client.get("/table").status_code == 404
    wrong = reader.client.post("/area", data={"of": "county", "place": "99/999"}, headers=OWN)
    assert wrong.status_code == 422
    assert "has no place" in wrong.text


@pytest.mark.thorough
def test_methods_are_compared_on_a_made_up_population(visit):
    walk(visit)
    visit.client.post("/methods", data=visit.posted("/methods", "/methods") | {"go": "compare"}, headers=OWN)
    visit.wait("/methods")
    page = visit.client.get("/methods").text
    assert "cell-key" in page
    assert "by size of the true count" in page
    assert re.search(r"\d ± ", page)
    assert visit.client.get(re.search(r'href="(/job/[^"]+/report)"', page)[1]).status_code == 200


@pytest.mark.thorough
def test_a_comparison_is_stopped(visit):
    walk(visit)
    visit.client.post("/methods", data=visit.posted("/methods", "/methods") | {"go": "compare"}, headers=OWN)
    job = re.search(r'data-job="([^"]+)"', visit.client.get("/methods").text)[1]
    visit.client.post(f"/job/{job}", headers=OWN, data={})
    visit.wait("/methods")
    assert "It was stopped." in visit.client.get("/methods").text


def test_the_proposals_come_from_the_header_and_the_places(visit):
    visit.draft()
    spec = visit.studio.open_project.spec
    assert [level.name for level in spec.levels] == ["all", "state", "county"]
    assert [a.values for a in spec.attributes] == [("female", "male"), ("young", "old")]
    assert {q.currency for q in spec.queries} == {"rho"}


def test_a_plan_is_written_into_the_spec_exactly(visit):
    walk(visit)
    project = visit.studio.open_project
    spent = sum((b for q in project.spec.queries for b in q.budgets.values()), Fraction(0))
    text, choices = project.choices.candidates, project.choices
    targets = [f"{k}={v}@{choices.confidence}%" for k, v in choices.wishes.items()]
    planned = trueup.plan(trueup.parse_spec(text), visit.table, targets=targets)
    assert float(spent) == pytest.approx(float(planned.total), rel=1e-4)


def test_the_live_answer_is_that_of_the_planner(visit):
    visit.draft()
    asked = {"wishes": {"county": 10, "state": 8}, "confidence": 95, "total": "", "quick": False}
    found = visit.client.post("/plan", json=asked, headers=OWN).json()
    planned = trueup.plan(
        visit.studio.open_project.spec, visit.table, targets=["county=10@95%", "state=8@95%"]
    )
    assert float(found["total"]) == pytest.approx(float(planned.total), rel=1e-3)
    fixed = visit.client.post("/plan", json={**asked, "total": "1/50"}, headers=OWN).json()
    assert float(fixed["total"]) == 0.02
    by = {row["table"]: row["margin"] for row in fixed["tables"]}
    assert by["county"] / by["state"] == pytest.approx(10 / 8, rel=2e-3)


def test_toml_is_edited_both_ways(visit):
    visit.draft()
    text = visit.studio.open_project.text
    assert (
        visit.post("/spec", toml=text.replace('"People"', '"Inhabitants"'), back="protected").status_code
        == 200
    )
    assert 'value="Inhabitants"' in visit.client.get("/structure").text
    form = visit.posted("/structure", "/structure") | {"attribute.0.name": "gender"}
    assert visit.client.post("/structure", data=form, headers=OWN).status_code == 200
    assert "gender" in visit.client.get("/tables").text


def test_a_plan_forgets_neither_the_method_nor_the_tables_that_it_left_out(visit):
    def tables(spec) -> int:
        return sum(len(query.budgets) for query in spec.queries)

    visit.draft()
    form = visit.posted("/accuracy", "/accuracy")
    alone = {k: v for k, v in form.items() if not k.startswith("wish.")} | {"wish.county": "on"}
    assert visit.client.post("/accuracy", data=alone, headers=OWN).status_code == 200
    assert tables(visit.studio.spec) < tables(visit.studio.candidates)
    visit.post("/methods", method="histogram-tree")
    again = form | {"revision": str(visit.revision)}
    assert visit.client.post("/accuracy", data=again, headers=OWN).status_code == 200
    assert visit.studio.spec.reconcile["method"] == "histogram-tree"
    visit.post("/protected", unit="person", neighbours="replace")
    assert tables(visit.studio.spec) == tables(visit.studio.candidates) == 12
