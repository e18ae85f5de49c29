# ruff: noqa: E501
"""Files of many shapes are drafted so that their values are read as they stand there, or what they say is left undecided."""

from __future__ import annotations

import pytest

from tests.command import run
from tests.io.test_published_as_they_come import values
from trueup.files import Encoded
from trueup.io.published.drafting import draft_published
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed


def wide(text, *columns, sep=","):
    """The values of a wide table by place and column, spaces and commas grouping thousands."""
    lines = [line.split(sep) for line in text.splitlines()]
    return {
        (row[0], column): int("".join(c for c in row[lines[0].index(column)] if c.isdigit()))
        for row in lines[1:]
        for column in columns
    }


FRENCH = "Commune;Hommes;Femmes\nArles;34\u00a0715;74\u00a0275\nBrest;29\u00a0090;47\u00a0220\nCalais;32\u00a0605;16\u00a0845\n"
NARROW = "code\tname\t15-24\t25-64\n101\tNorth\t510\t3\u202f360\n102\tSouth\t1\u202f590\t980\n103\tWest\t2\u202f990\t1\u202f700\n"
LEVELS = "level,region,province,persons\ncountry,,,111\nregion,N,,63\nprovince,N,N1,30\nprovince,N,N2,33\nregion,S,,48\nprovince,S,S1,21\nprovince,S,S2,27\n"
RAGGED = "geo,n\nDE,150\nDE1,78\nDE11,54\nDE12,24\nDE2,63\nDE21,63\nDE3,9\n"
GERMAN = "Kreis;Geschlecht;Anzahl;Varianz\nAach;m;1.717,6;25,0\nAach;w;5.665,7;0\nCalw;m;13.252,1;25,0\nCalw;w;2.256,9;25,0\n"
CZECH = "Obec;Rozptyl šumu;muži;ženy\nBrno;25;17,5;-3,2\nTelč;0;20;8\nZlín;25;5,1;6,9\n"
CODES = "SA2,Ethnicity,Count\n100,a,39\n100,b,54\n200,a,60\n200,b,24\n"
FLAGS = "geo,sex,OBS_VALUE,OBS_FLAG\nFR1,F,120,\nFR1,M,:,c\nFR1,T,255,b\nFR2,F,125,\nFR2,M,:,c\nFR2,T,260,\n"
SPARSE = "hospital,year,ward,patients,note\n Royal ,2023,ICU,50,\n Royal ,2023,ENT,41,a\nSt Mary,2023,ICU,12,\nSt Mary,2023,ENT,13,\n"
STATIONS = "station,weekday,weekend\ns1,53.962,168.735\ns2,148.675,43.913\ns3,75.163,178.547\n"
SWISS = "Kanton;a\nBern;70'235\nUri;15'115\nZug;26'127\n"
POINTS = "Stadt;n\nAach;53.962\nBonn;8.675\nCalw;75.163\n"
WHOLE = "area,2022,\n,Full-time,Part-time\nEngland,14995,640\nBath,4615,275\nKent,6955,120\nYork,3425,245\n"
MIXED = "Area,Age,Male,Female\nA,0-14,12,15\nA,15+,30,33\nA,All ages,42,48\nB,0-14,18,21\nB,15+,36,39\nB,All ages,54,60\n"
FILLED = "region,area,n\nNorth,a,12\n,b,30\nSouth,c,15\n,d,18\n"
SHARES = "Local authority,Claims,%\nBath,120,40.0\nKent,90,30.0\nYork,90,30.0\n"
BRACKETS = "Service,Low,High\nA,[c],12\nB,10,[x]\nC,41,52\n"
POINTED = "id,in,n\n1,,69\n2,1,39\n3,1,27\n4,2,3\n5,2,36\n6,3,27\n"

