# ruff: noqa: E501
"""Published tables as offices write them, each read to its values; and remedies that messages print, followed to the letter."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import trueup as tu
from trueup.errors import DataError, SpecError, TrueupError
from trueup.inferring.tree_exact import TreeExact
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed
from trueup.model.prior import NegativeBinomial

pandas = pytest.importorskip("pandas")

HEAD = """format = 1
title = "T"
table = { name = "t", counts = "case" }
level = [{ name = "all" }, { name = "area", column = "area" }]
"""
SEX = 'attribute = [{ name = "sex", values = ["f", "m"] }]\n'
COUNT = '[[published]]\nname = "t"\nlevel = "area"\ncount = "n"\nlaw = { name = "exact" }\n'
WIDE = """[[published]]
name = "t"
level = "area"
cell = [{ count = "F", where = { sex = "f" } }, { count = "M", where = { sex = "m" } }, { count = "All" }]
law = { name = "exact" }
"""
LONG = (
    '[[published]]\nname = "t"\nlevel = "area"\nattributes = ["sex"]\ncount = "n"\nlaw = { name = "exact" }\n'
)


def book(path, rows, sheet="Data", more=()):
    from openpyxl import Workbook

    made = Workbook()
    made.create_sheet("Notes", 0).append(["About this workbook"])
    del made["Sheet"]
    page = made.create_sheet(sheet)
    for row in rows:
        page.append(row)
    for area in more:
        page.merge_cells(area)
    made.save(path)


def values(measured):
    """What was read, by the label of its group: a number, or what a code says."""
    found = {}
    for header, held in zip(measured.headers, measured.values):
        groups = range(measured.cells.size(header.margin)) if header.groups is None else header.groups
        for group, value in zip(groups, held.tolist()):
            label = measured.cells.margin_label(header.margin, int(group))
            low, high = (int(end) for end in header.law.bounds(value))
            found[label] = value if header.law.numeric or low == high else (low, high)
    return found


def read(tmp_path, spec, text, name="t.csv", encoding="utf-8"):
    (tmp_path / name).write_text(text, encoding=encoding)
    return values(read_perturbed(parse_perturbed(spec), [tmp_path / name]))


TWO = {"a": 12, "b": 1234}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "titles above and a source below": (HEAD + COUNT, "Cases, 2024\n\n\narea,n\na,12\nb,1234\n\nSource: register\n", TWO),
    "a source right below": (HEAD + COUNT, "area,n\na,12\nb,1234\nSource: register\n", TWO),
    "a source with commas": (HEAD + COUNT, "area,n\na,12\nb,1234\n\nSource: register, 2024\n", TWO),
    "notes padded with commas": (HEAD + COUNT, "Table 1,\n,\narea,n\na,12\nb,1234\n,\nNote: provisional,\n(1) revised,\n", TWO),
    "a copyright below": (HEAD + COUNT, "area,n\na,12\nb,1234\n\n© Office 2024\n", TWO),
    "more columns than are asked for": (HEAD + COUNT, "Title\nyear,area,name,n,flag\n2024,a,Ash,12,\n2024,b,Birch,1234,p\n", TWO),
    "semicolons and a title": (HEAD + COUNT, "Fälle, nach Gebiet\narea;n\na;12\nb;1.234\nQuelle: Amt\n", TWO),
    "English thousands": (HEAD + COUNT, 'area,n\na,12\nb,"1,234"\n', TWO),
    "continental thousands": (HEAD + COUNT, "area;n\na;12\nb;1.234\n", TWO),
    "thousands by a space": (HEAD + COUNT, "area;n\na;12\nb;1 234\n", TWO),
    "thousands by a space that does not break": (HEAD + COUNT, "area;n\na;12\nb;1\u202f234\n", TWO),
    "thousands by an apostrophe": (HEAD + COUNT, "area;n\na;12\nb;1'234\n", TWO),
    "millions": (HEAD + COUNT, 'area,n\na,"1,234,567"\nb,"2,000"\n', {"a": 1234567, "b": 2000}),
    "whole floats": (HEAD + COUNT, "area,n\na,12.0\nb,1234.0\n", TWO),
    "whole decimals with commas": (HEAD + COUNT, "area;n\na;12,0\nb;1234,00\n", TWO),
    "powers of ten": (HEAD + COUNT, "area,n\na,12\nb,1e+05\n", {"a": 12, "b": 100000}),
    "declared decimal sign": (HEAD + COUNT + 'decimal = ","\n', "area;n\na;12,000\nb;1.234\n", TWO),
    "a UTF-16 file": (HEAD + COUNT, "area\tn\na\t12\nb\t1234\n", TWO),
    "a header of two rows": (HEAD + SEX + WIDE, "area,Sex,,All\n,F,M,\na,5,7,12\nb,2,3,5\n", {"a, sex=f": 5, "a, sex=m": 7, "b, sex=f": 2, "b, sex=m": 3, "a": 12, "b": 5}),
    "names joined over two rows": (
        HEAD + SEX + WIDE.replace('"F"', '"2024 / F"').replace('"M"', '"2024 / M"'),
        "area,2023,,2024,,All\n,F,M,F,M,\na,1,1,5,7,12\nb,1,1,2,3,5\n",
        {"a, sex=f": 5, "a, sex=m": 7, "b, sex=f": 2, "b, sex=m": 3, "a": 12, "b": 5},
    ),
    "columns by position": (
        HEAD.replace('column = "area"', 'column = "column 1"') + COUNT.replace('"n"', '"column 3"') + "header = 0\n",
        "a,x,12\nb,y,1234\n",
        TWO,
    ),
    "rows to skip": (HEAD + COUNT + "skip = 2\n", "area,n\nold,header\narea,n\na,12\nb,1234\n", TWO),
    "rows below that are named": (HEAD + COUNT + "below = 1\n", "area,n\na,12\nb,1234\nz,99\n", TWO),
    "a total row by a blank": (HEAD + COUNT, "name,area,n\nAsh,a,12\nBirch,b,1234\nTotal,,1246\n", {**TWO, "all": 1246}),
    "a total row by a label": (HEAD + COUNT + 'total = "Total"\n', "area,n\nTotal,1246\na,12\nb,1234\n", {**TWO, "all": 1246}),
    "totals of an attribute": (
        HEAD + SEX + LONG + 'total = "T"\n',
        "area,sex,n\na,f,5\na,m,7\na,T,12\nb,f,2\nb,m,3\nb,T,5\n",
        {"a, sex=f": 5, "a, sex=m": 7, "b, sex=f": 2, "b, sex=m": 3, "a": 12, "b": 5},
    ),
    "all margins": (
        HEAD + SEX + LONG + 'total = { area = "Whole", sex = "Both" }\n',
        "area,sex,n\na,f,5\na,m,7\na,Both,12\nb,f,2\nb,m,3\nb,Both,5\nWhole,f,7\nWhole,m,10\nWhole,Both,17\n",
        {"a, sex=f": 5, "a, sex=m": 7, "b, sex=f": 2, "b, sex=m": 3, "a": 12, "b": 5, "all, sex=f": 7, "all, sex=m": 10, "all": 17},
    ),
    "all levels of a code": (
        HEAD.replace('{ name = "area", column = "area" }', '{ name = "big", column = "area", prefix = 3 }, { name = "area", column = "area" }') + COUNT,
        "area,n\nXY,100\nXY1,60\nXY2,40\nXY11,10\nXY12,50\nXY21,40\n",
        {"all": 100, "XY1": 60, "XY2": 40, "XY11": 10, "XY12": 50, "XY21": 40},
    ),
    "a place without parts": (
        HEAD.replace('{ name = "area", column = "area" }', '{ name = "big", column = "area", prefix = 3 }, { name = "area", column = "area", prefix = 4 }')
        + COUNT + "ragged = true\n",
        "area,n\nXY1,60\nXY3,7\nXY11,10\nXY12,50\n",
        {"XY1": 60, "XY11": 10, "XY12": 50, "XY3": 7},
    ),
    "keys that go on below": (
        HEAD.replace('{ name = "area"', '{ name = "region", column = "region" }, { name = "area"') + COUNT + "fill = true\n",
        "region,area,n\nN,a,1\n,b,2\nS,c,3\n,d,4\n",
        {"N/a": 1, "N/b": 2, "S/c": 3, "S/d": 4},
    ),
    "fractions": (HEAD + COUNT.replace('"exact"', '"gaussian", sigma2 = "2"'), "area,n\na,1.5\nb,-0.25\n", {"a": 1.5, "b": -0.25}),
    "fractions with commas": (HEAD + COUNT.replace('"exact"', '"gaussian", sigma2 = "2"'), "area;n\na;1,5\nb;-0,25\n", {"a": 1.5, "b": -0.25}),
    "a minus sign": (HEAD + COUNT.replace('"exact"', '"discrete-gaussian", sigma2 = "2"'), "area,n\na,−3\nb,4\n", {"a": -3, "b": 4}),
    "a column by another name": (HEAD + COUNT + 'columns = { "area" = "Gebiet" }\n', "Gebiet,n\na,12\nb,1234\n", TWO),
    "a dash for a published zero": (HEAD + COUNT + 'codes = { "–" = "0" }\n', "area,n\na,–\nb,7\n", {"a": 0, "b": 7}),
    "below a threshold beside zeros": (HEAD + COUNT, "area,n\na,<5\nb,0\nc,9\n", {"a": (1, 4), "b": 0, "c": 9}),
    "below a threshold without zeros": (HEAD + COUNT, "area,n\na,<5\nb,7\n", {"a": (0, 4), "b": 7}),
    "below the law's threshold": (HEAD + COUNT.replace('"exact"', '"suppressed", threshold = 5, least = 1'), "area,n\na,<5\nb,7\n", {"a": (1, 4), "b": 7}),
    "what the law hides": (HEAD + COUNT.replace('"exact"', '"suppressed", threshold = 5') + 'codes = { "c" = "hidden" }\n', "area,n\na,c\nb,7\n", {"a": (1, 4), "b": 7}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_table_is_read_as_it_comes(name, tmp_path):
    spec, text, right = CASES[name]
    found = read(tmp_path, spec, text, encoding="utf-16" if "UTF-16" in name else "utf-8")
    assert {key: value for key, value in found.items() if key in right} == right
    assert set(found) == set(right)


def test_a_sheet_is_read_by_its_name_with_merged_cells_and_notes(tmp_path):
    rows = [["Persons", None, None, None], [None], ["area", "Sex", None, "All"], [None, "F", "M", None]]
    rows += [["a", 5, 7, "1,012"], ["b", 2.0, "3", 5], [None], ["Source: office"]]
    book(tmp_path / "t.xlsx", rows, more=("B3:C3",))
    spec = parse_perturbed(HEAD + SEX + WIDE + 'sheet = "Data"\n')
    found = values(read_perturbed(spec, [tmp_path / "t.xlsx"]))
    assert found == {"a, sex=f": 5, "a, sex=m": 7, "b, sex=f": 2, "b, sex=m": 3, "a": 1012, "b": 5}


def packed(path, *rows: str):
    """Pack lines of a CSV file by zstd."""
    import duckdb

    lines = ", ".join(f"({number}, '{row}')" for number, row in enumerate(rows))
    text = f"SELECT line FROM (VALUES {lines}) t(number, line) ORDER BY number"
    duckdb.sql(
        f"COPY ({text}) TO '{path}' (FORMAT csv, HEADER false, QUOTE '', DELIMITER '\t', COMPRESSION zstd)"
    )
    return path


def test_a_file_packed_by_zstd_is_read_if_its_header_is_its_first_row(tmp_path):
    path = packed(tmp_path / "t.csv.zst", "area,n", "a,12", "b,1234")
    assert values(read_perturbed(parse_perturbed(HEAD + COUNT), [path])) == TWO
    with pytest.raises(DataError, match="is compressed, and its header is not in row 1"):
        read_perturbed(parse_perturbed(HEAD + COUNT + "skip = 1\n"), [path])


def test_a_header_that_is_repeated_in_a_packed_file_is_left_out(tmp_path):
    path = packed(tmp_path / "t.csv.zst", "area,n", "a,12", "area,n", "b,1234")
    assert values(read_perturbed(parse_perturbed(HEAD + COUNT), [path])) == TWO


def test_numbers_of_columns_in_a_packed_file_are_refused_and_no_place(tmp_path):
    path = packed(tmp_path / "t.csv.zst", "area,n,rate", "1,2,3", "a,12,7", "b,1234,8")
    with pytest.raises(DataError, match="is compressed, and its header is not in row 1"):
        read_perturbed(parse_perturbed(HEAD + COUNT), [path])


def test_several_entries_read_one_file_under_their_own_laws(tmp_path):
    (tmp_path / "t.csv").write_text("area,All,F,M\na,12,5,10\nb,3,0,5\n")
    ages = (
        WIDE.replace('"exact"', '"random-rounding", base = 5').replace(', { count = "All" }', "")
        + 'file = "t.csv"\n'
    )
    total = COUNT.replace('"n"', '"All"').replace('"t"', '"total"') + 'file = "t.csv"\n'
    found = read_perturbed(parse_perturbed(HEAD + SEX + total + ages), [tmp_path / "t.csv"])
    assert [(h.law.name, v.tolist()) for h, v in zip(found.headers, found.values)] == [
        ("exact", [12, 3]),
        ("random-rounding", [5, 10, 0, 5]),
    ]


def test_variances_stand_in_their_rows_and_0_is_exact(tmp_path):
    spec = HEAD + COUNT.replace('"exact"', '"discrete-gaussian"') + 'variance = "v"\n'
    (tmp_path / "t.csv").write_text("area,n,v\na,12,0\nb,7,4\nc,9,4.0\nd,-1,9\n")
    found = read_perturbed(parse_perturbed(spec), [tmp_path / "t.csv"])
    assert {(h.law.name, float(h.law.variance)): v.tolist() for h, v in zip(found.headers, found.values)} == {
        ("exact", 0.0): [12], ("discrete-gaussian", 4.0): [7, 9], ("discrete-gaussian", 9.0): [-1],
    }  # fmt: skip
    (tmp_path / "t.csv").write_text("area,n,v\na,12,-1\n")
    with pytest.raises(DataError, match="variance '-1' for 'a'"):
        read_perturbed(parse_perturbed(spec), [tmp_path / "t.csv"])


@pytest.mark.thorough
def test_noisy_counts_that_are_shown_from_a_threshold_hold_as_often_as_they_claim(rng):
    """`<60` beside noise speaks of the noisy count: intervals of hidden counts hold; as a range of the true count they do not."""
    true = rng.poisson(rng.gamma(4, 16, 600))
    p = 1 - np.exp(-1 / 20)
    noisy = true + rng.geometric(p, 600) - rng.geometric(p, 600)
    table = pandas.DataFrame(
        {"area": [f"a{k:03}" for k in range(600)], "n": [str(y) if y >= 60 else "<60" for y in noisy]}
    )
    held = {}
    for name, codes in (("published", ""), ("true count", 'codes = { "<60" = "0-59" }\n')):
        law = '"discrete-laplace", epsilon = "1/20"'
        measured = read_perturbed(parse_perturbed(HEAD + COUNT.replace('"exact"', law) + codes), [table])
        found = tu.infer(measured, TreeExact(prior=NegativeBinomial(64, 4), tier="exact"), draws=1).summary(
            "area"
        )
        inside = (found["low"] <= true) & (true <= found["high"])
        held[name] = inside[noisy < 60].mean() - found["mass"][noisy < 60].mean()
    assert abs(held["published"]) < 0.05
    assert held["true count"] < held["published"] - 0.02


@pytest.mark.thorough
def test_hundreds_of_noisy_counts_below_a_threshold_hold_and_are_no_conflict(rng):
    """Two kinds of parts fit what a threshold cuts apart, and are wrong; shown values are large by choice, not by conflict."""
    true = rng.poisson(rng.gamma(4, 16, 300))
    p = 1 - np.exp(-1 / 20)
    noisy = true + rng.geometric(p, 300) - rng.geometric(p, 300)
    table = pandas.DataFrame(
        {"area": [f"a{k:03}" for k in range(300)], "n": [str(y) if y >= 60 else "<60" for y in noisy]}
    )
    law = '"discrete-laplace", epsilon = "1/20"'
    measured = read_perturbed(parse_perturbed(HEAD + COUNT.replace('"exact"', law)), [table])
    posterior = tu.infer(measured, draws=1000)
    found, total = posterior.summary("area"), posterior.summary("all")
    inside = (found["low"] <= true) & (true <= found["high"])
    assert inside.mean() > np.mean(found["mass"]) - 0.05
    assert np.std(found["mean"][noisy < 60]) < 2  # the same code says the same
    assert abs(total["mean"][0] - true.sum()) < 0.05 * true.sum()
    assert not posterior.conflicts
    assert tu.infer(measured, TreeExact(prior=NegativeBinomial(120, 40), tier="exact"), draws=200).conflicts


def remedies(text):
    """Lines of an entry that a message tells to write."""
    return re.findall(
        r"(codes = \{.*?\}|fill = true|ragged = true|below = 1|unlisted = \"\w+\"|total = \{.*?\}|only = \{.*?\}|file = \"[^\"]+\")",
        text,
    )


FOLLOWED = {
    "an unknown code": (HEAD + COUNT, "area,n\na,x\nb,3\n", 0, {"b": 3}),
    "an unknown code beside others": (HEAD + COUNT + 'codes = { "*" = "1-2" }\n', "area,n\na,x\nb,3\nc,*\n", 0, {"b": 3, "c": (1, 2)}),
    "an empty value": (HEAD + COUNT, "area,n\na,\nb,3\n", 0, {"b": 3}),
    "a last row that is no place": (HEAD + COUNT, "area,n\na,1\nb,3\nchecked,\n", 1, {"a": 1, "b": 3}),
    "a total by another label": (HEAD + SEX + LONG, "area,sex,n\na,f,1\na,m,2\na,sum,3\n", 0, {"a, sex=f": 1, "a, sex=m": 2, "a": 3}),
    "a sum of some values": (HEAD + SEX + LONG, "area,sex,n\na,f,1\na,m,2\na,both,3\n", 1, {"a, sex=f": 1, "a, sex=m": 2}),
    "another sum beside the total": (HEAD + SEX + LONG + 'total = { sex = "T" }\n', "area,sex,n\na,f,1\na,m,2\na,T,3\na,sum,3\n", 0, {"a, sex=f": 1, "a, sex=m": 2, "a": 3}),
    "a cell without a row": (HEAD + SEX + LONG, "area,sex,n\na,f,1\na,m,2\nb,f,3\n", 1, {"a, sex=f": 1, "a, sex=m": 2, "b, sex=f": 3, "b, sex=m": 0}),
    "a cell without a row, not known": (HEAD + SEX + LONG, "area,sex,n\na,f,1\na,m,2\nb,f,3\n", 0, {"a, sex=f": 1, "a, sex=m": 2, "b, sex=f": 3}),
    "blank keys": (
        HEAD.replace('{ name = "area"', '{ name = "region", column = "region" }, { name = "area"') + COUNT,
        "region,area,n\nN,a,1\n,b,2\n",
        0,
        {"N/a": 1, "N/b": 2},
    ),
    "a place in none above": (
        HEAD.replace('{ name = "area"', '{ name = "region", column = "region" }, { name = "area"') + COUNT,
        "region,area,n\nN,a,1\n,b,2\n",
        1,
        {"N/a": 1, "b/b": 2},
    ),
    "a whole among places above": (
        HEAD.replace('{ name = "area"', '{ name = "region", column = "region" }, { name = "area"') + COUNT,
        "region,area,n\nX,,3\nN,a,1\nS,b,2\n",
        0,
        {"all": 3, "N/a": 1, "S/b": 2},
    ),
    "a place above without parts": (
        HEAD.replace('{ name = "area"', '{ name = "region", column = "region" }, { name = "area"') + COUNT,
        "region,area,n\nX,,3\nN,a,1\nS,b,2\n",
        1,
        {"X/X": 3, "N/a": 1, "S/b": 2},
    ),
    "a short code": (
        HEAD.replace('column = "area" }', 'column = "area", prefix = 3 }') + COUNT, "area,n\nab,1\nxyz,2\n", 0, {"ab": 1, "xyz": 2},
    ),
    "a code for fewer counts than the law hides": (
        HEAD + COUNT.replace('"exact"', '"suppressed", threshold = 9'), "area,n\na,<5\nb,12\n", 0, {"a": (1, 8), "b": 12},
    ),
    "a code for values that the law never gives": (
        HEAD + COUNT.replace('"exact"', '"rounded", base = 5') + 'codes = { "c" = "published 1-4" }\n', "area,n\na,c\nb,10\n", 0, {"b": 10},
    ),
    "a code that some values contradict": (
        HEAD + COUNT.replace('"exact"', '"rounded", base = 5') + 'codes = { "*" = "1-7" }\n', "area,n\na,*\nb,5\nc,0\n", 0, {"a": (1, 7), "b": 5, "c": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_printed_remedy_followed_to_the_letter_leads_to_the_right_result(name, tmp_path):
    spec, text, which, right = FOLLOWED[name]
    (tmp_path / "t.csv").write_text(text)
    try:
        said = " ".join(read_perturbed(parse_perturbed(spec), [tmp_path / "t.csv"]).spec.noted)  # pyright: ignore
    except TrueupError as error:
        said = str(error)
    line = remedies(said)[which]
    lines = [one for one in spec.splitlines() if not one.startswith(line.split(" = ")[0] + " = ")]
    followed = parse_perturbed("\n".join([*lines, line]))
    found = read_perturbed(followed, [tmp_path / "t.csv"])
    assert values(found) == right
    assert not followed.noted


def test_one_file_for_several_entries_is_named_by_the_remedy(tmp_path):
    (tmp_path / "t.csv").write_text("area,n,k\na,1,2\n")
    text = COUNT + COUNT.replace('"t"', '"u"').replace('"n"', '"k"')
    with pytest.raises(DataError) as caught:
        read_perturbed(parse_perturbed(HEAD + text), [tmp_path / "t.csv"])
    [line] = remedies(str(caught.value))
    spec = HEAD + "\n".join(f"[[published]]{part}{line}\n" for part in text.split("[[published]]")[1:])
    assert len(read_perturbed(parse_perturbed(spec), [tmp_path / "t.csv"]).headers) == 2


@pytest.mark.parametrize(("sign", "right"), [(".", {"a": 1, "b": 2}), (",", {"a": 1000, "b": 2000})])
def test_a_number_that_can_be_read_in_two_ways_is_refused_until_one_is_declared(sign, right, tmp_path):
    (tmp_path / "t.csv").write_text("area;n\na;1.000\nb;2.000\n")
    with pytest.raises(DataError) as caught:
        read_perturbed(parse_perturbed(HEAD + COUNT), [tmp_path / "t.csv"])
    assert f'decimal = "{sign}"' in str(caught.value)
    assert read(tmp_path, HEAD + COUNT + f'decimal = "{sign}"\n', "area;n\na;1.000\nb;2.000\n") == right


def test_a_text_of_digits_is_no_code_and_no_remedy_says_so():
    with pytest.raises(SpecError, match="is read as a count"):
        parse_perturbed(HEAD + COUNT + 'codes = { "1,234" = "1-4" }\n')
    table = pandas.DataFrame({"area": ["a", "b"], "n": ["3.5", "2"]})
    with pytest.raises(DataError, match="not whole") as caught:
        read_perturbed(parse_perturbed(HEAD + COUNT), [table])
    assert "codes" not in str(caught.value)


def test_values_that_contradict_a_code_are_named_and_all_else_is_read_as_it_says():
    """Counts from 1 to 7 are hidden, others rounded to 5: a published 0 is a true 0, and a 5 cannot be."""
    spec = HEAD + COUNT.replace('"exact"', '"rounded", base = 5') + 'codes = { "*" = "1-7" }\n'
    table = pandas.DataFrame({"area": list("xyzw"), "n": ["*", "0", "10", "5"]})
    posterior = tu.infer(read_perturbed(parse_perturbed(spec), [table]), draws=1)
    found = posterior.summary("area")
    ends = {str(a): (int(b), int(c)) for a, b, c in zip(found["label"], found["low"], found["high"])}
    assert ends["y"] == (0, 0)
    assert ends["w"] == (3, 7)
    assert "shows 5 for 'w'" in posterior.promise
    assert "some 1-7" in posterior.promise


@pytest.mark.parametrize(
    ("rest", "word"),
    [
        ('codes = { "x" = "published 5+" }', "no upper end"),
        ('codes = { "x" = "hidden" }', "hides nothing"),
        ('thousands = "."\ndecimal = "."', "between thousands and as the decimal sign"),
        ('variance = "v"', "column of variances"),
        ('columns = { "other" = "x" }', "renames the column 'other'"),
        ('codes = { "x" = "5-1" }', "cannot be read"),
    ],
)
def test_entries_that_contradict_themselves_are_refused(rest, word):
    with pytest.raises(TrueupError, match=word):
        read_perturbed(parse_perturbed(HEAD + COUNT + rest), [pandas.DataFrame({"area": ["a"], "n": ["1"]})])


def test_laws_one_after_the_other_need_one_law_of_values():
    two = COUNT.replace(
        '{ name = "exact" }', '[{ name = "rounded", base = 5 }, { name = "rounded", base = 10 }]'
    )
    with pytest.raises(SpecError, match="applies the law 'rounded' after 'rounded'"):
        parse_perturbed(HEAD + two)
    after = COUNT.replace(
        '{ name = "exact" }',
        '[{ name = "rounded", base = 5 }, { name = "suppressed", threshold = 10, least = 5 }]',
    )
    table = pandas.DataFrame({"area": ["a", "b"], "n": ["c", "10"]})
    found = values(read_perturbed(parse_perturbed(HEAD + after + 'codes = { "c" = "hidden" }'), [table]))
    assert found == {"a": (3, 7), "b": 10}


HOSTILE = [
    "", "\x00" * 50, "title\narea,n\n" + "a" * 200_000 + ",1\n", "area,n\na," + "9" * 100 + "\n", "area,n\na,1e999\n", "area,n\na,1e-99\n",
    "area,n\na,NaN\n", "area,n\na,inf\n", "area,area,n\na,b,1\n", '"' * 99, "area;n\na,1\n", ",".join("x" * 20_000) + "\n",
    "area,n\n=cmd(),1\n" * 2, "area,n\na,Ⅷ\n", "\ufeff\n", "area,n\na,1.2.3\n", "area,n\na,1,2,3\n",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_files_are_refused_in_words(text, tmp_path):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(TrueupError) as caught:
        read_perturbed(parse_perturbed(HEAD + COUNT), [tmp_path / "t.csv"])
    assert len(str(caught.value)) < 2000


@pytest.mark.thorough
def test_a_packed_workbook_that_unpacks_to_gigabytes_is_refused(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "t.xlsx", "w", zipfile.ZIP_DEFLATED) as made:
        for k in range(11):
            made.writestr(f"xl/{k}.xml", b"0" * (100 << 20))
    with pytest.raises(DataError, match="expands to more"):
        read_perturbed(parse_perturbed(HEAD + COUNT), [tmp_path / "t.xlsx"])
