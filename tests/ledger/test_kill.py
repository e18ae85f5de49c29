"""Runs of `trueup release` killed at random moments: the budget holds and nothing needs repair."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

import trueup
from tests.ledger.conftest import database
from tests.ledger.helpers import PERSON
from trueup.checking.bundle import check as check_bundle
from trueup.ledger.ledger import Ledger
from trueup.ledger.verify import verify_ledger

pytestmark = pytest.mark.thorough

SPEC = """
format = 2
title = "Areas"
table = {{ name = "{name}", kind = "counts", counts = "person", count = "n", keys = "public" }}
privacy = {{ unit = "person", neighbours = "add-remove" }}
level = [{{ name = "all" }}, {{ name = "area", column = "area" }}]
query = [{{ name = "total", epsilon = {{ all = "1/200", area = "1/200" }} }}]
"""
COST = Fraction(1, 100)


@pytest.fixture
def place(tmp_path):
    """A folder with data and two specs."""
    rows = "\n".join(f"area {i},{i % 7}" for i in range(2000))
    (tmp_path / "data.csv").write_text(f"area,n\n{rows}\n")
    for name in ("killed", "after"):
        (tmp_path / f"{name}.toml").write_text(SPEC.format(name=name))
    return tmp_path


class Runs:
    """Runs of `trueup release`, one after the other, each in a process of its own."""

    def __init__(self, place, url):
        self.place, self.url = place, url
        ours = (
            Path(__file__).parents[2],
            Path(trueup.__file__).parents[1],
        )  # the same package as here, wherever it is
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.ledger.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=place,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, ours)),
                "TRUEUP_KEEPER": str(place / "keeper"),  # by which data are known again on a server, too
            },
        )

    def start(self, name, out):
        """Start a release; return its process id."""
        charged = ["--ledger", self.url, "--analyst", "ana", "--json"]
        arguments = ["release", f"{name}.toml", "--data", "data.csv", "--out", out, *charged]
        self.server.stdin.write(json.dumps(arguments) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def wait(self):
        """Exit code of the run, negative if it was killed."""
        return int(self.server.stdout.readline())

    def close(self):
        """End the server."""
        self.server.communicate()


def kill_at_random(runs, out, length, rng):
    """Kill a run anywhere, or, half of the time, after its staging folder appeared; was it alive?"""
    child = runs.start("killed", out)
    end = time.monotonic() + float(rng.uniform(0, length))
    if rng.random() < 0.5:
        while alive(child) and not [*runs.place.glob(f".{out}.*")]:
            time.sleep(0.001)
        end = time.monotonic() + float(rng.uniform(0, length / 2))
    while alive(child) and time.monotonic() < end:
        time.sleep(0.001)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return runs.wait() == -signal.SIGKILL


def alive(child):
    """Whether a process exists."""
    try:
        os.kill(child, 0)
    except ProcessLookupError:
        return False
    return True


def published(place):
    return {str(path) for path in place.glob("out*")}


def check_books(url, place, cap):
    """Chain and caps hold (reading checks both), and whatever is published is committed."""
    state = Ledger.open(url).state()
    loss = state.spent.get(("killed", None))
    spent = loss.epsilon if loss else 0
    kept = state.reserved.keys() - state.returned
    assert spent == COST * sum(state.reserved[name][1].dataset == "killed" for name in kept) <= cap
    assert published(place) <= {c.final for c in state.commits.values()}
    return state


LONG = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize(
    ("store", "kills"),
    [
        ("sqlite", 10),
        pytest.param("sqlite", 240, marks=LONG),
        pytest.param("postgresql", 60, marks=[*LONG, pytest.mark.server]),
    ],
)
def test_kills_never_overspend_nor_publish_without_a_commit(store, kills, place, request, rng):
    url = str(place / "ledger.db") if store == "sqlite" else database(request.getfixturevalue("server"))
    ledger, cap = Ledger.create(url, place / "keeper"), COST * (kills * 6 // 10)
    ledger.init("killed", {"epsilon": cap}, terms=PERSON)
    ledger.init("after", {"epsilon": 1}, terms=PERSON)
    runs = Runs(place, url)
    length = timed(runs)
    killed = 0
    for i in range(kills):
        killed += kill_at_random(runs, f"out{i}", length, rng)
        check_books(url, place, cap)

    # The next run needs no repair by hand, and finishes what a crash left between commit and rename.
    runs.start("after", "after2")
    assert runs.wait() == 0
    runs.close()
    state = Ledger.open(url).state()
    for commit in state.commits.values():
        assert all(check.holds for check in check_bundle(commit.final))
    assert not verify_ledger(Ledger.open(url), place).findings
    assert killed > kills // 4, "too few runs were killed: the test has no power"
    # Whatever was killed before it drew was given back by the runs after it, and by nobody else.
    assert not [name for name in state.reserved if state.is_open(name)]
    if kills > 50:
        assert state.returned, "no kill came between reservation and drawing: the test has no power"
        assert state.drawn - state.commits.keys(), (
            "no kill came between drawing and commit: the test has no power"
        )
    assert state.returned or state.drawn - state.commits.keys(), "no kill came after a reservation"


def timed(runs):
    """Seconds of one whole run, after a first one that loads what is loaded late."""
    for out in ("after0", "after1"):
        began = time.monotonic()
        runs.start("after", out)
        assert runs.wait() == 0
    return time.monotonic() - began
