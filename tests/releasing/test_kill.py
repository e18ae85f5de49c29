"""Runs whose workers and drivers are killed: noise drawn once, every rule kept, the ledger charged once."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas
import pytest

import trueup
from tests import linked_tables
from tests.releasing.killing import KillingPool
from tests.releasing.state import MOST, TERMS, copy_of, write_state
from trueup.checking.bundle import check as check_bundle
from trueup.files import JoinedTables
from trueup.io.bundle.manifest import read_manifest
from trueup.ledger.account import Account
from trueup.ledger.ledger import Ledger
from trueup.ledger.request import Terms
from trueup.ledger.verify import verify_ledger
from trueup.releasing import pipeline
from trueup.releasing.again import reconcile_bundle
from trueup.releasing.pipeline import resume
from trueup.releasing.run_folder import PLAN, REMOVED, RunFolder
from trueup.releasing.start import run_path
from trueup.run.local import LocalPool

pytestmark = pytest.mark.thorough


STALLED, MOST_FAILED = 400, 20
"""Seconds after which a run is held to have stalled, and failures in a row after which it is held to go on for ever."""


class Drivers:
    """Releases in processes of their own, and what the place looks like between them."""

    def __init__(self, place: Path, paths: Mapping[str, Path], most: int, table: str, terms: Terms) -> None:
        self.place, self.out, self.url = place, place / "out", str(place / "ledger.db")
        self.paths = {name: str(path) for name, path in paths.items()}
        self.most, self.table, self.terms = most, table, terms
        self.drawn: set[str] = set()
        self.open_account()
        self.stacks, self.failed = tempfile.TemporaryFile(), 0  # noqa: SIM115
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.releasing.killing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stacks,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "OPENBLAS_NUM_THREADS": "1",
                "JE_ARROW_MALLOC_CONF": "background_thread:false",
                "PYTHONPATH": f"{Path(__file__).parents[2]}{os.pathsep}{Path(__file__).parents[2] / 'src'}",
            },
        )
        self._order({**self.paths, "places": most})

    def open_account(self) -> None:
        """Begin a ledger."""
        Ledger.create(self.url).init(self.table, {"rho": "100"}, terms=self.terms)

    def _order(self, order: dict) -> None:
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()

    def run(self, **order) -> int:
        """Begin a release, or go on with one that has begun; return the exit code."""
        run = run_path(self.out)
        begun = (run / PLAN).exists() or run.with_name(run.name + REMOVED).exists()
        what = (
            {"resume": str(run_path(self.out))}
            if begun
            else {**self.paths, "out": str(self.out), "places": self.most}
        )
        self._order({**what, "ledger": self.url, **order})
        if not select.select([self.server.stdout], [], [], STALLED)[0]:
            os.killpg(self.server.pid, signal.SIGUSR1)
            time.sleep(2)
            raise AssertionError(f"stalled: {self.said()}")
        answer = self.server.stdout.readline()
        assert answer, f"the server of drivers ended with {self.server.wait(9)}: {self.said()}"
        status = int(answer)
        self.failed = self.failed + 1 if status > 0 else 0
        assert self.failed < MOST_FAILED, f"failed {self.failed} times in a row: {self.said()}"
        return status

    def said(self) -> str:
        """What the processes wrote last to their standard error: tracebacks, and stacks where they were asked for."""
        self.stacks.seek(0)
        return self.stacks.read().decode()[-20_000:]

    def committed(self) -> dict[str, str]:
        """Digest of every committed measurement."""
        if not (run_path(self.out) / PLAN).exists():
            return read_manifest(self.out)["parts"] if self.out.exists() else {}
        parts = RunFolder(run_path(self.out)).measured
        return {name: parts.part(name).digest for name in parts.names()}

    def spent(self) -> Fraction:
        """What the ledger was charged so far."""
        loss = Ledger.open(self.url).state().spent.get((self.table, None))
        return loss.rho if loss else Fraction(0)

    def check_between(self, before: dict[str, str]) -> dict[str, str]:
        """What was committed stays; nothing is published by halves; the ledger is charged once at most."""
        after = self.committed()
        assert before.items() <= after.items(), "a draw that was committed was replaced"
        state = Ledger.open(self.url).state()
        assert len(state.drawn) <= 1 >= len(state.unfinished(self.table))
        assert not after or self.spent(), "noise was committed that the ledger does not know"
        return after

    def check_end(self, before: dict[str, str]) -> None:
        """The release stands whole and alone, charged once, with the draws that were committed and no other's noise."""
        manifest = read_manifest(self.out)
        parts = manifest["parts"]
        assert before.items() <= parts.items()
        assert len(self.drawn.union(parts.values())) == len(self.drawn) + len(parts), "equal noisy values"
        self.drawn.update(parts.values())
        assert all(check.holds for check in check_bundle(self.out))
        assert self.spent() == Fraction(manifest["guarantee"]["amount"])
        state = Ledger.open(self.url).state()
        assert len(state.reserved) == len(state.commits) == 1
        assert not verify_ledger(Ledger.open(self.url), self.place).findings
        left = {p.name for p in self.place.iterdir()} - {"out", "ledger.db", "ledger.db.keeper"}
        assert left == {Path(path).name for path in self.paths.values()}

    def close(self) -> None:
        """End the server."""
        self.server.communicate()
        self.stacks.close()


