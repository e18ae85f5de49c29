"""The whole path through the pages: from a table's header to a checked release and its files."""

from __future__ import annotations

import io
import json
import re
import zipfile
from fractions import Fraction
from pathlib import Path

import pytest

import trueup
import trueup.studio as studio_package
from tests.studio.helpers import ORIGIN, SECRET, Visit
from trueup.demo.synthetic import made_up_shapes
from trueup.errors import TrueupError
from trueup.ledger.ledger import Ledger
from trueup.ledger.request import Terms, keys_taken
from trueup.planning.margins import normal_ratio
from trueup.releasing.by_size import MarginsBySize, SizeClass
from trueup.studio import job, jobs
from trueup.studio.accuracy import Wishes, precedents
from trueup.studio.rendering import PRECEDENTS, WORDS, ExploredPage

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
    """Tables, a map, places that are chosen on one page and kept on the next, and the report with the map."""
    shapes = tmp_path / "counties.geojson"
    shapes.write_text(json.dumps(made_up_shapes(["01001", "01003", "02001", "02003"], (2, 5), "GEOID")))
    bundle = released.studio.open_project.folder / "release"
    reader = Visit.of(tmp_path / "reader", bundle=bundle, shapes=shapes)
    page = reader.client.get("/explore", params={"confidence": "95%"}).text
    assert len(re.findall(r'<path id="m\d" role="option" aria-selected="false" data-key="0', page)) == 4
    chosen = {"listed": "county", "seen": ["01/001", "01/003"], "place": "01/003", "go": "show"}
    page = reader.client.post("/area", data={**chosen, "table": "state"}, headers=OWN).text
    assert "clear them to choose places of level state" in page
    area = {"listed": "state", "of": "county", "chosen": "01/003\n02/003", "table": "state", "go": "sum"}
    page = reader.client.post("/area", data=area, headers=OWN).text
    assert "released for 2 places of level county" in page
    assert reader.client.get("/table").status_code == 404
    wrong = reader.client.post("/area", data={**area, "chosen": "99/999"}, headers=OWN)
    assert wrong.status_code == 422
    assert "has no place" in wrong.text
    report = reader.client.get("/download/report.html").text
    assert '<svg class="map"' in report


@pytest.mark.parametrize(
    ("sent", "of", "chosen"),
    [
        ({"listed": "county", "place": ["a", "b"], "seen": ["a", "b", "c"]}, "county", ("a", "b")),
        ({"listed": "county", "of": "county", "chosen": "a\nz", "seen": ["a", "b"]}, "county", ("z",)),
        ({"listed": "county", "of": "county", "chosen": "z\r\n z ", "place": ["a"], "seen": ["a"]}, "county", ("z", "a")),
        ({"listed": "state", "of": "county", "chosen": "z", "place": ["a"], "seen": ["a"]}, "county", ("z",)),
        ({"listed": "state", "of": "county", "chosen": "z", "go": "clear"}, "", ()),
        ({"listed": "state", "of": "county", "chosen": " "}, "", ()),
    ],
)  # fmt: skip
def test_places_are_chosen_by_boxes_and_by_typing(sent, of, chosen):
    pairs = [(k, v) for k, held in sent.items() for v in ([held] if isinstance(held, str) else held)]
    view = ExploredPage.of_pairs(pairs)
    assert (view.of, view.chosen) == (of, chosen)


def test_pages_of_a_table_are_turned():
    turned = [
        ExploredPage.of_pairs([("page", "3"), ("go", go)]).number
        for go in ("next", "before", "show", "", "sum")
    ]
    assert turned == [4, 2, 0, 3, 3]
    assert ExploredPage.of_pairs([("page", "-1"), ("go", "before")]).number == 0


@pytest.mark.thorough
def test_a_comparison_is_stopped_and_begun_again(visit):
    walk(visit)
    form = visit.posted("/methods", "/methods") | {"go": "compare"}
    visit.client.post("/methods", data=form, headers=OWN)
    job = re.search(r'data-job="([^"]+)"', visit.client.get("/methods").text)[1]
    visit.client.post(f"/job/{job}", headers=OWN, data={})
    visit.wait("/methods")
    assert "It was stopped." in visit.client.get("/methods").text
    visit.client.post("/methods", data=form, headers=OWN)
    visit.wait("/methods")
    page = visit.client.get("/methods").text
    assert "cell-key" in page
    assert "by size of the true count" in page
    assert re.search(r"\d ± ", page)
    assert visit.client.get("/" + re.search(r'href="(job/[^"]+/report)"', page)[1]).status_code == 200


