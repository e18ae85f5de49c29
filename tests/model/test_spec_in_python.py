"""Specs that are built in Python, and drafts that learn nothing from confidential rows."""

from __future__ import annotations

import pandas
import polars
import pytest

import trueup as tu
from trueup.errors import DataError, SpecError

PLACES = pandas.DataFrame(
    {"county": ["1", "1", "2"], "town": ["a", "b", "a"], "town name": ["Ash", "Birch", "Cedar"]}
)
SEX = {"sex": ["f", "m", "x"]}
GIVEN = {
    "title": "Towns",
    "table": {"name": "towns", "kind": "records", "counts": "person"},
    "privacy": {"unit": "person", "neighbours": "add-remove"},
    "queries": [{"name": "total", "epsilon": {"all": "1/3", "town": "2/3"}}],
}


def people(county, town, sex, **more) -> pandas.DataFrame:
    return pandas.DataFrame({"county": county, "town": town, "sex": sex} | more)


def test_a_spec_built_in_python_is_the_one_that_its_file_gives(tmp_path):
    spec = tu.Spec(levels=["all", "county", "town"], attributes=SEX, **GIVEN)
    spec.write(tmp_path / "towns.toml")
    assert tu.Spec.read(tmp_path / "towns.toml") == spec
    assert "# Who is protected" in (tmp_path / "towns.toml").read_text()
    listed = tu.Spec(
        level=[{"name": "all"}, {"name": "county", "column": "county"}, {"name": "town", "column": "town"}],
        attribute=[{"name": "sex", "values": ["f", "m", "x"]}],
        **GIVEN,
    )
    assert listed == spec


def test_a_file_has_only_the_keys_of_a_file():
    spec = tu.Spec(levels=["all", "town"], **GIVEN)
    with pytest.raises(SpecError, match="levels is not a key"):
        tu.parse_spec(spec.text().replace("[[level]]", "[[levels]]"))


def test_every_mistake_is_said_with_its_place():
    with pytest.raises(SpecError) as error:
        tu.Spec(titel="x", levels=["all"], queries=[{"name": "total", "levels": ["all"], "epsilon": "much"}])
    for words in ("did you mean 'title'?", "query 'total': epsilon", "privacy is missing"):
        assert words in str(error.value)


def test_a_spec_is_shown_in_three_lines():
    spec = tu.Spec(levels=["all", "town"], attributes=SEX, **GIVEN)
    assert repr(spec).count("\n") == 2
    assert "Towns" in spec._repr_html_()


def drafted(table, **more) -> str:
    options = {"levels": ["county", "town"], "attributes": SEX, "public": PLACES} | more
    return tu.Spec.of(table, **options).text(comments=True)


TABLES = {
    "another place alone": people(["2"], ["a"], ["m"]),
    "places that no list holds": people(["9"] * 4, ["z"] * 4, ["m"] * 4),
    "another size": people(["1"] * 50, ["a"] * 50, ["f"] * 50),
    "values that are not declared": people(["1"], ["a"], ["?"]),
    "no row": people(["1"], ["a"], ["f"]).head(0),
    "missing values": people([None, "1"], ["a", None], [None, "f"]),
    "categories": people(["1", "2"], ["a", "a"], ["f", "q"]).astype({"sex": "category", "town": "category"}),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_draft_is_the_same_whatever_the_rows_are(name):
    assert drafted(TABLES[name]) == drafted(people(["1", "1"], ["a", "b"], ["f", "m"]))


def test_a_draft_that_learns_from_rows_is_seen():
    """The test above can fail: a domain taken from the rows differs between them."""
    texts = {
        drafted(table, attributes={"sex": sorted({str(value) for value in table["sex"]}) or ["none"]})
        for table in TABLES.values()
    }
    assert len(texts) > 1


def test_a_draft_reads_no_row_of_a_lazy_table():
    def explode(frame):
        raise AssertionError("the rows were read")

    columns = {"county": polars.String, "town": polars.String, "sex": polars.String}
    lazy = polars.LazyFrame(schema=columns).map_batches(explode, schema=columns)
    assert tu.Spec.of(lazy, "town", None, public=PLACES, tables="town").levels[1].name == "town"
    assert tu.Spec.of(lazy, ["town"], SEX, public=PLACES).levels[1].name == "town"
    with pytest.raises(AssertionError, match="the rows were read"):
        lazy.collect()


def test_a_draft_of_a_file_reads_its_header_alone(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text('county,town,sex\n"a broken row\n')
    assert drafted(path) == drafted(people(["1"], ["a"], ["f"]))


def test_an_attribute_without_values_is_refused_and_none_is_quoted():
    table = people(["1"], ["a"], ["secret value"])
    for attributes in (["sex"], "sex", [{"name": "sex"}], {"sex": []}):
        with pytest.raises(SpecError, match="all values that the attribute may have") as error:
            tu.Spec.of(table, ["town"], attributes, public=PLACES)
        assert "secret" not in str(error.value)


def test_levels_are_taken_from_the_public_places_by_default():
    table = people(["1"], ["a"], ["f"])
    spec = tu.Spec.of(table, public=PLACES)
    assert [level.name for level in spec.levels] == ["all", "county", "town"]
    with pytest.raises(SpecError, match="no column in common"):
        tu.Spec.of(table[["sex"]], public=PLACES)
    with pytest.raises(DataError, match="no column 'village'"):
        tu.Spec.of(table, ["village"], public=PLACES)


def test_what_is_given_is_no_longer_to_be_decided():
    table = people(["1"], ["a"], ["f"], n=[3])
    free = tu.Spec.of(table, ["town"], SEX, public=PLACES)
    assert {"title", "table", "privacy", "query", "constraints"} == set(free.undecided)
    given = {"title": "Towns", "name": "towns", "unit": "child", "count": "n", "epsilon": "1/2"}
    spec = tu.Spec.of(table, ["town"], SEX, public=PLACES, **given)
    assert set(spec.undecided) == {"query", "constraints"}
    assert sum(amount for query in spec.queries for amount in query.budgets.values()) * 2 == 1
    assert "To decide" in spec.text(comments=True)
    assert tu.parse_spec(spec.text(comments=True)).queries == spec.queries


def test_a_draft_runs(tmp_path):
    table = people(["1", "1", "2"], ["a", "b", "a"], ["f", "m", "m"])
    spec = tu.Spec.of(table, ["county", "town"], SEX, public=PLACES, unit="child")
    noisy = tu.measure(spec, table, PLACES)
    assert noisy.guarantee.amount == 1


def test_a_proposal_names_what_a_wide_table_s_columns_say_apart_from_its_levels():
    places = pandas.DataFrame({"category": ["a", "b"], "kind": ["c", "d"]})
    header = ["category", "kind", "f_young", "f_old", "m_young", "m_old"]
    spec = tu.propose_spec(header, places).spec
    assert [level.name for level in spec.levels] == ["all", "category", "kind"]
    assert [a.name for a in spec.attributes] == ["kind group", "category group"]
    assert tu.explain(spec, places, simulate=False).cells == 8


def test_a_domain_too_large_to_be_measured_is_refused():
    table = people(["1"], ["a"], ["f"], age=["x"])
    with pytest.raises(SpecError, match="4,000,000 combinations"):
        tu.Spec.of(
            table, ["town"], {"sex": map(str, range(2000)), "age": map(str, range(2000))}, public=PLACES
        )