FILES = {
    "no-break spaces": (FRENCH, wide(FRENCH, "Hommes", "Femmes", sep=";")),
    "narrow no-break spaces": (NARROW, wide(NARROW, "15-24", "25-64", sep="\t")),
    "apostrophes": (SWISS, {("Bern",): 70235, ("Uri",): 15115, ("Zug",): 26127}),
    "points that group thousands": (POINTS, {("Aach",): 53962, ("Bonn",): 8675, ("Calw",): 75163}),
    "a column of levels": (LEVELS, {(): 111, ("N",): 63, ("N/N1",): 30, ("N/N2",): 33, ("S",): 48, ("S/S1",): 21, ("S/S2",): 27}),
    "places without parts": (RAGGED, {(): 150, ("DE1",): 78, ("DE11",): 54, ("DE12",): 24, ("DE2",): 63, ("DE21",): 63, ("DE3",): 9}),
    "variances with a decimal comma": (GERMAN, {("Aach", "m"): 1717.6, ("Aach", "w"): 5665.7, ("Calw", "m"): 13252.1, ("Calw", "w"): 2256.9}),
    "one column of variances beside two of values": (CZECH, {("Brno", "muži"): 17.5, ("Brno", "ženy"): -3.2, ("Telč", "muži"): 20, ("Telč", "ženy"): 8, ("Zlín", "muži"): 5.1, ("Zlín", "ženy"): 6.9}),
    "codes of digits": (CODES, {("100", "a"): 39, ("100", "b"): 54, ("200", "a"): 60, ("200", "b"): 24}),
    "flags": (FLAGS, {("FR1", "F"): 120, ("FR1",): 255, ("FR2", "F"): 125, ("FR2",): 260}),
    "few marks": (SPARSE, {("Royal", "ICU"): 50, ("Royal", "ENT"): 41, ("St Mary", "ICU"): 12, ("St Mary", "ENT"): 13}),
    "fractions of three digits": (STATIONS, {("s1", "weekday"): 53.962, ("s1", "weekend"): 168.735, ("s2", "weekday"): 148.675, ("s2", "weekend"): 43.913, ("s3", "weekday"): 75.163, ("s3", "weekend"): 178.547}),
    "a place that is the whole": (WHOLE, {("Full-time",): 14995, ("Part-time",): 640} | {(a, b): v for a, pair in {"Bath": (4615, 275), "Kent": (6955, 120), "York": (3425, 245)}.items() for b, v in zip(("Full-time", "Part-time"), pair)}),
    "an attribute in rows and one in columns": (MIXED, {(a, *([] if age == "All ages" else [age]), sex): int(n) for a, age, *each in (line.split(",") for line in MIXED.splitlines()[1:]) for sex, n in zip(("Male", "Female"), each)}),
    "keys above that are blank": (FILLED, {("North/a",): 12, ("North/b",): 30, ("South/c",): 15, ("South/d",): 18}),
    "shares beside counts": (SHARES, {("Bath",): 120, ("Kent",): 90, ("York",): 90}),
    "codes in brackets": (BRACKETS, {("A", "High"): 12, ("B", "Low"): 10, ("C", "Low"): 41, ("C", "High"): 52}),
    "parent pointers": (POINTED, {("1",): 69, ("2",): 39, ("3",): 27, ("4",): 3, ("5",): 36, ("6",): 27}),
}  # fmt: skip


def plain(label):
    """A label without the root's name and the names of attributes."""
    place, *cell = label.split(", ")
    return (*([] if place == "all" else [place]), *(each.split("=", 1)[1] for each in cell))


@pytest.mark.parametrize("name", FILES)
def test_the_draft_reads_the_values(name, tmp_path):
    text, right = FILES[name]
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    draft = draft_published([tmp_path / "t.csv"])
    measured = read_perturbed(parse_perturbed(draft.text), [tmp_path / "t.csv"], draft.geography)
    assert {plain(label): value for label, value in values(measured).items()} == right, draft.text


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("places without parts", "DE3"),
        ("a place that is the whole", "'England' is near the sum"),
        ("fractions of three digits", "whether '53.962' is 53.962 or 53962"),
        ("points that group thousands", "whether '53.962' is 53962 or 53.962"),
        ("flags", "what ':' says (2 times)"),
        ("a column of levels", "column 'level' says of which level"),
    ],
)
def test_what_the_file_does_not_tell_is_said(name, word, tmp_path):
    (tmp_path / "t.csv").write_text(FILES[name][0], encoding="utf-8")
    assert any(word in text for text in draft_published([tmp_path / "t.csv"]).undecided)


