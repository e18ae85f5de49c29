# ruff: noqa: E501
"""Kinds of files that statistical offices publish: what the draft reads of each, and what it says of its codes."""

from __future__ import annotations

import openpyxl
import pytest
from openpyxl.styles import Alignment

from tests.command import run
from tests.io.test_drafted_values import plain
from tests.io.test_published_as_they_come import values
from trueup.errors import DataError
from trueup.inferring import infer
from trueup.io.published.drafting import draft_published
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

UNITS = "Bevölkerung\n;2022;2022;2022\n;männlich;weiblich;Insgesamt\n;Anzahl;Anzahl;Anzahl\n01;512;498;1.010\n02;-;.;684\n03;70;81;151\nZeichen: - nichts vorhanden; . unbekannt\n"
TSV = "freq,sex,geo\\TIME_PERIOD\t2021 \t2022 \nA,F,XY1\t150 \t151 p\nA,M,XY1\t140 \t146 e\nA,F,XY2\t90 \t: c\nA,M,XY2\t95 \t97 p\n"
SERIES = "REF,GEO,UID,Sex,FACTOR,VECTOR,VALUE,STATUS\n" + "".join(f"2021,{g},{u},{s},0,v{k},{v},{m}\n" for k, (g, u, s, v, m) in enumerate([("Ontario", "X35", "Both", 205, ""), ("Ontario", "X35", "Males", 100, ""), ("Ontario", "X35", "Females", 105, ""), ("Quebec", "X24", "Both", 104, ""), ("Quebec", "X24", "Males", "", "x"), ("Quebec", "X24", "Females", 54, "")]))  # fmt: skip
CODED = "geo,SEXCODE,Sesso,Value\nA1,1,maschi,40\nA1,2,femmine,44\nA1,9,totale,84\nA2,1,maschi,31\nA2,2,femmine,30\nA2,9,totale,61\n"
NUMBERED = "Sex,Area,n\n" + "".join(f"{s},0{a}0,{n}\n" for a, pair in enumerate([(12, 9), (33, 36), (0, 3)], 1) for s, n in [(1, pair[0]), (2, pair[1]), (9, sum(pair))])  # fmt: skip
NESTED = "ENT,NOM_ENT,MUN,NOM_MUN,n\n01,Aguas,000,Total entidad,180\n01,Aguas,001,Aguas,100\n01,Aguas,002,Asientos,50\n01,Aguas,003,Calvillo,30\n02,Baja,000,Total entidad,90\n02,Baja,001,Ensenada,40\n02,Baja,002,Mexicali,50\n"
NATIONAL = "geographic_level,region_code,region_name,la_code,la_name,who,n\nNational,,,,,Total,61\nNational,,,,,Boys,30\nNational,,,,,Girls,31\nRegional,E1,North,,,Total,61\nRegional,E1,North,,,Boys,30\nRegional,E1,North,,,Girls,31\n" + "".join(f"Local,E1,North,{a},{b},{w},{n}\n" for a, b, row in [("L1", "Hart", (40, 20, 20)), ("L2", "Midd", (21, 10, 11))] for w, n in zip(("Total", "Boys", "Girls"), row))  # fmt: skip
SHARES = "Area,Smokers,,Others,,All\n,No.,%,No.,%,No.\nAsh,120,20.0,480,80.0,600\nBirch,45,15.0,255,85.0,300\nCedar,<5,-,31,-,34\n"
TOTALS = "Area,Men,,,Women,,\n,Full-time,Part-time,Total,Full-time,Part-time,Total\nA01,120,33,153,99,60,159\nA02,18,6,24,c,c,7\nc = confidential (fewer than 5),,,,,,\n"
MARKS = "Ward,Visits,Clients\nAsh,123r,1 204\nBirch,45 (b),877p\nCedar,9¹,64*\nDale,- nil,.. not available\n"
OF_WHICH = "LAU;Arbeitslose;darunter Frauen\n101;21;8\n102;54;27\n103;*;*\n104;48;0\n* Zahlenwerte kleiner 3 werden nicht ausgewiesen\n"
STACKED = "Males\nDistrict,Young,Old\nNorth,120,55\nSouth,98,61\n\nFemales\nDistrict,Young,Old\nNorth,110,80\nSouth,101,77\n"
PANELS = "By district\nDistrict,Young,Old\nMales,,\nNorth,120,55\nSouth,98,61\nFemales,,\nNorth,110,80\nSouth,101,77\nSource: office,,\n"
BY_SEX = {(place, age, sex): n for sex, rows in {"Males": (120, 55, 98, 61), "Females": (110, 80, 101, 77)}.items() for (place, age), n in zip([(p, a) for p in ("North", "South") for a in ("Young", "Old")], rows)}  # fmt: skip
GUARDED = (
    'code,name,n\n"=""001""",North,15\n"=""002""",South,*\n"=""003""",West,8\nCounts 1 to 7 are shown as *\n'
)
LABELLED = "GEO,N_01,M_01,N_02\nGeography,Estimate!!Total:,Margin of Error!!Total:,Estimate!!Total:!!Male:\nX1,818,20,401\nX2,953,21,498\nX3,264,19,133\n"

