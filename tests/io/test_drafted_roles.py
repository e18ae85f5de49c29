"""Columns told by content whatever their header says, and rows that number columns: each draft reads what stands there."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.io.published.drafting import draft_published
from trueup.io.published.drafting.above import write_indented_places
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

TOWNS = ("Ash", "Birch", "Cedar", "Dell", "Elm", "Fir", "Gorse")


def _drafted(folder, text):
    file = folder / "t.csv"
    file.write_text(text)
    draft = draft_published([file])
    spec = parse_perturbed(draft.text)
    return spec, read_perturbed(spec, [file]), draft.undecided


def _lines(header, *rows, sign=","):
    return "\n".join(sign.join(map(str, row)) for row in (header.split(","), *rows)) + "\n"


def _total(read):
    """The sum of all values of the finest margin."""
    return int(max((values for values in read.values), key=len).sum())


OWNERS = _lines(
    "ownercode,ownership,county,establishments",
    *(
        (10 * k + 10, o, t, 15 + 5 * k + 10 * n)
        for k, o in enumerate(("Federal", "Local", "Private"))
        for n, t in enumerate(TOWNS)
    ),
)
CLASSES = _lines(
    "station;size_class;code;trips".replace(";", ","),
    *(
        (s, z, k + 1, 12 + 3 * k + s)
        for s in (3, 6, 12, 15, 21, 30)
        for k, z in enumerate(("small", "mid", "large"))
    ),
)
ANEW = _lines(
    "prov_code;prov;muni;mujeres;hombres".replace(";", ","),
    *(
        (k + 1, p, m, 33 + 3 * j + 3 * k, 51 + 6 * j)
        for k, p in enumerate(("Alta", "Baja", "Cima", "Dorada"))
        for j, m in enumerate(("San Juan", "Centro", f"Villa {k}", f"Río {k}"))
    ),
    sign=";",
)


@pytest.mark.parametrize(
    ("text", "levels", "attributes"),
    [
        (OWNERS, ["all", "county"], [("ownercode", 3)]),
        (CLASSES, ["all", "station"], [("code", 3)]),
        (ANEW, ["all", "prov_code", "muni"], [("sex", 2)]),
    ],
)
def test_places_are_told_from_codes_of_categories(tmp_path, text, levels, attributes):
    spec, read, _ = _drafted(tmp_path, text)
    assert [level.name for level in spec.levels] == levels
    assert [(a.name, len(a.values)) for a in spec.attributes] == attributes
    width = {"county": 1, "station": 1, "muni": 2}[levels[-1]]
    numbers = [line.replace(";", ",").split(",")[-width:] for line in text.splitlines()[1:]]
    assert _total(read) == sum(int(number) for row in numbers for number in row)


@pytest.mark.parametrize("numbers", [range(1, 8), [1001, 1008, 1029, 1064, 1113, 1176, 1253]])
def test_numbers_of_rows_are_no_counts(tmp_path, numbers):
    rows = [(t, k, 30 + 10 * (n % 3), 60 - 5 * (n % 4)) for n, (k, t) in enumerate(zip(numbers, TOWNS))]
    spec, read, said = _drafted(tmp_path, _lines("Ortschaft,Zahl,Frauen,Männer", *rows, sign=";"))
    assert spec.attributes[0].values == ("Frauen", "Männer")
    assert _total(read) == sum(row[2] + row[3] for row in rows)
    assert any("'Zahl' numbers the rows" in text for text in said)


def test_counts_are_no_keys_where_a_name_repeats(tmp_path):
    rows = [(t, 31 + 7 * k, 90 - 4 * k) for k, t in enumerate((*TOWNS, "Ash"))]
    file = tmp_path / "t.csv"
    file.write_text(_lines("town,men,women", *rows))
    draft = draft_published([file])
    assert [level.name for level in parse_perturbed(draft.text).levels] == ["all", "town"]
    assert any("lists 'Ash, sex=men' 2 times" in text for text in draft.undecided)


def test_two_columns_that_may_be_places_are_said(tmp_path):
    rows = [(a, b, 12 + 3 * i + 3 * j) for i, a in enumerate(TOWNS) for j, b in enumerate(TOWNS)]
    _, _, said = _drafted(tmp_path, _lines("origin,destination,moves", *rows))
    assert any("whether places stand in 'origin' or in 'destination'" in text for text in said)


@pytest.mark.parametrize(
    ("header", "marks"),
    [
        ("Kreis;2023;;;\n;Deutsche;;Ausländer;\n;m;w;m;w\n", "1;2;3;4;5"),
        ("Area;Owned;;Rented;\n;House;Flat;House;Flat\n;No.;No.;No.;No.\n", "(1);(2);(3);(4);(5)"),
        ("Comune;Nord;Sud;Est;Ovest\n", "a;b;c;d;e = b"),
        ("Région;A1;A2;A3;A4\n", "A;B;C;D;E"),
    ],
)
def test_rows_that_number_columns_are_no_row_of_the_table(tmp_path, header, marks):
    rows = [(t, 30 + 3 * (k % 3), 27 + 6 * (k % 4), 45 - 3 * k, 36 + k % 2 * 6) for k, t in enumerate(TOWNS)]
    body = "".join(";".join(map(str, row)) + "\n" for row in rows)
    spec, read, _ = _drafted(tmp_path, f"{header}{marks}\n{body}")
    assert spec.levels[1].name == header.partition(";")[0]
    assert sorted(read.cells.tree.labels(spec.levels[1].name)) == sorted(TOWNS)
    assert _total(read) == sum(sum(row[1:]) for row in rows)


def test_places_that_are_numbers_stay(tmp_path):
    rows = [(k, k + 1, k + 2) for k in range(1, 9)]
    spec, read, _ = _drafted(tmp_path, _lines("id,men,women", *rows))
    assert len(read.cells.tree.labels(spec.levels[-1].name)) == 8


LOOKUPS = {
    "codes and names": ("lad,name,region,region_name", "lad,persons", "region,persons"),
    "German, with a further column": ("Gemeinde,Fläche,Kreis", "Gemeinde,Zahl", "Kreis,Zahl"),
    "two levels": ("iris,commune,dep", "iris,effectif", "dep,effectif"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", LOOKUPS)
def test_a_file_of_its_own_says_which_places_lie_in_which(tmp_path, name):
    header, fine, coarse = LOOKUPS[name]
    places = [(f"P{k}", f"N{k}", f"A{k // 2}" if name == "two levels" else f"{100 + k}") for k in range(12)]
    if name == "codes and names":
        rows = [(p, n, f"R{k // 4}", f"Region {k // 4}") for k, (p, n, _) in enumerate(places)]
    else:
        rows = [(p, more, f"R{k // 4}") for k, (p, _, more) in enumerate(places)]
    counts = [30 + 3 * (7 * k % 11) for k in range(12)]
    above = [sum(counts[4 * k : 4 * k + 4]) for k in range(3)]
    texts = {
        "fine.csv": _lines(fine, *zip([p for p, *_ in places], counts)),
        "coarse.csv": _lines(coarse, *((f"R{k}", n) for k, n in enumerate(above))),
        "list.csv": _lines(header, *rows),
    }
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
    draft = draft_published([tmp_path / file for file in texts])
    assert draft.places
    listed = write_indented_places(tmp_path / "places.csv", draft.columns, draft.places)
    read = read_perturbed(
        parse_perturbed(draft.text), [tmp_path / "fine.csv", tmp_path / "coarse.csv"], listed
    )
    assert read.cells.tree.sizes == ((1, 3, 6, 12) if name == "two levels" else (1, 3, 12))
    level = read.cells.tree.levels[1]
    assert sorted(sorted(values.tolist()) for values in read.values) == sorted(
        [sorted(counts), sorted(above)]
    )
    assert {header.margin.level for header in read.headers} == {level, read.cells.tree.levels[-1]}


def test_a_list_without_counts_of_its_places_above_is_left(tmp_path):
    (tmp_path / "c.csv").write_text(_lines("code,n", *((f"X{k}", 9 + 6 * k) for k in range(6))))
    (tmp_path / "l.csv").write_text(_lines("code,name", *((f"X{k}", t) for k, t in enumerate(TOWNS[:6]))))
    draft = draft_published([tmp_path / "c.csv", tmp_path / "l.csv"])
    assert not draft.places
    assert [level.name for level in parse_perturbed(draft.text).levels] == ["all", "code"]


@pytest.mark.parametrize(
    "name", ["Elevation", "Høyde", "nadmořská výška", "Breitengrad", "Superfície (ha)", "rozloha_ha", "Dichte", "海拔"]
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_what_measures_land_is_no_count(name, first, tmp_path):
    counts = ((210, 101, 109), (64, 40, 24), (133, 60, 73), (95, 51, 44))
    head = [name, "all persons", "men", "women"] if first else ["all persons", "men", "women", name]
    rows = [[1812 + 7 * k, *n] if first else [*n, 1812 + 7 * k] for k, n in enumerate(counts)]
    lines = [["place", *head], *(["ABCD"[k], *map(str, row)] for k, row in enumerate(rows))]
    (tmp_path / "t.csv").write_text("\n".join(map(",".join, lines)) + "\n")
    draft = draft_published([tmp_path / "t.csv"])
    assert f'"{name}"' not in draft.text
    assert '{ count = "all persons" }' in draft.text, draft.text


@pytest.mark.parametrize("name", ["Hoogteveen", "Dichtern", "Surfacing", "Altitudo"])
def test_names_that_begin_like_measures_are_counts(name, tmp_path):
    (tmp_path / "t.csv").write_text(f"place,{name},Roofing,Digging\nA,12,40,9\nB,31,22,17\nC,8,19,55\n")
    assert f'"{name}"' in draft_published([tmp_path / "t.csv"]).text


def read_draft(folder, text):
    """The draft of a file, and the file as the draft reads it, with the list of places that it writes."""
    file = folder / "t.csv"
    file.write_text(text, encoding="utf-8")
    draft = draft_published([file])
    listed = (
        write_indented_places(folder / "places.csv", draft.columns, draft.places) if draft.places else None
    )
    return draft, read_perturbed(parse_perturbed(draft.text), [file], listed)


@pytest.mark.parametrize(
    "names", [("All crops", "Wheat", "Rye", "Oats"), ("Insgesamt", "Weizen", "Roggen", "Hafer")]
)
@pytest.mark.parametrize("whole", ["-", "X0"])
def test_the_code_that_a_label_names_as_the_total_is_the_total(tmp_path, names, whole):
    lines = ["parish,K1,crop,n"]
    rng = np.random.default_rng(5)
    for parish in "abcdefg":
        noisy = [str(n) for n in (rng.integers(90, 160), *rng.integers(20, 60, 3))]
        lines += [",".join((f"{parish}ton", *each)) for each in zip((whole, "07", "08", "03"), names, noisy)]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert measured.cells.n == 7 * 3, draft.text
    assert whole in draft.text.partition("total = ")[2].splitlines()[0]


def test_a_column_that_says_which_rows_are_totals_is_no_level(tmp_path):
    lines = ["town,sort,class,farms"]
    for k, town in enumerate(("Ash", "Birch", "Cedar", "Dill", "Elm")):
        parts = [9 + 4 * k, 30 - 3 * k, 11 + k]
        for name, n in zip(("small", "middle", "large"), parts):
            lines.append(f"{town},BY LAND,land {name},{n}")
        lines.insert(len(lines) - 3, f"{town},TOTAL,none,{sum(parts)}")
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert measured.cells.n == 5 * 3, draft.text
    assert '"class" = "none"' in draft.text
    assert not any("refused" in said for said in draft.undecided), draft.undecided


@pytest.mark.parametrize("code", ["n.v.", "geh.", "s.d."])
def test_a_column_with_few_numbers_among_the_codes_of_others_holds_counts(tmp_path, code):
    rows = [
        ("A1", "Nord", 21, 15, code, code),
        ("A2", "West", 218, code, 170, code),
        ("A3", "Süd", 26, code, 16, code),
        ("A4", "Ost", 17, 8, code, code),
        ("A5", "Mitte", code, code, 0, 0),
        ("A6", "Küste", 41, 23, code, code),
        ("A7", "Berg", 0, 0, 0, 0),
        ("A", "Insgesamt", 325, 80, 208, 37),
    ]
    lines = ["Nr;Name;alle;rot;blau;grün", *(";".join(map(str, row)) for row in rows)]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert measured.cells.n == 7 * 3, draft.text
    assert '{ count = "grün", where' in draft.text


@pytest.mark.parametrize("name", ["q_births", "merkmal"])
@pytest.mark.parametrize("marks", [(1, 5), (0, 2)])
def test_a_column_of_numbers_that_says_what_is_hidden_is_no_count(tmp_path, name, marks):
    rng = np.random.default_rng(8)
    lines = [f"clinic,births,deaths,{name}"]
    for k in range(24):
        births = int(rng.integers(0, 40))
        hidden = births < 12
        lines.append(f"C{k} x,{'' if hidden else births},{rng.integers(0, 30)},{marks[hidden]}")
    draft, _ = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert f'count = "{name}"' not in draft.text
    said = [text for text in draft.undecided if f"'{name}' says" in text]
    assert len(said) == 1
    assert f"'{marks[1]}' where 'births' is hidden" in said[0]


@pytest.mark.parametrize("words", [("All to 12", "Below 8"), ("Alle bis 12", "unter 8")])
def test_single_ages_among_words_are_no_counts_in_a_long_table(tmp_path, words):
    lines = ["Code,Town,Years,Pupils"]
    for k, town in enumerate(("Ash", "Birch", "Cedar", "Dill", "Elm")):
        parts = [7 + 5 * k, 31 - 4 * k, 12 + k]
        for name, n in zip((words[0], words[1], "8", "9"), (sum(parts), *parts)):
            lines.append(f"E0{k}7,{town},{name},{n}")
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert measured.cells.n == 5 * 3, draft.text
    assert 'count = "Pupils"' in draft.text


def test_codes_of_four_digits_are_no_ages(tmp_path):
    lines = ["District,School,Pupils"]
    codes = {
        "North": ("10-0001", "10-0002", "10-0003"),
        "South": ("20-0001", "20-0002"),
        "West": ("30-0001",),
    }
    rows = [(d, c, kind) for d, held in codes.items() for c in held for kind in ("day", "board")]
    lines = [
        "District,Unit ID,Stay,Pupils",
        *(f"{d},{c},{s},{17 + 5 * k}" for k, (d, c, s) in enumerate(rows)),
    ]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert measured.cells.n == 6 * 2, draft.text


@pytest.mark.parametrize("sign", ["…", "x", ":"])
def test_a_note_of_a_code_below_a_table_is_no_row(tmp_path, sign):
    head = ";;all;a;b;c"
    rows = [f"{150 + k};T{k} x;{60 + 3 * k};{20 + k};{sign if k == 2 else 25 + k};{15 + k}" for k in range(6)]
    text = "\n".join([head, *rows, "", "Signs:", f"{sign};kept secret"]) + "\n"
    draft, measured = read_draft(tmp_path, text)
    assert "kept secret" not in str(draft.places)
    assert measured.cells.n == 6 * 3, draft.text


def test_rounded_numbers_below_the_base_place_nothing_below(tmp_path):
    lines = ["area,all,p,q,r,s,t", "Total,1170,540,330,300,470,160"]
    rows = [
        ("Avon", 150, 100, 30, 10, 50, 20),
        ("Bede", 210, 70, 40, 100, 110, 60),
        ("Cam", 240, 80, 90, 60, 110, "[s]"),
    ]
    rows += [("Ches", 20, 10, "[s]", "[s]", "[s]", "[c]"), ("Cleve", 10, "[c]", "[s]", "[c]", "[c]", "[c]")]
    rows += [("Cumb", 10, "[c]", "[c]", 10, "[s]", "[c]"), ("Derby", 330, 170, 90, 80, 120, 30)]
    rows += [("Dorset", 200, 100, 70, 40, 70, "[s]")]
    lines += [",".join(map(str, row)) for row in rows]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert not draft.places, draft.places
    assert measured.cells.n >= 8 * 5


def test_a_place_slightly_above_the_shown_sum_of_the_others_is_asked_and_taken_for_the_whole(tmp_path):
    shown = {
        "Selection (parts)": "513,138,42,255,78",
        "Ford": "X,-,-,X,-",
        "Glen": "27,5,-,22,-",
        "Hurst": "42,19,-,7,16",
    }
    shown |= {"Isle": "5,X,-,X,X", "Jura": "148,93,33,16,6", "Kyle": "12,7,-,X,X", "Leith": "259,X,X,199,49"}
    shown |= {"Mull": "X,-,-,X,-", "Nairn": "16,8,X,4,X"}
    lines = ["Ward,Trade,Firms"]
    for ward, each in shown.items():
        lines += [f"{ward},{trade},{n}" for trade, n in zip(("00", "09", "11", "15", "24"), each.split(","))]
    draft, measured = read_draft(tmp_path, "\n".join(lines) + "\n")
    assert '"Ward" = "Selection (parts)"' in draft.text
    assert any("'Selection (parts)' may be the sum" in said for said in draft.undecided)
    assert measured.cells.n % 9 == 0
