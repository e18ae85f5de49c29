# ruff: noqa: E501
"""Files whose columns and rows are told by how they go together, whatever their names: each draft reads what stands there."""

from __future__ import annotations

import re

import openpyxl
import pytest

from tests.io.test_drafted_kinds import shown
from trueup.errors import DataError, SpecError
from trueup.files.csv_faults import likely_encoding
from trueup.io.published.drafting import draft_published
from trueup.io.published.drafting.above import write_indented_places
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed
from trueup.model.published_rule import read_law


def rows(text, *names):
    """The numbers of `key|key n n; ...` under the names of their columns; a point is no number, an underscore a blank."""
    found = {}
    for line in text.split("; "):
        keys, *numbers = line.split(" ")
        for name, number in zip(names or ("",), numbers):
            if number != ".":
                key = [part.replace("_", " ") for part in (*keys.split("|"), *name.split("|")) if part]
                found[tuple(key)] = int(number)
    return found


SERIES = "REF,GEO,ID,Sex,Age,VECTOR,VALUE\n" + "".join(
    f"2021,{place},Z{k},{sex},{age},v{100 * k + 10 * i + j},{60 * (k or 3) // (1 + j) * (3 if not i else 2) // 3}\n"
    for k, place in enumerate(("Both", "East", "West"))
    for i, sex in enumerate(("Both sexes", "Men", "Women"))
    for j, age in enumerate(("15 to 24 years", "25 years and over"))
)
HIDDEN = "code,place,P1,P2,all\nE1,Isle,36,33,69\nE6,Barra,1 to 4,9,12\nE7,Harris,12,9,21\nE8,Lewis,13,1 to 4,16\nE9,Uist,8,12,20\n"
FILLED = ",,men,women\n01 Aby,16-24 years,27,29\n,25-44 years,28,30\n02 Boda,16-24 years,13,17\n,25-44 years,11,12\n"
CODES = "ISCO-08,Occupation,Men,Women\nTOTAL,All,70,80\n1,One,30,40\n11,One one,10,15\n12,One two,20,25\n2,Two,40,40\n21,Two one,18,15\n22,Two two,22,25\n"
PERIODS = '"PERIOD","AREA","SEX","VALUE"\n' + "".join(f'"{m}","{a}","{s}",{n}\n' for m, f in (("2023-11", 1), ("2023-12", 2)) for a, s, n in (("q1", "ALL", 7 * f), ("q1", "f", 3 * f), ("q1", "m", 4 * f), ("q2", "ALL", 11 * f), ("q2", "f", 5 * f), ("q2", "m", 6 * f)))  # fmt: skip
MEASURES = "area,measure,value\na,Number,12\na,Percentage,40.0\nb,Number,18\nb,Percentage,60.0\n"
SUMS = "Place,m,f\nWest,30,40\nAsh,10,15\nBirch,20,25\nEast,33,41\nCedar,11,17\nDell,22,24\n"
AFTER = "Place,m,f\nAsh,10,15\nBirch,20,25\nWest,30,40\nCedar,11,17\nDell,22,24\nEast,33,41\nCounty,63,81\n"
DOTTED = "code,m,f\nA,30,40\nA.1,10,15\nA.2.10,20,25\nB,33,41\nB.1,11,17\nB.7,22,24\n"
HEADED = "Town,m,f\nNORTH,,\nAsh,10,15\nBirch,20,25\nSOUTH,,\nCedar,11,17\nDell,22,24\n"
MIXED = "City,2024\nRiga,50\n  Men,23\n  Women,27\nLiepaja,30\n  Men,14\n  Women,16\n"
JOINED = "area,Male_young,Male_old,Female_young,Female_old,Total_young,Total_old\nk1,1,2,3,4,4,6\nk2,5,6,7,8,12,14\n"
PAGES = "Ward,Dogs,Cats\na,11,12\nb,21,22\n\nWard,Dogs,Cats\nc,31,32\nd,41,42\n"
ZEROS = "State Code,District Code,Level,Name,Persons\n00,000,Country,LAND,60\n01,000,STATE,Ka,30\n01,588,DISTRICT,Kasa,10\n01,589,DISTRICT,Kann,20\n02,000,STATE,Go,30\n02,585,DISTRICT,North,14\n02,586,DISTRICT,South,16\n"
LEVELS = "Area Code,Area Type,m,f\nX1,Country,63,81\nY1,Region,30,40\nY2,Region,33,41\nZ11,LA,10,15\nZ12,LA,20,25\nZ21,LA,11,17\nZ22,LA,22,24\n"
BLANKS = "Sex,Male,,,Female,,,Total\nAge,0-14,15+,Total,0-14,15+,Total,\nSA2\nActon,10,20,30,14,20,34,64\nBraddon,11,21,32,18,20,38,70\n\nData Source: census\n\nINFO,Cells have been randomly adjusted to protect persons\n"
RAGGED = "region,district,n\nN,,30\nN,N1,14\nN,N2,16\nS,,25\n"

