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
