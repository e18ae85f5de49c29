"""What a release by parts refuses; each row acts in a fresh folder that holds the small state.

Rows whose run is `interrupted` stop after some measurements and act on the run folder `out.run`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import patch

from tests.releasing.state import MOST, SPEC, TERMS, write_state
from trueup.cli.options import opened_executor
from trueup.errors import (
    BudgetError,
    BundleError,
    DataError,
    InfeasibleError,
    ResourceError,
    SpecError,
    TrueupError,
)
from trueup.files.memory import parse_memory
from trueup.ledger.account import Account
from trueup.ledger.ledger import Ledger
from trueup.releasing import pipeline
from trueup.releasing.pipeline import resume
from trueup.run.local import LocalPool


class Interrupted(BaseException):
    """Stands for a kill where the process must live on."""


class Stopping(LocalPool):
    """Stop the run after some tasks."""

    def __init__(self, after: int) -> None:
        super().__init__(1)
        self.left = after

    def map(self, task, items):
        """Carry out tasks until it is time to stop."""
        for at, item in enumerate(items):
            if self.left == 0:
                raise Interrupted
            self.left -= 1
            yield at, task(item)


def release(
    folder: Path, *, spec=SPEC, executor=None, account=None, geography="", data="", data_path=None, **more
):
    """Release the small state; `geography` and `data` are added to its files."""
    paths = write_state(folder, spec=spec)
    for name, added in (("geography", geography), ("data", data)):
        paths[name].write_text(paths[name].read_text() + added)
    paths["data"] = paths["data"] if data_path is None else data_path
    options = {"places": MOST, **more}
    return pipeline.release(
        **paths, out=folder / "out", executor=executor or LocalPool(1), account=account, **options
    )


def interrupted(folder: Path, *, after: int = 20, **more) -> Path:
    """Leave a run of whose 13 bundles all are checked and some are measured; return its folder."""
    try:
        release(folder, executor=Stopping(after), **more)
    except Interrupted:
        return folder / "out.run"
    raise AssertionError("the run was not interrupted")


def going_on(folder: Path, alter=lambda run: None, *, after: int = 20, **given):
    """Interrupt a run, alter something, and go on."""
    run = interrupted(folder, after=after)
    alter(run)
    return resume(run, executor=LocalPool(1), **given)


def rewritten(name: str, text: str):
    """Write another file in place of one of the state's."""
    return lambda run: (run.parent / name).write_text(text)


def truncated(pattern: str):
    """Cut the last byte off a file of the run."""

    def cut(run: Path) -> None:
        path = sorted(run.glob(pattern))[0]
        path.write_bytes(path.read_bytes()[:-1])

    return cut


def failing(name: str, error: BaseException):
    """A release in which a function fails."""

    def fail(folder: Path):
        with patch(name, side_effect=error):
            return release(folder)

    return fail


def account(folder: Path, name: str = "ledger.db", analyst: str = "ana", key: str | None = None) -> Account:
    """An account of a ledger that is made when it is first asked for."""
    url = str(folder / name)
    Ledger.create(url).init("small", {"rho": "10"}, terms=TERMS)
    return Account.open(url, analyst, key)


def charged_then(folder: Path, began: Account | None, given: Account | None):
    """Begin a run with an account, and go on with another."""
    return resume(interrupted(folder, account=began), executor=LocalPool(1), account=given)


def taken_meanwhile(folder: Path):
    """Go on towards a target in which something stands by now; it is taken away afterwards."""
    run = interrupted(folder)
    (folder / "out").mkdir()
    (folder / "out" / "thesis.txt").touch()
    try:
        return resume(run, executor=Stopping(0))  # no task is carried out
    finally:
        shutil.rmtree(folder / "out")


def begun_twice(folder: Path):
    """Begin a run where one was interrupted."""
    interrupted(folder)
    return release(folder)


def copied(folder: Path):
    """Go on with a copy of a run."""
    run = interrupted(folder)
    return resume(shutil.copytree(run, folder / "copy.run"), executor=LocalPool(1))


def where_something_stands(folder: Path):
    """Begin a run where its folder would be somebody else's."""
    (folder / "out.run").mkdir()
    (folder / "out.run" / "thesis.txt").touch()
    return release(folder)


LIMITED = SPEC.replace(
    "lower = 1 }]",
    'lower = 1 },\n  { level = "block", attributes = ["race"], where = { race = "r0" }, lower = "homes" }]',
)
"""The state of which every block holds at least so many of r0 as it has homes."""


def limited(folder: Path, homes: str = "", *, spec: str = LIMITED, **more):
    """Release the state with limits by block: those of one block, then none."""
    paths = write_state(folder, spec=spec)
    header, first, *others = paths["geography"].read_text().split()
    rows = [f"{header},homes", f"{first},{homes}", *(f"{block}," for block in others)]
    paths["geography"].write_text("\n".join(rows) + "\n")
    return pipeline.release(**paths, out=folder / "out", executor=LocalPool(1), places=MOST, **more)


