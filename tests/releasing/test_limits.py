"""Limits by place, from a public column: the same integers in memory and by blocks, checked from the files alone."""

import json
import shutil
from unittest.mock import patch

import duckdb
import numpy as np
import pytest

import trueup
from tests.releasing.bad_input import LIMITED
from tests.releasing.state import BLOCKS, MOST, write_state
from trueup.checking.bundle import check as check_bundle
from trueup.errors import DataError, InfeasibleError, TrueupError
from trueup.io.bundle.manifest import digest, read_manifest, read_spec
from trueup.model.build import build_constraints
from trueup.model.cells import Margin
from trueup.reconciling import choose
from trueup.releasing import pipeline
from trueup.releasing.pipeline import resume
from trueup.run.local import LocalPool


def limited_state(folder, *, less=0, homes=None):
    """The small state, of which every second block states as many homes as it holds of r0, or fewer."""
    paths = write_state(folder, spec=LIMITED)
    held = [line.split(",")[:2] for line in paths["data"].read_text().split()[1:]]
    if homes is None:
        homes = {block: max(held.count([block, "r0"]) - less, 0) for block in BLOCKS[::2]}
    rows = [f"{block},{homes.get(block, '')}\n" for block in BLOCKS]
    paths["geography"].write_text("block,homes\n" + "".join(rows))
    return paths, np.array([homes.get(block, 0) for block in BLOCKS])


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The folder of a release in three layers, and the limits."""
    folder = tmp_path_factory.mktemp("state")
    paths, homes = limited_state(folder)
    pipeline.release(**paths, out=folder / "out", executor=LocalPool(1), places=MOST)
    return folder / "out", homes


@pytest.mark.thorough
def test_limits_hold_and_bind(released):
    folder, homes = released
    assert all(check.holds for check in check_bundle(folder))
    release = trueup.read_release(folder)
    counts = release.sums(Margin("block", ("race",))).reshape(-1, 3)[:, 0]
    assert (counts >= homes).all()
    spec = read_spec(folder)[1]
    free = trueup.parse_spec(spec_without_limits())
    assert len(free.constraints.bounds) == len(spec.constraints.bounds) - 1
    unbound = (
        trueup.reconcile(release.measurements, spec=free)
        .sums(Margin("block", ("race",)))
        .reshape(-1, 3)[:, 0]
    )
    assert (unbound < homes).any()


def spec_without_limits():
    start = LIMITED.index(',\n  { level = "block"')
    return LIMITED[:start] + LIMITED[LIMITED.index("]", LIMITED.index('"homes"')) :]


@pytest.mark.thorough
def test_the_integers_are_those_in_memory(released):
    folder, _ = released
    release, spec = trueup.read_release(folder), read_spec(folder)[1]
    constraints = build_constraints(spec, release.cells)
    method = choose(spec.reconcile, constraints)
    state = method.prepare(constraints, release.measurements.headers)
    rng = np.random.default_rng(int(read_manifest(folder)["measurements"], 16))
    assert np.array_equal(method.apply(state, release.measurements.flat, rng).values, release.counts)


@pytest.mark.thorough
def test_a_table_below_the_limits_is_found_from_the_files(released, tmp_path):
    """A limit that is one more than the released count, in a bundle that is consistent otherwise."""
    folder = shutil.copytree(released[0], tmp_path / "out")
    places = folder / "public" / "places.parquet"
    at = int(np.argmax(released[1]))
    counts = trueup.read_release(folder).sums(Margin("block", ("race",))).reshape(-1, 3)[at, 0]
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT * FROM '{places}'")
        connection.execute(
            f'UPDATE t SET "block@limit homes" = {int(counts) + 1} WHERE "block.block" = \'{BLOCKS[at]}\''
        )
        connection.execute(f"COPY t TO '{places}' (FORMAT parquet)")
    manifest = read_manifest(folder)
    manifest["files"]["places.parquet"] = digest(places)
    (folder / "public" / "manifest.json").write_text(json.dumps(manifest))
    broken = [(check.rule, check.where) for check in check_bundle(folder) if not check.holds]
    assert broken == [("the bounds on 'block x race' hold", (BLOCKS[at],))]


@pytest.mark.thorough
def test_releases_in_memory_keep_limits_on_disk(tmp_path):
    paths, homes = limited_state(tmp_path)
    out = tmp_path / "memory"
    trueup.release(paths["spec"], paths["data"], out, geography=paths["geography"])
    assert all(check.holds for check in check_bundle(out))
    release = trueup.read_release(out)
    assert (release.sums(Margin("block", ("race",))).reshape(-1, 3)[:, 0] >= homes).all()


@pytest.mark.thorough
def test_a_run_goes_on_with_the_limits_that_it_began_with(tmp_path):
    paths, _ = limited_state(tmp_path)
    with patch("trueup.releasing.tasks.up", side_effect=MemoryError()), pytest.raises(TrueupError):
        pipeline.release(**paths, out=tmp_path / "out", executor=LocalPool(1), places=MOST)
    limited_state(tmp_path, less=1)
    with pytest.raises(DataError, match="the places differ"):
        resume(tmp_path / "out.run", geography=paths["geography"], executor=LocalPool(1))
    resume(tmp_path / "out.run", executor=LocalPool(1))
    assert all(check.holds for check in check_bundle(tmp_path / "out"))


def test_counts_below_a_limit_are_refused_without_a_count(tmp_path):
    paths, homes = limited_state(tmp_path)
    at = int(np.argmax(homes))
    paths, _ = limited_state(tmp_path, homes={BLOCKS[at]: int(homes[at]) + 1})
    for call in (
        lambda: pipeline.release(**paths, out=tmp_path / "out", executor=LocalPool(1), places=MOST),
        lambda: trueup.measure(trueup.load_spec(paths["spec"]), paths["data"], geography=paths["geography"]),
    ):
        with pytest.raises(InfeasibleError) as caught:
            call()
        said = str(caught.value).replace(BLOCKS[at], "").replace("race=r0", "")
        assert "break bound of" in said
        assert not any(c.isdigit() for c in said)
