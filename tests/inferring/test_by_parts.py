"""The posterior of a large tree by parts: the draws of memory, whatever the engine, its parts and its kills."""

from __future__ import annotations

import json
from itertools import pairwise

import duckdb
import numpy as np
import pandas
import pytest

from tests.areas import write_areas
from tests.command import run
from tests.inferring.problems import laplace_tree, noisy, states, tree_constraints
from tests.releasing.on_spark import killing
from trueup.errors import BundleError, SpecError, TrueupError
from trueup.inferring import by_parts, infer, tree_exact, tree_work, written_parts
from trueup.inferring.by_parts import infer_by_parts
from trueup.inferring.questions import ask, infer_areas
from trueup.inferring.tree_exact import TreeExact
from trueup.inferring.written_parts import WrittenTree
from trueup.io.bundle.kept_parts import DrawsInParts
from trueup.io.bundle.kept_posterior import read_posterior
from trueup.io.bundle.manifest import digest
from trueup.kernel.messages import pmf
from trueup.model.records.places_asked import AreaTable
from trueup.run.local import LocalPool, LocalThreads

DRAWS = 40


@pytest.fixture
def large(monkeypatch, rng):
    """Measurements of three levels, of a size that counts as large, and the posterior in memory."""
    monkeypatch.setattr(tree_exact, "MAX_WHOLE_NODES", 20)
    monkeypatch.setattr(tree_exact, "MAX_PART_NODES", 8)
    cells = states([3, 2, 4, 6, 1, 5, 4])
    measured = noisy(cells, rng.poisson(9, cells.n), laplace_tree(cells, "1/2"), rng)
    return measured, infer(measured, TreeExact(tier="exact"), spec=tree_constraints(cells), draws=DRAWS)


def written(measured, out, executor=None, **more):
    """The manifest of a posterior by parts."""
    given = {"spec": tree_constraints(measured.cells), "draws": DRAWS, **more}
    return infer_by_parts(measured, out, executor or LocalPool(1), **given)


def drawn(cells, out):
    """Draws `(draws, n)` in the order of the cells, found by their keys."""
    keys = cells.tree.keys[-1]
    columns = ", ".join(keys)
    rows = duckdb.sql(f"SELECT {columns}, draw, count FROM '{out}/draws/*.parquet'").fetchnumpy()
    place = {key: at for at, key in enumerate(zip(*(column.tolist() for column in keys.values())))}
    found = np.full((DRAWS, cells.n), -1)
    at = [place[key] for key in zip(*(rows[name].tolist() for name in keys))]
    found[rows["draw"], at] = rows["count"]
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(("rows", "together"), [(1, 1), (5 * DRAWS, 2), (10**6, 99)])
def test_draws_are_those_of_memory_however_it_is_cut(large, tmp_path, monkeypatch, rows, together):
    measured, posterior = large
    monkeypatch.setattr(written_parts, "MOST_ROWS", rows)
    monkeypatch.setattr(by_parts, "PARTS_PER_TASK", together)
    monkeypatch.setattr(
        pmf, "MANY_NODES", 0 if together == 99 else 1 << 20
    )  # numbers of a nation are held as codes
    executor = LocalThreads() if together == 2 else None
    manifest = written(measured, tmp_path / "out", executor)
    files = len(list((tmp_path / "out" / "draws").iterdir()))
    assert (files > 1) == (rows < 10**6)
    assert np.array_equal(drawn(measured.cells, tmp_path / "out"), posterior.draws[0])
    assert manifest["stats"]["dropped_mass"] <= 1e-9
    assert not (tmp_path / "out.run").exists()


def test_summaries_are_those_of_memory(large, tmp_path):
    measured, posterior = large
    manifest = written(measured, tmp_path / "out", keep_draws=False)
    assert not (tmp_path / "out" / "draws").exists()
    for margin, exact in posterior.drawn.marginals.items():
        files = f"{margin.level}.parquet" if margin.level == "nation" else f"{margin.level}/*.parquet"
        keys = {"nation": "nation", "state": "state", "county": "state, county"}[margin.level]
        rows = duckdb.sql(f"SELECT * FROM '{tmp_path}/out/summary/{files}' ORDER BY {keys}").fetchnumpy()
        for name, column in exact.describe(0.9).items():
            np.testing.assert_allclose(rows[name], column, rtol=1e-12, err_msg=f"{margin} {name}")
    assert manifest["conflicts"] == [each._asdict() for each in posterior.conflicts]
    assert manifest["intervals"] == posterior.promise