NO_ATTRIBUTES = (
    SPEC[: SPEC.index("attribute = ")]
    + SPEC[SPEC.index("\n[[query]]") : SPEC.index('\n[[query]]\nname = "race"')]
)
BAD = [
    ("a memory that is no size", lambda f: parse_memory("four"), SpecError, "is not a size"),
    ("less memory than the workers need", lambda f: release(f, executor=LocalPool(1, memory=10**8)),
     SpecError, "too little for 1 worker"),
    ("a tract with more blocks than fit", lambda f: release(f, places=3),
     TrueupError, "tract '00' has 4 places"),
    ("an engine that does not exist", lambda f: opened_executor("cluster", None, 1), SpecError, "no engine 'cluster'"),
    ("another method by blocks", lambda f: release(f, spec=SPEC + '[reconcile]\nmethod = "general-projection"'),
     SpecError, "cannot release by parts"),
    ("no attribute by blocks", lambda f: release(f, spec=NO_ATTRIBUTES), SpecError, "declares no attribute"),
    ("a block without a parent", lambda f: release(f, geography="0\n"),
     DataError, "shorter than the 2 characters"),
    ("records in a file that there is not", lambda f: release(f, data_path=f / "persons.csv"),
     DataError, "there is no file"),
    ("records that may not be read", failing("trueup.measuring.fingerprint._keyed", PermissionError(13, "Permission denied")),
     DataError, "a file of the data cannot be read: Permission denied"),
    ("a record of an unknown block", lambda f: release(f, data="999,r0,old\n"),
     DataError, "names no place"),
    ("a record of an unknown race", lambda f: release(f, data="000,r9,old\n"),
     DataError, "outside the domain of 'race'"),
    ("a record that cannot exist", lambda f: release(f, data="000,r2,young\n"),
     InfeasibleError, "structural zero"),
    ("limits in a column that the list of places lacks", lambda f: release(f, spec=LIMITED),
     DataError, "no column 'homes'"),
    ("limits that are negative", lambda f: limited(f, "-1"), DataError, "row 1 holds a negative number"),
    ("limits that are fractions", lambda f: limited(f, "1.5"),
     DataError, "row 1 holds text that is not a whole number"),
    ("a lower limit above the upper one",
     lambda f: limited(f, "3", spec=LIMITED.replace('lower = "homes"', 'lower = "homes", upper = 2')),
     InfeasibleError, "exceeds its upper limit at '000'"),
    ("limits that differ within a tract",
     lambda f: limited(f, "1", spec=LIMITED.replace('"block", attributes', '"tract", attributes')),
     DataError, "gives two limits for the tract '00'"),
    ("limits without a list of places",
     lambda f: release(f, spec=LIMITED.replace('kind = "records"', 'kind = "counts", count = "n", keys = "public"')),
     SpecError, "the column 'homes' of the public list of places"),
    ("counts below the limit of a place", lambda f: limited(f, "99"),
     InfeasibleError, "the confidential counts break bound of 'block x race'"),
    ("a limit above what an invariant counts", lambda f: limited(f, "999999"),
     InfeasibleError, "the confidential counts break bound of 'block x race'"),
    ("a run towards a target that another was interrupted towards", begun_twice,
     BundleError, "a run was interrupted"),
    ("a run beside whose target something of its folder's name stands", where_something_stands,
     BundleError, "is not empty"),
    ("going on with a folder that is no run's", lambda f: resume(f, executor=LocalPool(1)),
     BundleError, "no plan.json"),
    ("going on with a copy of a run", copied, BundleError, "was copied or moved"),
    ("going on with a damaged plan", lambda f: going_on(f, truncated("plan.json")),
     BundleError, "truncated or altered"),
    ("going on with another spec", lambda f: going_on(f, rewritten("spec.toml", SPEC + "# changed"), spec=f / "spec.toml"),
     SpecError, "differs from the one with which the run began"),
    ("going on with an altered copy of the spec", lambda f: going_on(f, truncated("spec.toml")),
     BundleError, "was altered"),
    ("going on with other places", lambda f: going_on(f, rewritten("blocks.csv", "block\n000\n"), geography=f / "blocks.csv"),
     DataError, "the places differ"),
    ("going on with other data", lambda f: going_on(f, rewritten("people.csv", "block,race,age\n"), data=f / "people.csv"),
     DataError, "the data differ"),
    ("going on towards another target", lambda f: going_on(f, out=f / "other"),
     BundleError, "the run writes to"),
    ("going on towards a target in which something stands by now", taken_meanwhile,
     BundleError, "move away what is at the target"),
    ("going on without the ledger that was charged", lambda f: charged_then(f, account(f), None),
     BudgetError, "is charged to a ledger"),
    ("going on with a ledger where there was none", lambda f: charged_then(f, None, account(f)),
     BudgetError, "began without a ledger"),
    ("going on with another ledger", lambda f: charged_then(f, account(f), account(f, "other.db")),
     BudgetError, "was charged to another ledger"),
    ("going on as another analyst", lambda f: charged_then(f, account(f), account(f, analyst="ben")),
     BudgetError, "began with the analyst 'ana', and goes on with the analyst 'ben'"),
    ("going on with a key where there was none", lambda f: charged_then(f, account(f), account(f, key="second")),
     BudgetError, "began with no key, and goes on with the key 'second'"),
    ("a truncated part of the places", lambda f: going_on(f, truncated("places/1-00000.[0-9a-f]*")),
     BundleError, "truncated or altered"),
    ("a truncated part of the confidential sums",
     lambda f: going_on(f, truncated("confidential/sums/2-00000.[0-9a-f]*"), after=14),
     BundleError, "truncated or altered"),
    ("a truncated file of the tabulated counts",
     lambda f: going_on(f, truncated("confidential/counts/part-*.parquet"), after=13),
     BundleError, "the tabulated counts of part 0"),
    ("a truncated part of the measurements", lambda f: going_on(f, truncated("measured/2-*.parquet")),
     BundleError, "truncated or altered"),
    ("a disk that is full", failing("trueup.releasing.tasks.write_measured", OSError(28, "No space left on device")),
     ResourceError, "No space left on device"),
    ("a task that runs out of memory", failing("trueup.releasing.tasks.draw", MemoryError()),
     ResourceError, "more memory than there is"),
]  # fmt: skip