TOTAL_GROUP = "Pets by ward,,,,,,,,,\n,Dogs,,,Cats,,,All\nWard,Small,Large,Total,Small,Large,Total,pets\nAsh,13,9,22,7,5,12,34\nBirch,60,55,115,52,46,98,213\nTown,73,64,137,59,51,110,247\n"
UNIT_NOTE = "Fishers,,\n,,(unit: persons)\nTown,Men,Women\nAyr,114,60\nBute,37,21\nTroon,8,12\n"
LONE_NAME = "Town,men,women,both\nAyr,114000,60000,174000\nBute,37,-,37\nTroon,-,-,-\nCoast (some towns),114037,60000,174037\n"
OF_ALL = "Place,Population (100%),0-14,15+\nAyr,3115,890,2225\nBute,847,265,582\nTroon,124,40,84\n"
NO_WHOLE = "Area,Time,Sex,n\n" + "".join(f"{a},{t},{s},{n}\n" for a, row in {"Hob": (41, 52, 59, 66), "Lau": (25, 29, 39, 20), "Dev": (7, 6, 8, 5), "Bur": (8, 2, 1, 3), "Fli": (1, 10, 2, 1)}.items() for (t, s), n in zip([(t, s) for t in ("Full", "Part") for s in ("f", "m")], row))  # fmt: skip

RANKED = "Rank,Area,All modes,,Car,,Bus,\n,,Number,%,Number,%,Number,%\n,Land,1300,100,900,69,400,31\n2,Kent,500,100,300,60,200,40\n1,Avon,800,100,600,75,200,25\n"
SEXES_UNDER = (
    "Place / sex,2021,2022\nLima,34,50\n  Men,14,23\n  Women,20,27\nCusco,28,30\n  Men,13,14\n  Women,15,16\n"
)
BLOCKS = "Stadt;bis 29;ab 30;Zusammen\nMänner;;;\nGraz;12;31;43\nWels;9;33;42\nFrauen;;;\nGraz;16;24;40\nWels;13;27;40\n"

PIVOT = "Region,County,F,M,Grand Total\nEast,Ely,14,15,29\n,Diss,26,27,53\nEast Total,,40,42,82\nWest,Avon,33,31,64\n,Dawes,7,12,19\n,Exe,21,28,49\nWest Total,,61,71,132\nGrand Total,,101,113,214\n"

SPACED = "Kommune,Menn 0-14 år,Menn 15 år og over,Kvinner 0-14 år,Kvinner 15 år og over,I alt\nOslo,10,31,12,33,86\nBodø,7,18,9,16,50\nVadsø,3,8,2,9,22\n"
SECTIONS = (
    "State,Employed,Others\nNUMBER,,\nNSW,123,57\nVic,64,121\nPER CENT,,\nNSW,68.3,31.7\nVic,34.6,65.4\n"
)
SOME_OF = "Code;Ensemble;Hommes;Femmes;dont moins de 25 ans\n01;86;41;45;11\n02;53;22;31;9\n2A;28;17;11;6\n"
MIXED_ENDS = "Lugar;m;f\nA;30;40\nAb;10;15\nAc;20;25\n;;\nB;33;41\nBd;11;17\nBe;22;24\n;;\nTOTAL;63;81\n"

