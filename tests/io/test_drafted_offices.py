# ruff: noqa: E501
"""Layouts of offices' own: their signs, digits, words and codes, each drafted to the values and the law that its file tells."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.io.test_published_as_they_come import values
from trueup.errors import DataError
from trueup.io.published.drafting import draft_published
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed


def drafted(folder, *texts, names=("t.csv", "u.csv", "v.csv")):
    """The draft of files, and the values that its spec reads by their labels."""
    files = [folder / name for name, _ in zip(names, texts)]
    for file, text in zip(files, texts):
        file.write_text(text, encoding="utf-8")
    draft = draft_published(files)
    listed = draft.geography
    spec = parse_perturbed(draft.text)
    if draft.places:
        listed = folder / "places.txt.csv"
        listed.write_text(
            "\n".join(",".join(pair) for pair in [(spec.parents.id, spec.parents.parent), *draft.places])
        )
    read = {part.file for part in spec.published}
    return draft, values(read_perturbed(spec, [file for file in files if file.name in read], listed))


@pytest.mark.parametrize("base", [3, 5])
@pytest.mark.parametrize("hidden", [False, True])
def test_small_counts_that_are_rounded_alone_have_a_law_of_their_own(tmp_path, base, hidden):
    rng = np.random.default_rng(base)
    true = rng.negative_binomial(1, 0.12, (60, 2))
    shown = np.where(true < base, base * (rng.random(true.shape) < true / base), true)
    small = [[".." if 0 < x < base else x for x in row] for row in true.tolist()]
    rows = small if hidden else shown.tolist()
    draft, _ = drafted(tmp_path, "Ort,a,b\n" + "".join(f"Ort {k},{a},{b}\n" for k, (a, b) in enumerate(rows)))
    told = f'law = {{ name = "random-rounding", base = {base}, below = {base} }}' in draft.text
    assert told is not hidden


WHOLES = """Pavisam|iš viso|Kopā|Kokku|Yhteensä|Samtals|I alt|Totalt|Ogółem|Celkem|Spolu|Összesen|Ukupno|Skupaj|Gjithsej|Toplam|Усього|
Итого|Укупно|Общо|Σύνολο|Iomlán|Jumlah|Jumla|合計|总计|總數|합계|계|المجموع|الإجمالي|कुल|Tổng số|รวม|Ukupno, svi uzrasti|Todas las edades|
Both sexes|Begge kjønn|Båda könen|Mindkét nem|Обидві статі|男女計|Kaikki iät|Insgesamt (alle)""".replace(
    "\n", ""
).split("|")


@pytest.mark.parametrize("whole", WHOLES)
def test_what_stands_for_all_is_known_in_many_languages(tmp_path, whole):
    rows = [(place, *pair) for place, pair in {"Ab": (31, 12), "Bo": (5, 44), "Cé": (17, 8)}.items()]
    text = "place,kind,n\n" + "".join(f'{p},"{whole}",{a + b}\n{p},x,{a}\n{p},y,{b}\n' for p, a, b in rows)
    draft, read = drafted(tmp_path, text)
    assert 'values = ["x", "y"]' in draft.text
    assert read["Bo"] == 49


@pytest.mark.parametrize(
    "other",
    ["Alle anderen", "Todos los otros", "Tous les autres", "Все другие", "All the rest", "Alla övriga"],
)
def test_the_rest_is_no_whole(tmp_path, other):
    text = f"place,kind,n\nAb,{other},31\nAb,y,12\nBo,{other},5\nBo,y,44\n"
    assert f'values = ["{other}", "y"]' in drafted(tmp_path, text)[0].text


@pytest.mark.parametrize(
    ("zero", "comma", "point"),
    [("０", "，", "．"), ("٠", "٬", "٫"), ("۰", "٬", "٫"), ("०", ",", "."), ("๐", ",", ".")],
)
def test_digits_of_other_scripts_are_numbers(tmp_path, zero, comma, point):
    def written(text):
        table = {str(k): chr(ord(zero) + k) for k in range(10)} | {",": comma, ".": point}
        return "".join(table.get(c, c) for c in text)

    rows = {"甲": "1,234", "乙": "56", "丙": "7,890"}
    text = "県\t人数\n" + "".join(f"{key}\t{written(n)}\n" for key, n in rows.items())
    _, read = drafted(tmp_path, text)
    assert read == {key: int(n.replace(",", "")) for key, n in rows.items()}


def test_apostrophes_before_codes_and_numbers_are_none_of_them(tmp_path):
    text = "code,n\n'01,'12\n'0101,'7\n'0102,'5\n'02,'20\n'0201,'8\n'0202,'12\n"
    _, read = drafted(tmp_path, text)
    assert (read["01"], read["0202"]) == (12, 12)
    _, read = drafted(tmp_path, "gemeente,n\n's-Gravenzande,5\n't Zand,7\n")
    assert read == {"'s-Gravenzande": 5, "'t Zand": 7}


@pytest.mark.parametrize(
    ("mark", "error"), [("*****", "+/-"), ("controlled", "MOE"), ("Exact", "margin of error")]
)
def test_a_controlled_value_is_exact(tmp_path, mark, error):
    text = f"state,kind,n,{error}\nA,x,900,{mark}\nA,y,410,33\nB,x,700,{mark}\nB,y,120,12\n"
    draft, _ = drafted(tmp_path, text)
    assert f'codes = {{ "{mark}" = "0" }}' in draft.text
    (tmp_path / "t.csv").write_text(text)
    spec = parse_perturbed(draft.text)
    laws = {
        h.law.name: v.tolist()
        for h, v in zip(*(lambda m: (m.headers, m.values))(read_perturbed(spec, [tmp_path / "t.csv"])))
    }
    assert laws["exact"] == [900, 700]


def test_the_remedies_for_a_mark_in_the_place_of_an_error_lead(tmp_path):
    text = "state,n,MOE\nA,900,(x)\nB,700,12\n"
    draft, _ = drafted(tmp_path, text)
    assert 'codes = { "(x)" = "unknown" }' in draft.text
    (tmp_path / "t.csv").write_text(text)
    bare = draft.text.replace('codes = { "(x)" = "unknown" }\n', "")
    with pytest.raises(DataError) as refused:
        read_perturbed(parse_perturbed(bare), [tmp_path / "t.csv"])
    exact, unknown = re.findall(r"codes = \{[^}]*\}", str(refused.value))
    for line, shown in ((exact, [[700], [900]]), (unknown, [[700]])):
        told = bare.replace("law =", f"{line}\nlaw =")
        read = read_perturbed(parse_perturbed(told), [tmp_path / "t.csv"])
        assert sorted(v.tolist() for v in read.values) == shown


@pytest.mark.parametrize("sizes", [(2, 3), (1, 3, 5)])
def test_levels_with_laws_of_their_own_get_an_entry_each_as_the_draft_says(tmp_path, sizes):
    rng = np.random.default_rng(sum(sizes))
    codes = (
        ["BE", "BE1", "BE2"][: 2 + len(sizes)]
        if len(sizes) == 2
        else ["P", "PAB", "PCD", "PABXY", "PABZZ", "PCDXX", "PCDQQ"]
    )
    codes = ["11", "12", "111", "112", "113", "121", "122"] if len(sizes) == 2 else codes
    finest = [c for c in codes if len(c) == sizes[-1]]
    parts = {c: rng.integers(100, 900) for c in finest}
    rows = {
        c: sum(n for part, n in parts.items() if part.startswith(c)) + 9 * (len(c) < sizes[-1]) for c in codes
    }
    text = "kod,antal\n" + "".join(f"{c},{n}\n" for c, n in rows.items())
    draft, _ = drafted(tmp_path, text)
    said = next(text for text in draft.undecided if "missed" in text)
    levels = re.findall(r"'([^']*)'", re.search(r"an entry for each of (.*?), alike", said)[1])
    head, entry = draft.text.split("[[published]]\n")
    own = {level: 4 * k + 1 for k, level in enumerate(levels)}
    entries = [
        re.sub(
            r'name = "t"', f'name = "t{v}"', re.sub(r'\nlevel = "[^"]*"', f'\nlevel = "{level}"', entry)
        ).replace('"exact"', f'"discrete-gaussian", sigma2 = "{v}"')
        for level, v in own.items()
    ]
    spec = parse_perturbed(head + "".join(f"[[published]]\n{each}" for each in entries))
    (tmp_path / "t.csv").write_text(text)
    measured = read_perturbed(spec, [tmp_path / "t.csv"])
    assert {h.margin.level: round(h.law.variance) for h in measured.headers} == own
    assert sorted(n for v in measured.values for n in v.tolist()) == sorted(rows.values())


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("head", ["nr,navn", "navn,nr", "ID,Gebiet"])
def test_places_above_without_a_code_keep_their_names(tmp_path, below, head):
    groups = {
        "Nord": {"01 x": (12, 40), "02 y": (9, 77), "03 z": (30, 8)},
        "Syd": {"07 u": (21, 55), "09 v": (14, 60)},
    }
    lines = []
    for name, parts in groups.items():
        own = [(*place.split(), *pair) for place, pair in parts.items()]
        whole = ("", name, *map(sum, zip(*parts.values())))
        lines += [*own, whole] if below else [whole, *own]
    first = head.startswith("navn")
    text = f"{head},a,b\n" + "".join(
        f"{n if first else c},{c if first else n},{a},{b}\n" for c, n, a, b in lines
    )
    draft, read = drafted(tmp_path, text)
    assert ("x", "Nord") in draft.places
    assert ("v", "Syd") in draft.places
    assert {read[f"{name}, category={k}"] for name in groups for k in "ab"} == {51, 125, 35, 115}


@pytest.mark.parametrize(
    ("codes", "head"),
    [
        ((("E1", "E2"), ("E1A1", "E1A2", "E2B1")), "geo_key"),
        ((("31", "32"), ("31001", "31005", "32002")), "UID"),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_codes_of_files_that_begin_with_each_other_are_levels(tmp_path, codes, head, last):
    counts = [{code: 10 * k + 5 for k, code in enumerate(level)} for level in codes]
    texts = []
    for k, level in enumerate(counts):
        rows = [
            (code, f"Sted {k}-{at}", sex, n + at + 3 * (sex == "y"))
            for at, (code, n) in enumerate(level.items())
            for sex in ("x", "y")
        ]
        order = (1, 2, 0, 3) if last else (0, 1, 2, 3)
        header = (head, "navn", "kind", "n")
        texts.append("\n".join(",".join(str(row[at]) for at in order) for row in [header, *rows]) + "\n")
    draft, read = drafted(tmp_path, *texts)
    assert f"prefix = {len(codes[0][0])}" in draft.text
    assert f"{codes[1][2]}, kind=y" in read


@pytest.mark.thorough
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("parent", ["Parent", "hoort bij"])
def test_numbers_of_rows_and_codes_of_a_list_are_no_counts(tmp_path, first, parent):
    rng = np.random.default_rng(first)
    places = {"PV1": ("GM11", "GM12", "GM15"), "PV2": ("GM21", "GM22")}
    n = {
        (g, s, a): int(rng.integers(20, 500))
        for gs in places.values()
        for g in gs
        for s in ("300", "400")
        for a in ("10", "20", "30")
    }
    rows = []
    for g in [*places, *(g for gs in places.values() for g in gs)]:
        for s in ("A99", "300", "400"):
            for a in ("10", "20", "30"):
                found = sum(
                    v
                    for (p, q, b), v in n.items()
                    if p in places.get(g, (g,)) and (s == "A99" or q == s) and a == b
                )
                rows.append((s, a, f"{g}  ", found))
    lines = [f'{k + first};"{s}";"{a}";"{g}";{v}' for k, (s, a, g, v) in enumerate(rows)]
    listed = [("Soort", "300", ""), ("Soort", "400", ""), *(("Regio", p, "") for p in places)]
    listed += [("Regio", g, p) for p, gs in places.items() for g in gs]
    codes = f"Dim;Code;{parent}\n" + "".join(";".join(row) + "\n" for row in listed)
    draft, read = drafted(tmp_path, "ID;Soort;Klasse;Regio;Aantal\n" + "\n".join(lines) + "\n", codes)
    assert ("GM15", "PV1") in draft.places
    assert read["GM22, Soort=400, Klasse=30"] == n["GM22", "400", "30"]
    assert 'values = ["300", "400"]' in draft.text


RANGES = {
    "zeros, exact": ("0", 1, "range of the true count, from 1 on, as zeros are shown"),
    "no zeros, exact": (
        "21",
        1,
        'range of the true count; if zeros are shown, write codes = { "<5" = "1-4" }',
    ),
    "zeros, rounded": (
        "0",
        5,
        'from 1 on, as zeros are shown; if it is of the published number, write codes = { "<5" = "published <5" }',
    ),
    "zeros, rounded to more": (
        "0",
        10,
        'range of the true count; if zeros are shown, write codes = { "<5" = "1-4" }; if it is of',
    ),
}


@pytest.mark.parametrize("name", RANGES)
def test_of_a_range_the_reading_that_is_taken_is_said_and_the_others_that_may_be(tmp_path, name):
    first, base, said = RANGES[name]
    rows = [f"P{k},{base * (7 + 3 * k)},{first if k else '<5'}" for k in range(9)]
    draft, read = drafted(tmp_path, "place,a,b\n" + "\n".join(rows) + "\n")
    assert any(said in text for text in draft.undecided)
    assert read["P0, category=b"] == ((1, 4) if "from 1 on" in said else (0, 4))


def test_a_range_of_noisy_numbers_is_said_to_be_one(tmp_path):
    draft, _ = drafted(tmp_path, "place,n\nA,12.5\nB,<5\nC,31.25\nD,8.75\n")
    assert any(
        "a range of the noisy number; if it is of the true count, write codes" in text
        for text in draft.undecided
    )


@pytest.mark.parametrize(
    ("values", "asked"), [(("karl", "kona"), False), (("α", "β", "γ"), False), (tuple("abcdefg"), True)]
)
def test_few_values_in_each_place_are_plainly_no_places(tmp_path, values, asked):
    rows = [f"Stað{k},{v},{7 * k + at}" for k in range(12) for at, v in enumerate(values)]
    draft, _ = drafted(tmp_path, "stað,flokkun,n\n" + "\n".join(rows) + "\n")
    assert any("whether places stand" in text for text in draft.undecided) is asked


def test_all_columns_that_are_left_out_are_named_or_counted(tmp_path):
    draft, _ = drafted(
        tmp_path,
        "area,"
        + ",".join(f"n {year}" for year in range(2015, 2024))
        + "\nA,1,2,3,4,5,6,7,8,9\nB,9,8,7,6,5,4,3,2,1\n",
    )
    assert any("(n 2015, n 2016, n 2017 and 5 more)" in text for text in draft.undecided)


def table_of(head, keys, counts, total=("", ""), sign=","):
    """A long table with the sums over both keys."""
    rows = [(a, b, *extra) for a, *extra in keys[0] for b in (*keys[1], total[1])]
    shown = [sum(n for (p, q), n in counts.items() if p == a and b in (q, total[1])) for a, b, *_ in rows]
    return head + "\n" + "".join(sign.join(map(str, (*row, n))) + "\n" for row, n in zip(rows, shown))


def test_ages_in_codes_and_other_scripts_are_no_places(tmp_path):
    for ages, whole in (
        (("Y_LT15", "Y15-64", "Y_GE65"), "TOTAL"),
        (("０～14歳", "15～64歳", "65歳以上"), "総数"),
        (("15세 미만", "15세 이상"), "계"),
    ):
        counts = {
            (p, a): 7 * k + 10 * j + 3 for k, p in enumerate(("R1X", "R2Q")) for j, a in enumerate(ages)
        }
        draft, read = drafted(
            tmp_path, table_of("Q1,V2,n", ([("R1X",), ("R2Q",)], ages), counts, ("", whole))
        )
        assert 'level = "Q1"' in draft.text
        assert read[f"R2Q, V2={ages[0]}"] == 10
        assert len(read) == 2 * len(ages) + 2, draft.text


def test_a_code_is_a_place_where_its_name_is_one(tmp_path):
    kinds = ("11", "12", "13", "14")
    counts = {
        (p, k): 5 * i + 3 * j + 2 for i, p in enumerate(("07", "08", "09")) for j, k in enumerate(kinds)
    }
    keys = ([("07", "Ulm", "x"), ("08", "Aalen", "x"), ("09", "Bonn", "x")], kinds)
    draft, read = drafted(tmp_path, table_of("V1Z,V2Z,Gemeinde,unit,n", keys, counts, ("", "-")))
    assert 'level = "V1Z"' in draft.text
    assert read["08"] == sum(n for (p, _), n in counts.items() if p == "08")


@pytest.mark.parametrize("name", ["Birthplace", "Country of birth", "Geburtsland", "País de nacimiento"])
def test_where_people_were_born_is_no_place_of_a_table(tmp_path, name):
    counts = {
        (p, b): 9 * k + j
        for k, p in enumerate("KLM")
        for j, b in enumerate(("here", "there", "elsewhere", "?"))
    }
    draft, _ = drafted(
        tmp_path,
        table_of(f"council,{name},n", ([*"KLM"], ("here", "there", "elsewhere", "?")), counts, ("", "all")),
    )
    assert 'level = "council"' in draft.text


def test_annotations_of_estimates_and_margins_are_neither(tmp_path):
    names = (
        "Estimate!!{0}",
        "Annotation of Estimate!!{0}",
        "Margin of Error!!{0}",
        "Annotation of Margin of Error!!{0}",
    )
    head = ",".join(
        ["id", *(name.format(of) for of in ("Total:", "Total:!!Owner", "Total:!!Renter") for name in names)]
    )
    rows = [
        "9900X1,80,null,9,null,50,null,7,null,30,null,7,null",
        "9900X2,60,(r),8,null,35,null,6,null,25,null,6,null",
    ]
    draft, read = drafted(tmp_path, "\n".join([head, *rows]) + "\n")
    assert 'variance = "Margin of Error!!Total:!!Owner"' in draft.text
    assert (read["9900X1"], len(read)) == (80, 6)


def test_one_number_before_the_names_is_no_count(tmp_path):
    text = "ENT,NOM,MUN,LOC,TOT,F,M\n" + "".join(
        f"31,Yuc,{k:03},Loc {k},{3 * k + 9},{2 * k + 4},{k + 5}\n" for k in range(1, 6)
    )
    draft, read = drafted(tmp_path, text)
    assert 'values = ["F", "M"]' in draft.text
    assert read["004"] == 21


def test_names_of_columns_of_one_year_are_told_by_what_else_they_say(tmp_path):
    draft, _ = drafted(tmp_path, "area,0-14 2022,15-64 2022,65+ 2022\nA,1,2,3\nB,4,5,9\n")
    assert 'name = "age"' in draft.text


@pytest.mark.parametrize(
    "rows", ["A,12.5\nB,<5\nC,31.25\n", "A,40\nB,<5\nC,25\n", "A,10\nB,<5\nC,35\nD,125\nE,555\nF,60\n"]
)
def test_lines_that_declare_another_reading_of_a_range_are_read(tmp_path, rows):
    draft, _ = drafted(tmp_path, f"place,n\n{rows}")
    said = next(text for text in draft.undecided if "what '<5' says" in text)

    def laws(text):
        measured = read_perturbed(parse_perturbed(text), [tmp_path / "t.csv"])
        return {
            (str(header.law), tuple(held.tolist())) for header, held in zip(measured.headers, measured.values)
        }

    lines = re.findall(r"codes = \{[^}]*\}", said)
    assert lines
    for line in lines:
        assert laws(draft.text.replace("law =", f"{line}\nlaw =")) != laws(draft.text), line
