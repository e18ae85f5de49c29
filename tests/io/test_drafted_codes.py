"""Codes of one length that end in zeros above others: the draft finds their levels, in any order and with levels left out."""

import random

import pytest

from trueup.io.published.drafting import draft_published

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
