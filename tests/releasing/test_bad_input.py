"""Every input of the table gets its named error, publishes nothing, and leaves a run that can go on or no run."""

from pathlib import Path
from unittest.mock import patch

import duckdb
import pytest

from tests.bad_inputs import rows_by_parts
from tests.parameters import one_in
from tests.releasing.bad_input import (
    BAD,
    Interrupted,
    account,
    failing,
    interrupted,
    release,
    taken_meanwhile,
)
from trueup.checking.bundle import check as check_bundle
from trueup.errors import (
    BudgetError,
    BundleError,
    DataError,
    InfeasibleError,
    ResourceError,
    SpecError,
    TrueupError,
)
from trueup.io.bundle.manifest import read_manifest
from trueup.measuring import draw
from trueup.releasing.pipeline import resume
from trueup.releasing.run_folder import RunFolder
from trueup.run.local import LocalPool

PAGE = Path(__file__).parents[2] / "docs" / "bad-input.md"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("call", "error", "message"), one_in(3, (pytest.param(c, e, m, id=what) for what, c, e, m in BAD))
)
def test_bad_input_is_refused_by_name_and_publishes_nothing(call, error, message, tmp_path):
    with pytest.raises(error) as caught:
        call(tmp_path)
    assert type(caught.value) is error
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_the_table_is_documented_word_for_word():
    page = PAGE.read_text()
    assert not [line for line in rows_by_parts() if line not in page]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("trueup.io.microdata.by_parts._Tabulation._count_rows", duckdb.OutOfMemoryException("4711 bytes")),
        ("trueup.releasing.tasks.write_measured", OSError(28, "No space left on device")),
        ("trueup.releasing.tasks.write_counts", OSError(28, "No space left on device")),
        ("trueup.releasing.tasks.up", MemoryError()),
        ("trueup.releasing.pipeline.finish_bundle", OSError(28, "No space left on device")),
        ("trueup.io.bundle.write.write_manifest", OSError(28, "No space left on device")),
    ],
)
def test_a_run_that_a_resource_stopped_goes_on(name, error, tmp_path):
    with pytest.raises(ResourceError) as caught:
        failing(name, error)(tmp_path)
    assert caught.value.exit_code == 1  # what was given is not at fault
    assert not (tmp_path / "out").exists()
    resume(tmp_path / "out.run", executor=LocalPool(1))
    assert all(check.holds for check in check_bundle(tmp_path / "out"))


FAULTS = ["999,r0,old\n", "000,r9,old\n", "000,r2,young\n", "000,r0\n"]
"""Rows at fault: no such place, no such value, a structural zero, a field too few."""


def found_at_once(folder, rows):
    """A release of data with further rows."""
    return release(folder, data=rows, account=account(folder))


def found_by_going_on(folder, rows):
    """The same, found after a kill by the run that goes on."""
    with patch("trueup.releasing.data.tabulate_by_parts", side_effect=Interrupted):
        run = interrupted(folder, data=rows, account=account(folder))
    return resume(run, executor=LocalPool(1), account=account(folder))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "row", [FAULTS[0], *(pytest.param(row, marks=pytest.mark.slow) for row in FAULTS[1:])]
)
@pytest.mark.parametrize("found", [found_at_once, found_by_going_on])
def test_data_at_fault_cost_nothing_and_leave_no_run(tmp_path, row, found):
    """Corrected data, once they are declared, are charged once; and how many rows are at fault is nobody's to know."""
    with pytest.raises(TrueupError) as caught:
        found(tmp_path, row * 4711)
    assert "711" not in str(caught.value)
    assert {p.name for p in tmp_path.iterdir() if "ledger" not in p.name} == {
        "spec.toml",
        "people.csv",
        "blocks.csv",
    }
    state = account(tmp_path).ledger.state()
    assert set(state.reserved) == state.returned
    assert not state.spent["small", None].rho
    with pytest.raises(BudgetError, match="declare the corrected data"):
        release(tmp_path, account=account(tmp_path))
    account(tmp_path).ledger.declare("small", tmp_path / "people.csv")
    release(tmp_path, account=account(tmp_path))
    assert len(account(tmp_path).ledger.state().drawn) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("error", [DataError, InfeasibleError, SpecError])
def test_a_run_that_was_charged_stays_whatever_is_at_fault(tmp_path, error):
    """What was measured by then is kept: under one charge every measurement is drawn once."""
    measured = []

    def second_fails(*given):
        if measured:
            raise error("whatever it is")
        measured.append(draw(*given))
        return measured[0]

    with patch("trueup.releasing.tasks.draw", side_effect=second_fails), pytest.raises(error):
        release(tmp_path, account=account(tmp_path))
    parts = RunFolder(tmp_path / "out.run").measured
    (drawn,) = (parts.part(name) for name in parts.names())
    resume(tmp_path / "out.run", executor=LocalPool(1), account=account(tmp_path))
    assert len(account(tmp_path).ledger.state().reserved) == 1
    assert read_manifest(tmp_path / "out")["parts"][drawn.name] == drawn.digest


@pytest.mark.thorough
def test_damaged_counts_keep_the_run_and_are_mended_under_the_same_charge(tmp_path):
    run = interrupted(tmp_path, after=13, account=account(tmp_path))
    path = next((run / "confidential" / "counts").glob("*.parquet"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(BundleError, match="missing or damaged"):
        resume(run, executor=LocalPool(1), account=account(tmp_path))
    path.write_bytes(whole)
    resume(run, executor=LocalPool(1), account=account(tmp_path))
    assert len(account(tmp_path).ledger.state().reserved) == 1
    assert all(check.holds for check in check_bundle(tmp_path / "out"))


@pytest.mark.thorough
def test_another_ledger_is_neither_charged_nor_asked(tmp_path):
    run = interrupted(tmp_path, account=account(tmp_path))
    other = account(tmp_path, "other.db")
    with pytest.raises(BudgetError, match="another ledger"):
        resume(run, executor=LocalPool(1), account=other)
    assert not other.ledger.state().reserved
    resume(run, executor=LocalPool(1), account=account(tmp_path))
    assert len(account(tmp_path).ledger.state().reserved) == 1


@pytest.mark.thorough
def test_a_run_keeps_its_key(tmp_path):
    run = interrupted(tmp_path, after=5, account=account(tmp_path, key="first"))  # nothing is reserved yet
    resume(run, executor=LocalPool(1), account=account(tmp_path))
    assert account(tmp_path).ledger.state().finished("first")


@pytest.mark.thorough
def test_what_took_the_target_is_moved_away_and_the_run_goes_on(tmp_path):
    with pytest.raises(BundleError, match="is not empty"):
        taken_meanwhile(tmp_path)
    resume(tmp_path / "out.run", executor=LocalPool(1))
    assert all(check.holds for check in check_bundle(tmp_path / "out"))
