# ruff: noqa: E501
"""Sheets or files of one shape that hold other places each are parts of one list of places."""

from __future__ import annotations

import openpyxl
import pytest

from trueup.errors import TrueupError
from trueup.io.published.drafting import draft_published
from trueup.io.published.drafting.above import WHOLE, write_indented_places
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

NORTH = {"Northland": (95, 0), "Hundred of Ash": (30, 1), "Ayle": (10, 2), "Bury": (20, 2), "Hundred of Oak": (65, 1), "Corby": (40, 2), "Dale": (25, 2)}  # fmt: skip
SOUTH = {"Southland": (92, 0), "Hundred of Elm": (41, 1), "Eaton": (13, 2), "Frome": (28, 2), "Hundred of Yew": (51, 1), "Goole": (17, 2), "Hythe": (34, 2)}  # fmt: skip
ISLE = {"Isle": (63, 0), "Hundred of Fir": (63, 1), "Ilam": (21, 2), "Jarrow": (42, 2)}
SOWS, UNION = (2, 5), 73


def _leaves(place, rows):
    """The places without parts in a place; itself if it is one."""
    names = list(rows)
    at = names.index(place)
    ends = [k for k in range(at + 1, len(names)) if rows[names[k]][1] <= rows[place][1]]
    inside = names[at + 1 : min(ends, default=len(names))]
    found = [
        name
        for name, after in zip(inside, [*inside[1:], None])
        if after is None or rows[after][1] <= rows[name][1]
    ]
    return found or [place]


def _is_leaf(place, rows):
    return _leaves(place, rows) == [place]


def book(folder, sheets, *, after=False, blanks=2, title=True):
    """A workbook with a sheet for each region, whose parts stand below their sums or above."""
    made = openpyxl.Workbook()
    made.remove(made.active)
    for name, rows in sheets.items():
        sheet = made.create_sheet(name)
        if title:
            sheet.append([f"Pigs by parish, {name}"])
        sheet.append(["Parish", "sows", "boars", "pigs"])
        sows = {place: n * SOWS[0] // SOWS[1] for place, (n, depth) in rows.items() if _is_leaf(place, rows)}
        lines = []
        for place, (n, depth) in rows.items():
            own = UNION if place == "Union" else sum(sows[part] for part in _leaves(place, rows))
            lines.append((" " * blanks * depth + place, own, n - own, n))
        for line in _after(lines, blanks) if after else lines:
            sheet.append(line)
    made.save(folder / "pigs.xlsx")
    return folder / "pigs.xlsx"


def _after(lines, blanks):
    """Rows with every sum below its parts."""
    depth = [(len(line[0]) - len(line[0].lstrip())) // blanks for line in lines]
    found, open_ = [], []
    for line, own in zip(lines, depth):
        while open_ and open_[-1][1] >= own:
            found.append(open_.pop()[0])
        open_.append((line, own))
    return found + [line for line, _ in reversed(open_)]


def read(folder, files):
    """The draft of files, and what its spec reads with its list of places."""
    draft = draft_published(files)
    path = folder / "list.csv"
    path.unlink(missing_ok=True)
    listed = write_indented_places(path, draft.columns, draft.places) if draft.places else None
    return draft, read_perturbed(parse_perturbed(draft.text), files, listed)


def above(rows, root):
    """The place above each of a sheet's rows."""
    found, line = {}, [root]
    for place, (_, depth) in rows.items():
        found[place], line = line[depth], [*line[: depth + 1], place]
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("order", [("n", "s", "i"), ("i", "s", "n")])
@pytest.mark.parametrize("title", [False, True])
def test_sheets_of_one_region_each_have_one_list_of_places(tmp_path, after, order, title):
    sheets = {"n": ("N", NORTH), "s": ("S", SOUTH), "i": ("I", ISLE)}
    path = book(tmp_path, dict(sheets[key] for key in order), after=after, title=title)
    draft, _ = read(tmp_path, [path])
    wanted = {WHOLE: ""} | above(NORTH, WHOLE) | above(SOUTH, WHOLE) | above(ISLE, WHOLE)
    assert dict(draft.places) == wanted
    assert not [text for text in draft.undecided if "refused" in text or "missed" in text]


def test_regions_that_only_sheets_name_are_places_above(tmp_path):
    tops = {
        name: {place: (n, depth - 1) for place, (n, depth) in rows.items() if depth}
        for name, rows in (("North", NORTH), ("South", SOUTH))
    }
    draft, _ = read(tmp_path, [book(tmp_path, tops)])
    assert dict(draft.places) == {WHOLE: "", "North": WHOLE, "South": WHOLE} | above(
        tops["North"], "North"
    ) | above(tops["South"], "South")


def test_sheets_of_the_same_places_keep_one_list(tmp_path):
    path = book(tmp_path, {"mine": NORTH, "yours": {k: (3 * n, d) for k, (n, d) in NORTH.items()}})
    draft, _ = read(tmp_path, [path])
    assert dict(draft.places) == above(NORTH, "")


def test_a_nation_that_every_sheet_repeats_is_above_all(tmp_path):
    def below(rows):
        return {"Union": (187, 0)} | {place: (n, depth + 1) for place, (n, depth) in rows.items()}

    draft, _ = read(tmp_path, [book(tmp_path, {"a": below(NORTH), "b": below(SOUTH)})])
    assert dict(draft.places) == {"Union": ""} | above(NORTH, "Union") | above(SOUTH, "Union")


def test_a_name_that_several_sheets_have_is_said_and_the_remedy_works(tmp_path):
    def totalled(rows, name):
        return {name: next(iter(rows.values())), **dict(list(rows.items())[1:])}

    path = book(tmp_path, {"North": totalled(NORTH, "Region"), "South": totalled(SOUTH, "Region")})
    draft = draft_published([path])
    assert [t for t in draft.undecided if "several name one 'Region'" in t and "name of its own" in t]
    with pytest.raises(TrueupError):
        read(tmp_path, [path])
    again = book(tmp_path, {"North": totalled(NORTH, "Region N"), "South": totalled(SOUTH, "Region S")})
    renamed, _ = read(tmp_path, [again])
    assert dict(renamed.places)["Hundred of Elm"] == "Region S"