RATES = "Code,Sex,Value,Lower CI,Upper CI,Count,Denominator\nE1,Female,312.4,280.1,344.8,140,44800\nE1,Male,290.1,260.0,321.2,127,43100\nE2,Female,401.0,375.0,430.0,285,71100\nE2,Male,,,,*,70200\n"
MONTHS = "Kommune,2020M01,2020M02\n0301 Oslo,1203,1190\n1103 Stavanger,402,411\n"
SAME_NAME = (
    "Prefecture,Municipality,n\nHokkaido,Sapporo,1973\n,Hakodate,251\nAomori,Aomori,275\n,Hirosaki,168\n"
)
SEXES_BELOW = "Area,Sex,0-14,15+\nNorth,Males,12,31\n,Females,9,33\nSouth,Males,6,24\n,Females,3,27\n"
NO_SUM = "place,kids,adults,seniors\np1,3,12,7\np2,0,9,4\np3,1,15,9\n"

YEARS = "area,2020,2021,2022\nNorth,12,15,13\nSouth,c,9,22\nEast,30,31,:\nWest,8,6,7\nc = confidential (fewer than 5)\n"

GRID_YEARS = "Area,2024,,2023,\n,Boys,Girls,Boys,Girls\nAsh,12,14,9,8\nBirch,31,29,30,28\nElm,7,5,6,4\n"
COUNTRY = "region,town,n\nLand X,,101\nNorth,Ash,20\nNorth,Birch,31\nSouth,Cedar,40\nSouth,Dale,10\n"
TWICE = COUNTRY.replace("Land X,,", "Land X,Land X,")
UNPLACED = "region,town,n\n,,64\nVale,,24\nMoor,,29\nVale,Ash,20\nVale,Beech,<5\nMoor,Cedar,26\nMoor,Dale,<5\n,Elm,11\n"
FILLED_TOTAL = "region,sex,n\nTotal,f,60\n,m,41\nNorth,f,33\n,m,20\nSouth,f,27\n,m,21\n"
LEGEND = "geo\tvalue\nXY1\t40\nXY11\tc\nXY12\t38\nXY2\t51\nXY21\t30\nXY22\t21\n\nc\tconfidential: 1 to 4\n"
TOWNS = {("North/Ash",): 20, ("North/Birch",): 31, ("South/Cedar",): 40, ("South/Dale",): 10, (): 101}

LAND_CODE = ";;2022;2022;2022\n;;männlich;weiblich;Insgesamt\nDG;Land;1211;1262;2473\n01;Nord;401;432;833\n01001;A;151;161;312\n01002;B;250;271;521\n02;Stadt;810;830;1640\n02000;Stadt, kreisfrei;810;830;1640\n"
NAMED_BELOW = '"Sex","Male","Female","Total",\n"SA2",\n"Braddon",34,33,67,\n"Campbell",32,31,63,\n"Reid",0,3,3,\n"Total",66,67,133,\n\n"Data Source: census"\n\n"INFO","Cells in this table have been randomly adjusted"\n'

