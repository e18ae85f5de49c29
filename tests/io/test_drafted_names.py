"""Names and levels that several columns or files share: one attribute by codes and labels, parts that repeat in each place."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.command import run
from trueup.errors import InfeasibleError, SpecError
from trueup.inferring import infer
from trueup.io.published.drafting import draft_published
from trueup.io.published.drafting.names import name_of
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

CODED = {  # the columns of an attribute in each of two files, which tell counts by it, and by it and age
    "codes and labels beside them": (("kod", "naziv"), ("naziv", "kod")),
    "codes, and labels beside them": (("kod",), ("kod", "naziv")),
    "labels, and codes beside them": (("naziv",), ("kod", "naziv")),
    "labels beside codes, and codes": (("naziv", "kod"), ("kod",)),
    "labels beside codes, and labels": (("kod", "naziv"), ("naziv",)),
}
LABELS = {"kod": ("07", "12", "33"), "naziv": ("Vlasnik", "Najam", "Ostalo")}


def _tables_of_tenure(rng, shapes, names=("kod", "naziv")):
    """Counts by place, tenure and age, a text for each of the files, and the counts."""
    true = rng.poisson(40, (7, 3, 2))
    texts = []
    for k, columns in enumerate(shapes):
        head = [*columns, "opština", *["dob"] * (k > 0), "VALUE"]
        rows = [
            (*(LABELS[c][j] for c in columns), f"O{p}", *((age,) if k else ()), n)
            for p in range(7)
            for j in range(3)
            for age, n in (zip(("0-17", "18+"), true[p, j]) if k else [("", true[p, j].sum())])
        ]
        texts.append("\n".join(",".join(map(str, row)) for row in [head, *rows]) + "\n")
    return texts, true


@pytest.mark.thorough
@pytest.mark.parametrize("shapes", CODED)
@pytest.mark.parametrize("turned", [False, True])
def test_codes_and_labels_of_one_attribute_are_one(tmp_path, shapes, turned):
    texts, true = _tables_of_tenure(np.random.default_rng(3), CODED[shapes])
    files = [tmp_path / name for name in ("a.csv", "b.csv")]
    for file, text in zip(files, reversed(texts) if turned else texts):
        file.write_text(text)
    draft = draft_published(files)
    spec = parse_perturbed(draft.text)
    assert sorted(len(a.values) for a in spec.attributes) == [2, 3]
    posterior = infer(read_perturbed(spec, files), draws=20)
    assert posterior.summary("all")["mean"][0] == true.sum()
    left = [said for said in draft.undecided if "names what" in said or "numbers what another" in said]
    assert len(left) == sum(map(len, CODED[shapes])) - 2


def test_what_a_draft_says_of_codes_here_and_labels_there_leads(tmp_path):
    """One file has codes, one labels, and one both: the draft says what to write in a copy."""
    (coded, named), true = _tables_of_tenure(np.random.default_rng(4), (("kod",), ("naziv",)))
    pairs = "".join(
        f"{code},{label},{true[:, j].sum()}\n" for j, (code, label) in enumerate(zip(*LABELS.values()))
    )
    files = [tmp_path / name for name in ("a.csv", "b.csv", "c.csv")]
    for file, text in zip(files, (coded, named, "kod,naziv,VALUE\n" + pairs)):
        file.write_text(text)
    draft = draft_published(files)
    (said,) = [said for said in draft.undecided if "are one attribute" in said]
    found = re.search(r"in a copy of '(.*)' write '(.*)' for '(.*)' in the header, and (.*) below it", said)
    file, *names, words = found.groups()
    text = (tmp_path / file).read_text()
    for new, old in [names, *re.findall("'([^']*)' for '([^']*)'", words)]:
        text = re.sub(rf"^{old},", f"{new},", text, flags=re.MULTILINE)
    (tmp_path / file).write_text(text)
    draft = draft_published(files)
    assert not any("are one attribute" in said for said in draft.undecided)
    posterior = infer(read_perturbed(parse_perturbed(draft.text), files), draws=20)
    assert posterior.summary("all")["mean"][0] == true.sum()


OUTLINE = {  # larger places, those within them, and the names that the parts of these repeat
    "Land;Kreis;Teil": {
        "Nordland": {"Aue": "Stadt,Dörfer", "Berg": "Dörfer"},
        "Süden": {"Celle": "Stadt,Umland,Hafen", "Dorn": "Hafen,Dörfer", "Esch": "Umland"},
    },
    "a;b;c": {"Pat": {"Kel": "xan,yol", "Lom": "yol"}, "Quo": {"Mer": "zut,xan", "Nab": "zut", "Oxi": "yol"}},
}


def _outline(header, rng, values=("m", "w")):
    """A text in which each line names one place, in the column of its level, and the count of all."""
    lines, total = [f"{header};{';'.join(values)}"], 0
    for large, within in OUTLINE[header].items():
        own = {name: rng.poisson(40, (len(parts.split(",")), 2)) for name, parts in within.items()}
        lines.append(f"{large};;;" + ";".join(map(str, sum(each.sum(axis=0) for each in own.values()))))
        for name, parts in within.items():
            lines.append(f";{name};;" + ";".join(map(str, own[name].sum(axis=0))))
            lines += [f";;{part};{a};{b}" for part, (a, b) in zip(parts.split(","), own[name])]
        total += sum(each.sum() for each in own.values())
    return "\n".join(lines) + "\n", total


@pytest.mark.parametrize("header", OUTLINE)
def test_parts_whose_names_repeat_are_places_in_an_outline(tmp_path, header):
    text, total = _outline(header, np.random.default_rng(2))
    (tmp_path / "t.csv").write_text(text)
    draft = draft_published([tmp_path / "t.csv"])
    spec = parse_perturbed(draft.text)
    assert [level.name for level in spec.levels[1:]] == header.split(";")
    measured = read_perturbed(spec, [tmp_path / "t.csv"])
    finest = sum(len(parts.split(",")) for within in OUTLINE[header].values() for parts in within.values())
    posterior = infer(measured, draws=20)
    assert len(posterior.summary(spec.levels[-1].name)["mean"]) == finest
    assert posterior.summary("all")["mean"][0] == total


def test_what_a_draft_says_of_parts_that_may_be_values_leads(tmp_path):
    (tmp_path / "t.csv").write_text(_outline("a;b;c", np.random.default_rng(2))[0])
    draft = draft_published([tmp_path / "t.csv"])
    (said,) = [said for said in draft.undecided if "is taken for places within" in said]
    assert said.startswith("'t.csv': 'c' is taken for places within those of 'b'")
    text = draft.text.replace(', { name = "c", column = "c" }', "").replace('level = "c"', 'level = "b"')
    text = text.replace(
        "[[attribute]]", '[[attribute]]\nname = "c"\nvalues = ["xan", "yol", "zut"]\n\n[[attribute]]', 1
    )
    text = text.replace('level = "b"\n', 'level = "b"\nattributes = ["c"]\nunlisted = "unknown"\n')
    total = sum(map(int, re.findall(r"^\w+;;;(\d+);(\d+)", (tmp_path / "t.csv").read_text(), re.M)[0]))
    posterior = infer(read_perturbed(parse_perturbed(text), [tmp_path / "t.csv"]), draws=20)
    assert posterior.summary("a")["mean"][0] == total


@pytest.mark.parametrize("whole", ["Zosammen", "סך הכול"])
@pytest.mark.parametrize("last", [False, True])
def test_a_whole_that_stands_in_two_columns_of_places_is_that_of_both(tmp_path, whole, last):
    rng = np.random.default_rng(7)
    true = rng.poisson(90, (3, 4))
    rows = []
    for k, parts in enumerate(true):
        own = [(f"R{k}", f"p{k}{j}", n) for j, n in enumerate(parts)]
        rows += [*own, (f"R{k}", whole, parts.sum())] if last else [(f"R{k}", whole, parts.sum()), *own]
    of_all = [(whole, whole, true.sum())]
    rows = [*rows, *of_all] if last else [*of_all, *rows]
    (tmp_path / "t.csv").write_text("big,small,n\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    spec = parse_perturbed(draft_published([tmp_path / "t.csv"]).text)
    assert spec.published[0].total == {"big": whole, "small": whole}
    measured = read_perturbed(spec, [tmp_path / "t.csv"])
    assert infer(measured, draws=20).summary("small")["mean"].sum() == true.sum()


@pytest.mark.parametrize("width", [4, 9])
@pytest.mark.parametrize("coded", [True, False])
def test_a_row_that_numbers_columns_is_no_place(tmp_path, width, coded):
    counts = np.random.default_rng(width).poisson(60, (5, width - 2))
    head = [["nr", "Gemeinde", *(f"c{k}" for k in range(width - 2))], [*map(str, range(1, width + 1))]]
    rows = [
        [str(27 + k) if coded else f"G{k}", f"Gemeinde {'abcde'[k]}", *map(str, row)]
        for k, row in enumerate(counts)
    ]
    (tmp_path / "t.csv").write_text("\n".join(",".join(row) for row in [*head, *rows]) + "\n")
    spec = parse_perturbed(draft_published([tmp_path / "t.csv"]).text)
    measured = read_perturbed(spec, [tmp_path / "t.csv"])
    assert infer(measured, draws=20).summary("all")["mean"][0] == counts.sum()


def test_counts_that_rise_by_one_are_those_of_a_place(tmp_path):
    (tmp_path / "t.csv").write_text("nr,a,b\n1,2,3\n2,9,7\n3,11,4\n")
    spec = parse_perturbed(draft_published([tmp_path / "t.csv"]).text)
    measured = read_perturbed(spec, [tmp_path / "t.csv"])
    assert infer(measured, draws=20).summary("all")["mean"][0] == 36


def _of_one_part(rng, order):
    """Rows of places by name, one of which has one part, in an order; and the place above each."""
    parts = {
        "Gimli": ["Arborg", "Riverton"],
        "Morris": ["Rosenort"],
        "Piney": ["Vassar", "Sprague", "Sundown"],
    }
    if order == "equal neighbours":
        parts = {"Gimli": ["Arborg", "Riverton", "Fraser"], "Piney": ["Vassar", "Sprague", "Sundown"]}
    counts = {name: rng.poisson(30, 6) for names in parts.values() for name in names}
    counts["Fraser"] = counts["Riverton"] if order == "equal neighbours" else 0
    rows = []
    for above, names in parts.items():
        own = [(name, counts[name]) for name in names]
        total = (above, sum(n for _, n in own))
        rows += [*own, total] if order == "parts first" else [total, *own]
    every = ("Manitoba", sum(counts[name] for names in parts.values() for name in names))
    rows = [*rows, every] if order == "parts first" else [every, *rows]
    above = {name: large for large, names in parts.items() for name in names}
    return rows, {**dict.fromkeys(parts, "Manitoba"), **above, "Manitoba": ""}


def _written(path, rows):
    head = ",".join(["place", *(f"c{k}" for k in range(6))])
    path.write_text("\n".join([head, *(f"{name},{','.join(map(str, n))}" for name, n in rows)]) + "\n")


@pytest.mark.parametrize("order", ["parts first", "wholes first", "equal neighbours"])
@pytest.mark.parametrize("seed", range(3))
def test_a_place_with_one_part_has_its_numbers(tmp_path, order, seed):
    rows, above = _of_one_part(np.random.default_rng(seed), order)
    _written(tmp_path / "t.csv", rows)
    draft = draft_published([tmp_path / "t.csv"])
    assert dict(draft.places) == above
    assert not any("sums are missed" in said for said in draft.undecided)


@pytest.mark.thorough
def test_a_list_of_places_that_sums_contradict_is_named(tmp_path):
    rows, above = _of_one_part(np.random.default_rng(5), "wholes first")
    _written(tmp_path / "t.csv", rows)
    spec = parse_perturbed(draft_published([tmp_path / "t.csv"]).text)
    means = []
    for wrong in (True, False):
        pairs = above | ({"Rosenort": "Manitoba"} if wrong else {})
        listed = tmp_path / f"list{wrong}.csv"
        names = (spec.parents.id, spec.parents.parent)
        listed.write_text("\n".join(",".join(pair) for pair in [names, *pairs.items()]) + "\n")
        if wrong:
            draft = draft_published([tmp_path / "t.csv"], geography=listed)
            missed = [said for said in draft.undecided if "sums are missed" in said]
            assert "stands below another than its own in the list of places: correct the list" in missed[0]
            with pytest.raises(InfeasibleError, match="where a place stands below the wrong one"):
                infer(read_perturbed(spec, [tmp_path / "t.csv"], listed), draws=20)
        else:
            measured = read_perturbed(spec, [tmp_path / "t.csv"], listed)
            means.append(infer(measured, draws=20).summary("level 0")["mean"].sum())
    assert means == [rows[0][1].sum()]


BLOCKS = """Families

