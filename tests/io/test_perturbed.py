# ruff: noqa: E501
"""Published tables: long or wide, CSV or xlsx, codes, one perturbation counted once; and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest

import trueup as tu
from tests.command import run
from trueup.errors import DataError, InfeasibleError, PrivacyError, SpecError, TrueupError
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import load_perturbed, parse_perturbed, read_transitions
from trueup.model.spec import parse_spec
from trueup.noise.perturbed import CellKey, CountInterval, RandomRounding, ShownCounts

EXAMPLES = Path(__file__).parents[2] / "examples" / "perturbed"
HEAD = """
format = 1
title = "Districts"
table = { name = "demo", counts = "person" }
level = [{ name = "all" }, { name = "district", column = "district" }]
attribute = [{ name = "sex", values = ["f", "m"] }]
"""
LONG = """
[[published]]
name = "by sex"
level = "district"
attributes = ["sex"]
count = "n"
total = "T"
law = { name = "random-rounding", base = 3 }
codes = { "*" = "1-4", ".." = "unknown" }
"""
TOTALS = """
[[published]]
name = "totals"
level = "district"
count = "n"
law = { name = "random-rounding", base = 3 }
"""
WIDE = """
[[published]]
name = "wide"
level = "district"
cell = [{ count = "f", where = { sex = "f" } }, { count = "m", where = { sex = "m" } }, { count = "all" }]
law = { name = "cell-key", maximum = 2, change_variance = "1" }
"""


def rows(*values, districts=("a", "b"), sexes=("f", "m")):
    """A long table of these values, districts by sexes."""
    keys = [(d, s) for d in districts for s in sexes]
    return pandas.DataFrame(
        {"district": [d for d, _ in keys], "sex": [s for _, s in keys], "n": [str(v) for v in values]}
    )


def totals(*values, districts=("a", "b")):
    """A table of totals."""
    return pandas.DataFrame({"district": list(districts), "n": [str(v) for v in values]})


def wide(f, m, every, districts=("a", "b")):
    """A wide table."""
    return pandas.DataFrame({"district": list(districts), "f": f, "m": m, "all": every})


def read(text, *tables):
    """Read tables by a spec in TOML."""
    return read_perturbed(parse_perturbed(HEAD + text), list(tables))


def test_a_long_table_has_values_codes_and_totals():
    read_ = read(LONG, rows("3", "*", "9", "", "..", "0", sexes=("f", "m", "T")).replace("", "6"))
    found = {
        (str(h.margin), h.law, tuple(h.groups if h.groups is not None else ())): v.tolist()
        for h, v in zip(read_.headers, read_.values)
    }
    assert found[("district x sex", CountInterval(1, 4), (1,))] == [2]
    assert found[("district x sex", ShownCounts(RandomRounding(3), ((1, 4),)), (0, 2))] == [3, 6]
    assert found[("district", ShownCounts(RandomRounding(3), ((1, 4),)), (1,))] == [0]
    assert found[("district", RandomRounding(3), (0,))] == [9]


def test_wide_and_long_tables_say_the_same():
    one = read(WIDE, wide([3, 0], [4, 6], [8, 6]))
    assert [str(h.margin) for h in one.headers] == ["district x sex", "district"]
    assert [v.tolist() for v in one.values] == [[3, 4, 0, 6], [8, 6]]


def test_a_workbook_with_rows_above_its_header_is_read(tmp_path):
    from openpyxl import Workbook

    book = Workbook()
    book.active.append(["Table 1: persons"])
    for row in (["district", "f", "m", "all"], ["a", 3, 4, 8], ["b", 0, "..", 6.0]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    text = WIDE + 'codes = { ".." = "unknown" }\nskip = 1\n'
    found = read(text, tmp_path / "t.xlsx")
    assert [v.tolist() for v in found.values] == [[3, 4, 0], [8, 6]]


def test_cells_with_the_same_records_are_counted_once():
    regions = HEAD.replace(
        '{ name = "district"', '{ name = "region", column = "region" }, { name = "district"'
    )
    law = 'law = { name = "cell-key", maximum = 2, change_variance = "1" }\n'
    text = regions + "".join(
        f'[[published]]\nname = "{name}"\nlevel = "{level}"\ncount = "n"\n{law}'
        for name, level in (("districts", "district"), ("regions", "region"), ("again", "district"))
    )
    districts = pandas.DataFrame({"region": list("xxy"), "district": list("abc"), "n": [5, 6, 9]})
    regional = pandas.DataFrame({"region": list("xy"), "n": [12, 9]})
    found = read_perturbed(parse_perturbed(text), [districts, regional, districts])
    assert [v.tolist() for v in found.values] == [[5, 6, 9], [12]]
    with pytest.raises(DataError, match=r"same records.*one key"):
        read_perturbed(parse_perturbed(text), [districts, regional.assign(n=[12, 8]), districts])


def test_roundings_apart_are_two_measurements_and_under_one_key_one():
    twice = (TOTALS + TOTALS.replace("totals", "again")).replace("attribute", "")
    bare = HEAD.replace('attribute = [{ name = "sex", values = ["f", "m"] }]', "")
    apart = read_perturbed(parse_perturbed(bare + twice), [totals(3, 6), totals(6, 6)])
    assert len(apart.headers) == 2
    keyed = bare + twice.replace("base = 3 }", 'base = 3 }\nkey = "k"')
    once = read_perturbed(parse_perturbed(keyed), [totals(3, 6), totals(3, 6)])
    assert len(once.headers) == 1
    with pytest.raises(DataError, match="under one key"):
        read_perturbed(parse_perturbed(keyed), [totals(3, 6), totals(6, 6)])


def test_ptables_are_read(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("i;j;p\n0;0;1\n1;0;0,5\n1;2;0,5\n2;1;0,25\n2;2;0,5\n2;3;0,25\n")
    law = CellKey(transitions=read_transitions(path))
    assert np.exp(law.log_mass([9, 10, 11], 10)).tolist() == [0.25, 0.5, 0.25]
    spec = tmp_path / "s.toml"
    given = 'law = { name = "cell-key", file = "p.csv" }'
    spec.write_text(
        HEAD + WIDE.replace('law = { name = "cell-key", maximum = 2, change_variance = "1" }', given)
    )
    assert load_perturbed(spec).published[0].rule.law == law


@pytest.mark.parametrize(
    ("rest", "word"),
    [
        ("9999999999,9999999999,1", "i = 9999999999"),
        ("1,9999999999,1", "j = 9999999999"),
        ("-1,0,1", "i = -1"),
        ("2,2,1", "no row for the count 1"),
        ("0,0,1", "twice"),
        ("1,one,1", "not a number"),
        ('1,1,"' + "1" * 140_000 + '"', "no CSV"),
    ],
)
def test_tables_of_transitions_that_cannot_be_are_named(tmp_path, rest, word):
    path = tmp_path / "p.csv"
    path.write_text(f"\ufeffi,j,p\n0,0,1\n{rest}\n")
    with pytest.raises(SpecError, match=word):
        read_transitions(path)


def test_the_spec_of_published_tables_measures_nothing_and_says_so():
    with pytest.raises(SpecError, match="nothing can be measured"):
        parse_spec((EXAMPLES / "districts.toml").read_text())


@pytest.mark.thorough
def test_shipped_examples_have_posteriors():
    read_ = read_perturbed(EXAMPLES / "districts.toml", [EXAMPLES / "totals.csv", EXAMPLES / "by-sex.csv"])
    posterior = tu.infer(read_, draws=50)
    assert posterior.drawn.independent
    low, high = read_.headers[0].law.bounds(read_.values[0])
    mean = posterior.summary("district")["mean"]
    assert ((low <= mean) & (mean <= high)).all()
    released = tu.reconcile(read_)
    assert all(released.checks.values())


def test_values_that_no_true_table_explains_are_named_and_no_others():
    read_ = read(TOTALS + LONG, totals(30, 9), rows(3, 6, 3, 6))
    with pytest.raises(InfeasibleError) as caught:
        tu.infer(read_)
    said = str(caught.value)
    assert "these 3 published values" in said
    assert "smallest" in said
    assert "'a' published as 30" in said
    assert "'b" not in said


def _law(entry):
    return WIDE.replace('{ name = "cell-key", maximum = 2, change_variance = "1" }', entry)


GOOD = wide([3, 0], [4, 6], [8, 6])
BAD = [
    ("an unknown code", DataError, "'x'", LONG, [rows("x", 3, 3, 3)]),
    ("an empty cell", DataError, "no value", LONG, [rows("", 3, 3, 3)]),
    ("a fraction", DataError, "3.5", LONG, [rows("3.5", 3, 3, 3)]),
    ("a value that is no multiple of the base", DataError, "base 3", LONG, [rows(4, 3, 3, 3)]),
    ("a negative value", DataError, "-3", LONG, [rows(-3, 3, 3, 3)]),
    ("a value that the cell key's law forbids", DataError, "for no count", _law('{ name = "cell-key", maximum = 3, change_variance = "2", smallest = 3 }'), [wide([1, 0], [4, 6], [8, 6])]),
    ("transition rows that do not sum to 1", SpecError, "sum to 0.9", _law('{ name = "cell-key", transitions = [{ "0" = 1 }, { "0" = 0.9 }] }'), [GOOD]),
    ("transitions that lead below zero", SpecError, "lead to the negative count -1", _law('{ name = "cell-key", transitions = [{ "0" = 1 }, { "-2" = 0.5, "2" = 0.5 }] }'), [GOOD]),
    ("a transition probability above 1", SpecError, "probability", _law('{ name = "cell-key", transitions = [{ "0" = 2 }] }'), [GOOD]),
    ("both transitions and a variance", SpecError, "both", _law('{ name = "cell-key", maximum = 2, change_variance = "1", transitions = [{ "0" = 1 }] }'), [GOOD]),
    ("a variance beyond the largest change", SpecError, "variance", _law('{ name = "cell-key", maximum = 2, change_variance = "5" }'), [GOOD]),
    ("a base given twice", SpecError, "TOML", LONG.replace("base = 3", "base = 3, base = 5"), [rows(3, 3, 3, 3)]),
    ("a base of 1", SpecError, "base", LONG.replace("base = 3", "base = 1"), [rows(3, 3, 3, 3)]),
    ("no base", SpecError, "'base'", LONG.replace(", base = 3", ""), [rows(3, 3, 3, 3)]),
    ("an unknown law", SpecError, "no law", LONG.replace("random-rounding", "rnd-rounding"), [rows(3, 3, 3, 3)]),
    ("a law without a name", SpecError, "no name", LONG.replace('name = "random-rounding", ', ""), [rows(3, 3, 3, 3)]),
    ("a cell that is missing", DataError, "lacks 'b, sex=m'", LONG, [rows(3, 3, 3, 3).iloc[:3]]),
    ("a missing total", DataError, "lacks 'b'", TOTALS + LONG, [totals(6, districts=("a",)), rows(3, 3, 3, 3)]),
    ("a cell listed twice", DataError, "2 times", LONG, [pandas.concat([rows(3, 3, 3, 3), rows(3, 3, 3, 3).iloc[:1]])]),
    ("a place that another table lacks", DataError, "'z, sex=f'", TOTALS + LONG, [totals(6, 6, 3, districts="abz"), rows(3, 3, 3, 3)]),
    ("an unknown value of an attribute", DataError, "'x' for 'sex'", LONG, [rows(3, 3, 3, 3, sexes=("f", "x"))]),
    ("a missing column", DataError, "column 'n'", LONG, [rows(3, 3, 3, 3).drop(columns="n")]),
    ("a table too few", DataError, "1 table is given", TOTALS + LONG, [rows(3, 3, 3, 3)]),
    ("no table of the last level", DataError, "last level", TOTALS.replace('"district"\ncount', '"all"\ncount'), [totals(6, districts=("a",))]),
    ("a code that cannot be read", SpecError, "cannot be read", LONG.replace('"1-4"', '"few"'), [rows(3, 3, 3, 3)]),
    ("a code that is a count", SpecError, "is read as a count", LONG.replace('"*" = ', '"7" = '), [rows(3, 3, 3, 3)]),
    ("an interval upside down", SpecError, "cannot be read", LONG.replace('"1-4"', '"4-1"'), [rows(3, 3, 3, 3)]),
    ("both layouts at once", SpecError, "either", WIDE + 'count = "n"\n', [GOOD]),
    ("different values under one key", DataError, "under one key", (TOTALS + TOTALS.replace("totals", "again")).replace("base = 3 }", 'base = 3 }\nkey = "k"'), [totals(3, 6), totals(6, 6)]),
    ("a misspelt parameter of a law", SpecError, "needed: 'base'", LONG.replace("base = 3", "bas = 3"), [rows(3, 3, 3, 3)]),
    ("two cells from one column", SpecError, "two cells", WIDE.replace('count = "m"', 'count = "f"'), [GOOD]),
    ("one cell from two columns", DataError, "2 times", WIDE.replace('sex = "m"', 'sex = "f"'), [GOOD]),
    ("an unknown attribute", SpecError, "unknown attribute", WIDE.replace('{ sex = "f"', '{ gender = "f"'), [GOOD]),
    ("a table without a row", DataError, "no row", LONG, [rows(3, 3, 3, 3).iloc[:0]]),
    ("two tables of one name", SpecError, "declared twice", LONG + LONG, [rows(3, 3, 3, 3)] * 2),
    ("an unknown prior", SpecError, "there is no prior 'bayes'", "[infer]\nprior = 'bayes'\n" + LONG, [rows(3, 3, 3, 3)]),
    ("transitions that change no count", SpecError, 'write law = { name = "exact" }', _law('{ name = "cell-key", transitions = [{ "0" = 1 }, { "0" = 1 }] }'), [GOOD]),
    ("small counts up to no multiple", SpecError, "a multiple of 3", _law('{ name = "random-rounding", base = 3, below = 4 }'), [GOOD]),
    ("more repeated rows than there are", SpecError, "repeat", _law('{ name = "cell-key", transitions = [{ "0" = 1 }], repeat = 9 }'), [GOOD]),
    ("a fraction sign", DataError, "text", LONG, [rows("\u00bd", 3, 3, 3)]),
    ("a sheet of what is no workbook", DataError, "not a workbook", LONG + 'sheet = "A"', [rows(3, 3, 3, 3)]),
    ("a law that reads no value", SpecError, "only describes codes", _law('{ name = "interval", low = 1, high = 3 }'), [GOOD]),
    ("invariants, which no table shows", SpecError, "law is 'exact'", LONG + '[constraints]\ninvariants = [{ level = "district" }]', [rows(3, 3, 3, 3)]),
    ("a table of transitions that is not there", SpecError, "p.csv': No such file", _law('{ name = "cell-key", file = "p.csv" }'), [GOOD]),
    ("an unknown level", SpecError, "unknown level", LONG.replace('"district"\natt', '"town"\natt'), [rows(3, 3, 3, 3)]),
]  # fmt: skip


def test_a_dataframe_with_columns_of_the_same_name_is_named():
    with pytest.raises(DataError, match="columns of the same name"):
        read(LONG, rows(3, 3, 3, 3).rename(columns={"sex": "n"}))


@pytest.mark.parametrize(("what", "kind", "word", "text", "tables"), BAD, ids=[b[0] for b in BAD])
def test_bad_input_is_named(what, kind, word, text, tables):
    with pytest.raises(TrueupError) as caught:
        read(text, *tables)
    assert type(caught.value) is kind
    assert word in str(caught.value)


@pytest.mark.thorough
def test_bad_input_leaves_nothing_half_written(tmp_path):
    """By the command: an error of one line, no output folder, and no other file than those that were given."""
    for k, (what, _, word, text, tables) in enumerate(BAD):
        folder = tmp_path / str(k)
        folder.mkdir()
        spec = folder / "spec.toml"
        spec.write_text(HEAD + text)
        files = [folder / f"t{n}.csv" for n in range(len(tables))]
        for table, file in zip(tables, files):
            table.to_csv(file, index=False)
        given = {spec, *files}
        options = [option for file in files for option in ("--table", str(file))]
        result = run("infer", "--perturbed", str(spec), *options, "--out", str(folder / "out"))
        said = " ".join((result.stdout + result.stderr).split())
        assert result.returncode != 0, what
        assert word in said, what
        assert "Traceback" not in said, what
        assert set(folder.iterdir()) == given, what


NOISE = """
format = 2
title = "T"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", levels = ["all", "area"], epsilon = 1, noise = "NAME" }]
"""


@pytest.mark.parametrize("name", ["random-rounding", "cell-key", "rounded", "suppressed", "interval"])
def test_nothing_is_measured_with_a_perturbation_and_no_ledger_prices_one(name):
    from trueup.model.guarantee import NO_GUARANTEE

    spec = parse_spec(NOISE.replace("NAME", name))
    with pytest.raises(PrivacyError, match="limits no privacy loss"):
        tu.measure(spec, pandas.DataFrame({"area": ["a", "b"], "n": [3, 4]}))
    with pytest.raises(PrivacyError, match="no privacy loss"):
        NO_GUARANTEE.price("add-remove")