FILES = {
    "a code of the whole": (LAND_CODE, {(*place, *sex): n for place, row in {(): (1211, 1262, 2473), ("01",): (401, 432, 833), ("01001",): (151, 161, 312), ("01002",): (250, 271, 521), ("02",): (810, 830, 1640), ("02000",): (810, 830, 1640)}.items() for sex, n in zip((("männlich",), ("weiblich",), ()), row)}),
    "keys named below the header": (NAMED_BELOW, {("Braddon", "Male"): 34, ("Braddon", "Female"): 33, ("Braddon",): 67, ("Campbell", "Male"): 32, ("Campbell", "Female"): 31, ("Campbell",): 63, ("Reid", "Male"): 0, ("Reid", "Female"): 3, ("Reid",): 3, ("Male",): 66, ("Female",): 67, (): 133}),
    "sexes below years": (GRID_YEARS, {("Ash", "Boys"): 12, ("Ash", "Girls"): 14, ("Birch", "Boys"): 31, ("Birch", "Girls"): 29, ("Elm", "Boys"): 7, ("Elm", "Girls"): 5}),
    "a whole among regions": (COUNTRY, TOWNS),
    "a whole named twice": (TWICE, TOWNS),
    "a town in no region": (UNPLACED, {("Vale",): 24, ("Moor",): 29, ("Vale/Ash",): 20, ("Moor/Cedar",): 26, ("Elm/Elm",): 11, (): 64}),
    "a total that is filled down": (FILLED_TOTAL, {("f",): 60, ("m",): 41, ("North", "f"): 33, ("North", "m"): 20, ("South", "f"): 27, ("South", "m"): 21}),
    "a legend in two columns": (LEGEND, {("XY1",): 40, ("XY2",): 51, ("XY12",): 38, ("XY21",): 30, ("XY22",): 21}),
    "counts beside rates": (RATES, {("E1", "Female"): 140, ("E1", "Male"): 127, ("E2", "Female"): 285}),
    "months in columns": (MONTHS, {("0301 Oslo",): 1190, ("1103 Stavanger",): 411}),
    "a place named as the one above": (SAME_NAME, {("Hokkaido/Sapporo",): 1973, ("Hokkaido/Hakodate",): 251, ("Aomori/Aomori",): 275, ("Aomori/Hirosaki",): 168}),
    "sexes below a place": (SEXES_BELOW, {("North", "Males", "0-14"): 12, ("North", "Males", "15+"): 31, ("North", "Females", "0-14"): 9, ("North", "Females", "15+"): 33, ("South", "Males", "0-14"): 6, ("South", "Males", "15+"): 24, ("South", "Females", "0-14"): 3, ("South", "Females", "15+"): 27}),
    "small counts that are no sums": (NO_SUM, {(row[0], name): int(n) for row in (line.split(",") for line in NO_SUM.splitlines()[1:]) for name, n in zip(("kids", "adults", "seniors"), row[1:])}),
    "a row of units": (UNITS, {("01", "männlich"): 512, ("01", "weiblich"): 498, ("01",): 1010, ("02", "männlich"): 0, ("02",): 684, ("03", "männlich"): 70, ("03", "weiblich"): 81, ("03",): 151}),
    "keys joined in one cell": (TSV, {("XY1", "F"): 151, ("XY1", "M"): 146, ("XY2", "M"): 97}),
    "columns about the series": (SERIES, {("X35", "Males"): 100, ("X35", "Females"): 105, ("X35",): 205, ("X24", "Females"): 54, ("X24",): 104}),
    "codes beside labels": (CODED, {("A1", "1"): 40, ("A1", "2"): 44, ("A1",): 84, ("A2", "1"): 31, ("A2", "2"): 30, ("A2",): 61}),
    "a total by its number": (NUMBERED, {(f"0{a}0", *([s] if s != "9" else [])): n for a, pair in enumerate([(12, 9), (33, 36), (0, 3)], 1) for s, n in zip("129", (*pair, sum(pair)))}),
    "codes that begin anew": (NESTED, {("01",): 180, ("01/001",): 100, ("01/002",): 50, ("01/003",): 30, ("02",): 90, ("02/001",): 40, ("02/002",): 50}),
    "all levels with their name": (NATIONAL, {(*place, *w): n for place, row in {(): (61, 30, 31), ("E1",): (61, 30, 31), ("E1/L1",): (40, 20, 20), ("E1/L2",): (21, 10, 11)}.items() for w, n in zip(((), ("Boys",), ("Girls",)), row)}),
    "percentages between": (SHARES, {("Ash", "Smokers"): 120, ("Ash", "Others"): 480, ("Ash",): 600, ("Birch", "Smokers"): 45, ("Birch", "Others"): 255, ("Birch",): 300, ("Cedar", "Others"): 31, ("Cedar",): 34}),
    "a total in each group": (TOTALS, {("A01", "Men", "Full-time"): 120, ("A01", "Men", "Part-time"): 33, ("A01", "Men"): 153, ("A01", "Women", "Full-time"): 99, ("A01", "Women", "Part-time"): 60, ("A01", "Women"): 159, ("A02", "Men", "Full-time"): 18, ("A02", "Men", "Part-time"): 6, ("A02", "Men"): 24, ("A02", "Women"): 7}),
    "marks behind numbers": (MARKS, {("Ash", "Visits"): 123, ("Birch", "Visits"): 45, ("Cedar", "Visits"): 9, ("Dale", "Visits"): 0, ("Ash", "Clients"): 1204, ("Birch", "Clients"): 877, ("Cedar", "Clients"): 64}),
    "a part of the count beside it": (OF_WHICH, {("101",): 21, ("101", "darunter Frauen"): 8, ("102",): 54, ("102", "darunter Frauen"): 27, ("104",): 48, ("104", "darunter Frauen"): 0}),
    "columns of two school years": ("area,2022–2023,2023–2024\nAsh,3,4\nBay,5,9\nElm,8,7\n", {("Ash",): 4, ("Bay",): 9, ("Elm",): 7}),
    "codes of an earlier year": (YEARS, {("North",): 13, ("South",): 22, ("West",): 7}),
    "tables below each other": (STACKED, BY_SEX),
    "headings within a table": (PANELS, BY_SEX),
    "guarded codes": (GUARDED, {("001",): 15, ("003",): 8}),
    "labels below codes of columns": (LABELLED, {("X1",): 818, ("X1", "Male"): 401, ("X2",): 953, ("X2", "Male"): 498, ("X3",): 264, ("X3", "Male"): 133}),
}  # fmt: skip


