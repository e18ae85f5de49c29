"""The posterior of a large histogram by parts: equal draws whatever the engine and its kills, near those of whole chains."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from tests.inferring.problems import noisy
from tests.inferring.test_by_parts import Counted, Killed
from tests.releasing.on_spark import killing
from trueup import run
from trueup.errors import SpecError, TrueupError
from trueup.inferring import by_parts, histogram_parts
from trueup.inferring.by_parts import infer_by_parts
from trueup.inferring.histogram_gibbs import HistogramGibbs
from trueup.inferring.histogram_parts import CutHistogram, follow_roots
from trueup.inferring.histogram_walk import HistogramWalk
from trueup.inferring.method import silent
from trueup.io.bundle.manifest import slug
from trueup.layouts.columns import ColumnProblem
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.records.drawn import ends_of_sorted
from trueup.model.records.places_asked import AreaTable
from trueup.model.tree import Tree
from trueup.noise import law_named
from trueup.run.local import LocalPool, LocalThreads

DRAWS = 40
LEVELS = ["nation", "county", "tract", "block"]
GAUSSIAN = law_named("discrete-gaussian")


def histogram(rng, fan=(3, 3, 4), variance="4", exact=()):
    """Noisy tables by two attributes on four levels, some totals exact, and their true counts."""
    county, tract, block = (part.ravel().astype(str) for part in np.indices(fan))
    tree = Tree.from_columns(LEVELS, [{}, {"county": county}, {"tract": tract}, {"block": block}])
    cells = Cells(tree, (Attribute("sex", ("f", "m")), Attribute("age", ("young", "old"))))
    truth = rng.poisson(rng.gamma(1.0, 8.0, cells.n))
    tables = [Margin(level, by) for level in LEVELS for by in ((), ("sex", "age"))]
    laws = dict.fromkeys(tables, GAUSSIAN(variance)) | {
        Margin(level): law_named("exact")() for level in exact
    }
    return noisy(cells, truth, laws, rng), truth


@pytest.fixture
def large(monkeypatch, rng):
    """A histogram whose counties and tracts hold too many cells together."""
    monkeypatch.setattr(histogram_parts, "MOST_CELLS", 48)
    monkeypatch.setattr(histogram_parts, "TOGETHER", 60)
    return histogram(rng)[0]


def constraints(measured):
    """The rules of what was measured: none but signs."""
    return Constraints(measured.cells, tuple(h.margin for h in measured.headers))


def written(measured, out, executor=None, **more):
    """The manifest of a posterior by parts."""
    given = {"spec": constraints(measured), "draws": DRAWS, **more}
    return infer_by_parts(measured, out, executor or LocalPool(1), **given)


def drawn(cells, out):
    """Draws `(draws, n)` in the order of the cells, found by their keys."""
    order = (
        "county, tract, block, CASE sex WHEN 'f' THEN 0 ELSE 1 END, CASE age WHEN 'young' THEN 0 ELSE 1 END"
    )
    rows = duckdb.sql(f"SELECT count FROM '{out}/draws/*.parquet' ORDER BY draw, {order}").fetchnumpy()
    return rows["count"].reshape(-1, cells.n)


@pytest.mark.thorough
def test_summaries_and_areas_are_those_of_the_draws(large, tmp_path, rng):
    cells = large.cells
    pairs = np.unique(np.stack([rng.integers(0, 5, 30), rng.integers(0, cells.shape[0], 30)]), axis=1)
    areas = AreaTable("district", tuple("abcde"), pairs[0], pairs[1], ("sex",))
    manifest = written(large, tmp_path / "out", areas=areas)
    draws = drawn(cells, tmp_path / "out")
    assert draws.shape == (DRAWS, cells.n)
    for margin in (Margin(level, by) for level in LEVELS for by in ((), ("sex", "age"))):
        files = f"{tmp_path}/out/summary/{slug(margin)}{'' if margin.level == 'nation' else '/*'}.parquet"
        order = ", ".join(LEVELS[1 : LEVELS.index(margin.level) + 1]) or "nation"
        ages = ", sex, age DESC" if margin.attributes else ""
        found = duckdb.sql(f"SELECT * FROM '{files}' ORDER BY {order}{ages}").fetchnumpy()
        sums = np.sort(cells.sum(draws, margin), axis=0)
        np.testing.assert_allclose(found["mean"], sums.mean(axis=0))
        np.testing.assert_allclose(found["sd"], sums.std(axis=0), atol=1e-9)
        np.testing.assert_array_equal([found["low"], found["high"]], ends_of_sorted(sums, 0.9))
    found = duckdb.sql(f"SELECT * FROM '{tmp_path}/out/areas.parquet'").fetchnumpy()
    by_sex = cells.sum(draws, Margin("block", ("sex",))).reshape(DRAWS, -1, 2)
    direct = [by_sex[:, pairs[1][pairs[0] == at]].sum(axis=1).mean(axis=0) for at in range(5)]
    np.testing.assert_allclose(found["mean"], np.ravel(direct))
    assert manifest["drawn"]["approximate"].startswith("By parts")
    assert manifest["stats"]["parts"] == 3


@pytest.mark.thorough
def test_draws_are_equal_on_every_engine_and_after_kills(large, tmp_path):
    manifest = written(large, tmp_path / "whole")
    once = drawn(large.cells, tmp_path / "whole")
    written(large, tmp_path / "threads", LocalThreads())
    assert np.array_equal(drawn(large.cells, tmp_path / "threads"), once)
    for most in (1, 2):  # what is above, and a part
        with pytest.raises(Killed):
            written(large, tmp_path / "out", Counted(most))
    last = Counted()
    again = written(large, tmp_path / "out", last)
    assert np.array_equal(drawn(large.cells, tmp_path / "out"), once)
    assert again["files"] == manifest["files"]
    assert not (tmp_path / "out.run").exists()


@pytest.mark.thorough
def test_spark_gives_equal_draws_though_an_executor_is_killed(large, tmp_path, cluster):
    written(large, tmp_path / "whole")
    (marks := tmp_path / "marks").mkdir()
    written(large, tmp_path / "out", killing(cluster, {"CarryOut": "inside"}, marks))
    assert any(marks.iterdir())
    assert np.array_equal(drawn(large.cells, tmp_path / "out"), drawn(large.cells, tmp_path / "whole"))


@pytest.mark.thorough
def test_roots_are_the_draws_that_are_given(rng):
    """Roots far from one another are followed in two sweeps, within a part of the noise's standard deviation of 20."""
    measured, truth = histogram(rng, (2, 3, 4), "400")
    cells = measured.cells
    root = cells.sum(truth, Margin("county", ("sex", "age")))
    roots = root[:4] + rng.integers(-20, 21, (30, 4))
    cut = CutHistogram(constraints(measured), measured.headers, measured.values)
    assert cut.level == 1
    draws = np.full((30, 48), -1)
    follow_roots(cut.part(0, np.random.SeedSequence(1)), roots, draws)
    assert (draws >= 0).all()
    off = np.abs(draws.reshape(30, 12, 4).sum(axis=1) - roots)
    assert off.max() <= 8
    assert off.mean() < 0.5