def test_rows_that_sum_the_rows_below_are_places_above_them(tmp_path):
    rows = ["North,63,60", "a,33,30", "b,30,30", "South,33,30", "c,15,18", "d,18,12"]
    (tmp_path / "t.csv").write_text("\n".join(["Area,Males,Females", *rows]))
    pointed = [("a", "North"), ("b", "North"), ("c", "South"), ("d", "South")]
    assert set(pointed) < set(draft_published([tmp_path / "t.csv"]).places)
    (tmp_path / "t.csv").write_text("\n".join(["Area,Males,Females", *rows[1:]]))
    assert not draft_published([tmp_path / "t.csv"]).places


ROUNDED = "area,sex,n\na,f,20\na,m,25\na,Total,{}\nb,f,10\nb,m,15\nb,Total,30\n"


@pytest.mark.parametrize(("total", "law"), [(45, "rounded"), (35, "random-rounding")])
def test_sums_tell_rounding_at_random_from_rounding_to_the_nearest(total, law, tmp_path):
    (tmp_path / "t.csv").write_text(ROUNDED.format(total))
    draft = draft_published([tmp_path / "t.csv"])
    assert parse_perturbed(draft.text).published[0].rule.law.name == law
    assert any("exclude rounding to the nearest" in text for text in draft.undecided) == (law != "rounded")


def test_parts_that_do_not_sum_are_not_drafted_as_exact_without_a_word(tmp_path):
    (tmp_path / "t.csv").write_text("area,sex,n\na,f,21\na,m,26\na,Total,46\n")
    assert any("values are not exact" in text for text in draft_published([tmp_path / "t.csv"]).undecided)


def test_counts_that_nothing_bounds_are_named_by_infer_and_reconcile(tmp_path):
    file, spec = tmp_path / "t.csv", tmp_path / "s.toml"
    file.write_text("area,n\na,x\nb,12\nc,x\nd,7\n")
    assert run("new", spec, "--published", file).returncode == 0
    given = ("--perturbed", spec, "--table", file, "--out", tmp_path / "out")
    inferred, reconciled = run("infer", *given), run("reconcile", *given)
    assert "nothing limits the count of 'a'" in inferred.stderr
    assert "no table gives a number or an upper limit for 'a', nor for 1 more" in reconciled.stderr
    spec.write_text(spec.read_text().replace('"x" = "unknown"', '"x" = "1-4"'))
    assert run("reconcile", *given).returncode == 0


def test_places_that_are_counted_through_are_no_codes_of_levels(tmp_path):
    (tmp_path / "t.csv").write_text("area,n\n" + "".join(f"{k},{7 * k}\n" for k in range(1, 100)))
    assert [level.name for level in parse_perturbed(draft_published([tmp_path / "t.csv"]).text).levels] == [
        "all",
        "area",
    ]


def test_a_city_as_large_as_all_others_is_not_taken_for_their_whole_where_a_column_says_otherwise(tmp_path):
    (tmp_path / "t.csv").write_text("town,m,f\nA,60,90\nB,20,10\nC,20,10\nD,20,10\n")
    assert "total" not in draft_published([tmp_path / "t.csv"]).text


def test_a_total_that_is_not_rounded_has_an_entry_of_its_own(tmp_path):
    (tmp_path / "t.csv").write_text("village,all,young,old\nu,36,10,25\nv,44,20,25\nw,27,15,10\nx,61,30,35\n")
    spec = parse_perturbed(draft_published([tmp_path / "t.csv"]).text)
    assert [part.rule.law.name for part in spec.published] == ["exact", "rounded"]
    found = values(read_perturbed(spec, [tmp_path / "t.csv"]))
    assert found["u"] == 36
    assert found["x, age=old"] == 35


def test_few_values_have_the_base_of_a_table_beside_them(tmp_path):
    (tmp_path / "all.csv").write_text("ward,persons\nw1,48\nw2,36\nw3,27\nw4,33\n")
    (tmp_path / "sex.csv").write_text(
        "ward,sex,persons\n"
        + "".join(f"w{k},{s},{3 * k + 9 * (s == 'f')}\n" for k in (1, 2, 3, 4) for s in "fm")
    )
    spec = parse_perturbed(draft_published([tmp_path / "all.csv", tmp_path / "sex.csv"]).text)
    assert [part.rule.law.name for part in spec.published] == ["random-rounding", "random-rounding"]