INDENTED = {
    "blanks": "Area,n,m\nEngland and Wales,90,44\n  England,70,34\n    North,30,15\n    South,40,19\n  Wales,20,10\n    Cardiff,12,6\n    Swansea,8,4\n",
    "marks": "Gemeinde,n,m\n- Zug,53,26\n>> Bezirk A,33,16\n......01 Au,19,9\n......02 Ort,14,7\n>> Bezirk B,20,10\n......03 Elm,7,4\n......04 Ried,13,6\n",
    "no whole": "Region,n,m\nNorth,30,15\n  Ash,10,5\n  Birch,20,10\nSouth,44,21\n  Cedar,14,6\n  Dill,30,15\n",
    "a total above regions": "Area,n,m\nAll areas,74,36\nNorth,30,15\n  Ash,10,5\n  Birch,20,10\nSouth,44,21\n  Cedar,14,6\n  Dill,30,15\n",
    "a total below regions": "Area,n,m\nNorth,30,15\n  Ash,10,5\n  Birch,20,10\nSouth,44,21\n  Cedar,14,6\n  Dill,30,15\nTotal,74,36\n",
    "a country beside its regions": "Area,n,m\nFarland,95,46\nNorth,30,15\n  Ash,10,5\n  Birch,20,10\nSouth,44,21\n  Cedar,14,6\n  Dill,30,15\nWest,21,10\n  Elm,20,10\n  Fir,1,0\n",
}  # fmt: skip