LETTERS = "code,name,m,f\nNL00,Land,63,81\nPV20,P,30,40\nPV21,Q,33,41\nGM01,a,10,15\nGM02,b,20,25\nGM03,c,11,17\nGM04,d,22,24\n"

OTHER_TABLE = "By sex\nArea,Men,Women\nAyr,31,40\nBute,22,19\nColl,9,12\n\nBy age\nPlace,Under 30,30 and over\nAyr,50,21\nBute,11,30\nColl,8,13\n"
WORN_NOTES = "Area,Male [note 1],Female [note 2]\nAyr,31,40\nBute,22,19\nColl,9,12\n"
ONE_PART = "Kunta,Persons\nLahti,882\n  of which women,395\nKotka,761\n  of which women,237\nPori,605\n  of which women,345\n"
TOWNS_BELOW = ";Nord;;Süd;;\nSpecies;Kiel;Husum;Ulm;Lindau;Zusammen\noak;31;12;55;27;125\nelm;14;9;40;18;81\nash;22;6;61;33;122\n"
YEARS_BELOW = "Kraj;Rok;Muži;Ženy\nPraha;2021;276;371\n;2022;571;436\nZlín;2021;557;811\n;2022;818;498\nPlzeň;2021;832;283\n;2022;468;356\n"

HEADED_NAMES = "Nr.;Gemeinde;Hunde;Katzen\n;Kanton Zug;;\n1701;Baar;40;61\n1702;Cham;31;22\n;;;\n;Kanton Uri;;\n1801;Altdorf;57;12\n1802;Bauen;3;8\n"
DATED_NAMES = "Novads,M_2022,F_2022,M_2023,F_2023\nRiga,56,43,55,42\nOgre,23,31,24,33\nTalsi,5,8,7,9\n"

NAMES_LAST = "Men,Women,Town\n312,441,Ely\n228,193,Diss\n905,122,Wells\n"
FIRST_HIDDEN = "Place\tSex\tValue\tFootnote\t\nOhio\tFemale\t\tHidden\t\nOhio\tMale\t35\t\t\nUtah\tFemale\t29\t\t\nUtah\tMale\t25\t\t\n"
WITH_SHARES = (
    "Hospital,Young,Old\nSt A,120 (62.5%),72 (37.5%)\nSt B,33 (50%),33 (50%)\nSt C,10 (20.0 %),40 (80.0 %)\n"
)

GROUP_SUMS = "Commune,Oui,Non\nNord,,\nLens,40,31\nArras,22,58\nSous-total,62,89\nSud,,\nNice,71,12\nToulon,9,33\nSous-total,80,45\nTotal général,142,134\n"
SINGLE_AGES = "City,Total,0,1,2,3\nKyiv,40,11,9,12,8\nLviv,67,20,14,18,15\n"