@pytest.mark.thorough
def test_a_release_by_parts_that_is_stopped_goes_on_with_the_noise_that_it_drew(visit, monkeypatch):
    walk(visit)
    project = visit.studio.open_project
    ledger, out = project.folder / "ledger.db", project.folder / "parts"
    Ledger.create(str(ledger)).init(
        visit.studio.spec.table.name,
        {"rho": 100},
        terms=Terms("person", "add-remove", public=keys_taken(visit.studio.spec)),
    )
    task = {"spec": project.text, "table": str(visit.table), "places": "", "out": str(out), "key": "k"}
    task |= {"ledger": str(ledger), "analyst": "ana"}
    monkeypatch.setattr(job, "default_engine", lambda problem, memory: "local")
    monkeypatch.setattr(job, "MAX_WORKERS", 1)

    class Stopped(jobs.Job):
        def report(self, **progress):
            assert progress["state"] == "running"
            if progress["stage"] == "simulating the errors to expect":  # all noise is drawn
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.carry_release(Stopped(project.folder), task)
    assert not out.exists()
    job.carry_release(jobs.Job(project.folder), task)
    state = Ledger.open(str(ledger)).state()
    assert len(state.reserved) == len(state.commits) == 1
    assert not state.returned
    assert all(check.holds for check in trueup.check(out))


def test_a_stop_says_whether_anything_was_published(visit):
    visit.draft()
    project = visit.studio.open_project
    stopped = jobs.Job(project.folder / "jobs" / "release-1")
    stopped.folder.mkdir(parents=True)
    (stopped.folder / "job.json").write_text(json.dumps({"kind": "release"}))
    stopped.report(state="running", stage="checking the bundle")
    (stopped.folder / "stopped").touch()
    project.change(None, out=str(project.folder / "out"))
    page = visit.client.get("/release").text
    assert "It was stopped." in page
    assert "Nothing was published." in page
    (project.folder / "out" / "public").mkdir(parents=True)
    page = visit.client.get("/release").text
    assert "Nothing was published." not in page
    assert "its check was not finished" in page


FEW = SizeClass("county", 1, "1-9", (1.0, 4.0), ((1.0, 3.0),) * 5)
MANY = SizeClass("county", 10, "10 and more", (1.0, 4.0), ((2.0, 8.0),) * 5)
BY_SIZE = MarginsBySize((FEW, MANY), "")


def test_a_wish_for_a_size_is_one_for_its_table_and_the_strictest_counts():
    def asked(wishes, sizes) -> float:
        (target,) = Wishes(wishes, sizes, 95.0, "", BY_SIZE).targets()
        return float(re.fullmatch(r"county=(.*)@95.0%", target)[1])

    ratio = normal_ratio(95)
    assert asked({}, {"1 county": 2}) == pytest.approx(ratio * 2.5)  # at a deviation of 2.5
    assert asked({}, {"1 county": 2, "10 county": 2}) == pytest.approx(ratio)
    assert asked({"county": 1.5}, {"10 county": 8}) == 1.5
    for key, counts in (
        ("5 county", 2),
        ("x county", 2),
        ("county", 2),
        ("1 state", 2),
        ("1 county", 0),
        ("1 county", float("nan")),
    ):
        with pytest.raises(TrueupError):
            Wishes({}, {key: counts}, 95.0, "", BY_SIZE).targets()
    with pytest.raises(TrueupError, match="not yet simulated"):
        Wishes({}, {"1 county": 2}, 95.0, "").targets()


def test_the_margin_of_a_size_is_met_by_the_table_that_it_asks_for():
    for margin in (0.3, 1.0, 1.7, 2.9, 3.0, 9.0):
        assert FEW.margin(FEW.needed(margin, "95%"), "95%") == pytest.approx(margin)
    flat = SizeClass("county", 0, "0", (1.0, 2.0, 4.0), ((0.0, 0.0, 3.0),) * 5)
    assert flat.needed(0.1, "95%") > 2
    assert SizeClass("county", 0, "0", (1.0, 2.0), ((0.0, 0.0),) * 5).needed(1, "95%") == float("inf")


def simulated(visit: Visit, found: MarginsBySize) -> None:
    """A simulation of margins by size that is over."""
    choices = visit.studio.open_project.choices
    task = {"kind": "sizes", "spec": visit.studio.sized(), "table": choices.table, "places": choices.places}
    done = jobs.Job(visit.studio.open_project.folder / "jobs" / "sizes-1")
    done.folder.mkdir(parents=True)
    (done.folder / "job.json").write_text(json.dumps(task))
    (done.folder / "result.json").write_text(json.dumps(found.written()))
    done.report(state="done", final=True)


