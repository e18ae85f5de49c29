"""Persons and households released together: in memory, by parts, interrupted and continued, charged once, checked from files."""

from __future__ import annotations

import json
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pyarrow.parquet
import pytest

from tests.linked_tables import TERMS, joined, write_tables
from tests.releasing.bad_input import Interrupted, Stopping
from trueup.checking.bundle import check as check_bundle
from trueup.errors import DataError
from trueup.files import JoinedTables
from trueup.io.bundle.manifest import read_manifest
from trueup.io.bundle.read import read_release
from trueup.ledger.account import Account
from trueup.ledger.ledger import Ledger
from trueup.model.problem import Problem
from trueup.releasing.again import reconcile_bundle
from trueup.releasing.pipeline import measure_only, release, resume
from trueup.releasing.run_folder import RunFolder
from trueup.run.local import LocalPool
from trueup.run.parts import Part, Parts


@pytest.fixture
def given(rng, tmp_path):
    """Spec, data and places as files, and an account."""
    paths = write_tables(tmp_path, rng, 120)
    url = str(tmp_path / "ledger.db")
    Ledger.create(url).init("t", {"rho": "100"}, terms=TERMS)
    return {
        "spec": paths["spec"],
        "data": JoinedTables(paths["data"], paths["households"]),
        "geography": paths["geography"],
        "account": Account.open(url, "ana", None),
    }


def spent(given) -> Fraction:
    """What the account was charged."""
    return given["account"].ledger.state().spent[("t", None)].rho


def private_log(given) -> list[dict]:
    """What was noted for the keeper alone."""
    path = given["account"].ledger.keeper.folder / "refusals.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def holds(folder) -> bool:
    """Whether a bundle keeps every rule, by its files alone; the rules between the tables are among them."""
    checks = check_bundle(folder)
    assert any("contradict" in c.rule or "every constraint holds" in c.rule for c in checks)
    return all(c.holds for c in checks)


@pytest.mark.thorough
def test_in_memory_both_tables_are_one_release_and_one_charge(given, tmp_path):
    out = tmp_path / "out"
    released = release(out=out, **given)
    problem = Problem.of(given["spec"], given["geography"])
    assert holds(out)
    assert spent(given) == problem.guarantee.amount == sum(c.amount for c in problem.guarantee.charges)
    assert "contribution" not in json.loads((out / "internal" / "run.json").read_text())
    [noted] = (found for found in private_log(given) if "contribution" in found)
    assert noted["contribution"]["apart"] == {"households without persons": 1}
    assert noted["contribution"]["dropped"] > 0
    assert released.expected
    assert released.expected.classes
    public = (out / "public" / "report.html").read_text()
    assert noted["contribution"]["key"] not in public


@pytest.mark.thorough
def test_a_run_by_parts_that_is_interrupted_again_and_again_goes_on(given, tmp_path):
    """While it tabulates, draws, goes up and down; what is drawn stays, and the release follows from it."""
    out, run, drawn, told = tmp_path / "out", tmp_path / "out.run", {}, 0
    with pytest.raises(Interrupted):
        release(out=out, executor=Stopping(1), places=4, **given)
    for after in (4, 2, 2):
        assert not out.exists()
        before, parts = drawn, RunFolder(run).measured
        drawn = {name: parts.part(name).digest for name in parts.names()}
        assert before.items() <= drawn.items()
        told += len(drawn) > len(before)
        with pytest.raises(Interrupted):
            resume(run, executor=Stopping(after), account=given["account"])
    assert told, "no interruption came between two draws"
    resume(run, executor=LocalPool(1), account=given["account"])
    assert drawn.items() <= read_manifest(out)["parts"].items()
    assert not list(tmp_path.glob("out.run*"))
    assert holds(out)
    np.testing.assert_array_equal(reconcile_bundle(out, tmp_path / "replay").counts, read_release(out).counts)
    assert len(list((out / "public" / "measurements").glob("*"))) > 1
    assert spent(given) == Problem.of(given["spec"], given["geography"]).guarantee.amount


def interrupted_link(parts: Parts, part: Part, link=Parts._link) -> bool:
    """Interrupt the commit of measurements, whose file is written already."""
    if parts.folder.name == "measured":
        raise Interrupted
    return link(parts, part)