@pytest.fixture
def drivers(tmp_path):
    drivers = Drivers(tmp_path, write_state(tmp_path), MOST, "small", TERMS)
    yield drivers
    drivers.close()


@pytest.fixture(scope="module")
def linked_server(tmp_path_factory, request):
    """Of persons and households in two stages; one server for all tests, since it takes longer to begin than a release."""
    place = tmp_path_factory.mktemp("linked")
    blocks = pandas.DataFrame({"block": [f"{c}{b}" for c in "1234" for b in "1234"]})
    rng = np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))
    paths = linked_tables.write_tables(place, rng, 90, blocks)
    drivers = Drivers(place, paths, 6, "t", linked_tables.TERMS)
    yield drivers
    drivers.close()


@pytest.fixture
def linked_drivers(linked_server):
    """The server, in a place as new."""
    yield linked_server
    forget(linked_server)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_driver_killed_again_and_again_draws_once_and_pays_once(drivers, runs, rng, tmp_path_factory):
    kill_again_and_again(drivers, runs, 40, rng, tmp_path_factory)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_driver_that_links_two_tables_killed_again_and_again(linked_drivers, rng, tmp_path_factory):
    kill_again_and_again(linked_drivers, 10, 16, rng, tmp_path_factory)


def kill_again_and_again(drivers: Drivers, runs: int, latest: int, rng, tmp_path_factory) -> None:
    """Kill drivers of runs at moments up to the latest, and hold what they leave to what must hold, between and at the end."""
    kills = 0
    for _ in range(runs):
        before, copied = {}, None
        while (status := drivers.run(kill=int(rng.integers(2, latest)))) == -signal.SIGKILL:
            kills += 1
            before = drivers.check_between(before)
            folder = RunFolder(run_path(drivers.out))
            if copied is None and len(before) == len(folder.all_parts):
                copied = copy_of(folder.path, tmp_path_factory.mktemp("undisturbed"))
        assert status == 0
        drivers.check_end(before)
        assert copied, "no kill came after the last draw: the comparison has no power"
        assert_same_integers(copied, drivers.out)
        assert_replayed(drivers.out, tmp_path_factory.mktemp("replay") / "out")
        forget(drivers)
    assert kills > 2 * runs, "too few kills: the test has no power"
    print(f"{kills} drivers were killed in {runs} runs")


# One run in some forty did not come back. Nothing is forked any more from a process that has threads, and one that stalls, or
# fails again and again, says where.
PIECES = [pytest.param(50, id=f"50, piece {i}") for i in range(4)]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [4, *PIECES])
def test_two_workers_and_their_driver_killed_at_random_draw_once_and_pay_once(
    drivers, kills, rng, tmp_path_factory
):
    kill_workers_and_drivers(drivers, kills, 60, rng, tmp_path_factory)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [pytest.param(25, id=f"25, piece {i}") for i in range(4)])
def test_two_workers_that_link_two_tables_and_their_driver_killed_at_random(
    linked_drivers, kills, rng, tmp_path_factory
):
    kill_workers_and_drivers(linked_drivers, kills, 24, rng, tmp_path_factory)


def kill_workers_and_drivers(drivers: Drivers, kills: int, latest: int, rng, tmp_path_factory) -> None:
    """Workers die in any task at any moment, drivers after any answer up to the latest, until so many have died."""
    marks, died, runs = tmp_path_factory.mktemp("marks"), 0, 0
    while died + len(list(marks.iterdir())) < kills:
        before = {}
        order = {"workers": 2, "share": 0.15, "marks": str(marks)}
        while (status := drivers.run(**order, kill=int(rng.integers(1, latest)))) != 0:
            died += status == -signal.SIGKILL  # else a part was given up, whose worker had died three times
            before = drivers.check_between(before)
        drivers.check_end(before)
        assert_replayed(drivers.out, tmp_path_factory.mktemp("replay") / "out")
        forget(drivers)
        runs += 1
    assert list(marks.iterdir()), "no worker was killed: the test has no power"
    print(f"{died} drivers and {len(list(marks.iterdir()))} workers were killed in {runs} runs")


def assert_same_integers(copied: Path, out: Path) -> None:
    """A run that goes on undisturbed from the same measurements ends with the same integers."""
    released = resume(copied, executor=LocalPool(1))
    assert np.array_equal(trueup.read_release(released.folder).counts, trueup.read_release(out).counts)
    shutil.rmtree(released.folder)


def assert_replayed(out: Path, place: Path) -> None:
    """What stands in a finished release follows from the measurements in it, reconciled whole and undisturbed."""
    assert np.array_equal(reconcile_bundle(out, place).counts, trueup.read_release(out).counts)


