"""Keys of places are any text: no two places are taken for one, and no file or column takes its name from a key."""

import csv

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueup
from tests.releasing.bad_input import release
from trueup.checking.bundle import check as check_bundle
from trueup.io.bundle.tables import label_sql, labels
from trueup.model.cells import Margin
from trueup.model.tree import Tree
from trueup.releasing import pipeline
from trueup.run.local import LocalPool

SPEC = """
format = 2
title = "Places of awkward names"
table = { name = "small", kind = "records", counts = "person" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [
  { name = "nation" }, { name = "state", column = "state" }, { name = "county", column = "county" },
]
attribute = [{ name = "sex", values = ["f", "m"] }]

[[query]]
name = "detailed"
attributes = ["sex"]
noise = "discrete-gaussian"
rho = { nation = "1/100", state = "1/100", county = "1/100" }

[constraints]
invariants = [{ level = "county" }]
"""
AWKWARD = {
    "slashes that move": [("a/b", "c"), ("a", "b/c"), ("a/b/c", "d"), ("a", "b/c/d")],
    "slashes alone": [("/", "//"), ("//", "/"), ("///", "x"), ("/", "/")],
    "what stands for a slash": [("a~1b", "c"), ("a", "b~1c"), ("a/b", "c"), ("a~01b", "c"), ("~", "~0")],
    "spaces": [("a b", "c"), ("a", "b c"), ("a  b", "c"), ("ab", "c d"), ("a", "b  c")],
    "percents": [("%2F", "a%20b"), ("%", "%%"), ("a/", "%2F")],
    "beyond ASCII": [("é", "Ä/ß"), ("e\u0301", "日本"), ("\U0001f4a1", "\u200b"), ("é/Ä", "ß")],
    "leading dots": [(".", ".."), ("..", "."), ("../..", "x"), (".a", "b")],
    "partitions": [("state=1", "county=2"), ("state=1/county=2", "3"), ("=", "==")],
    "patterns and quotes": [("*", "[a]"), ("?", '"q"'), ("'s'", "a,b"), ("\\", "$1"), ("a\nb", "x\ty")],
}


DATABASE = duckdb.connect()


def places_and_people(folder, keys):
    """Write spec, places and records: the place at position `i` holds `i + 1` persons."""
    people = [(*key, "fm"[n % 2]) for i, key in enumerate(keys) for n in range(i + 1)]
    for name, header, rows in (
        ("places", ("state", "county"), keys),
        ("people", ("state", "county", "sex"), people),
    ):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
    (folder / "spec.toml").write_text(SPEC)
    return folder / "spec.toml", folder / "people.csv", folder / "out"


def by_parts(folder, keys):
    """Release by blocks."""
    given = places_and_people(folder, keys)
    pipeline.release(*given, geography=folder / "places.csv", executor=LocalPool(1), places=6)


def in_memory(folder, keys):
    """Release in memory."""
    trueup.release(*places_and_people(folder, keys), geography=folder / "places.csv")


def assert_as_enumerated(out, keys):
    """Every rule holds, and the invariant counts of the places stand under their own keys."""
    assert [check for check in check_bundle(out) if not check.holds] == []
    released = trueup.read_release(out)
    county = released.cells.tree.keys[-1]
    found = dict(zip(zip(county["state"], county["county"]), released.sums(Margin("county"))))
    assert found == {key: i + 1 for i, key in enumerate(keys)}


@pytest.mark.thorough
@pytest.mark.parametrize("keys", AWKWARD.values(), ids=AWKWARD)
def test_awkward_keys_are_released_checked_and_read(tmp_path, keys):
    by_parts(tmp_path, keys)
    assert_as_enumerated(tmp_path / "out", keys)


@pytest.mark.slow
@pytest.mark.parametrize("release", [by_parts, in_memory])
@pytest.mark.parametrize(
    "name",
    [
        "state=a",
        "place=1",
        "cell=2",
        "count=9",
        "value=3",
        "level=state",
        "bundle=1",
        "state.state=a",
        "a %2F*",
        "w[1]",
        "\\",
    ],
)
def test_the_name_of_a_folder_is_taken_for_no_column(tmp_path, release, name):
    """DuckDB would read `state=a` as a column of all files in that folder, in the place of their own."""
    (tmp_path / name).mkdir()
    keys = [("a", "b"), ("a", "c"), ("b", "b")]
    release(tmp_path / name, keys)
    assert_as_enumerated(tmp_path / name / "out", keys)


@pytest.mark.thorough
@settings(deadline=None)  # a busy machine is not at fault
@given(st.lists(st.tuples(*[st.text("a/~01", min_size=1, max_size=4)] * 2), min_size=1, unique=True))
def test_labels_tell_places_apart_and_are_those_of_the_database(keys):
    state, county = (np.array(column) for column in zip(*keys))
    tree = Tree.from_columns(["all", "state", "county"], [{}, {"state": state}, {"county": county}])
    found = labels(tree, "county")
    assert len(set(found)) == len(keys)
    DATABASE.register("t", dict(tree.keys[-1]))
    rows = DATABASE.execute(f"SELECT {label_sql(['state', 'county'])} FROM t").fetchall()
    assert [text for (text,) in rows] == found.tolist()


@pytest.mark.thorough
def test_a_key_of_twenty_thousand_characters_goes_through_a_run(tmp_path):
    long = "00" + "é/~" * 7000
    out = tmp_path / "out"
    release(tmp_path, geography=f"{long}\n", data=f"{long},r0,old\n" * 3)
    assert all(check.holds for check in check_bundle(out))
    tree = trueup.read_release(out).cells.tree
    assert long in tree.keys[-1]["block"].tolist()