def indented_sheet(file, text):
    """Write a table into a sheet whose cells are indented by their format, as spreadsheets do it."""
    book = openpyxl.Workbook()
    for line in text.splitlines():
        name, *numbers = line.split(",")
        book.active.append([name.strip(), *(int(x) if x.isdigit() else x for x in numbers)])
        cell = book.active.cell(book.active.max_row, 1)
        cell.alignment = Alignment(indent=(len(name) - len(name.lstrip())) // 2)
    book.save(file)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["csv", "xlsx"])
@pytest.mark.parametrize("name", INDENTED)
def test_indented_places_are_levels(name, kind, tmp_path):
    if name == "marks" and kind == "xlsx":
        return
    file, spec, depth = tmp_path / f"t.{kind}", tmp_path / "s.toml", 3
    file.write_text(INDENTED[name]) if kind == "csv" else indented_sheet(file, INDENTED[name])
    done = run("new", spec, "--published", file)
    assert done.returncode == 0, done.stderr
    places = tmp_path / "s-places.csv"
    assert f"--geography {places}" in done.stdout
    assert "refused" not in done.stdout
    measured = read_perturbed(parse_perturbed(spec.read_text()), [file], places)
    assert len(measured.cells.tree.levels) == depth
    rows = [line.strip().split(",") for line in INDENTED[name].splitlines()[1:]]
    assert {plain(label)[0]: value for label, value in values(measured).items() if label.endswith("=n")} == {
        row[0]: int(row[1]) for row in rows
    }
    if kind == "csv":
        given = ("--perturbed", spec, "--table", file, "--geography", places)
        assert run("infer", *given, "--out", tmp_path / "p").returncode == 0


def test_a_total_in_the_list_of_places_is_refused_with_two_remedies(tmp_path):
    table, spec, places = (tmp_path / name for name in ("t.csv", "s.toml", "p.csv"))
    table.write_text("place,n\nAll,7\nNorth,4\nSouth,3\n")
    places.write_text("place,in\nwhole,\nAll,whole\nNorth,whole\nSouth,whole\n")
    spec.write_text(
        'format = 1\ntitle = "t"\ntable = { name = "n", counts = "n" }\nparents = { id = "place", parent = "in" }\n'
        'level = [{ name = "whole" }, { name = "place" }]\n[[published]]\nname = "t"\nfile = "t.csv"\nlevel = "place"\n'
        'count = "n"\nlaw = { name = "exact" }\nunlisted = "unknown"\ntotal = { place = "All" }\n'
    )
    read = [parse_perturbed(spec.read_text()), [table], places]
    with pytest.raises(
        DataError,
        match="leave 'All' out of the list of places; or, if it is a place like the others, leave `total` out",
    ):
        read_perturbed(*read)
    places.write_text(places.read_text().replace("All,whole\n", ""))
    assert list(values(read_perturbed(*read)).values()) == [4, 3, 7]


def test_messages_of_a_draft_end_in_one_point(tmp_path):
    (tmp_path / "t.csv").write_text("area,sex,n\nA,f,1\nA,f,2\nB,m,3\n")
    done = run("new", tmp_path / "s.toml", "--published", tmp_path / "t.csv")
    assert "the spec is refused" in done.stdout
    assert ".." not in done.stdout


def test_indents_without_sums_are_no_levels(tmp_path):
    (tmp_path / "t.csv").write_text(INDENTED["no whole"].replace("30,15", "97,15").replace("44,21", "5,2"))
    assert not draft_published([tmp_path / "t.csv"]).places


def shown(measured):
    """The published numbers by their labels, without what codes say."""
    numeric = [k for k, header in enumerate(measured.headers) if header.law.name not in ("interval",)]
    kept = type(measured)(measured.cells, tuple(measured.headers[k] for k in numeric), tuple(measured.values[k] for k in numeric), measured.guarantee)  # fmt: skip
    return {plain(label): value for label, value in values(kept).items()}


@pytest.mark.parametrize("name", FILES)
def test_the_draft_reads_the_values(name, tmp_path):
    text, right = FILES[name]
    file = tmp_path / ("t.tsv" if "\t" in text else "t.csv")
    file.write_text(text, encoding="utf-8")
    draft = draft_published([file])
    assert shown(read_perturbed(parse_perturbed(draft.text), [file], draft.geography)) == right, draft.text