Land;Art;;;
Nord;;1 Kind;2 Kinder;Summe
A;x;3;4;7
A;y;5;6;11
B;x;1;4;5
B;y;8;9;17
;;;;
Süd;;1 Kind;2 Kinder;Summe
C;x;3;4;7
C;y;5;6;11
D;x;1;4;5
D;y;8;9;17
"""


def test_a_draft_that_is_refused_is_written_with_all_that_is_undecided(tmp_path):
    (tmp_path / "t.csv").write_text(BLOCKS, encoding="utf-8")
    shown = run("new", tmp_path / "s.toml", "--published", tmp_path / "t.csv").stdout
    with pytest.raises(SpecError):
        parse_perturbed((tmp_path / "s.toml").read_text(encoding="utf-8"))
    assert "To decide: as it stands the spec is refused: " in shown
    assert "To decide: where the header stands: " in shown
    assert "To decide: 't.csv': what '1 Kind' says (2 times)" in shown
    assert f"--table {tmp_path / 't.csv'}" in shown


@pytest.mark.parametrize("deep", ["Chef de ménage", "Personne de référence"])
@pytest.mark.parametrize("last", [False, True])
def test_a_row_of_a_header_above_two_others_is_no_value(tmp_path, deep, last):
    """Three rows of a header, of which the first is one name above all columns but the total, which has two rows."""
    counts = np.random.default_rng(3).poisson(50, (6, 2, 3))
    names = [(sex, kind) for sex in ("Hommes", "Femmes") for kind in ("Puits", "Robinet", "Vendeur")]
    parts = [[deep, *[""] * 5], ["Hommes", "", "", "Femmes", "", ""], [kind for _, kind in names]]
    head = [["Tous les ménages"], [""], ["Nombre"]]
    rows = [[str(row.sum())] for row in counts]
    rows = [
        [*row, *own] if last else [*own, *row] for own, row in zip(rows, counts.reshape(6, 6).astype(str))
    ]
    head = [[*part, *own] if last else [*own, *part] for own, part in zip(head, parts)]
    lines = [["Commune" * (k == 0), *row] for k, row in enumerate(head)]
    lines += [[f"Commune {'abcdef'[k]}", *row] for k, row in enumerate(rows)]
    (tmp_path / "t.csv").write_text("\n".join(";".join(line) for line in lines) + "\n", encoding="utf-8")
    spec = parse_perturbed(draft_published([tmp_path / "t.csv"]).text)
    assert [a.values for a in spec.attributes] == [("Hommes", "Femmes"), ("Puits", "Robinet", "Vendeur")]
    measured = read_perturbed(spec, [tmp_path / "t.csv"])
    assert infer(measured, draws=20).summary("all")["mean"][0] == counts.sum()


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ("1-9, 10-49, 50+", "size"),
        ("1–4, 5–19, 20 and more", "size"),
        ("1, 2, 3+", "size"),
        ("0-9, 10-49, 50+", "age"),
        ("<1, 1-4, 5+", "age"),
        ("1-14 years, 15 years and over", "age"),
    ],
)
def test_ranges_of_numbers_from_1_are_sizes_and_not_ages(values, name):
    assert name_of(values.split(", ")) == name