DRAFTED = {
    "sums of groups that have one name": (GROUP_SUMS, rows("Lens 40 31; Arras 22 58; Nice 71 12; Toulon 9 33; Total_général 142 134", "Oui", "Non")),
    "ages of single years as columns": (SINGLE_AGES, rows("Kyiv 40 11 9 12 8; Lviv 67 20 14 18 15", "", "0", "1", "2", "3")),
    "names behind numbers": (NAMES_LAST, rows("Ely 312 441; Diss 228 193; Wells 905 122", "Men", "Women")),
    "a first row without a value": (FIRST_HIDDEN, rows("Ohio|Male 35; Utah|Female 29; Utah|Male 25")),
    "shares behind numbers": (WITH_SHARES, rows("St_A 120 72; St_B 33 33; St_C 10 40", "Young", "Old")),
    "headings among names beside codes": (HEADED_NAMES, rows("1701 40 61; 1702 31 22; 1801 57 12; 1802 3 8", "Hunde", "Katzen")),
    "values of the last year": (DATED_NAMES, rows("Riga 55 42; Ogre 24 33; Talsi 7 9", "M", "F")),
    "a second table of other columns": (OTHER_TABLE, {("Ayr", "Men"): 31, ("Ayr", "Women"): 40, ("Bute", "Men"): 22, ("Bute", "Women"): 19, ("Coll", "Men"): 9, ("Coll", "Women"): 12, ("Ayr", "Under 30"): 50, ("Ayr", "30 and over"): 21, ("Bute", "Under 30"): 11, ("Bute", "30 and over"): 30, ("Coll", "Under 30"): 8, ("Coll", "30 and over"): 13}),
    "names with notes": (WORN_NOTES, rows("Ayr 31 40; Bute 22 19; Coll 9 12", "Male_[note_1]", "Female_[note_2]")),
    "a part below each place": (ONE_PART, {("Lahti",): 882, ("Lahti", "of which women"): 395, ("Kotka",): 761, ("Kotka", "of which women"): 237, ("Pori",): 605, ("Pori", "of which women"): 345}),
    "names above the values of one attribute": (TOWNS_BELOW, rows("oak 125 31 12 55 27; elm 81 14 9 40 18; ash 122 22 6 61 33", "", "Kiel", "Husum", "Ulm", "Lindau")),
    "years below each place": (YEARS_BELOW, rows("Praha 571 436; Zlín 818 498; Plzeň 468 356", "Muži", "Ženy")),
    "levels by letters whose parts nothing tells": (LETTERS, rows("| 63 81; GM01 10 15; GM02 20 25; GM03 11 17; GM04 22 24", "m", "f")),
    "two attributes joined by words": (SPACED, rows("Oslo 10 31 12 33 86; Bodø 7 18 9 16 50; Vadsø 3 8 2 9 22", "Menn|0-14_år", "Menn|15_år_og_over", "Kvinner|0-14_år", "Kvinner|15_år_og_over", "")),
    "a section of shares": (SECTIONS, rows("NSW 123 57; Vic 64 121", "Employed", "Others")),
    "a column of some of the others": (SOME_OF, rows("01 86 41 45; 02 53 22 31; 2A 28 17 11", "", "Hommes", "Femmes")),
    "sums above, and the whole below": (MIXED_ENDS, rows("TOTAL 63 81; A 30 40; Ab 10 15; Ac 20 25; B 33 41; Bd 11 17; Be 22 24", "m", "f")),
    "sums of a pivot table": (PIVOT, rows("| 101 113 214; East 40 42 82; East/Ely 14 15 29; East/Diss 26 27 53; West 61 71 132; West/Avon 33 31 64; West/Dawes 7 12 19; West/Exe 21 28 49", "F", "M", "")),
    "ranks and shares beside numbers": (RANKED, rows("| 1300 900 400; Kent 500 300 200; Avon 800 600 200", "", "Car", "Bus")),
    "places and sexes under both names": (SEXES_UNDER, rows("Lima 50; Lima|Men 23; Lima|Women 27; Cusco 30; Cusco|Men 14; Cusco|Women 16")),
    "blocks below headings": (BLOCKS, {("Graz", "bis 29", "Männer"): 12, ("Graz", "ab 30", "Männer"): 31, ("Graz", "Männer"): 43, ("Wels", "bis 29", "Männer"): 9, ("Wels", "ab 30", "Männer"): 33, ("Wels", "Männer"): 42, ("Graz", "bis 29", "Frauen"): 16, ("Graz", "ab 30", "Frauen"): 24, ("Graz", "Frauen"): 40, ("Wels", "bis 29", "Frauen"): 13, ("Wels", "ab 30", "Frauen"): 27, ("Wels", "Frauen"): 40}),
    "a total below a name of its own": (TOTAL_GROUP, rows("| 73 64 137 59 51 110 247; Ash 13 9 22 7 5 12 34; Birch 60 55 115 52 46 98 213", "Dogs|Small", "Dogs|Large", "Dogs", "Cats|Small", "Cats|Large", "Cats", "")),
    "a unit above the last column": (UNIT_NOTE, rows("Ayr 114 60; Bute 37 21; Troon 8 12", "Men", "Women")),
    "a whole of its own name beside codes": (LONE_NAME, rows("| 114037 60000 174037; Ayr 114000 60000 174000; Bute 37 . 37", "men", "women", "")),
    "a count of all": (OF_ALL, rows("Ayr 3115 890 2225; Bute 847 265 582; Troon 124 40 84", "", "0-14", "15+")),
    "a place near the sum of others by chance": (NO_WHOLE, {(r[0], r[1], r[2]): int(r[3]) for r in (line.split(",") for line in NO_WHOLE.splitlines()[1:])}),
    "a number of each row": (SERIES, {(*place, *sex, age): 60 * k // (1 + j) * (2 if sex else 3) // 3 for place, k in (((), 3), (("Z1",), 1), (("Z2",), 2)) for sex in ((), ("Men",), ("Women",)) for j, age in enumerate(("15 to 24 years", "25 years and over"))}),
    "a whole beside hidden cells": (HIDDEN, rows("| 36 33 69; E6 . 9 12; E7 12 9 21; E8 13 . 16; E9 8 12 20", "P1", "P2", "")),
    "a second key without a name": (FILLED, rows("01_Aby|16-24_years 27 29; 01_Aby|25-44_years 28 30; 02_Boda|16-24_years 13 17; 02_Boda|25-44_years 11 12", "men", "women")),
    "codes that look like counts": (CODES, rows("TOTAL 70 80; 1 30 40; 11 10 15; 12 20 25; 2 40 40; 21 18 15; 22 22 25", "Men", "Women")),
    "months of a year": (PERIODS, rows("q1 14; q1|f 6; q1|m 8; q2 22; q2|f 10; q2|m 12")),
    "counts and shares in rows": (MEASURES, rows("a 12; b 18")),
    "sums above": (SUMS, rows("West 30 40; Ash 10 15; Birch 20 25; East 33 41; Cedar 11 17; Dell 22 24", "m", "f")),
    "sums below": (AFTER, rows("County 63 81; West 30 40; Ash 10 15; Birch 20 25; East 33 41; Cedar 11 17; Dell 22 24", "m", "f")),
    "codes of any length": (DOTTED, rows("A 30 40; A.1 10 15; A.2.10 20 25; B 33 41; B.1 11 17; B.7 22 24", "m", "f")),
    "headings": (HEADED, rows("Ash 10 15; Birch 20 25; Cedar 11 17; Dell 22 24", "m", "f")),
    "places and sexes in one column": (MIXED, rows("Riga 50; Riga|Men 23; Riga|Women 27; Liepaja 30; Liepaja|Men 14; Liepaja|Women 16")),
    "names that join two attributes": (JOINED, rows("k1 1 2 3 4 4 6; k2 5 6 7 8 12 14", "Male|young", "Male|old", "Female|young", "Female|old", "young", "old")),
    "a header on each page": (PAGES, rows("a 11 12; b 21 22; c 31 32; d 41 42", "Dogs", "Cats")),
    "zeros for the whole": (ZEROS, rows("| 60; 01 30; 01/588 10; 01/589 20; 02 30; 02/585 14; 02/586 16")),
    "levels whose parts nothing tells": (LEVELS, rows("| 63 81; Z11 10 15; Z12 20 25; Z21 11 17; Z22 22 24", "m", "f")),
    "a total above blanks": (BLANKS, rows("Acton 10 20 30 14 20 34 64; Braddon 11 21 32 18 20 38 70", "Male|0-14", "Male|15+", "Male", "Female|0-14", "Female|15+", "Female", "")),
    "a region without parts": (RAGGED, rows("N 30; N/N1 14; N/N2 16; S/S 25")),
}  # fmt: skip


def drafted(file, folder):
    """The draft of a file, and what it reads."""
    draft = draft_published([file])
    listed = (
        write_indented_places(folder / "places.csv", draft.columns, draft.places)
        if draft.places
        else draft.geography
    )
    return draft, read_perturbed(parse_perturbed(draft.text), [file], listed)


@pytest.mark.parametrize("name", DRAFTED)
def test_the_draft_reads_the_values(name, tmp_path):
    text, right = DRAFTED[name]
    (tmp_path / "t.csv").write_text(text)
    draft, measured = drafted(tmp_path / "t.csv", tmp_path)
    assert shown(measured) == right, draft.text


def test_a_range_that_nobody_declared_is_to_be_decided(tmp_path):
    (tmp_path / "t.csv").write_text("area,n\na,10\nb,<10\nc,25\n")
    (said,) = [text for text in drafted(tmp_path / "t.csv", tmp_path)[0].undecided if "'<10'" in text]
    assert 'codes = { "<10" = "1-9" }' in said


def test_a_part_read_as_a_value_is_said_by_the_sum_that_it_spoils(tmp_path):
    (tmp_path / "t.csv").write_text("area,all,men,women,young\na,86,41,45,11\nb,53,22,31,9\nc,28,17,11,6\n")
    (said,) = [text for text in drafted(tmp_path / "t.csv", tmp_path)[0].undecided if "such sums" in text]
    assert said.startswith("'c' is published as 28, and its parts by category sum to 34; 3 of 3")
    assert "Either a row or column is no part" in said


@pytest.mark.parametrize("title", ["Population in thousands", "Befolkning, 1000-tal", "Population ('000)", "Bevölkerung (in Tsd.)"])  # fmt: skip
def test_thousands_are_counts_rounded_to_a_hundred(title, tmp_path):
    (tmp_path / "t.csv").write_text(
        f"{title}\n\narea;f;m\na;49,6;12,3\nb;8,0;0,7\nc;30,2;29,9\nd;1,1;2,4\ne;7,9;6,1\nf;14,4;3,8\n"
    )
    _, measured = drafted(tmp_path / "t.csv", tmp_path)
    assert {header.law.base for header in measured.headers} == {100}
    assert shown(measured)["a", "f"] == 49600
    assert shown(measured)["b", "m"] == 700


SUB_AGES = "County,Age,Count,Variance\n" + "".join(f"{c},{a},{n},{v}\n" for c, k in (("Kent", 3), ("Bristol", 5), ("Newport", 2)) for a, n, v in (("Total", 100 * k, 0), ("Under 18 years", 31 * k, 9), ("Under 5 years", 11 * k, 36), ("5 to 17 years", 21 * k, 36), ("18 years and over", 71 * k, 9), ("18 to 64 years", 40 * k, 36), ("65 years and over", 29 * k, 36)))  # fmt: skip
SUB_KINDS = "County,Kind,Count\n" + "".join(f"{c},{a},{n}\n" for c, k in (("Kent", 30), ("Bristol", 51), ("Newport", 24)) for a, n in (("Pets", 3 * k + 1), ("Cats", k + 1), ("Dogs", 2 * k), ("Stock", 5 * k), ("Cows", 4 * k - 3), ("Pigs", k + 3)))  # fmt: skip


@pytest.mark.parametrize(("text", "sums"), [(SUB_AGES, {("Kent", "Under 18 years"): 93, ("Newport", "18 years and over"): 142}), (SUB_KINDS, {("Kent", "Pets"): 91, ("Newport", "Stock"): 120})])  # fmt: skip
def test_sums_that_are_left_out_are_read_by_the_lines_that_the_draft_prints(text, sums, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    draft, _ = drafted(tmp_path / "t.csv", tmp_path)
    (said,) = [text for text in draft.undecided if "to read them, too" in text.casefold()]
    lines = re.findall(
        r"(?:name|groups|columns|only|attributes|unlisted) = (?:\{.*?\}|\[.*?\]|\"[^\"]*\")", said
    )
    head, _, entry = draft.text.partition("[[published]]")
    kept = [
        line for line in entry.splitlines() if not line.startswith(("name", "only", "total", "attributes"))
    ]
    copy = "\n".join([*kept, 'name = "sums"', *lines[2:]])
    spec = (
        f"{head}[[attribute.recode]]\n{lines[0]}\n{lines[1]}\n\n[[published]]{entry}\n[[published]]{copy}\n"
    )
    found = shown(read_perturbed(parse_perturbed(spec), [tmp_path / "t.csv"]))
    assert {key: found[key] for key in sums} == sums


def test_sheets_of_other_places_lie_in_the_places_that_name_them(tmp_path):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for region, towns in {"West": ("Ayr", "Bute"), "East": ("Fife", "Perth", "Angus")}.items():
        sheet = book.create_sheet(region)
        for row in (
            ["Town", "m", "f"],
            *([town, 10 + k, 20] for k, town in enumerate(towns)),
            [f"{region} total", 10 * len(towns), 99],
        ):
            sheet.append(row)
    book.save(tmp_path / "t.xlsx")
    draft, measured = drafted(tmp_path / "t.xlsx", tmp_path)
    found = shown(measured)
    assert (found["West/Ayr", "m"], found["East/Angus", "m"], found["East", "f"]) == (10, 12, 99), draft.text


def test_columns_of_margins_of_error_are_variances(tmp_path):
    (tmp_path / "t.csv").write_text("id,A_E,A_M\nplace,Estimate,Margin of Error\nx,100,32.9\ny,50,16.45\n")
    _, measured = drafted(tmp_path / "t.csv", tmp_path)
    assert sorted(float(header.law.sigma2) for header in measured.headers) == [100, 400]


def test_errors_may_stand_behind_their_sign(tmp_path):
    (tmp_path / "t.csv").write_text("tract,owners,owners MOE\nx,100,±32.9\ny,50,+/-16.45\nz,70,±16.45\n")
    _, measured = drafted(tmp_path / "t.csv", tmp_path)
    assert sorted({float(header.law.sigma2) for header in measured.headers}) == [100, 400]


LANGUAGES = {
    "Norwegian": (
        "Sjømat;Fødselsår;Tønsberg;Målselv;Sør-Varanger;Gjøvik;Ålesund;Kautokeino - Guovdageaidnu",
        "cp1252",
    ),
    "Danish": ("Køn;Sorø;Allerød;Fanø;Ærø;hovedstadsområdet;Rebild;Nørre Nebel", "cp1252"),
    "Swedish": ("Folkmängd;Växjö;Ängelholm;född;sjöfart;Hallsberg;Åre", "cp1252"),
    "Icelandic": ("Sveitarfélag;Húsavík;Þingeyjarsveit;Garðabær;Borgarfjörður;Mosfellsbær", "cp1252"),
    "French": ("Côtes-d'Armor;Hérault;Département;Nîmes;Saône-et-Loire;ménages;Bouches-du-Rhône", "cp1252"),
    "Portuguese": ("Concelho;Guimarães;Loulé;Santarém;Vila Nova de Famalicão;habitação", "cp1252"),
    "Spanish": ("Provincia;A Coruña;Málaga;Almería;Cáceres;enseñanza;Ávila", "cp1252"),
    "Estonian": ("Maakond;Põltsamaa;Jõhvi;Räpina;Tõrva;mehi üle kuuekümne;Viljandi", "cp1257"),
    "Latvian": ("Novads;Ādaži;Ķekava;Liepāja;Ogre;iedzīvotāju skaits;Mārupe;Jēkabpils", "cp1257"),
    "Lithuanian": ("Savivaldybė;Druskininkų;Kėdainių;Šakių;Rokiškio;vaikų;Mažeikių", "cp1257"),
    "Polish": ("Powiat;świebodziński;Żary;wałbrzyski;Krosno;lat i więcej;mężczyzn;Chełm", "cp1250"),
    "Hungarian": ("Megye;Győr-Moson-Sopron;Nógrád;Csongrád;nők;fő;Hajdú-Bihar;fiúk;gyűjtőhely", "cp1250"),
    "Croatian": ("Županija;Požega;Varaždin;Križevci;Međimurje;dječaci;Čabar;Dubrovnik", "cp1250"),
    "Czech in Latin-2": ("Okres;Šumava;Břeclav;Třebíč;Žatec;dívky;Kroměříž;Česká Lípa", "iso8859-2"),
    "Turkish": ("İlçe;Şişli;Beyoğlu;Kadıköy;erkek;Çatalca;Büyükçekmece;Sarıyer;İzmir", "cp1254"),
    "Bulgarian": ("Област;Варна;Русе;Стара Загора;момчета;домакинства;Кюстендил;Ямбол", "cp1251"),
    "Ukrainian": ("РАЙОН;ОБЛАСТЬ;УСЬОГО;Одеса;Харків;дівчата;Чернівці;домогосподарства;Рівне", "cp1251"),
    "Serbian": ("Округ;Нови Сад;Крагујевац;девојчице;домаћинства;Ужице", "cp1251"),
    "Russian of DOS": ("Область;Тюмень;Казань;домохозяйства;Пермь;девочки;Всего", "cp866"),
    "Russian of Unix": ("Область;Тюмень;Казань;домохозяйства;Пермь;девочки;Всего", "koi8-r"),
    "Greek": (
        "Δήμος;Λάρισα;Ιωάννινα;αγόρια;Άργος;Ήλιδα;νοικοκυριά;Έδεσσα;ΠΕΡΙΦΕΡΕΙΑ;ΗΡΑΚΛΕΙΟ;ΔΗΜΟΙ",
        "cp1253",
    ),
    "Greek of Unix": ("Δήμος;Λάρισα;Ιωάννινα;αγόρια;Άργος;Ήλιδα;νοικοκυριά;Έδεσσα", "iso8859-7"),
    "Hebrew": ("מחוז;חיפה;באר שבע;בנים;בנות;אשדוד;משקי בית;נתניה", "cp1255"),
    "Arabic": ("الولاية;وهران;قسنطينة;بنات;أولاد;الأسر;سطيف;الجزائر", "cp1256"),
    "Thai": ("อำเภอ;เชียงใหม่;ขอนแก่น;เด็กชาย;เด็กหญิง;ครัวเรือน;ภูเก็ต", "cp874"),
    "German of DOS": ("Bezirk;Mödling;Fläche;Gänserndorf;fünf;Größe;Jänner;Zwölf", "cp850"),
}
"""Words of tables in one language each, and an encoding in which an office of it publishes."""


@pytest.mark.parametrize("language", LANGUAGES)
def test_letters_tell_the_encoding_of_a_language(language):
    text, encoding = LANGUAGES[language]
    text = text.replace(";", ";12\n") + ";7\n"
    assert text.encode(encoding).decode(likely_encoding(text.encode(encoding))) == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("Gemeinde;männlich\nKöln;3", "latin-1"), ("Kraj;ženy\nPlzeň;3", "cp1250"), ("都道府県,男\n北海道,3", "cp932"), ("Регион;Всего\nМосква;3", "cp1251"), ("행정구역,남자\n서울특별시,3", "euc_kr"), ("Περιφέρεια;ν\nΑττική;3", "cp1253"), ("Län;n\nSkåne;3", "utf-16-le")],
)  # fmt: skip
def test_the_likely_encoding_reads_the_text(text, encoding):
    assert text.encode(encoding).decode(likely_encoding(text.encode(encoding))) == text


ONE = 'format = 1\ntitle = "T"\ntable = { name = "t", counts = "n" }\nlevel = [{ name = "all" }, { name = "area", column = "area" }]\n[[published]]\nname = "t"\nlevel = "area"\ncount = "n"\nlaw = { name = "exact" }\n'


def test_a_total_of_what_is_no_column_is_refused_with_the_nearest(tmp_path):
    (tmp_path / "t.csv").write_text("area,n\na,1\n")
    with pytest.raises(DataError, match="did you mean 'area'"):
        read_perturbed(parse_perturbed(ONE + 'total = { areas = "T" }\n'), [tmp_path / "t.csv"])


def test_below_counts_rows_as_the_file_has_them(tmp_path):
    (tmp_path / "t.csv").write_text("area,n\na,1\nb,2\n\nc,9\n\nd,9\n\n")
    read = read_perturbed(parse_perturbed(ONE + "below = 4\n"), [tmp_path / "t.csv"])
    assert [values.tolist() for values in read.values] == [[1, 2]]


@pytest.mark.parametrize(
    ("given", "write"),
    [({"name": "gaussian", "sd": 5}, 'sigma2 = "25"'), ({"name": "discrete-laplace", "scale": 4}, 'epsilon = "1/4"'), ({"name": "rounded", "multiple": 5}, "base = 5"), ({"name": "rounded"}, "give 'base'")],
)  # fmt: skip
def test_a_law_in_other_words_gets_the_line_to_write(given, write):
    with pytest.raises(SpecError) as caught:
        read_law(given, "t")
    assert write in str(caught.value)
