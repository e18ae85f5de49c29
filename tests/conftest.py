"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from xdist.scheduler import LoadFileScheduling

SPARK = {
    "spark.ui.enabled": "false",
    "spark.executorEnv.PYTHONPATH": os.pathsep.join(
        str(Path(__file__).parents[1] / part) for part in ("", "src")
    ),
    "spark.io.encryption.enabled": "false",
}
"""Executors find the tests' tasks; PySpark's encrypted broadcasts leave sockets open, a warning that would fail a test."""

ON_SPARK = {
    f"tests/{file}.py" for file in ("claims/test_contributions", "releasing/test_spark", "run/test_spark")
}
"""Files that one worker tests, so that Spark starts once."""


class ManualFirst(LoadFileScheduling):
    """Gives the pages of the manual first, then files to one worker from the beginning, to the next one from the end.

    Kernels are compiled where they are needed first, and kept for all. The pages are about different parts of the package
    and need most kernels between them; workers side by side in the list need the same ones at the same time. On a machine
    without compiled kernels a third of all compilation was done twice.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "tests on Spark" if file in ON_SPARK else file

    def _assign_work_unit(self, node) -> None:
        pages = [scope for scope in self.workqueue if scope.startswith("docs/")]
        last = not pages and self.nodes.index(node) % 2
        chosen = pages[0] if pages else next(reversed(self.workqueue)) if last else next(iter(self.workqueue))
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


MEMORY_FOLDER, MIN_FREE_BYTES = "/dev/shm", 4 << 30
"""A folder in memory, and the room that it must have: a run of all tests leaves 100 MB."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files in memory where there is room: thousands of ledgers and bundles wait for a disk else.

    No test needs more of a disk than that a killed process leaves what it wrote.
    """
    usable = "TMPDIR" not in os.environ and os.access(MEMORY_FOLDER, os.W_OK)
    if usable and shutil.disk_usage(MEMORY_FOLDER).free > MIN_FREE_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY_FOLDER


def pytest_xdist_make_scheduler(config: pytest.Config, log) -> ManualFirst | None:
    """Have files given in that order, where files are what is given."""
    return ManualFirst(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Return a generator seeded from the test's own id: stable, and different for every test."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real census counts, or skip loudly; CI forbids the skip."""
    folder = os.environ.get("TRUEUP_TEST_DATA")
    if folder and Path(folder).is_dir():
        return Path(folder)
    return skip_loudly("TRUEUP_TEST_DATA does not name a folder with the census test data")


@pytest.fixture(scope="session")
def cluster():
    """Two Spark executors of one core each, in processes of their own on this machine."""
    from trueup.run.spark import SparkCluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        with SparkCluster("local-cluster[2,1,1024]", SPARK) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def chrome():
    """Return a headless Chromium; of one module alone, since its event loop would be in the way of others."""
    from tests.browser import chromium, installed_browser

    if installed_browser() is None:
        skip_loudly("Chromium is not installed")
    with chromium() as opened:
        yield opened


@pytest.fixture
def browser(chrome, tmp_path):
    """Return what shows pages of HTML in Chromium."""
    from tests.browser import Browser

    return Browser(chrome, tmp_path)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session):
    """Look for garbage seldom: it took a quarter of collection, whose objects all stay, and a tenth of compilation."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    return collected


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Call what runs on Spark thorough: starting its processes takes longer than most files of tests."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.thorough)


def skip_loudly(reason: str):
    """Skip, unless the run forbids it (`TRUEUP_FORBID_SKIPS=1`, set by CI)."""
    if os.environ.get("TRUEUP_FORBID_SKIPS") == "1":
        pytest.fail(f"this run forbids skips, but {reason}")
    pytest.skip(reason)
