"""2020 Census noisy-measurement files: what our writer makes in the layout, our reader reads."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from tests.io.nmf_writer import write_nmf
from trueup.errors import DataError, InfeasibleError
from trueup.inferring import infer
from trueup.io.published.nmf import read_nmf
from trueup.io.published.sdhc import PUBLISHED
from trueup.model.cells import Margin
from trueup.model.constraints import Bound
from trueup.model.header import Measured
from trueup.model.problem import public_cells
from trueup.model.records.measurements import Measurements
from trueup.model.spec import parse_spec
from trueup.noise import law_named

SPEC = parse_spec("""
format = 2
title = "Persons"
table = { name = "pl94", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "replace" }
level = [{ name = "US" }, { name = "State", column = "geocode", prefix = 3 },
         { name = "County", column = "geocode", prefix = 6 }, { name = "Tract", column = "geocode" }]
attribute = [{ name = "votingage", values = ["under", "over"] }]
[[query]]
name = "total"
levels = ["State", "County", "Tract"]
rho = 1
[[query]]
name = "by age"
attributes = ["votingage"]
levels = ["Tract"]
rho = 1
""")


@pytest.fixture
def written(tmp_path, rng):
    import pandas

    codes = ["044001000100", "044001000200", "044003000100", "145001000100"]
    cells = public_cells(SPEC, pandas.DataFrame({"geocode": codes, "n": 0}))
    truth = rng.poisson(40, cells.n)
    headers, values = [], []
    for level, attributes, sigma2 in [
        ("State", (), "1"),
        ("County", (), "4"),
        ("Tract", (), "6"),
        ("Tract", ("votingage",), "9"),
    ]:
        margin = Margin(level, attributes)
        headers.append(Measured("q", margin, law_named("discrete-gaussian")(sigma2)))
        values.append(cells.sum(truth, margin) + rng.normal(0, 1, cells.size(margin)).round().astype(int))
    headers.append(Measured("invariant", Margin("State"), law_named("exact")()))
    values.append(cells.sum(truth, Margin("State")))
    measured = Measurements(cells, tuple(headers), tuple(values), PUBLISHED)
    write_nmf(tmp_path, SPEC, measured)
    return tmp_path, measured


def test_round_trip(written):
    root, measured = written
    again = read_nmf(SPEC, root)
    assert [str(h.margin) for h in again.headers] == [str(h.margin) for h in measured.headers]
    assert [h.law.variance for h in again.headers] == pytest.approx(
        [h.law.variance for h in measured.headers]
    )
    assert all(np.array_equal(a, b) for a, b in zip(again.values, measured.values))


def test_the_layout_is_the_published_one(written):
    root, _ = written
    folders = {str(p.relative_to(root).parent) for p in root.rglob("*.parquet") if p.is_file()}
    assert "US_Person_PL_PROD/Tract.parquet/DPQuery/State=044" in folders
    assert "US_Person_PL_PROD/State.parquet/Constraint/State=145" in folders


@pytest.mark.thorough
def test_read_files_give_a_posterior(written):
    root, measured = written
    posterior = infer(read_nmf(SPEC, root), spec=SPEC, draws=50)
    assert (posterior.sums(Margin("State")) == measured.values[-1]).all()


def test_missing_levels_and_columns_are_named(written, tmp_path):
    root, _ = written
    with pytest.raises(DataError, match="no files for level 'Tract'"):
        read_nmf(SPEC, tmp_path / "elsewhere")
    part = next(p for p in root.rglob("*.parquet") if p.is_file() and "County.parquet" in p.parts)
    with duckdb.connect() as connection:
        thin = connection.read_parquet(str(part)).select("geocode, query_name, query_shape, value")
        thin.write_parquet(str(part))
    for other in part.parent.parent.rglob("part*"):
        if other != part:
            other.unlink()
    with pytest.raises(DataError, match="do not have the column 'variance'"):
        read_nmf(SPEC, root)


WITH_QUARTERS = parse_spec("""
format = 2
title = "Persons in group quarters"
table = { name = "pl94", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "replace" }
level = [{ name = "US" }, { name = "State", column = "geocode", prefix = 3 }, { name = "Block", column = "geocode" }]
attribute = [{ name = "hhgq", values = ["household", "nursing", "prison"] }]
query = [{ name = "total", levels = ["State", "Block"], rho = 1 },
         { name = "detailed", attributes = ["hhgq"], levels = ["Block"], rho = 1 }]
