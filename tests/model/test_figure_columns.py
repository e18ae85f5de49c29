"""Columns of figures have one list: whoever writes a table takes its own from there, and no key or attribute is called so."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from trueup.assessing import assess
from trueup.errors import SpecError
from trueup.files.source import open_table
from trueup.io.bundle.assessment import write_assessment
from trueup.io.bundle.posterior import write_posterior
from trueup.io.bundle.read import read_release
from trueup.io.export import export
from trueup.measuring import measure
from trueup.model.names import FIGURES
from trueup.model.records.drawn import Drawn
from trueup.model.records.posterior import Posterior
from trueup.model.spec import Spec
from trueup.reconciling import reconcile
from trueup.releasing.pipeline import release

PLACES = pandas.DataFrame({"part": ["a", "b"], "called": ["A", "B"]})
TABLE = pandas.DataFrame({"part": list("aabb"), "place": list("xyxy"), "n": [30, 5, 0, 9]})


def _spec(level="part", column="part", attribute="place", root="all", values=("x", "y")):
    return Spec(
        title="Columns",
        table={"name": "columns", "kind": "counts", "counts": "person", "count": "n"},
        privacy={"unit": "person", "neighbours": "add-remove"},
        levels=[{"name": root}, {"name": level, "column": column, "label": "called"}],
        attributes={attribute: list(values)},
        queries=[{"name": "q", "attributes": [attribute], "epsilon": {level: "1"}}],
    )


@pytest.fixture(scope="module")
def spec():
    """Keys and attributes that are called as columns which are joined to them on the way."""
    return _spec()


def _columns(folder, *patterns):
    found = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    assert found
    return {name for path in found for name in open_table(path).columns()}


def test_the_list_holds_every_column_that_is_written(spec, tmp_path):
    noisy = measure(spec, TABLE, PLACES)
    made = reconcile(noisy)
    drawn = Drawn(np.array([[[3, 4, 0, 1], [5, 4, 2, 1]]]), independent=True)
    posterior = Posterior(noisy.cells, drawn, {"method": "demo"}, "")
    written = {*noisy.table("part", "place"), *made.table("part"), *posterior.table("part")}
    release(spec, TABLE, tmp_path / "r", geography=PLACES)
    written |= _columns(tmp_path / "r" / "public", "counts/*.parquet")
    write_posterior(tmp_path / "p", posterior)
    written |= _columns(tmp_path / "p", "summary/*.parquet", "draws.parquet")
    found = assess(spec, TABLE, geography=PLACES, replicates=40)
    write_assessment(tmp_path / "a", spec.text(), found, "")
    written |= _columns(tmp_path / "a", "internal/counts/*.parquet")
    assert written - FIGURES == {"all", "part", "part name", "place"}
    assert written | {"exact"} >= FIGURES


def test_keys_called_as_what_is_joined_to_them_come_back(spec, tmp_path):
    """`part` and `place` named columns of their own where tables were joined."""
    made = release(spec, TABLE, tmp_path / "r", geography=PLACES)
    again = read_release(tmp_path / "r")
    assert again.table("part", "place").equals(made.table("part", "place"))
    found = assess(spec, TABLE, geography=PLACES, replicates=40)
    folder = write_assessment(tmp_path / "a", spec.text(), found, "")
    single = pandas.read_parquet(folder / "counts" / "part-place.parquet")
    assert set(zip(single["part"], single["place"])) == set(zip(TABLE["part"], TABLE["place"]))
    export(made, tmp_path / "x", "sdmx-csv", agency="XX")


@pytest.mark.parametrize("name", sorted({*FIGURES, "Mean", "margin_of_error", "STANDARD ERROR"}))
@pytest.mark.parametrize("what", ["attribute", "level", "root"])
def test_no_key_and_no_attribute_is_called_as_a_figure(what, name):
    with pytest.raises(
        SpecError, match=f"{'level' if what == 'root' else what} '{name}' has the name of a column of figures"
    ):
        _spec(**{what: name})


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"attribute": "part name"}, "published column 'part name' is declared twice"),
        ({"attribute": "town", "level": "Town"}, "'Town' names both a level and an attribute"),
        ({"attribute": "all"}, "published column 'all' is declared twice"),
    ],
)
def test_no_two_columns_are_one(names, said):
    with pytest.raises(SpecError, match=said):
        _spec(**names)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["method", "Mean", "margin of error"])
def test_a_key_s_column_is_called_as_its_level_where_figures_have_its_name(name, tmp_path):
    """A column of the files cannot always be renamed; a level can be named at will."""
    spec, places, table = _spec(column=name), *(t.rename(columns={"part": name}) for t in (PLACES, TABLE))
    made = release(spec, table, tmp_path / "r", geography=places)
    assert [*made.table("part")][:2] == ["part", "part name"]
    assert read_release(tmp_path / "r").table("part", "place").equals(made.table("part", "place"))
    assert set(made.table("part")["part"]) == {"a", "b"}


def test_values_may_be_called_as_figures():
    spec = _spec(values=("released", "mean"))
    assert measure(spec, TABLE.assign(place=["released", "mean"] * 2), PLACES).table(
        "part", "place"
    ).shape == (4, 5)
