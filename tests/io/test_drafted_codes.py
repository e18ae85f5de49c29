"""Codes of places that end in zeros above others, in any order and with levels left out; and numbers that stand for words."""

import random

import pytest

from trueup.errors import SpecError
from trueup.io.published.drafting import draft_published
from trueup.io.published.drafting.above import write_indented_places
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

TREE = {
    "10": {"1": {"01": 31, "02": 44, "10": 12}, "2": {"01": 25, "07": 60}},
    "20": {"1": {"03": 18, "20": 39}, "5": {"00": 57}},
    "21": {"": {"11": 72, "12": 15, "13": 23}},
    "47": {"3": {"30": 26, "31": 35}},
}
"""Counts of places by the parts of their codes: two regions end in zero, one has no level between, one district is one place."""


def coded(form):
    """Return the rows of a code and counts of all places, and the place above each."""
    rows, above = {}, {}
    root = form("00", "0", "00")
    for one, districts in TREE.items():
        above[region := form(one, "0", "00")] = root
        for two, places in districts.items():
            district = form(one, two, "00") if two else region
            above |= {district: region} if two else {}
            for three, count in places.items():
                place = form(one, two or "0", three)
                above |= {place: district} if place != district else {}
                for code in {place, district, region, root}:
                    counts = rows.get(code, (0, 0))
                    rows[code] = (counts[0] + count, counts[1] + 3 * count % 41)
    return rows, above | {root: ""}


FORMS = {
    "digits": lambda one, two, three: f"{one}{two}{three}",
    "a letter before": lambda one, two, three: f"R{one}{two}{three}",
    "points between": lambda one, two, three: f"{one}.{two}.{three}",
    "zeros behind all": lambda one, two, three: f"{one}{two}{three}000",
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", FORMS)
def test_zeros_at_the_end_of_codes_are_levels(form, seed, tmp_path):
    rows, above = coded(FORMS[form])
    order = sorted(rows) if not seed else random.Random(seed).sample(sorted(rows), len(rows))
    lines = [f"{code},place {code},{rows[code][0]},{rows[code][1]}" for code in order]
    (tmp_path / "t.csv").write_text("\n".join(["code,label,men,women", *lines]) + "\n")
    draft = draft_published([tmp_path / "t.csv"])
    assert {code: parent.replace("all", "") for code, parent in draft.places} == above, draft.undecided
    assert not any("sum" in said for said in draft.undecided)


def test_codes_that_end_in_zeros_without_sums_are_no_levels(tmp_path):
    lines = [
        f"{code},{count}" for code, count in zip(("1000", "1010", "1020", "2000", "2010"), (9, 81, 7, 64, 52))
    ]
    (tmp_path / "t.csv").write_text("\n".join(["code,cases", *lines]) + "\n")
    assert not draft_published([tmp_path / "t.csv"]).places


def estimates(*, instead):
    """Return rows of codes with their level and country before a sign, of estimates, and of errors beside them."""
    errors = {"0400000US46": "-555555555", "1400000US46011010300": instead}
    counts = {"1400000US46011010200": 510, "1400000US46011010300": 340, "1400000US46027965700": 220}
    counts |= {"1400000US46027965800": 130, "0500000US46011": 850, "0500000US46027": 350, "0400000US46": 1200}
    counts = {code: (str(n), str(2 * n)) for code, n in counts.items()}
    counts["1400000US46011010300"] = ("-666666666", "680") if instead == "-222222222" else ("340", "680")
    lines = (f"{code},{a},{errors.get(code, '12')},{b},9" for code, (a, b) in counts.items())
    return "\n".join(["GEO_ID,owners,owners MOE,renters,renters MOE", *lines]) + "\n"


@pytest.mark.parametrize("instead", ["-222222222", "-333333333", "-555555555", "**"])
def test_numbers_that_stand_for_words_are_codes(instead, tmp_path):
    (tmp_path / "t.csv").write_text(estimates(instead=instead))
    draft = draft_published([tmp_path / "t.csv"])
    listed = write_indented_places(tmp_path / "p.csv", draft.columns, draft.places)
    measured = read_perturbed(parse_perturbed(draft.text), [tmp_path / "t.csv"], listed)
    exact = sum(len(v.groups) for v in measured.headers if v.law.exact and v.groups is not None)
    assert '"-555555555" = "0"' in draft.text
    assert instead == "-555555555" or f'"{instead}" = "unknown"' in draft.text
    assert exact == 1 + (instead == "-555555555"), draft.text
    assert dict(draft.places)["1400000US46027965700"] == "0500000US46027"


def test_other_negative_numbers_are_no_codes_of_noisy_tables():
    spec = 'format = 1\ntitle = "T"\ntable = { name = "t", counts = "n" }\n'
    spec += 'level = [{ name = "all" }, { name = "a", column = "a" }]\n'
    spec += '[[published]]\nname = "t"\nlevel = "a"\ncount = "n"\nlaw = { name = "gaussian", sigma2 = "4" }\n'
    assert parse_perturbed(spec + 'codes = { "-999999999" = "unknown" }\n')
    for number in ("-99999999", "-123456789", "666666666", "-9"):
        with pytest.raises(SpecError, match="is read as a count"):
            parse_perturbed(spec + f'codes = {{ "{number}" = "unknown" }}\n')