def test_areas_are_sums_of_draws(large, tmp_path, rng):
    measured, posterior = large
    n = measured.cells.n
    pairs = np.unique(np.stack([rng.integers(0, 5, 30), rng.integers(0, n, 30)]), axis=1)
    areas = AreaTable("district", tuple("abcde"), pairs[0], pairs[1])
    written(measured, tmp_path / "out", areas=areas)
    found = duckdb.sql(f"SELECT * FROM '{tmp_path}/out/areas.parquet'").fetchnumpy()
    wanted = infer_areas(posterior, areas)
    assert found["district"].tolist() == wanted["district"].tolist()
    for name in ("mean", "sd", "median", "low", "high", "mass", "mcse", "ess"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-12, err_msg=name)
    direct = [posterior.draws[0][:, pairs[1][pairs[0] == at]].sum(axis=1).mean() for at in range(5)]
    np.testing.assert_allclose(found["mean"], direct)


class Killed(Exception):
    """The process ends here."""


class Counted(LocalPool):
    """A pool that counts its answers, and may end after some."""

    def __init__(self, most=None):
        super().__init__()
        self.most, self.answers, self.done = most, 0, set()

    def map(self, task, items):
        for at, answer in super().map(task, items):
            if self.most is not None and self.answers >= self.most:
                raise Killed
            self.answers += 1
            self.done.add(answer)
            yield at, answer


@pytest.mark.thorough
def test_a_run_that_was_killed_goes_on(large, tmp_path, monkeypatch):
    measured, posterior = large
    monkeypatch.setattr(written_parts, "MOST_ROWS", 5 * DRAWS)
    monkeypatch.setattr(by_parts, "PARTS_PER_TASK", 1)
    whole = Counted()
    written(measured, tmp_path / "whole", whole)
    carried_out = []
    for most in range(1, whole.answers, 3):  # looks, messages, and draws
        with pytest.raises(Killed):
            written(measured, tmp_path / "out", Counted(most))
        carried_out.append(
            {p.name.split(".")[0]: p.stat().st_mtime_ns for p in (tmp_path / "out.run" / "done").iterdir()}
        )
    last = Counted()
    written(measured, tmp_path / "out", last)
    assert last.done == whole.done  # the same tasks, by their digests
    for earlier, later in pairwise(carried_out):
        assert all(later[name] == ended for name, ended in earlier.items())  # none was carried out again
    assert len(carried_out[-1]) > len(carried_out[0])
    assert np.array_equal(drawn(measured.cells, tmp_path / "out"), posterior.draws[0])


@pytest.mark.slow
def test_spark_gives_the_draws_of_memory_though_an_executor_is_killed(large, tmp_path, monkeypatch, cluster):
    measured, posterior = large
    monkeypatch.setattr(written_parts, "MOST_ROWS", 5 * DRAWS)
    monkeypatch.setattr(by_parts, "PARTS_PER_TASK", 2)
    (marks := tmp_path / "marks").mkdir()
    written(measured, tmp_path / "out", killing(cluster, {"CarryOut": "inside"}, marks))
    assert any(marks.iterdir())
    assert np.array_equal(drawn(measured.cells, tmp_path / "out"), posterior.draws[0])