@pytest.mark.parametrize(
    ("name", "code", "meaning"),
    [
        ("a row of units", "-", "0"),
        ("a row of units", ".", "unknown"),
        ("a total in each group", "c", "<5"),
        ("marks behind numbers", "- nil", "0"),
        ("marks behind numbers", ".. not available", "unknown"),
        ("a part of the count beside it", "*", "1-2"),
        ("guarded codes", "*", "1-7"),
        ("codes of an earlier year", "c", "<5"),
        ("codes of an earlier year", ":", "unknown"),
    ],
)
def test_codes_mean_what_the_file_says(name, code, meaning, tmp_path):
    (tmp_path / "t.csv").write_text(FILES[name][0], encoding="utf-8")
    draft = draft_published([tmp_path / "t.csv"])
    assert {part.codes.get(code) for part in parse_perturbed(draft.text).published} == {meaning}
    assert any(f"what '{code}' says" in text and f'taken as "{meaning}"' in text for text in draft.undecided)


def test_marks_behind_numbers_are_said_in_the_record(tmp_path):
    (tmp_path / "t.csv").write_text(MARKS, encoding="utf-8")
    draft = draft_published([tmp_path / "t.csv"])
    measured = read_perturbed(parse_perturbed(draft.text), [tmp_path / "t.csv"])
    assert any("has marks behind 5 different numbers" in text for text in measured.spec.noted)


@pytest.mark.parametrize("places", [20, 60])
def test_tables_of_small_counts_below_each_other_are_one_population_with_the_prior_that_the_docs_say(
    places, rng, tmp_path
):
    """Three columns of small counts, one near the sum of the two others in four of five rows by chance, are no sum."""
    rows = []
    for sex in ("Men", "Women"):
        counts = 3 * rng.binomial(4, 0.5, (places, 3))
        lines = (f"w{k:02d},{a},{b},{c}" for k, (a, b, c) in enumerate(counts))
        rows += [sex, "ward,0-15,16-64,65+", *lines, ""]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    draft = draft_published([tmp_path / "t.csv"])
    measured = read_perturbed(parse_perturbed(draft.text), [tmp_path / "t.csv"])
    assert [(a.name, a.values) for a in measured.cells.attributes] == [("age", ("0-15", "16-64", "65+")), ("sex", ("Men", "Women"))]  # fmt: skip
    assert {header.margin.attributes for header in measured.headers} == {("age", "sex")}
    # 50 published values of each combination of age and sex, in two entries of the spec
    assert f"'{'estimated' if places > 50 else 'flat'}'" in infer(measured, draws=1).prior