@pytest.mark.thorough
def test_parts_have_no_deadline(large, tmp_path, monkeypatch):
    """One in memory ends after ten minutes; here none may be begun."""
    monkeypatch.setattr(run, "DEFAULT_MINUTES", 0.0)
    with pytest.raises(SpecError, match="0 minutes are given"):
        run.Deadline.of()
    assert written(large, tmp_path / "out")["kind"] == "posterior"


@pytest.mark.thorough
@pytest.mark.parametrize("exact", [("county",), ("county", "tract", "block")])
def test_exact_totals_are_kept(tmp_path, monkeypatch, rng, exact):
    """Where a column alone cannot change, roots follow by pairs of columns."""
    monkeypatch.setattr(histogram_parts, "MOST_CELLS", 48)
    measured, truth = histogram(rng, exact=exact)
    manifest = written(measured, tmp_path / "out")
    draws, cells = drawn(measured.cells, tmp_path / "out"), measured.cells
    for level in exact:
        assert (cells.sum(draws, Margin(level)) == cells.sum(truth, Margin(level))).all()
    assert manifest["stats"]["roots_missed_in_sds_rms"] == 0
    assert np.unique(cells.sum(draws, Margin("county", ("sex", "age"))), axis=0).shape[0] > 10


@pytest.mark.slow
def test_means_and_spreads_are_those_of_whole_chains(rng, tmp_path, monkeypatch):
    """Long chains on the whole: over all counts of a level, differences in standard deviations, and widths."""
    monkeypatch.setattr(histogram_parts, "MOST_CELLS", 400)
    measured, _ = histogram(rng, (4, 8, 10))
    cells = measured.cells
    written(measured, tmp_path / "out", draws=400)
    draws = drawn(cells, tmp_path / "out")
    problem = ColumnProblem(constraints(measured), measured.headers, measured.values)
    walk = HistogramWalk.of(problem, rng.spawn(4))
    walk.run(1, 300, silent)
    run = walk.run(500, 10, silent).reshape(-1, cells.n)
    for level, most in (("nation", 0.5), ("county", 0.3), ("tract", 0.15), ("block", 0.15)):
        for by in ((), ("sex", "age")):
            ours, whole = (cells.sum(x.astype(np.int64), Margin(level, by)) for x in (draws, run))
            off = (ours.mean(axis=0) - whole.mean(axis=0)) / whole.std(axis=0)
            assert np.sqrt(np.mean(off**2)) < most, (level, by)
            assert 0.9 < np.median(ours.std(axis=0) / whole.std(axis=0)) < 1.1, (level, by)


def test_what_cannot_be_cut_is_refused(large, tmp_path, monkeypatch, rng):
    with monkeypatch.context() as chosen:
        chosen.setattr(by_parts, "choose_inference", lambda *given: HistogramGibbs(tier="chains"))
        with pytest.raises(SpecError, match="'histogram-gibbs' cannot infer by parts with tier 'chains'"):
            written(large, tmp_path / "out")
    with pytest.raises(TrueupError, match="at most 1 MB"):
        written(large, tmp_path / "out", LocalPool(1, memory=10**6))
    monkeypatch.setattr(histogram_parts, "MOST_CELLS", 15)
    with pytest.raises(SpecError, match="has several places of at most 15 cells"):
        written(large, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_measurements_far_below_are_not_left_out_in_silence(rng):
    """Blocks measured with a sixteenth of the variance know more of a county than its own measurement."""
    measured, _ = histogram(rng)
    laws = [GAUSSIAN("1/4") if h.margin.level == "block" else h.law for h in measured.headers]
    headers = tuple(Measured(h.query, h.margin, law) for h, law in zip(measured.headers, laws))
    even = CutHistogram(constraints(measured), measured.headers, measured.values)
    # Of 1 + 1/3 + 1/12, 1/12 lies below tracts.
    assert even.unused(1) == pytest.approx((1 / 12) / (1 + 1 / 3 + 1 / 12))
    with pytest.raises(SpecError, match="was measured further below"):
        _ = CutHistogram(constraints(measured), headers, measured.values).level