def test_what_is_not_inferred_by_parts_is_refused(large, tmp_path, monkeypatch):
    measured, _ = large
    with monkeypatch.context() as chosen:
        chosen.setattr(by_parts, "choose_inference", lambda *given: TreeExact(mode=True))
        with pytest.raises(SpecError, match="cannot infer by parts"):
            written(measured, tmp_path / "out")
    with pytest.raises(TrueupError, match="at most 1 MB"):
        written(measured, tmp_path / "out", LocalPool(1, memory=10**6))
    monkeypatch.setattr(tree_exact, "MAX_WHOLE_NODES", 1000)
    with pytest.raises(SpecError, match="33 counts is too small"):
        written(measured, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_takes_hours_is_begun(large, tmp_path, monkeypatch):
    """Work in memory ends after minutes: here one pass would take days by the rate."""
    monkeypatch.setattr(tree_work, "MULTIPLICATIONS_PER_SECOND", 0.1)
    assert written(large[0], tmp_path / "out")["kind"] == "posterior"


def test_memory_and_work_are_predicted_from_the_sizes(large):
    measured, _ = large
    method = TreeExact()
    state = method.prepare(tree_constraints(measured.cells), measured.headers)
    one, more = (
        WrittenTree(measured, draws, 0.9, None, True, measured.flat, method, state).expected(workers)
        for draws, workers in ((100, 1), (200, 2))
    )
    assert one.core_seconds < more.core_seconds < 2 * one.core_seconds
    assert more.disk > 1.9 * (one.disk - 100 * 33)
    assert more.memory > one.memory


@pytest.mark.thorough
def test_a_posterior_by_parts_is_read_and_asked(large, tmp_path, monkeypatch):
    """Answers are those of memory; of files that hold none of the places, counts are not read."""
    monkeypatch.setattr(written_parts, "MOST_ROWS", 5 * DRAWS)
    measured, posterior = large
    written(measured, tmp_path / "out")
    kept = read_posterior(tmp_path / "out")
    assert np.array_equal(kept.draws, posterior.draws)
    assert kept.source == posterior.source
    areas = pandas.DataFrame(
        {"area": ["x", "x", "y"], "state": ["s0", "s2", "s2"], "county": ["c0", "c1", "c1"]}
    )
    for question in ("'state=s3' / nation", "rank(state)", "state / nation > 0.2", "area - 3", "nation"):
        own = areas if "area" in question else None
        found, wanted = (ask(of, question, areas=own).draws for of in (tmp_path / "out", posterior))
        np.testing.assert_array_equal(found, wanted, err_msg=question)
    read, counted = [], DrawsInParts._parts
    monkeypatch.setattr(DrawsInParts, "_parts", lambda *a: (read.append(k) or k for k in counted(*a)))
    ask(tmp_path / "out", "'state=s3'")
    assert 0 < len(read) < len(list((tmp_path / "out" / "draws").iterdir()))
    with pytest.raises(TrueupError, match="at most 1 MB"):
        read_posterior(tmp_path / "out", memory=10**6)


@pytest.mark.thorough
@pytest.mark.parametrize("change", ["draw + 1", "count + 1", "0 * draw"])
def test_a_changed_file_of_draws_is_refused(large, tmp_path, change):
    """By its digest, and with the manifest changed as well, where draws are no longer those that it names."""
    written(large[0], tmp_path / "out")
    path, other = tmp_path / "out" / "draws" / "part-00000.parquet", tmp_path / "other.parquet"
    column = "count" if "count" in change else "draw"
    duckdb.sql(f"COPY (SELECT * REPLACE ({change} AS {column}) FROM '{path}') TO '{other}' (FORMAT parquet)")
    path.write_bytes(other.read_bytes())
    with pytest.raises(BundleError, match="not the file that was written"):
        ask(tmp_path / "out", "nation")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    manifest["files"]["draws/part-00000.parquet"] = digest(path)
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
    if column == "draw":
        with pytest.raises(BundleError, match=r"draw after draw|were not written|or one twice"):
            ask(tmp_path / "out", "nation")


@pytest.mark.thorough
def test_the_command_writes_a_bundle_by_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(tree_exact, "MAX_WHOLE_NODES", 20)
    monkeypatch.setattr(tree_exact, "MAX_PART_NODES", 8)
    rows = "".join(f"{state:02},{county:03},{county + state}\n" for state in range(6) for county in range(5))
    spec, table = write_areas(tmp_path, table="state,county,n\n" + rows)
    bundle, out = tmp_path / "bundle", tmp_path / "posterior"
    assert run("release", spec, "--data", table, "--out", bundle).returncode == 0
    (tmp_path / "lakes.csv").write_text("lake,state,county\nnorth,00,000\nnorth,05,004\nsouth,01,001\n")
    areas = "--areas", f"lake={tmp_path / 'lakes.csv'}"
    done = run(
        "infer", bundle, "--engine", "local", "--draws", 20, "--out", out, *areas, "--log", tmp_path / "log"
    )
    assert done.returncode == 0, done.stderr
    asked = run("ask", out, "'state=01' / 'state=02'")
    assert asked.returncode == 0, asked.stderr
    assert "are from 20 independent draws" in asked.stdout
    reported = run("report", out, "--out", tmp_path / "page.html")
    assert reported.returncode == 2
    assert "trueup ask" in reported.stderr
    assert "20 independent draws of 30 cells, by parts." in done.stdout
    assert json.loads((out / "manifest.json").read_text())["by parts"]
    assert duckdb.sql(f"SELECT lake FROM '{out}/areas.parquet' ORDER BY mean").fetchall() == [
        ("south",),
        ("north",),
    ]
    stages = [json.loads(line).get("stage", "") for line in (tmp_path / "log").read_text().splitlines()]
    assert any("core-hours" in stage for stage in stages)
    assert "drawing" in stages
    refused = run("infer", bundle, "--engine", "local", "--out", tmp_path / "other", "--within", "state=01")
    assert refused.returncode == 2
    assert "--within has no effect" in refused.stderr
    assert run("infer", bundle, "--summaries-alone").returncode == 2
