"""A release by blocks: the integers of the whole, whatever the cut; and a bundle that check and readers take."""

import json
import shutil

import numpy as np
import pytest

import trueup
from tests.releasing.state import MOST, write_state
from trueup.checking.bundle import check as check_bundle
from trueup.errors import BundleError
from trueup.io.bundle.manifest import MANIFEST, read_manifest, read_spec, write_manifest
from trueup.io.bundle.read import read_released_tables
from trueup.model.build import build_constraints
from trueup.reconciling import choose
from trueup.releasing import pipeline
from trueup.releasing.run_folder import RunFolder
from trueup.releasing.start import run_path
from trueup.run.local import LocalPool


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The folder of a release in three stages."""
    folder = tmp_path_factory.mktemp("state")
    pipeline.release(**write_state(folder), out=folder / "out", executor=LocalPool(1), places=MOST)
    return folder / "out"


@pytest.mark.thorough
def test_the_bundle_keeps_every_rule_and_nothing_else_is_left(released):
    assert all(check.holds for check in check_bundle(released))
    assert sorted(p.name for p in released.parent.iterdir()) == [
        "blocks.csv",
        "out",
        "people.csv",
        "spec.toml",
    ]
    assert (released / "internal").stat().st_mode & 0o777 == 0o700
    assert all(p.stat().st_mode & 0o444 == 0o444 for p in (released / "public").rglob("*"))
    manifest = read_manifest(released)
    assert len(manifest["parts"]) > 6
    assert {name.split("-")[0] for name in manifest["parts"]} == {"0", "1", "2"}


@pytest.mark.thorough
def test_the_integers_are_those_of_the_whole_tree_from_the_same_measurements(released):
    release = trueup.read_release(released)
    spec = read_spec(released)[1]
    constraints = build_constraints(spec, release.cells)
    method = choose(spec.reconcile, constraints)
    state = method.prepare(constraints, release.measurements.headers)
    rng = np.random.default_rng(int(read_manifest(released)["measurements"], 16))
    whole = method.apply(state, release.measurements.flat, rng)
    assert np.array_equal(whole.values, release.counts)
    for margin, counts in read_released_tables(released, release.cells).items():
        assert np.array_equal(release.sums(margin), counts)


def test_noise_is_that_of_the_laws(released):
    """Released minus noisy is small, and measurements are not the counts themselves."""
    manifest = read_manifest(released)
    misses = [miss["rms"] for miss in manifest["misses"]]
    assert all(rms < 60 for rms in misses)
    assert sum(rms > 0 for rms in misses) > len(misses) / 2, "a single count may get no noise"
    values = trueup.read_measurements(released).values
    assert all((v < 0).any() for v, h in zip(values, manifest["headers"]) if h["level"] == "block")


def altered(query, folder="counts/block"):
    """Rewrite the parquet parts of a table by a query over `t`."""

    def alter(out):
        import duckdb

        for path in sorted((out / "public" / folder).glob("*.parquet"))[:1]:
            rows = duckdb.connect().execute(f"SELECT * FROM (FROM '{path}') t").fetchnumpy()
            connection = duckdb.connect()
            connection.register("t", rows)
            connection.execute(f"CREATE TABLE x AS {query}")
            path.unlink()
            connection.execute(f"COPY x TO '{path}' (FORMAT parquet)")

    return alter


def resealed(out):
    """Write a manifest that vouches for the files as they are now."""
    manifest = read_manifest(out)
    (out / MANIFEST).unlink()
    write_manifest(out, manifest)


@pytest.mark.parametrize(
    ("alter", "rule"),
    [
        (altered("SELECT * REPLACE (count + 1 AS count) FROM t"), "level 'tract' is the sum of level 'block'"),
        (altered("SELECT * FROM t UNION ALL (SELECT * REPLACE (0::BIGINT AS count) FROM t LIMIT 1)"), "lists no cell twice"),
        (altered("SELECT * REPLACE (-count AS count) FROM t"), "no count of level 'block' is negative"),
        (altered("SELECT * REPLACE ('r9' AS race) FROM t"), "lists public places and values of the domain"),
        (altered("SELECT * REPLACE ('999' AS block) FROM t"), "lists public places and values of the domain"),
        (altered("SELECT * REPLACE ('r2' AS race, 'young' AS age) FROM t LIMIT 1"), "level 'block' keeps the structural zeros"),
        (altered("SELECT * FROM t WHERE race <> 'r0'", "counts/tract"), "the bounds on 'tract x race' hold"),
        (altered("SELECT * REPLACE (count / 2 AS count) FROM t"), "the counts of level 'block' are whole numbers"),
    ],
)  # fmt: skip
def test_an_altered_table_is_found_by_its_rule(released, tmp_path, alter, rule):
    out = tmp_path / "out"
    shutil.copytree(released, out)
    alter(out)
    first = next(check for check in check_bundle(out) if not check.holds)
    assert first.rule == "every public file is the one that was written"
    assert all(fault.endswith("is not the file that was written") for fault in first.where)
    resealed(out)
    broken = [check.rule for check in check_bundle(out) if not check.holds]
    assert any(rule in name for name in broken), broken


def test_altered_measurements_are_found(released, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(released, out)
    altered("SELECT * FROM t OFFSET 1", "measurements")(out)
    resealed(out)
    broken = [check.rule for check in check_bundle(out) if not check.holds]
    assert "every place is measured once by every query of its level" in broken
    assert "the measurements are those that were sealed when they were drawn" in broken


def test_a_bundle_that_is_too_large_to_read_says_what_to_do(released, monkeypatch):
    from trueup.io.bundle import read

    monkeypatch.setattr(read, "MAX_CELLS_READ", 100)
    with pytest.raises(BundleError, match=r"too many to be read at once.*public/counts/LEVEL/\*\.parquet"):
        trueup.read_release(released)


def test_public_files_hold_no_true_count_but_invariants(released):
    """Measurements of noisy queries are not the truth: with this noise they all but never are."""
    text = json.dumps(read_manifest(released))
    assert "fingerprint" not in text
    assert "seconds" not in text
    assert not (released / "public" / "confidential").exists()


@pytest.mark.thorough
def test_the_cut_does_not_show_in_the_integers(tmp_path, monkeypatch):
    """The same measurements under another cut: everything after them is the same."""
    paths = write_state(tmp_path)
    first = pipeline.release(**paths, out=tmp_path / "a", executor=LocalPool(1), places=MOST)
    counts = trueup.read_release(first.folder).counts
    whole = pipeline.release(**paths, out=tmp_path / "b", executor=LocalPool(1))
    assert len(read_manifest(tmp_path / "b")["parts"]) == 1
    assert not np.array_equal(trueup.read_release(whole.folder).counts, counts), "fresh noise, fresh counts"
    assert not RunFolder(run_path(tmp_path / "a")).path.exists()


def test_errors_to_expect_were_simulated_and_are_read_back(released):
    expected = trueup.read_release(released).expected
    assert "places" in expected.note
    levels = [level.name for level in read_spec(released)[1].levels]
    assert {table.level for table in expected.tables} == set(levels)
    assert (
        "Errors to expect, by size of the released count" in (released / "public" / "report.html").read_text()
    )
    margin = trueup.read_release(released).margin_of_error(levels[-1])
    assert margin is not None
    assert margin.min() >= 0
    assert margin.max() > 0  # with other noise they may all be the same
