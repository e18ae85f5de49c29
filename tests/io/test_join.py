"""Two tables linked into one: what is counted is what Python counts, and what does not link up is refused or left out by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.linked_tables import counted, document, joined, population, problem
from trueup.errors import DataError, SpecError
from trueup.files import JoinedTables
from trueup.io.microdata.by_parts import tabulate_by_parts
from trueup.io.microdata.join import linked_records
from trueup.io.microdata.tabulate import read_counts
from trueup.io.microdata.truncate import Limit
from trueup.model.spec import Spec, parse_spec

SMALL = problem()


def read(tables, key: str = "a7", given=SMALL) -> tuple[np.ndarray, Limit]:
    """Counts `(n,)` of a spec's records, and the limit with what was left out."""
    limit = Limit("hid", given.spec.privacy.contribution.records, key)
    with linked_records(given.spec, tables, limit) as records:
        return read_counts(given.spec, given.cells, records), limit


@pytest.mark.parametrize("key", ["a7", "5e"])
def test_what_is_counted_is_what_python_counts(rng, key):
    tables = population(rng, 300)
    counts, limit = read(tables, key)
    np.testing.assert_array_equal(counts, counted(SMALL, tables, limit))
    size = tables.persons.groupby("hid").size()
    assert limit.dropped == int((size - size.clip(upper=4)).sum()) > 0


def test_files_are_counted_as_dataframes_are(rng, tmp_path):
    tables = population(rng, 200)
    paths = JoinedTables(tmp_path / "persons.csv", tmp_path / "households.parquet")
    tables.persons.to_csv(paths.persons, index=False)
    tables.households.to_parquet(paths.households)
    np.testing.assert_array_equal(read(paths)[0], read(tables)[0])


def test_by_parts_the_same_is_counted(rng, tmp_path):
    tables, limit = population(rng, 200), Limit("hid", 4, "a7")
    paths = JoinedTables(tmp_path / "persons.parquet", tmp_path / "households.parquet")
    for name in ("persons", "households"):
        getattr(tables, name).to_parquet(getattr(paths, name))
    spill = tmp_path / "spill"
    spill.mkdir()
    with linked_records(SMALL.spec, paths, limit, spill=spill, memory="200MB", threads=1) as records:
        parts = tabulate_by_parts(
            SMALL.spec, SMALL.cells, records, tmp_path / "counts", np.array([0, 0, 1, 1, 1]), memory="200MB"
        )
    found = np.zeros(SMALL.cells.shape, np.int64).reshape(5, -1)
    for number in range(2):
        held = parts.read(number)
        found[held.place, held.cell] = held.count
    np.testing.assert_array_equal(found.ravel(), read(tables)[0])


def test_no_other_household_changes_what_one_keeps(rng):
    tables = population(rng, 60)
    one = tables.households.hid[0]
    whole, _ = read(tables)
    without, _ = read(
        JoinedTables(
            tables.persons[tables.persons.hid != one], tables.households[tables.households.hid != one]
        )
    )
    alone, _ = read(
        JoinedTables(
            tables.persons[tables.persons.hid == one], tables.households[tables.households.hid == one]
        )
    )
    np.testing.assert_array_equal(whole - without, alone)


def alone(tables):
    tables.persons.loc[tables.persons.index[3], "hid"] = " "


def unknown(tables):
    tables.persons.loc[tables.persons.index[3], "hid"] = "nowhere"


def empty(tables):
    tables.households.loc[len(tables.households)] = ["empty", "11", "own"]


def twice(tables):
    tables.households.loc[len(tables.households)] = list(tables.households.iloc[0])


def without_reference(tables):
    home = tables.households.hid[1]
    tables.persons.loc[tables.persons.hid == home, "relation"] = "other"


def several(tables):
    home = tables.persons.hid.value_counts().index[0]
    tables.persons.loc[tables.persons.hid == home, "relation"] = "ref"


FAULTS = {
    "persons without a household": alone,
    "persons of unknown households": unknown,
    "households without persons": empty,
    "households listed twice": twice,
    "households without a reference person": without_reference,
    "households with several reference persons": several,
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAULTS)
def test_what_does_not_link_up_is_refused_or_left_out_by_name(rng, name):
    tables = population(rng, 50)
    FAULTS[name](tables)
    with pytest.raises(DataError, match=name) as refused:
        read(tables)
    assert not any(digit in refused.value.given for digit in "0123456789")
    table = document()["table"]
    table["join"]["apart"] = list(FAULTS)
    counts, limit = read(tables, given=(given := problem(table=table)))
    assert limit.apart[name] >= 1
    both = joined(given)
    tables = both.persons.of(counts, both.records), both.households.of(counts, both.records)
    sizes = both.links[0].persons
    persons, households = (t.reshape(5, -1, 2) for t in tables)
    np.testing.assert_array_equal(persons.sum(axis=1), np.einsum("k,pkt->pt", sizes, households))


