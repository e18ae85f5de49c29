"""Tables out: the same figures as the arrays, in the library that the data came in, keys and names beside them."""

from __future__ import annotations

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import trueup
from tests.model.people import DATA, SPEC
from trueup.errors import SpecError, TrueupError
from trueup.files import source

KINDS = {
    "pandas": (DATA, pandas.DataFrame),
    "polars": (polars.from_pandas(DATA), polars.DataFrame),
    "pyarrow": (pyarrow.Table.from_pandas(DATA), pyarrow.Table),
}


def made(data=DATA) -> trueup.Release:
    return trueup.reconcile(trueup.measure(trueup.parse_spec(SPEC), data))


@pytest.fixture(scope="module")
def release() -> trueup.Release:
    return made()


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_comes_in_the_library_of_the_data(kind):
    data, expected = KINDS[kind]
    release = made(data)
    assert isinstance(release.table("county"), expected)
    assert isinstance(release.measurements.table("state"), expected)
    assert isinstance(trueup.infer(release, draws=8).table("state"), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_holds_keys_names_and_figures(release, kind):
    columns = pandas.DataFrame(pyarrow.table(release.table("county", by="sex", backend=kind)).to_pydict())
    keys = ["state", "county", "state name", "county name", "sex"]
    assert columns.columns.tolist() == [*keys, "released", "noisy", "margin of error"]
    given = DATA.rename(columns={"state_name": "state name", "county_name": "county name"})
    assert columns[keys].equals(given[keys])
    assert (columns["released"] == release.sums("county x sex")).all()
    assert (columns["noisy"] == release.measurements.values[1]).all()


def test_what_is_not_known_is_missing(release):
    table = release.table("county")
    assert table["noisy"].isna().all()  # counties were measured by sex alone
    assert table["noisy"].dtype == float
    assert not (table["noisy"] <= table["released"]).any()  # an unknown figure can be compared
    assert release.table("all")["noisy"].isna().all()  # an invariant has no noise
    assert release.measurements.table("all").columns.tolist() == ["all", "exact", "margin of error"]
    assert release.measurements.table("all")["margin of error"].tolist() == [0]


def test_a_margin_of_error_is_what_the_noise_exceeds_with_the_probability_that_is_left(release):
    law = release.measurements.headers[0].law
    for level in (0.5, 0.9, 0.99):
        reach = release.measurements.table("state", level=level)["margin of error"]
        (size,) = set(reach)
        assert 2 * law.sf(size) <= 1 - level + 1e-12 < 2 * law.sf(size - 1)


def test_a_wide_table_has_a_column_for_each_value(release):
    wide, long = release.table("county x sex", wide="sex"), release.table("county x sex")
    assert wide.columns.tolist() == ["state", "county", "state name", "county name", "f", "m"]
    for sex in ("f", "m"):
        assert wide[sex].tolist() == long.loc[long["sex"] == sex, "released"].tolist()
    noisy = release.table("county x sex", wide="sex", figure="noisy")
    assert noisy["f"].tolist() == long.loc[long["sex"] == "f", "noisy"].tolist()


def test_a_dataset_has_a_dimension_for_places_and_for_each_attribute(release):
    dataset = release.to_xarray()
    assert dict(dataset.sizes) == {"county": 3, "sex": 2}
    assert int(dataset["released"].sel(county="01/003", sex="m")) == release.counts[3]
    assert dataset["county name"].values.tolist() == ["Autauga", "Baldwin", "Anchorage"]
    assert np.isnan(release.to_xarray("county")["noisy"]).all()


def test_every_record_of_counts_has_datasets_of_its_figures(release):
    noisy = release.measurements
    wide = noisy.table("county x sex", wide="sex")[["f", "m"]]
    assert noisy.to_xarray("county x sex")["noisy"].values.tolist() == wide.to_numpy().tolist()
    posterior = trueup.infer(release, draws=8)
    assert posterior.to_xarray("county")["mean"].values.tolist() == posterior.table("county")["mean"].tolist()
    assert dict(posterior.to_xarray().sizes) == {"chain": 1, "draw": 8, "cell": 6}


def test_an_area_is_the_sum_of_its_places(release):
    posterior = trueup.infer(release, draws=50)
    county = posterior.sums("county")
    area = posterior.area({"county": ["01/003", "02/001"]})
    assert (area.draws == county[..., 1] + county[..., 2]).all()
    assert (posterior.area({"state": "01"}).draws == posterior.sums("state")[..., 0]).all()
    low, high, _ = area.interval("95%")
    assert low <= area.median <= high
    with pytest.raises(SpecError, match="holds '01/001' more than once"):
        posterior.area({"state": "01", "county": "01/001"})


def test_tables_of_an_assessment():
    found = trueup.assess(trueup.parse_spec(SPEC), DATA, replicates=40, public_truth=True)
    table = found.table("state", statistic="bias", by="level")
    assert table["value"].tolist() == [found.figure("bias", "state")[0]]
    assert len(found.table()) == len(found.summary["value"])
    dataset = found.to_xarray(by="level")
    assert float(dataset["value"].sel(statistic="bias", level="state", about="")) == table["value"][0]


def test_a_margin_serves_as_the_name_of_a_table(release):
    assert release.table(trueup.Margin("county")).equals(release.table("county"))


def test_what_is_no_table_is_refused_by_name(release):
    for wrong, said in {
        "country": "no level 'country'",
        "county x age": "'age' is not declared",
        "county x sex x sex": "names an attribute twice",
    }.items():
        with pytest.raises(SpecError, match=said):
            release.table(wrong)
    with pytest.raises(SpecError, match="'sex' is named twice"):
        release.table("county x sex", by="sex")
    with pytest.raises(SpecError, match="not by 'sex'"):
        release.table("county", wide="sex")
    with pytest.raises(SpecError, match="no figure 'relesed'"):
        release.table("county x sex", wide="sex", figure="relesed")
    with pytest.raises(SpecError, match=r"was not measured.*state"):
        release.measurements.table("county")
    with pytest.raises(TrueupError, match=r"'excel' is no known library.*'pandas'"):
        release.table("county", backend="excel")


def test_a_library_that_is_missing_is_named_with_its_extra(release, monkeypatch):
    monkeypatch.setattr(source, "LIBRARIES", {"no_such_library": "frames"})
    with pytest.raises(TrueupError, match=r"'no_such_library' is not installed.*trueup\[frames\]"):
        release.table("county", backend="no_such_library")
