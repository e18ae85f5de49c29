"""Families of tables released by parts: the integers that the same measurements give in memory."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

import trueup as tu
from tests.families import CLINICS, ministry, visits
from tests.releasing.bad_input import Interrupted, Stopping
from tests.releasing.on_spark import Watched, killing
from tests.releasing.state import copy_of
from tests.releasing.test_spark import Stopped, stop_before
from trueup.checking.bundle import check
from trueup.errors import SpecError
from trueup.io.bundle.read import read_measurements
from trueup.releasing.pipeline import release, resume
from trueup.releasing.run_folder import RunFolder
from trueup.run.local import LocalPool

RULES = {
    "privacy": {"unit": "visit", "neighbours": "add-remove"},
    "constraints": {
        "invariants": [{"level": "region"}, {"level": "clinic"}],
        "zeros": [{"chapter": "B"}, {"sex": "f", "age": "65+"}],
    },
    "queries": [
        {"name": "people", "attributes": ["sex", "age"], "epsilon": {"district": "1"}},
        {"name": "diagnoses", "attributes": ["diagnosis"], "epsilon": {"region": "1"}},
        {"name": "chapters", "attributes": ["chapter", "month"], "epsilon": {"country": "1"}},
    ],
}
"""Exact counts of regions and clinics, zeros, and a recode."""


def assert_as_in_memory(folder):
    """Every rule holds, and reconciling the measurements in memory gives the same tables."""
    assert all(found.holds for found in check(folder))
    stored, again = tu.read_release(folder), tu.reconcile(read_measurements(folder))
    assert stored.published == again.published
    for margin in stored.published:
        np.testing.assert_array_equal(stored.sums(margin), again.sums(margin))
    return stored


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("parts", "places"), [({}, 40), (RULES, 40), pytest.param({}, 6, marks=pytest.mark.thorough), (RULES, 6)]
)
def test_tables_are_those_in_memory_on_the_same_measurements(tmp_path, parts, places, rng):
    table = visits(rng)
    if parts:
        table = table[(table.diagnosis.str[0] != "B") & ~((table.sex == "f") & (table.age == "65+"))]
    out = tmp_path / "out"
    found = release(ministry(**parts), table, out, geography=CLINICS, executor=LocalPool(1), places=places)
    assert (found.parts > 10) == (places == 6)
    stored = assert_as_in_memory(out)
    assert abs(stored.sums("country")[0] - len(table)) < 100
    assert stored.expected is not None
    assert stored.expected.note.startswith("Simulated")


@pytest.mark.thorough
@pytest.mark.parametrize("after", [20, *(pytest.param(n, marks=pytest.mark.slow) for n in (40, 50))])
def test_a_run_that_was_stopped_goes_on(tmp_path, after, rng):
    given = ministry(), visits(rng), tmp_path / "out"
    with pytest.raises(Interrupted):
        release(*given, geography=CLINICS, executor=Stopping(after), places=6)
    resume(tmp_path / "out.run", data=given[1], executor=LocalPool(1))
    assert_as_in_memory(tmp_path / "out")


@pytest.mark.thorough
def test_a_table_that_is_no_sum_of_another_is_found(tmp_path, rng):
    out = tmp_path / "out"
    release(ministry(), visits(rng), out, geography=CLINICS, executor=LocalPool(1), places=6)
    file = next((out / "public" / "counts").glob("region-diagnosis/part-*.parquet"))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT * REPLACE (count + 1 AS count) FROM '{file}'")
        connection.execute(f"COPY t TO '{file}' (FORMAT parquet)")
    broken = {found.rule for found in check(out) if not found.holds}
    assert "'region' is the sum of 'region x diagnosis'" in broken
    assert "'region' is the sum of 'clinic'" not in broken


RING = [("sex", "age"), ("age", "month"), ("sex", "month")]


@pytest.mark.parametrize(
    ("said", "more"),
    [
        (
            "cycle",
            {
                "queries": [
                    {"name": " and ".join(pair), "attributes": list(pair), "epsilon": {"region": "1"}}
                    for pair in RING
                ]
            },
        ),
        ("bounds", {"constraints": {"bounds": [{"level": "clinic", "lower": 1}]}}),
    ],
)
def test_rings_and_bounds_are_released_in_memory(tmp_path, said, more, rng):
    with pytest.raises(SpecError, match=said):
        release(ministry(**more), visits(rng), tmp_path / "out", geography=CLINICS, executor=LocalPool(1))
    assert not (tmp_path / "out.run").exists()


@pytest.mark.slow
def test_executors_killed_and_the_integers_of_one_machine(cluster, tmp_path, rng):
    marks, out = tmp_path / "marks", tmp_path / "out"
    marks.mkdir()
    paths = {"data": tmp_path / "visits.csv", "geography": tmp_path / "clinics.csv"}
    visits(rng).to_csv(paths["data"], index=False)
    CLINICS.to_csv(paths["geography"], index=False)
    moments = {"Measure": "inside", "Up": "after", "Down": "inside"}
    executor = Watched(killing(cluster, moments, marks), stop_before("Up"))
    with pytest.raises(Stopped):
        release(ministry(), **paths, out=out, executor=executor, places=6)
    undisturbed = copy_of(tmp_path / "out.run", tmp_path)
    resume(tmp_path / "out.run", executor=killing(cluster, moments, marks))
    assert len(list(marks.iterdir())) == 3
    released, alone = assert_as_in_memory(out), resume(undisturbed, executor=LocalPool(1))
    np.testing.assert_array_equal(released.counts, tu.read_release(alone.folder).counts)
    assert not RunFolder(undisturbed).path.exists()
