"""What a draft takes for a total, a rounding or a period only as far as the numbers tell it, and says so."""

import random

import pytest

from trueup.io.published.drafting import draft_published
from trueup.io.published.drafting.seen import counted_names
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

RNG = random.Random(7)
NOISY = [round(RNG.gauss(2, 6)) for _ in range(60)]
HOURS = [12, 7, 4, 3, 5, 9, 22, 41, 38, 30, 27, 29, 33, 31, 28, 34, 40, 44, 36, 25, 20, 18, 15, 13]


def drafted(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    return draft_published([tmp_path / "t.csv"])


def coded(head, numbers, width=2):
    return head + "".join(f"\n{k:0{width}},{n}" for k, n in enumerate(numbers)) + "\n"


FIRST = {
    "noisy zones": coded("zone,jobs", NOISY, 3),
    "exact hours": coded("hour,n", HOURS),
    "rounded hours": coded("hour,n", [5 * n for n in HOURS]),
    "ages": "age,n\n00,12\n05,16\n10,9\n15,21\n",
    "hours of two days": "day,hour,n\n"
    + "".join(f"{d},{k:02},{n + 3 * j}\n" for j, d in enumerate("ab") for k, n in enumerate(HOURS[:9])),
    "zones of districts": "district,zone,n\n"
    + "".join(f"{k // 3:02},{k:03},{n}\n" for k, n in enumerate(HOURS)),
    "a large first one": coded("hour,n", [60, *HOURS[1:]]),
}
WHOLE = {
    "noisy zones": coded("zone,jobs", [sum(NOISY) + 31, *NOISY], 3),
    "exact hours": coded("hour,n", [sum(HOURS), *HOURS]),
    "rounded hours": coded("hour,n", [5 * sum(HOURS) + 15, *(5 * n for n in HOURS)]),
    "ages": "age,n\n00,46\n05,16\n10,9\n15,21\n",
    "a hidden part": "zone,n\n00,80\n01,30\n02,*\n03,22\n04,27\n",
    "hours of two days": "day,hour,n\n"
    + "".join(f"{d},{k:02},{n}\n" for d in "ab" for k, n in enumerate([sum(HOURS), *HOURS])),
    "codes within codes": "trade,n\n0000,120\n1000,70\n1100,40\n1200,30\n2000,50\n2100,50\n",
}


@pytest.mark.parametrize("name", FIRST)
def test_a_code_of_zeros_far_from_the_sum_of_the_others_is_one_of_them(name, tmp_path):
    draft = drafted(tmp_path, FIRST[name])
    assert "total = {" not in draft.text
    assert any("0' is not near the sum of the other values" in said for said in draft.undecided)
    read_perturbed(parse_perturbed(draft.text), [tmp_path / "t.csv"])


@pytest.mark.parametrize("name", WHOLE)
def test_a_code_of_zeros_near_the_sum_of_the_others_is_their_total(name, tmp_path):
    draft = drafted(tmp_path, WHOLE[name])
    assert draft.places or (
        "total = {" in draft.text and any("0' is near the sum" in said for said in draft.undecided)
    )
    assert not any("not near" in said for said in draft.undecided)


def test_the_remedies_for_a_code_of_zeros_lead(tmp_path):
    text = drafted(tmp_path, FIRST["ages"]).text
    whole = text.replace('"00", ', "").replace('count = "n"', 'count = "n"\ntotal = { "age" = "00" }')
    read_perturbed(parse_perturbed(whole), [tmp_path / "t.csv"])
    text = drafted(tmp_path, WHOLE["ages"]).text
    beside = text.replace("values = [", 'values = ["00", ').replace('total = { "age" = "00" }\n', "")
    assert len(read_perturbed(parse_perturbed(beside), [tmp_path / "t.csv"]).headers) == 1


def test_a_code_of_zeros_that_another_column_names_the_total_needs_no_note(tmp_path):
    lines = [f"{k:02},{'Total' if not k else f'sector {k}'},{n}" for k, n in enumerate([sum(HOURS), *HOURS])]
    draft = drafted(tmp_path, "\n".join(["code,name,n", *lines]) + "\n")
    assert 'total = { "code" = "00" }' in draft.text
    assert not any("near the sum" in said for said in draft.undecided)


@pytest.mark.parametrize(
    "rows", ["a,0\nb,0\nc,0", "a,0\nb,<5\nc,<5", "a,0\n" * 14], ids=["zeros", "codes", "many"]
)
def test_values_that_are_all_zero_are_drafted_as_exact(rows, tmp_path):
    rows = "\n".join(f"{k}{row}" for k, row in enumerate(rows.split()))
    assert 'law = { name = "exact" }' in drafted(tmp_path, f"place,n\n{rows}\n").text


def test_names_before_a_count_and_a_share_are_keys(tmp_path):
    draft = drafted(
        tmp_path,
        "Canton,Persons,Share\nA,510,51.0%\nB,301,30.1%\nC,109,10.9%\nD,42,4.2%\nE,38,3.8%\nTotal,1000,100.0%\n",
    )
    assert 'count = "Persons"\ntotal = { "Canton" = "Total" }' in draft.text


@pytest.mark.parametrize(("names", "shown"), [(5, "a, b, c, d, e"), (6, "a, b, c, d and 2 more")])
def test_names_that_are_cut_are_counted(names, shown):
    assert counted_names("abcdef"[:names]) == shown


def test_all_columns_that_nothing_tells_apart_are_named(tmp_path):
    draft = drafted(
        tmp_path, "city,bus,car,bike,foot,tram\nx,11,26,31,25,14\ny,12,21,7,11,13\nz,31,4,17,16,52\n"
    )
    assert any("columns bus, car, bike, foot, tram apart" in said for said in draft.undecided)


@pytest.mark.parametrize(
    ("numbers", "law"),
    [
        ([120, 45, 165, 70], "exact"),
        ([120, 45, 165, 70, 85], "rounded"),
        ([5, 5, 5, 5, 10, 5, 15, 5, 5], "exact"),
        ([5, 5, 5, 5, 10, 5, 10, 5, 5, 10], "rounded"),
        ([12, 15, 9, 21], "exact"),
    ],
)
def test_few_multiples_are_no_rounding(numbers, law, tmp_path):
    draft = drafted(tmp_path, "area,n\n" + "".join(f"p{k},{n}\n" for k, n in enumerate(numbers)))
    assert f'law = {{ name = "{law}"' in draft.text
    assert any("so few values may be multiples of" in said for said in draft.undecided) == (law == "exact")


def test_the_law_is_judged_by_the_rows_and_columns_of_other_periods_too(tmp_path):
    windows = "".join(f"2024-{k:02}/{k + 2:02},{50 + 5 * (k * k % 7)}\n" for k in range(1, 11))
    assert 'name = "rounded", base = 5' in drafted(tmp_path, "window,cases\n" + windows).text
    years = "area,2022,2023,2024\nx,100,110,120\ny,50,40,45\nz,25,75,35\n"
    assert 'name = "rounded", base = 5' in drafted(tmp_path, years).text
    assert 'name = "exact"' in drafted(tmp_path, years.replace("110", "111")).text


def test_periods_that_are_left_out_are_named(tmp_path):
    rows = "2023Q1,11\n2023Q2,23\n2023Q3,35\n2023Q4,40\n2023H1,34\n2023H2,75\n2023,109\n"
    said = drafted(tmp_path, "period,visits\n" + rows).undecided
    assert any(
        "(2023Q1, 2023Q2, 2023Q3, 2023H1, 2023H2, 2023)" in text and "2023 may hold others" in text
        for text in said
    )


@pytest.mark.parametrize("names", ["Enrolled,Passed", "Passed,Enrolled"])
def test_a_column_below_the_one_beside_it_may_be_a_part_of_it(names, tmp_path):
    rows = {"Enrolled": (101, 204, 340, 512), "Passed": (80, 99, 171, 512)}
    columns = [rows[name] for name in names.split(",")]
    text = f"School,{names}\n" + "".join(f"{s},{a},{b}\n" for s, a, b in zip("ABCD", *columns))
    draft = drafted(tmp_path, text)
    assert any(
        "if 'Passed' is a part of 'Enrolled', all is counted twice" in said for said in draft.undecided
    )
    lines = [line for line in draft.text.splitlines() if 'count = "Passed"' not in line]
    spec = "\n".join('values = ["Enrolled"]' if line.startswith("values") else line for line in lines)
    assert len(read_perturbed(parse_perturbed(spec), [tmp_path / "t.csv"]).headers) == 1