def test_sheets_of_the_same_cells_are_values_of_an_attribute(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for name, rows in {"Males": [(12, 33), (9, 27)], "Females": [(15, 36), (6, 24)]}.items():
        sheet = book.create_sheet(name)
        sheet.append(("District", "Young", "Old"))
        for place, row in zip(("North", "South"), rows):
            sheet.append((place, *row))
    book.remove(book["Sheet"])
    book.save(tmp_path / "t.xlsx")
    draft = draft_published([tmp_path / "t.xlsx"])
    found = shown(read_perturbed(parse_perturbed(draft.text), [tmp_path / "t.xlsx"]))
    assert found["North", "Young", "Males"] == 12
    assert found["South", "Old", "Females"] == 24


NATION = "Sex,Households\nFemale,612\nMale,588\n"
REGIONS = "Region,Female,Male\nNorth,310,288\nSouth,302,300\n"
CODED_NAMES = "CODE,NAME,n\n01,Alba,60\n02,Brig,50\n01001,Adams County,40\n01002,Baker County,20\n02001,Adams County,26\n02002,Clay County,24\n"
COUNTIES = "State,County,n\nOhio,State total,60\nOhio,Clay,25\nOhio,Adair,20\nOhio,Knox,15\nIowa,State total,50\nIowa,Clay,30\nIowa,Knox,20\n"


def test_a_table_of_the_whole_shares_the_attribute_of_tables_of_places(tmp_path):
    """Its one column of keys holds what others have as columns: no places."""
    for name, text in (("nation.csv", NATION), ("regions.csv", REGIONS)):
        (tmp_path / name).write_text(text)
    draft = draft_published([tmp_path / "nation.csv", tmp_path / "regions.csv"])
    read = read_perturbed(parse_perturbed(draft.text), [tmp_path / "nation.csv", tmp_path / "regions.csv"])
    assert shown(read)["Female",] == 612
    assert shown(read)["North", "Male"] == 288


@pytest.mark.parametrize(
    ("text", "levels", "some"),
    [
        (CODED_NAMES, ["all", "CODE 2", "CODE"], {("01",): 60, ("02002",): 24}),
        (COUNTIES, ["all", "State", "County"], {("Ohio",): 60, ("Iowa/Clay",): 30, ("Ohio/Adair",): 20}),
    ],
)
def test_names_of_codes_are_no_level_and_names_that_repeat_lie_within_places(text, levels, some, tmp_path):
    file = tmp_path / "counts.csv"
    file.write_text(text)
    spec = parse_perturbed(draft_published([file]).text)
    assert [level.name for level in spec.levels] == levels
    read = shown(read_perturbed(spec, [file]))
    assert {key: read[key] for key in some} == some


def test_columns_of_homes_and_workplaces_cross(tmp_path):
    """They hold the same names: neither lies in the other, though not all pairs have rows."""
    file = tmp_path / "flows.csv"
    rows = [("Ash", "Ash", 40), ("Ash", "Elm", 12), ("Elm", "Ash", 9), ("Elm", "Elm", 31), ("Oak", "Elm", 7)]
    file.write_text("Home district,Work district,n\n" + "".join(f"{a},{b},{n}\n" for a, b, n in rows))
    draft = draft_published([file])
    assert len(parse_perturbed(draft.text).levels) == 2


ONE_YEAR = "region,sex,2023\nNorth,f,-\nNorth,m,..\nSouth,f,3\nSouth,m,14\n"
YEARS_BELOW = "County;primary;;;tertiary;;\n;2021.;2022.;2023.;2021.;2022.;2023.\nNorth;512;520;533;80;81;85\nSouth;610;611;640;71;75;79\n"
MARKED_FIRST = "freq,sex,geo\\TIME_PERIOD\t2021 \t2022 \nA,F,XY1\t150 b\t151 p\nA,M,XY1\t140 \t146 \nA,F,XY2\t90 \t88 \nA,M,XY2\t95 \t97 \n"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (ONE_YEAR, {("South", "f"): 3, ("South", "m"): 14}),
        (YEARS_BELOW, {("North", "primary"): 533, ("North", "tertiary"): 85, ("South", "primary"): 640, ("South", "tertiary"): 79}),
        (MARKED_FIRST, {("XY1", "F"): 151, ("XY1", "M"): 146, ("XY2", "F"): 88, ("XY2", "M"): 97}),
    ],
)  # fmt: skip
def test_years_that_name_columns_are_no_row_of_numbers(text, right, tmp_path):
    """One above codes, several that repeat below a row of names, and years above numbers with marks."""
    file = tmp_path / ("t.tsv" if "\t" in text else "t.csv")
    file.write_text(text)
    assert shown(read_perturbed(parse_perturbed(draft_published([file]).text), [file])) == right


def test_levels_of_one_list_of_codes_may_be_a_file_each(tmp_path):
    """Codes of the one begin with those of the other, whichever is given first."""
    (tmp_path / "tract.csv").write_text("GEOID,n\n02013001,40\n02013002,25\n02016001,31\n02016002,12\n")
    (tmp_path / "county.csv").write_text("GEOID,n\n02013,66\n02016,43\n")
    for files in (["tract.csv", "county.csv"], ["county.csv", "tract.csv"]):
        draft = draft_published([tmp_path / name for name in files])
        spec = parse_perturbed(draft.text)
        assert [level.name for level in spec.levels] == ["all", "GEOID 5", "GEOID"]
        read = shown(read_perturbed(spec, [tmp_path / name for name in files]))
        assert read == {
            ("02013",): 66, ("02016",): 43, ("02013001",): 40, ("02013002",): 25, ("02016001",): 31, ("02016002",): 12,
        }  # fmt: skip
