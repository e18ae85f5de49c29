"""Runs of `trueup release` killed at random moments: the budget holds and nothing needs repair."""

import subprocess
import sys
import time
from fractions import Fraction

import pytest
from tests.ledger.conftest import database

from trueup.check import check_bundle
from trueup.ledger.ledger import Ledger
from trueup.ledger.verify import verify

SPEC = """
format = 1
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


def start(place, name, out, url):
    command = [
        "release",
        f"{name}.toml",
        "--data",
        "data.csv",
        "--out",
        out,
        "--ledger",
        url,
        "--analyst",
        "ana",
        "--json",
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-m", "trueup.cli", *command], cwd=place, **quiet)


def kill_at_random(run, place, out, length, rng):
    """Kill anywhere in the run, or, half of the time, after its staging folder appeared."""
    end = time.monotonic() + float(rng.uniform(0, length))
    if rng.random() < 0.5:
        while run.poll() is None and not [*place.glob(f".{out}.*")]:
            time.sleep(0.002)
        end = time.monotonic() + float(rng.uniform(0, length / 4))
    while run.poll() is None and time.monotonic() < end:
        time.sleep(0.002)
    run.kill()
    run.wait()


def published(place):
    return {str(path) for path in place.glob("out*")}


def check_books(url, place, cap):
    """Chain and caps hold (reading checks both), and whatever is published is committed."""
    state = Ledger.open(url).state()
    loss = state.spent.get((("killed", None), "dp"))
    spent = loss.epsilon if loss else 0
    assert spent == COST * sum(r.dataset == "killed" for _, r in state.reserved.values()) <= cap
    assert published(place) <= {c.final for c in state.commits.values()}
    return state


LONG = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize(
    ("store", "kills"),
    [
        ("sqlite", 10),
        pytest.param("sqlite", 200, marks=LONG),
        pytest.param("postgresql", 60, marks=[*LONG, pytest.mark.server]),
    ],
)
def test_kills_never_overspend_nor_publish_without_a_commit(store, kills, place, request, rng):
    url = str(place / "ledger.db") if store == "sqlite" else database(request.getfixturevalue("server"))
    ledger, cap = Ledger.create(url), COST * (kills * 6 // 10)
    ledger.init("killed", {"dp": {"epsilon": cap}})
    ledger.init("after", {"dp": {"epsilon": 1}})
    length = timed(place, url)
    for i in range(kills):
        kill_at_random(start(place, "killed", f"out{i}", url), place, f"out{i}", length, rng)
        check_books(url, place, cap)

    # The next run needs no repair by hand, and finishes what a crash left between commit and rename.
    assert start(place, "after", "after2", url).wait() == 0
    state = Ledger.open(url).state()
    for commit in state.commits.values():
        assert all(check.holds for check in check_bundle(commit.final))
    assert not verify(Ledger.open(url), place).findings
    unfinished = len(state.reserved) - len(state.commits)
    assert unfinished > 0, "no kill came between reservation and commit: the test has no power"


def timed(place, url):
    """Seconds of one whole run."""
    began = time.monotonic()
    assert start(place, "after", "after1", url).wait() == 0
    return time.monotonic() - began