@pytest.mark.thorough
def test_sliders_by_size_set_the_target_of_their_table(visit):
    visit.draft()
    assert "by size" not in visit.client.get("/accuracy").text.replace("Sliders by size", "")
    simulated(visit, BY_SIZE)
    assert 'data-key="10 county"' in visit.client.get("/accuracy").text
    asked = {"wishes": {}, "confidence": 95, "total": "", "quick": False, "sizes": {"10 county": 4}}
    found = visit.client.post("/plan", json=asked, headers=OWN).json()
    (county,) = (t for t in found["tables"] if t["table"] == "county")
    assert county["sizes"]["10"] == pytest.approx(4, rel=1e-3)
    assert county["margin"] == pytest.approx(normal_ratio(95) * 2, rel=1e-3)
    form = {k: v for k, v in visit.posted("/accuracy", "/accuracy").items() if not k.startswith("wish.")}
    sent = form | {"margin.10 county": "4", "wish.10 county": "on"}
    assert visit.client.post("/accuracy", data=sent, headers=OWN).status_code == 200
    assert visit.studio.open_project.choices.sizes == {"10 county": 4.0}
    spent = sum((b for q in visit.studio.spec.queries for b in q.budgets.values()), Fraction(0))
    assert float(spent) == pytest.approx(float(found["total"]), rel=1e-3)
    visit.post("/protected", unit="household", neighbours="replace")
    assert "data-key=" not in visit.client.get("/accuracy").text, "another spec has other margins"


def test_the_places_are_drawn_before_anything_is_read(visit, tmp_path):
    shapes = tmp_path / "counties.geojson"
    shapes.write_text(json.dumps(made_up_shapes(["01001", "01003", "02001"], (2, 5), "GEOID")))
    visit.draft()
    visit.post("/paths", table=str(visit.table), places="", shapes=str(shapes))
    page = visit.client.get("/structure").text
    assert "3 places of level county have an outline, 1 have none" in page
    assert "<title>01/003</title>" in page


def test_what_others_have_chosen_is_said_with_its_source_and_as_the_documentation_says_it(visit):
    visit.draft()
    page = visit.client.get("/accuracy").text
    documented = (Path(__file__).parents[2] / "docs" / "choosing-epsilon.md").read_text()
    for one in PRECEDENTS:
        assert f"{one.currency} = {one.amount}" in page
        assert f"{one.currency} = {one.amount}" in documented
        assert one.source.split(",")[0] in page.replace("&#39;", "'")
    epsilons = {one["amount"]: one["epsilon"] for one in precedents()}
    assert epsilons["9.98"] == "9.98"
    assert float(epsilons["2.556"]) == pytest.approx(17.14, abs=0.05)


def test_every_word_that_the_pages_explain_has_an_explanation(visit):
    templates = Path(studio_package.__file__).parent / "templates"
    used = {
        word for page in templates.glob("*.html") for word in re.findall(r'term\("([^"]+)"', page.read_text())
    }
    assert len(used) >= 20
    assert used <= WORDS.keys()
    page = visit.client.get("/words").text
    assert all(f"<dt>{word}</dt>" in page for word in WORDS)


def test_the_proposals_come_from_the_header_and_the_places(visit):
    visit.draft()
    spec = visit.studio.open_project.spec
    assert [level.name for level in spec.levels] == ["all", "state", "county"]
    assert [a.values for a in spec.attributes] == [("female", "male"), ("young", "old")]
    assert {q.currency for q in spec.queries} == {"rho"}


@pytest.mark.thorough
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


@pytest.mark.thorough
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


def test_bounds_on_the_records_of_a_unit_are_weighed_by_what_is_supposed(tmp_path):
    visit = Visit.of(tmp_path)
    (tmp_path / "clinics.csv").write_text("clinic\na\nb\n")
    (tmp_path / "visits.csv").write_text("who,clinic,sex\n1,a,f\n")
    table = {"table": str(tmp_path / "visits.csv"), "places": str(tmp_path / "clinics.csv")}
    assert visit.post("/table", **table, title="Visits", unit="patient").status_code == 200
    form = {"unit": "patient", "neighbours": "add-remove", "id": "who", "records": "5"}
    page = visit.post("/protected", **form, supposed="1=60, 20=40", go="again").text
    assert "at most 5 of its records" in page
    assert '<th scope="row">5</th><td class="n">70 %</td>' in page
    assert 'value="1=60, 20=40"' in page
    assert visit.post("/protected", **form, supposed="many").status_code != 200