@pytest.mark.parametrize(("table", "column", "row"), [("persons", "age", 4), ("households", "tenure", 2)])
def test_a_value_outside_its_domain_is_named_by_row(rng, tmp_path, table, column, row):
    tables = population(rng, 20)
    frame = getattr(tables, table).reset_index(drop=True)
    frame.loc[row - 1, column] = "secret"
    path = tmp_path / f"{table}.csv"
    frame.to_csv(path, index=False)
    given = JoinedTables(**{**vars(tables), table: path})
    with pytest.raises(DataError, match=f"column '{column}', row {row} of '{table}.csv'") as refused:
        read(given)
    assert "secret" not in str(refused.value)


def test_a_place_that_there_is_not_and_a_missing_identifier_are_refused(rng):
    tables = population(rng, 20)
    tables.households.loc[3, "block"] = "99"
    with pytest.raises(DataError, match="names no place of level 'block'"):
        read(tables)
    tables = population(rng, 20)
    tables.households.loc[3, "hid"] = None
    with pytest.raises(DataError, match="'hid' has no value in row 4"):
        read(tables)


def test_one_table_where_the_spec_links_two_is_refused(rng):
    with pytest.raises(DataError, match="links two tables"):
        read(population(rng, 5).persons)


def test_an_attribute_of_the_reference_person_may_stand_in_a_column_of_its_own(rng):
    tables = population(rng, 80)
    tables.persons["race"] = rng.choice(["a", "b", "c"], len(tables.persons))
    attributes = [
        *document()["attribute"][:3],
        {"name": "race", "of": "reference", "values": ["a", "b", "c"]},
    ]
    attributes.append({"name": "size", "persons": {}})
    queries = [
        {"name": "p", "attributes": ["age", "sex", "race"], "epsilon": {"block": "1"}},
        {"name": "h", "counts": "household", "attributes": ["size", "race"], "epsilon": {"block": "1"}},
    ]
    given = problem(attribute=attributes, query=queries)
    counts, _ = read(tables, given=given)
    held = tables.persons.merge(tables.persons[tables.persons.relation == "ref"][["hid", "race"]], on="hid")
    kept = tables.persons.groupby("hid").size().clip(upper=4)
    race = tables.persons[tables.persons.relation == "ref"].set_index("hid").race
    both = joined(given)
    households = both.households.of(counts, both.records).reshape(5, -1, 3).sum(axis=(0, 1))
    assert households.tolist() == [int((race == r).sum()) for r in "abc"]
    persons = both.persons.of(counts, both.records).reshape(5, -1, 3).sum(axis=(0, 1))
    assert persons.tolist() == [int(kept[race[race == r].index].sum()) for r in "abc"]
    assert len(held) >= persons.sum()


BAD = {
    "of another kind": ({"attribute": [{"name": "age", "values": ["a", "b"], "of": "street"}]}, "belongs to 'street'"),
    "no size": (
        {"attribute": document()["attribute"][:3], "query": [{"name": "q", "attributes": ["age"], "epsilon": {"all": 1}}]},
        "number of persons in a household",
    ),
    "an id twice": ({"privacy": document()["privacy"] | {"id": "hid"}}, "leave it out"),
    "another unit": ({"privacy": document()["privacy"] | {"unit": "person"}}, "protect one household"),
    "no bound": ({"privacy": {"unit": "household", "neighbours": "replace"}}, "contribution"),
    "a bound of nobody": ({"privacy": document()["privacy"] | {"contribution": {"records": 0}}}, "1 or more, not 0"),
    "a bound in words": ({"privacy": document()["privacy"] | {"contribution": {"records": "4"}}}, "1 or more, not '4'"),
    "a bound alone": ({"privacy": document()["privacy"] | {"contribution": 4}}, "contribution"),
    "one name of both": ({"table": document()["table"] | {"counts": "household"}}, "both count 'household'"),
    "linear rules": ({"constraints": {"linear": ["child <= adult"]}}, "hold without it"),
    "persons by size": ({"query": [{"name": "q", "attributes": ["size"], "epsilon": {"all": 1}}]}, "by 'size' instead"),
    "an unknown attribute": ({"query": [{"name": "q", "attributes": ["agee"], "epsilon": {"all": 1}}]}, "unknown attribute"),
    "cumulative epsilon": (
        {"query": [{"name": "q", "counts": "household", "attributes": ["size"], "cumulative": "size", "epsilon": {"all": 1}}]},
        "give `rho`",
    ),
    "cumulative over no number": (
        {"query": [{"name": "q", "attributes": ["age"], "cumulative": "age", "rho": {"all": 1}}]},
        "number of persons",
    ),
    "a gap": (
        {"attribute": [*document()["attribute"][:4], {"name": "size", "persons": {}, "values": ["1", "3"]}]},
        "top code",
    ),
    "sets that cross": (
        {"attribute": [*document()["attribute"], {"name": "girls", "persons": {"sex": "f"}}]},
        "partly overlap",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_specs_that_link_nothing_are_refused(case):
    changes, said = BAD[case]
    with pytest.raises(ValueError, match=said):
        Spec.model_validate(document(**changes))


def test_attributes_of_another_table_need_one():
    text = Path("examples/stays.toml").read_text(encoding="utf-8")
    with pytest.raises(SpecError, match=r"no \[table.join\]"):
        parse_spec(text.replace('name = "ward"', 'name = "ward"\nof = "patient"'))


def test_the_rewritten_spec_reads_as_the_same_one():
    spec = Spec.model_validate(document())
    assert parse_spec(spec.text()) == spec
