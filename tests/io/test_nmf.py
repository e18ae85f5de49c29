"""2020 Census noisy-measurement files: what our writer makes in the layout, our reader reads."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from trueup.errors import DataError
from trueup.infer import infer
from trueup.io.nmf import read_nmf, write_nmf
from trueup.io.sdhc import PUBLISHED
from trueup.measure import public_cells
from trueup.model.cells import Margin
from trueup.model.measurements import Measured, Measurements
from trueup.model.spec import parse_spec
from trueup.noise import law_named

SPEC = parse_spec("""
format = 1
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


def test_read_files_give_a_posterior(written):
    root, measured = written
    posterior = infer(SPEC, read_nmf(SPEC, root), draws=50)
    assert (posterior.table(Margin("State")) == measured.values[-1]).all()


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
    with pytest.raises(DataError, match="lack the column 'variance'"):
        read_nmf(SPEC, root)