def forget(drivers: Drivers) -> None:
    """Make the place as new."""
    given = {Path(path).name for path in drivers.paths.values()}
    for path in drivers.place.iterdir():
        if path.name not in given:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    drivers.open_account()


DELICATE = [
    "trueup.releasing.start:RunFolder.write_plan",  # nothing begun
    "trueup.releasing.tasks:draw",  # reserved, nothing drawn
    "trueup.releasing.draws:Draws.note",  # drawn and committed, and not in the journal
    "trueup.releasing.draws:Draws.seal",  # all drawn, not sealed
    "trueup.ledger.reservation:Reservation.seal",  # sealed, and the ledger does not know
    "trueup.releasing.run_folder:RunFolder.forget_counts",  # sealed, the confidential counts not gone
    "trueup.releasing.parts:link_part",  # settled, nothing staged
    "trueup.releasing.pipeline:finish_bundle",  # half staged
    "trueup.ledger.ledger:Reservation._record",  # staged whole, not committed
    "trueup.ledger.reservation:publish",  # committed, not in place
    "trueup.releasing.run_folder:RunFolder.remove",  # in place, the run folder not gone
    "trueup.releasing.run_folder:RunFolder.finish_removing",  # the run folder renamed, and whole
    "trueup.releasing.run_folder:remove_plan",  # all of it gone but the plan
]
LINKING = [
    "trueup.releasing.data:linked_records",  # the ledger has reserved, nothing is read
    "trueup.releasing.data:tabulate_by_parts",  # both tables linked, nothing counted
    "trueup.releasing.run_folder:RunFolder.keep_counts",  # counted, and nothing says so
    "trueup.releasing.tasks:joined_up",  # all is drawn, and no part has told the one above
    "trueup.releasing.tasks:joined_down",  # the parts have, and nothing is settled
    "trueup.reconciling.joined_parts:within_households",  # households are settled, persons are not
    "trueup.releasing.tasks:write_counts",  # both are, and nothing of it is written
]
"""Where a run of two tables does something else than one of one."""


OFTEN = (
    "tasks:draw",
    "Draws.note",
    "Draws.seal",
    "Reservation._record",
    "data:linked_records",
    "tasks:joined_down",
)
"""Points about noise, charge and link: thorough tests kill a driver there. Slow ones kill it at the others."""


def points(calls):
    """Return the points as parameters, those that are not killed at often marked slow."""
    return [pytest.param(call, marks=[pytest.mark.slow] * (not call.endswith(OFTEN))) for call in calls]


@pytest.mark.parametrize("call", points(DELICATE))
def test_a_driver_killed_at_a_delicate_point_goes_on(drivers, call):
    goes_on_from(drivers, call)


@pytest.mark.parametrize(
    "call", [*(pytest.param(call, marks=pytest.mark.slow) for call in DELICATE), *points(LINKING)]
)
def test_a_driver_that_links_two_tables_killed_at_a_delicate_point_goes_on(linked_drivers, call):
    goes_on_from(linked_drivers, call)


def goes_on_from(drivers: Drivers, call: str) -> None:
    """Kill a driver where it calls a function; the next one ends the run."""
    assert drivers.run(call=call) == -signal.SIGKILL
    before = drivers.check_between({})
    assert drivers.run() == 0
    drivers.check_end(before)


MOMENTS = {"PartTotal": "before", "Measure": "inside", "Up": "inside", "Down": "after"}
"""Killed while noise is committed, and while counts are settled."""


def test_killed_workers_are_replaced_and_draw_once(tmp_path):
    replaced_and_draw_once(tmp_path, write_state(tmp_path))


@pytest.mark.slow
def test_killed_workers_that_link_two_tables_are_replaced_and_draw_once(tmp_path, rng):
    blocks = pandas.DataFrame({"block": [f"{c}{b}" for c in "1234" for b in "1234"]})
    paths = linked_tables.write_tables(tmp_path, rng, 90, blocks)
    data = JoinedTables(paths["data"], paths.pop("households"))
    replaced_and_draw_once(tmp_path, paths | {"data": data})


def replaced_and_draw_once(folder: Path, given: Mapping) -> None:
    """Kill a worker in every kind of task; the release stands whole."""
    marks = folder / "marks"
    marks.mkdir()
    with KillingPool(2, MOMENTS, marks) as pool:
        pipeline.release(**given, out=folder / "out", executor=pool, places=MOST)
    assert {p.name for p in marks.iterdir()} == set(MOMENTS)
    assert all(check.holds for check in check_bundle(folder / "out"))


def test_two_drivers_of_one_run_do_not_meet(drivers):
    from trueup.errors import BusyError
    from trueup.files.owner import owning

    assert drivers.run(kill=20) == -signal.SIGKILL
    account = Account.open(drivers.url, "ana", None)
    with owning(run_path(drivers.out)), pytest.raises(BusyError, match=r"works on .*out\.run"):
        resume(run_path(drivers.out), executor=LocalPool(1), account=account)
