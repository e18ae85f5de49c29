"""Hostile requests and bad input: refused in plain words, nothing changed, nothing lost."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from tests.parameters import one_in
from tests.studio.helpers import HOST, ORIGIN, PORT, SECRET, Visit, stranger
from trueup.errors import BusyError, TrueupError
from trueup.studio import jobs
from trueup.studio.pages import application
from trueup.studio.project import Project
from trueup.studio.server import serve

OWN = {"origin": ORIGIN}


@pytest.fixture
def visit(tmp_path) -> Visit:
    visit = Visit.of(tmp_path / "work")
    visit.draft()
    return visit


def unchanged(visit: Visit, before) -> bool:
    return (visit.studio.open_project.choices, visit.studio.open_project.text) == before


def state(visit: Visit):
    return visit.studio.open_project.choices, visit.studio.open_project.text


HOSTILE = {
    "no cookie": ({}, {"cookie": ""}, 401),
    "a made-up cookie": ({}, {"cookie": f"trueup-studio-{PORT}=guessed"}, 401),
    "another origin": ({"origin": "https://example.org"}, {}, 403),
    "an opaque origin": ({"origin": "null"}, {}, 403),
    "another port of this machine": ({"origin": f"http://127.0.0.1:{PORT + 1}"}, {}, 403),
    "no origin": ({"origin": ""}, {}, 403),
    "sent by another site": ({"sec-fetch-site": "cross-site"}, {}, 403),
    "sent by another port": ({"sec-fetch-site": "same-site"}, {}, 403),
    "a foreign name": ({"host": "attacker.example"}, {}, 421),
    "a foreign name with this port": ({"host": f"attacker.example:{PORT}"}, {}, 421),
    "this machine under another port": ({"host": "127.0.0.1:80"}, {}, 421),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_change_that_no_page_of_the_studio_sent_is_refused(visit, what):
    headers, others, status = HOSTILE[what]
    before = state(visit)
    sent = {k: v for k, v in {**OWN, **headers, **others}.items() if v or k == "cookie"}
    if "cookie" in others:
        visit.client.cookies.clear()
    answer = visit.client.post("/structure", data=visit_form(visit) | {"title": "Stolen"}, headers=sent)
    assert answer.status_code == status
    assert re.search(r"<p>[A-Z].*\.</p>", answer.text)
    assert "People" not in answer.text
    assert unchanged(visit, before)


def visit_form(visit: Visit) -> dict[str, str]:
    return {"revision": str(visit.revision), "level.0.name": "all"}


def test_another_machine_is_refused_even_with_the_cookie(visit):
    away = stranger(visit.studio, visit.keys, client="192.0.2.7")
    away.cookies.update(visit.client.cookies)
    assert away.get("/table").status_code == 403


def test_a_link_works_once(visit):
    link = visit.keys.link
    first, second = (stranger(visit.studio, visit.keys) for _ in range(2))
    assert first.get(link).status_code == 200
    assert "token" not in str(first.get("/").url)
    refused = second.get(link)
    assert refused.status_code == 401
    assert second.get("/table").status_code == 401
    assert second.get("/enter?token=").status_code == 401
    assert second.get("/enter").status_code == 401


def test_the_cookie_is_for_this_studio_alone_and_no_script_reads_it(visit):
    other = stranger(visit.studio, visit.keys)
    answer = other.get(visit.keys.link, follow_redirects=False)
    held = set(answer.headers["set-cookie"].split("; "))
    assert {"HttpOnly", "SameSite=strict", f"Path={visit.keys.home}/"} <= held
    assert len(visit.keys.home) > 20, "nobody guesses below which path browsers send the cookie"
    assert answer.headers["location"] == f"{visit.keys.home}/"


def test_with_the_cookie_and_without_the_path_nothing_is_shown(visit):
    """Who has the cookie from elsewhere does not know where the pages are."""
    name, value = visit.keys.cookie, visit.client.cookies[visit.keys.cookie]
    thief = TestClient(application(visit.studio, visit.keys), base_url=ORIGIN, client=("127.0.0.1", 50_000))
    thief.cookies.set(name, value)
    for path in ("/", "/table", "/explore", f"{visit.keys.home[:-1]}/table", visit.keys.home):
        assert thief.get(path, follow_redirects=False).status_code == 401
    assert thief.get(f"{visit.keys.home}/table").status_code == 200


@pytest.mark.parametrize("path", ["/table", "/static/studio.js", "/nothing", "/enter?token=x", "/explore"])
def test_every_answer_forbids_foreign_parts_and_frames(visit, path):
    headers = visit.client.get(path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    ["/static/../pages.py", "/static/..%2fpages.py", "/static/%2e%2e/security.py", "/static/studio.json",
     "/download/..%2f..%2finternal%2frun.json", "/download/manifest.json", "/job/..%2f..", "/job/%2e%2e/report", "/job/x/report"],
)  # fmt: skip
def test_no_path_leads_out_of_the_pages(visit, path):
    answer = visit.client.get(path)
    assert answer.status_code in (404, 422)
    assert str(SECRET) not in answer.text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(visit, method):
    assert visit.client.request(method, "/table", headers=OWN).status_code == 405


def test_a_request_that_is_too_large_is_refused(visit):
    before = state(visit)
    assert visit.post("/spec", toml="x" * 2**21).status_code == 413
    assert unchanged(visit, before)


def test_script_in_labels_stays_text(visit, tmp_path):
    label = "</textarea><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    table = tmp_path / "odd.csv"
    table.write_text('state,"' + label.replace('"', '""') + '",count\n01,a,3\n')
    assert visit.post("/table", table=str(table), title=label, unit="person").status_code == 200
    for step in ("table", "structure", "protected", "tables", "accuracy", "methods", "release"):
        page = visit.client.get(f"/{step}").text
        assert "<script>alert" not in page
        assert "<img" not in page


ATTRIBUTES = {
    "attribute.0.name": "kind",
    "attribute.0.values": "female, male",
    "attribute.1.name": "category",
    "attribute.1.values": "young, old",
}
ROOT = {"level.0.name": "all", "level.1.name": "x", "level.1.column": "state", **ATTRIBUTES}
WISH = {"wish.county": "on", "margin.county": "9", "confidence": "95"}
BAD = {
    "no table": ("/table", {"table": ""}, "no confidential table"),
    "a table that does not exist": ("/table", {"table": "/nowhere/people.csv"}, "there is no file"),
    "a remote address": ("/table", {"table": "https://example.org/people.csv"}, "a remote address"),
    "a prefix that is no number": ("/structure", {**ROOT, "level.1.prefix": "two"}, "a whole number"),
    "two levels of one name": (
        "/structure",
        {**ROOT, "level.2.name": "x", "level.2.column": "county"},
        "declared twice",
    ),
    "no level": ("/structure", {}, "no level"),
    "a column that does not exist": ("/structure", {**ROOT, "level.1.column": "zone"}, "zone"),
    "an attribute without values": ("/structure", {**ROOT, "attribute.1.values": " , "}, "mistakes"),
    "no unit": ("/protected", {"unit": "", "neighbours": "replace"}, "mistake"),
    "an unknown relation": ("/protected", {"unit": "person", "neighbours": "friends"}, "mistake"),
    "records in a table of counts": (
        "/protected",
        {"unit": "person", "neighbours": "replace", "records": "3"},
        "records",
    ),
    "no tables": ("/tables", {"currency": "rho"}, "no table is chosen"),
    "tables that determine too little": (
        "/tables",
        {"currency": "rho", "table.0.0": "on"},
        "do not determine",
    ),
    "an unknown currency": ("/tables", {"currency": "gold", "table.0.0": "on"}, "rho or epsilon"),
    "a margin that is no number": ("/accuracy", {**WISH, "margin.county": "ten"}, "a number"),
    "a margin below zero": ("/accuracy", {**WISH, "margin.county": "-3"}, "out of range"),
    "a margin that is not finite": ("/accuracy", {**WISH, "margin.county": "nan"}, "out of range"),
    "no margin": ("/accuracy", {"confidence": "95"}, "no target"),
    "certainty": ("/accuracy", {**WISH, "confidence": "100"}, "out of range"),
    "a budget that is no number": ("/accuracy", {**WISH, "total": "lots"}, "budget"),
    "a budget of nothing": ("/accuracy", {**WISH, "total": "0"}, "above zero"),
    "an unknown method": ("/methods", {"method": "magic"}, "magic"),
    "a ledger without an analyst": ("/release", {"ledger": "/tmp/none.db"}, "whose budget is charged"),
    "a ledger that does not exist": (
        "/release",
        {"ledger": "/tmp/no-such-ledger.db", "analyst": "ana"},
        "a cap with which a new ledger is made",
    ),
    "outlines that do not exist": ("/paths", {"shapes": "/nowhere/places.geojson"}, "there is no file"),
    "outlines at an address": (
        "/paths",
        {"shapes": "https://example.org/places.geojson"},
        "there is no file",
    ),
    "outlines that are none": ("/paths", {"shapes": __file__}, "holds no shapes"),
    "a size that is not simulated": (
        "/accuracy",
        {"wish.10 county": "on", "margin.10 county": "3"},
        "no target",
    ),
    "no TOML": ("/spec", {"toml": "format = "}, "not TOML"),
    "TOML with mistakes": ("/spec", {"toml": 'format = 2\ntitle = "x"'}, "mistakes"),
    "TOML that nests too deeply": ("/spec", {"toml": "x = " + "[" * 200 + "]" * 200}, "too deeply"),
}


@pytest.mark.parametrize("what", one_in(2, BAD))
def test_bad_input_is_said_in_plain_words_and_changes_nothing(visit, what):
    path, form, words = BAD[what]
    before = visit.studio.open_project.text
    answer = visit.post(path, **form)
    assert answer.status_code in (409, 422)
    fault = re.search(r'role="alert">(.*?)</div>', answer.text, re.DOTALL)
    assert fault
    assert words in fault[1].replace("&#39;", "'")
    assert "Traceback" not in answer.text
    assert visit.studio.open_project.text == before
    assert not (visit.studio.open_project.folder / "jobs").exists()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"wishes": [], "confidence": 95}',
        b'{"wishes": {"county": "x"}, "confidence": 95}',
        b"[" * 10_000,
        b"\xff",
    ],
)
def test_a_plan_that_cannot_be_read_is_refused(visit, body):
    answer = visit.client.post("/plan", content=body, headers={**OWN, "content-type": "application/json"})
    assert answer.status_code == 400
    assert "cannot be read" in answer.json()["error"]


def test_a_plan_out_of_range_is_refused(visit):
    asked = {"wishes": {"moon": 3}, "confidence": 95, "total": ""}
    answer = visit.client.post("/plan", json=asked, headers=OWN)
    assert answer.status_code == 422
    assert "moon" in answer.json()["error"]


def test_what_was_typed_is_not_lost(visit):
    """TOML with a mistake is shown again, after a new start as well."""
    visit.post("/spec", toml='title = "half', back="tables")
    assert "half" in visit.client.get("/accuracy").text
    assert Project.at(visit.studio.open_project.folder).choices.pending == 'title = "half'
    form = {"level.0.name": "all", "level.1.name": "state", "level.1.prefix": "two", "title": "My own title"}
    assert "My own title" in visit.post("/structure", **form).text


def test_the_older_of_two_tabs_changes_nothing(visit):
    old = visit.revision
    visit.post("/spec", toml=visit.studio.open_project.text.replace("People", "Newer"))
    answer = visit.post("/protected", revision=old, unit="household", neighbours="replace")
    assert answer.status_code == 409
    assert "out of date" in answer.text
    assert "Newer" in visit.studio.open_project.text
    assert visit.studio.open_project.spec.privacy.unit == "person"
    assert visit.client.post("/protected", data={"unit": "household"}, headers=OWN).status_code == 422


def test_of_pages_sent_at_once_one_is_taken(visit):
    project, revision = visit.studio.open_project, visit.revision

    def send(number: int) -> bool:
        try:
            project.change(revision, analyst=f"analyst {number}")
        except BusyError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(send, range(32))) == 1


def test_a_damaged_file_of_decisions_is_said_to_be_one(visit):
    (visit.studio.open_project.folder / "studio.json").write_text("{")
    with pytest.raises(TrueupError, match="cannot be read"):
        _ = visit.studio.open_project.choices
    answer = visit.client.get("/accuracy")
    assert answer.status_code == 422
    assert "the spec in the same folder is kept" in answer.text


def test_a_spec_that_was_edited_outside_is_shown_with_its_mistakes(visit):
    (visit.studio.open_project.folder / "spec.toml").write_text("format = ")
    answer = visit.client.get("/tables")
    assert answer.status_code == 409
    assert "not TOML" in answer.text
    assert "format = </textarea>" in answer.text


def test_a_killed_process_is_seen_and_the_work_can_begin_anew(tmp_path):
    job = jobs.Job(tmp_path / "jobs" / "release-1")
    job.folder.mkdir(parents=True)
    (job.folder / "job.json").write_text(json.dumps({"kind": "release"}))
    job.report(state="running", stage="measuring")
    assert job.progress["state"] == "ended"
    assert "before its work was done" in job.progress["error"]


@pytest.mark.parametrize("deaf", [False, True], ids=["hears", "deaf"])
def test_a_job_is_stopped_also_where_it_does_not_listen(tmp_path, monkeypatch, deaf):
    monkeypatch.setattr(jobs, "MAX_STOPPING_SECONDS", 0.5)
    job = jobs.Job(tmp_path / "release-1")
    job.folder.mkdir()
    (job.folder / "job.json").write_text("{}")
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if deaf else "pass"
    wait = f"import signal, time; {ignore}; print(flush=True); time.sleep(60)"
    with (job.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [sys.executable, "-c", wait],
            start_new_session=True,
            pass_fds=(lock.fileno(),),
            stdout=subprocess.PIPE,
        )
    with process:
        process.stdout.readline()
        (job.folder / "process.json").write_text(json.dumps({"group": process.pid}))
        job.report(state="running", stage="measuring")
        assert job.progress["state"] == "running"
        job.stop()
        assert process.wait(10) == -(signal.SIGKILL if deaf else signal.SIGTERM)
    assert (job.progress["state"], job.progress["error"]) == ("ended", "It was stopped.")
    job.stop()  # what is over is left alone


def test_decisions_are_the_owners_alone(visit):
    folder = visit.studio.open_project.folder
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


def test_a_folder_that_others_may_write_into_is_refused(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(TrueupError, match="others may write"):
        Project.at(tmp_path / "shared")


def test_the_host_is_checked_before_the_link(visit):
    link = visit.keys.link.replace(ORIGIN, "http://attacker.example")
    assert stranger(visit.studio, visit.keys).get(link).status_code == 421
    assert stranger(visit.studio, visit.keys, host=f"http://{HOST}").get("/table").status_code == 401


def test_a_link_may_be_opened_as_soon_as_it_is_printed(tmp_path):
    """Who asks before pages are served waits for them: at the moment of the link a connection is taken, none refused."""
    taken = []

    def tell(line):
        if line.startswith("Open: "):
            address = re.search(r"//([\d.]+):(\d+)/", line)
            assert address
            socket.create_connection((address[1], int(address[2])), timeout=10).close()
            taken.append(line)
            raise KeyboardInterrupt

    before = os.umask(0o077)  # which serving sets for its own process
    try:
        with pytest.raises(KeyboardInterrupt):
            serve(None, tmp_path / "work", tell=tell)
    finally:
        os.umask(before)
    assert len(taken) == 1


def test_ticks_stay_after_a_refusal(visit):
    """What was ticked and unticked is shown again, above it what is wrong; the spec is as it was."""
    answer = visit.post("/tables", currency="rho", **{"table.0.0": "on"})
    assert answer.status_code == 422
    boxes = re.findall(r'<input type="checkbox" name="(table[.\d]+)"[^>]*?( checked)?>', answer.text)
    assert [name for name, on in boxes if on] == ["table.0.0"]
    assert re.search(r'value="rho" checked', answer.text)
    shown = visit.client.get("/tables").text
    assert len(re.findall(r'name="table[.\d]+"[^>]* checked>', shown)) > 1