[infer]
method = "tree-exact"
""")


@pytest.fixture
def quarters(tmp_path):
    """Blocks with facilities: at least one person in each, and none where there is no facility."""
    import pandas

    codes = ["044001", "044002", "145001"]
    cells = public_cells(WITH_QUARTERS, pandas.DataFrame({"geocode": codes, "hhgq": "prison", "n": 0}))
    finest = Margin("Block", ("hhgq",))
    law = law_named("discrete-gaussian")("9")
    headers = (
        Measured("total", Margin("State"), law),
        Measured("total", Margin("Block"), law),
        Measured("detailed", finest, law),
        Measured("invariant", Margin("State"), law_named("exact")()),
    )
    values = (
        np.array([51, 8]),
        np.array([20, 30, 9]),
        np.array([18, -3, 2, 25, 4, -2, 7, 5, -4]),
        np.array([50, 9]),
    )
    bounds = (
        Bound(finest, lower=(0.0, 2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0)),
        Bound(finest, upper=(99.0, 40.0, 0.0, 99.0, 0.0, 40.0, np.inf, np.inf, np.inf)),
    )
    measured = Measurements(cells, headers, values, PUBLISHED, bounds=bounds)
    write_nmf(tmp_path, WITH_QUARTERS, measured)
    return tmp_path, measured


def test_bounds_on_group_quarters_come_back(quarters):
    root, measured = quarters
    again = read_nmf(WITH_QUARTERS, root)
    assert again.bounds == measured.bounds
    assert again.digest != Measurements(again.cells, again.headers, again.values, PUBLISHED).digest
    with duckdb.connect() as connection:
        files = [str(p) for p in root.rglob("Constraint/**/*.parquet") if p.is_file()]
        rows = connection.read_parquet(files).select("query_name, sign").distinct().fetchall()
    assert set(rows) == {("total_con", "="), ("hhgq_total_lb_con", ">="), ("hhgq_total_ub_con", "<=")}


@pytest.mark.thorough
def test_bounds_hold_in_every_draw_and_matter(quarters):
    root, _ = quarters
    read = read_nmf(WITH_QUARTERS, root)
    draws = infer(read, spec=WITH_QUARTERS, draws=400).draws[0]
    assert (draws[:, 1] >= 2).all()
    assert (draws[:, 5] >= 3).all()
    assert (draws[:, [2, 4]] == 0).all()
    assert (draws.reshape(400, 3, 3).sum(axis=2)[:, :2].sum(axis=1) == 50).all()
    unbounded = Measurements(read.cells, read.headers, read.values, PUBLISHED)
    assert infer(unbounded, spec=WITH_QUARTERS, draws=400).draws[0][:, 1].min() < 2


def rewrite(root, level, kind, column, change):
    """Change one column of every constraint file of a level."""
    for part in root.rglob("*.parquet"):
        if part.is_file() and f"{level}.parquet" in part.parts and kind in part.parts:
            with duckdb.connect() as connection:
                connection.execute(f"CREATE TABLE t AS SELECT * REPLACE ({change} AS {column}) FROM '{part}'")
                connection.table("t").write_parquet(str(part))


@pytest.mark.thorough
def test_unknown_signs_and_places_are_named(quarters):
    root, _ = quarters
    rewrite(root, "Block", "Constraint", "sign", "replace(sign, '>=', '>')")
    with pytest.raises(DataError, match="has the sign '>'"):
        read_nmf(WITH_QUARTERS, root)
    rewrite(root, "Block", "Constraint", "sign", "replace(sign, '>', '>=')")
    rewrite(root, "Block", "Constraint", "geocode", "'999999'")
    with pytest.raises(DataError, match="is about the place '999999'"):
        read_nmf(WITH_QUARTERS, root)


def test_constraints_on_what_a_spec_does_not_declare_are_left_alone(quarters):
    root, _ = quarters
    rewrite(root, "Block", "Constraint", "query_name", "'nurse_nva_0_con'")
    assert read_nmf(WITH_QUARTERS, root).bounds == ()


@pytest.mark.thorough
@pytest.mark.parametrize("variance", ["0.0", "NULL", "-1.0"])
def test_zero_or_missing_variances_are_named(quarters, variance):
    root, _ = quarters
    rewrite(root, "Block", "DPQuery", "variance", f"CAST({variance} AS DOUBLE)")
    with pytest.raises(DataError, match="has the variance"):
        read_nmf(WITH_QUARTERS, root)


def test_bounds_that_contradict_invariants_are_named(quarters):
    _, measured = quarters
    high = Bound(Margin("Block", ("hhgq",)), lower=(30.0,) * 9)
    contradicting = Measurements(measured.cells, measured.headers, measured.values, PUBLISHED, bounds=(high,))
    with pytest.raises(InfeasibleError, match="contradict each other"):
        infer(contradicting, spec=WITH_QUARTERS)
