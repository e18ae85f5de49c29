"""Columns that say of values whether they are shown, and codes of cells in which nothing is counted."""

from __future__ import annotations

from itertools import product

import pytest

from tests.io.test_drafted_offices import drafted
from trueup.io.published.drafting.sums import sums_missed
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

PLACES, AGES = ("Ayr", "Bute", "Coll", "Deal"), ("0-15", "16-64", "65+")
COUNTS = dict(zip(product(PLACES, AGES), (12, 0, 31, 3, 9, 44, 17, 2, 8, 21, 4, 10)))


def long(flags, name, *, before=False, instead=""):
    """A long table with a column of flags before or behind its values; counts below 5 but 0 are hidden."""
    head = ["area", "age", *([name, "persons"] if before else ["persons", name])]
    rows = [",".join(head)]
    for (area, age), n in COUNTS.items():
        hidden = 0 < n < 5
        cells = [instead if hidden else str(n), flags[hidden]]
        rows.append(",".join([area, age, *(reversed(cells) if before else cells)]))
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize("instead", ["", "..", "x"])
@pytest.mark.parametrize("flags", [("F", "C"), ("A", "M"), ("free", "withheld"), ("", "s")])
@pytest.mark.parametrize(
    ("name", "before"),
    [("CONF_STATUS", False), ("obs_status", True), ("Disclosure code", True), ("Zeichen", False)],
)
def test_flags_are_no_attribute_and_say_what_is_hidden(tmp_path, name, before, flags, instead):
    draft, read = drafted(tmp_path, long(flags, name, before=before, instead=instead))
    assert f'name = "{name}"' not in draft.text
    assert [said for said in draft.undecided if f"'{name}' marks values" in said]
    assert sorted(read.values()) == sorted(n for n in COUNTS.values() if n == 0 or n > 4)
    assert not [said for said in draft.undecided if "refused" in said]


@pytest.mark.parametrize("before", [True, False])
def test_what_tells_rows_apart_is_no_flag(tmp_path, before):
    rows = [
        (area, status, age, n * k)
        for (area, age), n in COUNTS.items()
        for k, status in ((2, "employed"), (3, "retired"))
    ]
    text = "area,age,status,n\n" + "".join(f"{a},{g},{s},{n}\n" for a, s, g, n in rows)
    text = text if before else "area,age,n,status\n" + "".join(f"{a},{g},{n},{s}\n" for a, s, g, n in rows)
    draft, read = drafted(tmp_path, text)
    assert 'values = ["employed", "retired"]' in draft.text
    assert len(read) == 24


@pytest.mark.parametrize(
    "said",
    ["not applicable", "Not applicable: no such school", "Nicht zutreffend", "sans objet", "nie dotyczy"],
)
def test_a_code_for_what_is_not_applicable_is_a_zero(tmp_path, said):
    text = "area,boats,carts\nAyr,12,31\nBute,z,17\nColl,9,c\n" + f"z = {said}\nc = confidential\n"
    draft, read = drafted(tmp_path, text)
    assert 'codes = { "z" = "0", "c" = "unknown" }' in draft.text
    assert [n for key, n in read.items() if key.startswith("Bute")] in ([0, 17], [(0, 0), 17])


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_code_that_fills_the_rows_of_places_may_say_that_they_are_none_of_the_table(tmp_path, elsewhere):
    text = f"area,boats,carts\nAyr,12,31\nBute,..,..\nColl,9,{'..' if elsewhere else 17}\nTotal,21,48\n.. not collected\n"
    draft, _ = drafted(tmp_path, text)
    told = [said for said in draft.undecided if "it fills the rows of 'Bute'" in said]
    assert bool(told) is not elsewhere
    if told:
        remedy = told[0].partition("write ")[2]
        spec = parse_perturbed(draft.text.replace('codes = { ".." = "unknown" }', remedy))
        measured = read_perturbed(spec, [tmp_path / "t.csv"])
        assert spec.published[0].codes == {"..": "0"}
        assert not sums_missed(measured, "exact")