def test_a_file_in_another_encoding_is_drafted_and_inferred(tmp_path):
    file, spec = tmp_path / "t.csv", tmp_path / "s.toml"
    file.write_bytes("município,n\nÉvora,12\nFaro,30\nSão João,<5\n".encode("latin-1"))
    done = run("new", spec, "--published", file)
    assert done.returncode == 0, done.stderr
    assert "the encoding, latin-1 as the letters suggest" in done.stdout
    assert "--encoding latin-1 --out NEW" in done.stdout
    assert (
        values(read_perturbed(parse_perturbed(spec.read_text()), [Encoded(str(file), "latin-1")]))["Évora"]
        == 12
    )


@pytest.mark.parametrize("option", [("--levels", "town"), ("--epsilon", "1"), ("--attribute", "sex=f,m")])
def test_options_for_a_table_of_ones_own_are_refused_beside_published_ones(option, tmp_path):
    (tmp_path / "t.csv").write_text(SWISS)
    done = run("new", tmp_path / "s.toml", "--published", tmp_path / "t.csv", *option)
    assert done.returncode == 2
    assert f"leave out {option[0]}" in done.stderr


PROVINCES = "area,female,male,all\nNorth,54,57,111\nSouth,48,51,99\nEast,60,54,114\nWest,51,57,108\nCentre,48,54,105\n"


@pytest.mark.parametrize(
    ("row", "is_total", "said"),
    [
        ("Country,270,264,537", True, "'Country' is near the sum"),  # six roundings to base 3 part 264 from 273
        ("Region 6,270,264,537", True, "'Region 6' is near the sum"),
        ("Country,261,2640,537", True, "not everywhere (male: 2,640 beside a sum of 273), and is taken for their whole"),
        ("Region 6,261,27,53", False, "not everywhere (all: 53 beside a sum of 537), and is taken for one beside them"),
        ("Country,54,57,111", False, "taken for one beside them"),
        ("Region 6,54,57,111", False, None),
        ("Region 6,300,312,612", False, None),  # more than roundings explain
    ],
)  # fmt: skip
def test_the_whole_among_places_is_told_by_its_numbers_within_their_rounding(row, is_total, said, tmp_path):
    file = tmp_path / "t.csv"
    file.write_text(f"{PROVINCES}{row}\n")
    draft = draft_published([file])
    name = row.split(",", maxsplit=1)[0]
    about = [text for text in draft.undecided if f"'{name}'" in text]
    assert ("total = " in draft.text) == is_total
    assert len(about) == (said is not None)
    assert said is None or said in about[0]
    measured = read_perturbed(parse_perturbed(draft.text), [file])
    assert len(measured.cells.tree.labels("area")) == 6 - is_total


def test_a_whole_beside_regions_with_towns_is_told_by_its_numbers(tmp_path):
    file = tmp_path / "t.csv"
    parts = {"North": (54, 57), "South": (60, 39), "East": (54, 60), "West": (111, 102)}
    rows = [
        row
        for name, (a, b) in parts.items()
        for row in (f"{name},,{a + b}", f"{name},{name} a,{a}", f"{name},{name} b,{b}")
    ]
    file.write_text("\n".join(["region,town,n", "Country,,528", *rows]))  # their sum is 537
    draft = draft_published([file])
    assert any("'Country' is near the sum" in text for text in draft.undecided)
    measured = read_perturbed(parse_perturbed(draft.text), [file])
    assert measured.cells.tree.sizes == (1, 4, 8)
    assert values(measured)["all"] == 528


def test_a_whole_that_is_read_as_one_more_place_is_named_by_infer_and_reconcile(tmp_path):
    file, spec = tmp_path / "t.csv", tmp_path / "s.toml"
    file.write_text(f"{PROVINCES}Country,270,264,537\n")
    text = draft_published([file]).text
    total = 'total = { "area" = "Country" }\n'
    assert total in text
    for written, warned in ((text, False), (text.replace(total, ""), True)):
        noted = read_perturbed(parse_perturbed(written), [file]).spec.noted
        assert any("'Country' is about the sum of the 5 other places" in each for each in noted) == warned
    spec.write_text(text.replace(total, ""))
    done = run("reconcile", "--perturbed", spec, "--table", file, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "'Country' is about the sum" in done.stdout
