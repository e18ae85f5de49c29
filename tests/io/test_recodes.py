"""A spec with recodes, from the table to the bundle and back."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas
import pytest

from tests.io.nmf_writer import write_nmf
from trueup import check, read_release, release
from trueup.io.bundle.read import read_released_tables
from trueup.io.published.nmf import read_nmf
from trueup.io.published.sdhc import PUBLISHED
from trueup.model.cells import Margin
from trueup.model.header import Measured
from trueup.model.problem import public_cells
from trueup.model.records.measurements import Measurements
from trueup.model.spec import load_spec
from trueup.noise import law_named

EXAMPLE = Path(__file__).parents[2] / "examples" / "pl94-small.toml"
RECODED = Margin("county", ("hhinstlevels",))
INSTITUTION = ("prison", "juvenile", "nursing", "other institution")


def _persons(rng) -> pandas.DataFrame:
    """Persons in two counties with five tracts, nobody under 18 in a nursing home."""
    spec = load_spec(EXAMPLE)
    tracts = ["44001000100", "44001000200", "44003000100", "44003000200", "44003000300"]
    rows = product(tracts, *(a.values for a in spec.attributes))
    frame = pandas.DataFrame(rows, columns=["geocode", "hhgq", "votingage", "hispanic"])
    impossible = (frame.hhgq == "nursing") & (frame.votingage == "under18")
    return frame.assign(n=np.where(impossible, 0, rng.poisson(20, len(frame))))


@pytest.fixture
def bundle(tmp_path, rng):
    return release(EXAMPLE, _persons(rng), tmp_path / "out"), tmp_path / "out"


@pytest.mark.thorough
def test_a_bundle_with_recodes_is_read_back_and_checked(bundle):
    released, folder = bundle
    assert all(each.holds for each in check(folder))
    again = read_release(folder)
    assert again.measurements.digest == released.measurements.digest
    np.testing.assert_array_equal(again.counts, released.counts)


@pytest.mark.thorough
def test_the_table_of_a_recode_names_its_groups_and_sums_their_values(bundle):
    _, folder = bundle
    columns = pandas.read_parquet(folder / "public" / "counts" / "county-hhinstlevels.parquet")
    assert columns.hhinstlevels.tolist() == ["household", "institution", "noninstitution"] * 2
    quarters = pandas.read_parquet(folder / "public" / "counts" / "county-hhgq.parquet")
    inside = quarters[quarters.hhgq.isin(INSTITUTION)].groupby("county")["count"].sum()
    assert columns[columns.hhinstlevels == "institution"]["count"].tolist() == inside.tolist()
    released = read_release(folder)
    assert read_released_tables(folder, released.cells)[RECODED].tolist() == columns["count"].tolist()


def test_published_files_name_recodes_as_they_name_attributes(tmp_path, rng):
    """The published layout has one factor an axis in a query's name and the shape of the recoded table."""
    spec = load_spec(EXAMPLE)
    cells = public_cells(spec, _persons(rng))
    headers = tuple(
        Measured(q.name, Margin(level, q.attributes), law_named("discrete-gaussian")(4))
        for q in spec.queries
        for level in q.budgets
    )
    values = tuple(rng.integers(-3, 50, cells.size(h.margin)) for h in headers)
    write_nmf(tmp_path, spec, Measurements(cells, headers, values, PUBLISHED))
    again = read_nmf(spec, tmp_path)
    assert [h.margin for h in again.headers] == [h.margin for h in headers]
    assert all(np.array_equal(a, b) for a, b in zip(again.values, values, strict=True))
    shapes = pandas.concat(pandas.read_parquet(p) for p in tmp_path.rglob("part*.parquet"))
    recoded = shapes[shapes.query_name == "hhinstlevels_dpq"].query_shape
    assert {tuple(shape) for shape in recoded} == {(3, 1, 1)}
