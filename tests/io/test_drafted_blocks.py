"""Blocks of one file, each below rows that name what it is of: the text there is a place or a value of an attribute."""

from __future__ import annotations

import pytest

from tests.io.test_drafted_offices import drafted

MEN, WOMEN = (
    {"Ayr": (31, 12), "Bute": (9, 8), "Coll": (17, 3)},
    {"Ayr": (28, 15), "Bute": (14, 2), "Coll": (11, 6)},
)
ALL = {place: tuple(map(sum, zip(MEN[place], WOMEN[place]))) for place in MEN}
WEST, EAST = {"Ayr": (31, 12), "Bute": (9, 8)}, {"Dunbar": (28, 15), "Elgin": (14, 2), "Forfar": (19, 23)}


def block(heads, rows, header, *, total=None, blank=True):
    """One block: rows of names and texts, a header, rows of places, and their sums below."""
    lines = [",".join(head) for head in heads] + [""] * blank + [header]
    lines += [f"{place},{young},{old},{young + old}" for place, (young, old) in rows.items()]
    sums = [sum(own[k] for own in rows.values()) for k in (0, 1)]
    return "\n".join([*lines, *([f"{total},{sums[0]},{sums[1]},{sum(sums)}"] * bool(total))]) + "\n"


HEADERS = ["Town,0 to 19,20 or more,Total", "Town,1 room,2+ rooms,Total", "Town,young,old,Total"]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(
    "ways",
    [
        [[("sex", ":", "Persons")], [("sex", ":", "Men")], [("sex", ":", "Women")]],
        [[("Sex: Men",), ("Year: 2021",)], [("Sex: Women",), ("Year: 2021",)]],
        [[("year", "2021"), ("of", "Women")], [("of", "Men")], [("of", "All")]],
    ],
)
@pytest.mark.parametrize("blank", [True, False])
def test_blocks_below_pairs_of_a_name_and_a_text_are_values_of_an_attribute(tmp_path, header, ways, blank):
    of = {"Men": MEN, "Women": WOMEN, "Persons": ALL, "All": ALL}
    label = [next(word for pair in heads for word in " ".join(pair).split() if word in of) for heads in ways]
    text = "\n".join(block(heads, of[own], header, blank=blank) for heads, own in zip(ways, label))
    draft, read = drafted(tmp_path, "Dogs by owner\n\n" + text + "\nSource: register\n")
    assert not [said for said in draft.undecided if "refused" in said or "missed" in said]
    young, old = header.split(",")[1:3]
    for own in label:
        for place, (a, b) in of[own].items():
            sex = f", sex={own}" if own in ("Men", "Women") else ""
            told = {key: n for key, n in read.items() if key.startswith(place) and (not sex or sex in key)}
            told = told if sex else {key: n for key, n in told.items() if "sex=" not in key}
            assert sorted(told.values()) == sorted((a, b, a + b)), (young, old, told)


@pytest.mark.parametrize("total", [None, "Sum", "Total"])
@pytest.mark.parametrize("header", HEADERS)
def test_blocks_of_other_places_lie_in_what_the_pair_names(tmp_path, header, total):
    text = "\n".join(
        block([("County", name)], rows, header, total=total, blank=False)
        for name, rows in (("West", WEST), ("East", EAST))
    )
    draft, read = drafted(tmp_path, "Dogs\n\n" + text)
    assert not [said for said in draft.undecided if "refused" in said or "missed" in said]
    assert [n for key, n in read.items() if key.startswith("East/Elgin")] == [16, 14, 2]
    whole = [n for key, n in read.items() if key == "West" or key.startswith("West, ")]
    assert sorted(whole) == ([20, 40, 60] if total else [])