POINTS = {
    "noise is drawn, and its part not committed": ("trueup.run.parts.Parts._link", interrupted_link),
    "a part is committed, and not in the journal": ("trueup.releasing.draws.Draws.note", None),
    "households are settled, persons are not": ("trueup.reconciling.joined_parts.within_households", None),
    "all is settled, nothing is staged": ("trueup.releasing.parts.link_part", None),
    "all is staged, nothing is published": ("trueup.ledger.reservation.Reservation._record", None),
}


@pytest.mark.thorough
@pytest.mark.parametrize("point", POINTS)
def test_a_run_by_parts_that_is_interrupted_at_a_delicate_point_goes_on(given, tmp_path, point):
    """What was committed stays, what was drawn and not committed is published nowhere, and the loss is charged once."""
    out, run = tmp_path / "out", tmp_path / "out.run"
    name, function = POINTS[point]
    interrupting = patch(name, function) if function else patch(name, side_effect=Interrupted)
    with interrupting, pytest.raises(Interrupted):
        release(out=out, executor=LocalPool(1), places=4, **given)
    assert not out.exists()
    parts = RunFolder(run).measured
    drawn = {name: parts.part(name).digest for name in parts.names()}
    assert bool(drawn) is (function is None)
    assert spent(given) == Problem.of(given["spec"], given["geography"]).guarantee.amount
    resume(run, executor=LocalPool(1), account=given["account"])
    assert drawn.items() <= read_manifest(out)["parts"].items()
    assert holds(out)
    assert spent(given) == Problem.of(given["spec"], given["geography"]).guarantee.amount
    assert sorted(path.name for path in tmp_path.glob("*out*")) == ["out"]


@pytest.mark.thorough
def test_by_parts_and_in_memory_tables_are_laid_out_alike(given, tmp_path):
    release(out=tmp_path / "parts", executor=LocalPool(1), places=4, **given)
    released = read_release(tmp_path / "parts")
    both = joined(Problem.of(given["spec"], given["geography"]))
    tables = [t.of(released.counts, both.records) for t in both.tables]
    np.testing.assert_array_equal(
        both.determined.held(tables[1].reshape(5, -1)).sum(axis=1), tables[0].reshape(5, -1).sum(axis=1)
    )


def test_measurements_alone_can_be_reconciled_later(given, tmp_path):
    from trueup.io.bundle.read import read_measurements
    from trueup.reconciling import reconcile

    measured = measure_only(out=tmp_path / "noisy", **given)
    again = read_measurements(tmp_path / "noisy")
    assert again.digest == measured.digest
    assert all(reconcile(again).checks.values())


@pytest.mark.thorough
def test_data_that_do_not_link_up_give_the_loss_back(given, tmp_path):
    persons = pyarrow.parquet.read_table(given["data"].persons).to_pandas()
    persons.loc[0, "hid"] = "nowhere"
    persons.to_parquet(given["data"].persons)
    for options in ({}, {"executor": LocalPool(1), "places": 4}):
        with pytest.raises(DataError, match="every record of one table is linked"):
            release(out=tmp_path / "out", **given, **options)
        assert not (tmp_path / "out").exists()
        assert not (tmp_path / "out.run").exists()
        assert not spent(given)


@pytest.mark.parametrize("options", [{}, {"executor": LocalPool(1), "places": 4}])
def test_tables_at_addresses_are_refused_before_anything_is_charged(given, tmp_path, options):
    given["data"] = JoinedTables(given["data"].persons, "s3a://bucket/households")
    with pytest.raises(DataError, match=r"households is at a remote address \(s3a:...\).* on one machine"):
        release(out=tmp_path / "out", **given, **options)
    assert not given["account"].ledger.state().reserved


@pytest.mark.thorough
def test_a_released_table_that_contradicts_the_other_is_found_out(given, tmp_path):
    out = tmp_path / "out"
    release(out=out, **given)
    file = next((out / "public" / "counts").glob("block*record*.parquet"))
    table = pyarrow.parquet.read_table(file).to_pandas()
    at = table.index[table.record.str.startswith("person")][0]
    table.loc[at, "count"] += 1
    table.to_parquet(file)
    from trueup.io.bundle.manifest import digest

    manifest = out / "public" / "manifest.json"
    held = json.loads(manifest.read_text())
    name = str(file.relative_to(out / "public"))
    held["files"][name] = digest(file)
    manifest.write_text(json.dumps(held))
    broken = [c for c in check_bundle(out) if not c.holds]
    assert any("constraint" in c.rule for c in broken)
