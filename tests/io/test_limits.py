"""Limits of places from a public column: read with the places, kept with them, refused where they are wrong."""

import numpy as np
import pandas
import pytest

from trueup.errors import DataError, InfeasibleError, SpecError
from trueup.files.source import open_table
from trueup.io.bundle.places import read_places, write_places
from trueup.model.build import build_cells, build_constraints
from trueup.model.constraints import violations
from trueup.model.geography import read_tree
from trueup.model.spec import parse_spec
from trueup.model.tree import Tree

SPEC = """
format = 2
title = "Quarters"
table = { name = "demo", kind = "records", counts = "person" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }, { name = "block", column = "block" }]
attribute = [{ name = "quarters", values = ["home", "prison"] }]
query = [{ name = "quarters", attributes = ["quarters"], levels = ["block"], rho = 1 }]

[[constraints.bounds]]
level = "block"
attributes = ["quarters"]
where = { quarters = "prison" }
lower = "prisons"
"""
PLACES = pandas.DataFrame(
    {"area": ["b", "a", "a"], "block": ["1", "2", "1"], "prisons": [3.0, np.nan, 2.0], "beds": [9, 4, 4]}
)


def constraints_of(spec_text, places=PLACES):
    spec = parse_spec(spec_text)
    return build_constraints(spec, build_cells(spec, read_tree(spec, places)))


def test_every_place_has_the_limit_of_its_own_row(tmp_path):
    PLACES.to_csv(tmp_path / "places.csv", index=False)
    whole = PLACES.astype({"prisons": "Int64"})
    whole.to_parquet(tmp_path / "places.parquet")
    whole.to_csv(tmp_path / "whole.csv", index=False)
    files = (
        "places.parquet",
        "whole.csv",
        "places.csv",
    )  # the last has 3.0, which is a whole number as text too
    for source in (PLACES, whole, *(tmp_path / name for name in files)):
        constraints = constraints_of(SPEC, source)
        lower, upper = constraints.bound_values(constraints.bounds[0])
        assert lower.tolist() == [-np.inf, 2, -np.inf, -np.inf, -np.inf, 3]
        assert (upper == np.inf).all()
    PLACES.assign(prisons=[3.5, np.nan, 2.0]).to_csv(tmp_path / "halves.csv", index=False)
    with pytest.raises(DataError, match="'prisons' in row 1 holds text that is not a whole number"):
        constraints_of(SPEC, tmp_path / "halves.csv")
    assert violations(constraints, np.array([0, 2, 5, 0, 9, 2])) == ["bound at b/1, quarters=prison"]
    assert not violations(constraints, np.array([0, 2, 5, 0, 0, 3]))


def test_a_level_above_the_last_takes_a_column_that_is_constant_within_its_places():
    above = SPEC.replace('level = "block"\n', 'level = "area"\n')
    constraints = constraints_of(above.replace('"prisons"', '"beds"'))
    assert constraints.bound_values(constraints.bounds[0])[0].tolist() == [-np.inf, 4, -np.inf, 9]
    with pytest.raises(DataError, match="'prisons' gives two limits for the area 'a'"):
        constraints_of(above)


def test_the_rows_of_parent_pointers_have_limits_of_their_own():
    pointers = SPEC.replace(
        'level = [{ name = "all" }, { name = "area", column = "area" }, { name = "block", column = "block" }]',
        'level = [{ name = "all" }, { name = "area" }, { name = "block" }]\nparents = { id = "id", parent = "up" }',
    )
    rows = pandas.DataFrame(
        {"id": ["a2", "b", "a1", "a", "us"], "up": ["a", "us", "a", "us", ""], "prisons": [2, 7, 1, 3, 9]}
    )
    both = pointers + '[[constraints.bounds]]\nlevel = "area"\nlower = "prisons"\n'
    by_block, by_area = (constraints_of(both, rows).bounds[i].lower for i in (0, 1))
    assert by_block.tolist() == [1, 1, 2, 2, 7, 7]  # b has no blocks and stands for itself
    assert by_area.tolist() == [3, 7]


def test_limits_survive_files_branches_and_digests(tmp_path):
    spec = parse_spec(SPEC)
    tree = read_tree(spec, PLACES)
    write_places(tmp_path / "places.parquet", build_cells(spec, tree))
    assert open_table(tmp_path / "places.parquet").select(["block@limit prisons"])[
        "block@limit prisons"
    ].tolist() == [2, None, 3]
    again = read_places(tmp_path / "places.parquet", spec)
    assert again.limits[2]["prisons"].tolist() == tree.limits[2]["prisons"].tolist() == [2, -1, 3]
    assert tree.branch(1, 1, 2, 2).limits[1]["prisons"].tolist() == [3]
    other = read_tree(spec, PLACES.assign(prisons=[3, 0, 2]))
    assert tree.digest == again.digest != other.digest


def test_limits_below_and_above_may_both_be_columns():
    both = SPEC + 'upper = "beds"\n'
    constraints = constraints_of(both)
    lower, upper = constraints.bound_values(constraints.bounds[0])
    assert (lower[1::2].tolist(), upper[1::2].tolist()) == ([2, -np.inf, 3], [4, 4, 9])
    with pytest.raises(InfeasibleError, match="exceeds its upper limit at 'a/1'"):
        constraints_of(both, PLACES.assign(beds=[3, 1, 1]))
    with pytest.raises(InfeasibleError, match="exceeds its upper limit at 'b/1'"):
        constraints_of(SPEC + "upper = 2\n")


WRONG = [
    ("negative", PLACES.assign(prisons=[1, -2, 0]), "'prisons' in row 2 holds a negative number"),
    ("fraction", PLACES.assign(prisons=[1, 2, 0.5]), "'prisons' in row 3 holds a fraction"),
    (
        "boolean",
        PLACES.assign(prisons=[True, False, True]),
        "'prisons' in row 1, row 2 and row 3 holds a boolean",
    ),
    ("text", PLACES.assign(prisons=["1", "two", "0"]), "'prisons' in row 2 holds text"),
    ("no column", PLACES.drop(columns="prisons"), "no column 'prisons'"),
    (
        "twice",
        pandas.concat([PLACES, PLACES.assign(prisons=7)]),
        "lists block 'a/1' more than once",
    ),
]


@pytest.mark.parametrize(("places", "message"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong_limits_are_refused_in_words(places, message):
    with pytest.raises(DataError, match=message):
        constraints_of(SPEC, places)


def test_limits_come_from_a_list_of_places_alone():
    counts = SPEC.replace('kind = "records"', 'kind = "counts", count = "n", keys = "public"')
    with pytest.raises(SpecError, match="the column 'prisons' of the public list of places: write keys"):
        parse_spec(counts)
    spec = parse_spec(SPEC)
    bare = Tree.from_columns(["all", "area", "block"], [{}, {"area": ["a"]}, {"block": ["1"]}])
    with pytest.raises(DataError, match="names the column 'prisons'"):
        build_constraints(spec, build_cells(spec, bare))
