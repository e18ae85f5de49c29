"""The posterior of a large family by parts: equal draws whatever the engine and its kills, near those of whole chains."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pytest

import trueup as tu
from tests.families import CLINICS, ministry, visits
from tests.inferring.test_by_parts import Counted, Killed
from tests.releasing.on_spark import killing
from trueup.errors import SpecError
from trueup.inferring import family_parts
from trueup.inferring.by_parts import infer_by_parts
from trueup.inferring.family_parts import CutFamily, draw_above
from trueup.io.bundle.kept_posterior import read_posterior
from trueup.layouts.family_rules import family_cells
from trueup.model.cells import Margin
from trueup.model.constraints import violations
from trueup.model.problem import Problem
from trueup.model.records.places_asked import AreaTable
from trueup.run.local import LocalPool, LocalThreads

DRAWS = 40
QUERIES = [
    {"name": "clinics", "epsilon": {"country": "1/2", "region": "1/2", "clinic": "1"}},
    {"name": "months", "attributes": ["month"], "epsilon": {"clinic": "1"}},
    {"name": "people", "attributes": ["sex", "age"], "epsilon": {"district": "1"}},
    {"name": "diagnoses", "attributes": ["chapter"], "epsilon": {"region": "1"}},
]


@pytest.fixture
def measured(rng):
    """Clinics by month, districts by sex and age, regions by chapter."""
    return tu.measure(Problem.of(ministry(queries=QUERIES), CLINICS), visits(rng))


def written(measured, out, executor=None, **more):
    """The manifest of a posterior by parts."""
    return infer_by_parts(measured, out, executor or LocalPool(1), **{"draws": DRAWS, **more})


@pytest.mark.thorough
def test_draws_agree_and_areas_are_their_sums(measured, tmp_path):
    table = pd.DataFrame({"area": ["x", "x", "y"], **{k: CLINICS[k].iloc[[0, 13, 5]] for k in CLINICS}})
    areas = AreaTable.read(table, "area", measured.cells, ("month",))
    manifest = written(measured, tmp_path / "out", areas=areas)
    kept = read_posterior(tmp_path / "out")
    assert kept.draws.shape == (1, DRAWS, measured.cells.n)
    for draw in kept.draws[0]:
        assert violations(measured.by(None).constraints, draw) == []
    assert manifest["stats"]["tier"] == "approximate"
    assert manifest["stats"]["parts"] == 1
    found = duckdb.sql(f"SELECT * FROM '{tmp_path}/out/areas.parquet' ORDER BY area, month").df()
    clinics = kept.sums("clinic x month").reshape(DRAWS, 24, 12)
    direct = [clinics[:, [0, 13]].sum(axis=1).mean(axis=0), clinics[:, 5].mean(axis=0)]
    np.testing.assert_allclose(found["mean"], np.ravel(direct))


@pytest.mark.slow
def test_draws_are_equal_on_every_engine_and_after_kills(measured, tmp_path, monkeypatch):
    monkeypatch.setattr(family_parts, "MAX_CELLS_PER_PART", 50)
    manifest = written(measured, tmp_path / "whole")
    assert written(measured, tmp_path / "threads", LocalThreads())["files"] == manifest["files"]
    for most in (1, 2):  # what is above, and a part
        with pytest.raises(Killed):
            written(measured, tmp_path / "out", Counted(most))
    assert written(measured, tmp_path / "out")["files"] == manifest["files"]
    assert not (tmp_path / "out.run").exists()


@pytest.mark.slow
def test_spark_gives_equal_draws_though_an_executor_is_killed(measured, tmp_path, cluster):
    whole = written(measured, tmp_path / "whole")
    (marks := tmp_path / "marks").mkdir()
    killed = written(measured, tmp_path / "out", killing(cluster, {"CarryOut": "inside"}, marks))
    assert any(marks.iterdir())
    assert killed["files"] == whole["files"]


@pytest.mark.thorough
def test_zeros_and_invariants_are_kept(tmp_path, rng):
    rules = {
        "invariants": [{"level": "region"}, {"level": "clinic"}],
        "zeros": [{"chapter": "B"}, {"sex": "f", "age": "65+"}],
    }
    table = visits(rng)
    table = table[(table.diagnosis.str[0] != "B") & ~((table.sex == "f") & (table.age == "65+"))]
    spec = ministry(
        privacy={"unit": "visit", "neighbours": "add-remove"}, queries=QUERIES[1:], constraints=rules
    )
    measured = tu.measure(Problem.of(spec, CLINICS), table)
    written(measured, tmp_path / "out")
    kept, constraints = read_posterior(tmp_path / "out"), measured.by(None).constraints
    for draw in kept.draws[0]:
        assert violations(constraints, draw) == []
    counts = table.groupby("clinic").size().reindex(CLINICS.clinic).fillna(0)
    assert (kept.sums("clinic")[0] == counts.to_numpy()).all()


def off(ours, theirs):
    """Differences of means in posterior standard deviations (rms), and the median ratio of these."""
    spread = np.maximum(theirs.std(axis=0), 0.5)
    return np.sqrt(np.mean(((ours.mean(axis=0) - theirs.mean(axis=0)) / spread) ** 2)), np.median(
        ours.std(axis=0) / spread
    )


@pytest.mark.slow
def test_means_and_spreads_are_near_those_of_whole_chains(measured, tmp_path):
    """One part holds all clinics, and learns as much as chains in memory; values given to other clinics would be off by more."""
    written(measured, tmp_path / "out", draws=400)
    parts, whole = read_posterior(tmp_path / "out"), tu.infer(measured, draws=1000)
    for margin in parts.drawn.tables:
        size = measured.cells.size(margin)
        ours, theirs = (p.sums(margin).reshape(-1, size) for p in (parts, whole))
        gap, ratio = off(ours, theirs)
        assert gap < 0.6, margin
        assert 0.85 < ratio < 1.4, margin
        if size > 1:
            assert off(np.roll(ours, 1, axis=1), theirs)[0] > 1, margin


@pytest.mark.slow
def test_draws_of_a_part_are_those_of_longer_chains(measured, monkeypatch):
    """Given the same tables of a region; draws of other clinics' tables would be off by more than one."""
    cut = CutFamily(measured.by(None).constraints, measured.headers, measured.values)
    seeds = np.random.SeedSequence(1).spawn(5)
    given = cut.above(1, seeds[0])
    one = draw_above(given).draws
    above = np.repeat(one, 200, axis=0)
    part = cut.part(family_cells(given.constraints), above, (0, 2), seeds[1])
    short = part.draw()
    monkeypatch.setattr(family_parts, "SWEEPS", 200)
    long = part.draw()
    for i, table in enumerate(family_cells(part.constraints).tables):
        root = family_cells(part.constraints).sum_in(i, short, Margin("region", table.attributes))
        np.testing.assert_array_equal(root, part.roots[i].reshape(200, -1))
    gap, ratio = off(short, long)
    assert gap < 0.35
    assert 0.8 < ratio < 1.25
    assert off(np.roll(short, 12, axis=1), long)[0] > 1


def test_what_is_not_drawn_by_parts_is_refused(measured, tmp_path, monkeypatch):
    flat = measured.spec.model_copy(update={"infer": {"method": "family-moves", "prior": {"name": "flat"}}})
    with pytest.raises(SpecError, match="not a flat or given one"):
        written(measured, tmp_path / "out", spec=flat)
    monkeypatch.setattr(family_parts, "MOST_CELLS", 5)
    with pytest.raises(SpecError, match="at most 5 cells"):
        written(measured, tmp_path / "out")
