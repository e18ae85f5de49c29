"""Totals that were added from perturbed cells: a draft leaves them out, or asks where it cannot know; reading warns of them."""

from __future__ import annotations

import re

import numpy as np
import pandas
import pytest

from trueup.inferring import infer
from trueup.io.published.drafting import draft_published
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

TITLES = {
    "cell key": "Counts were perturbed by a cell-key method",
    "adjusted": "Small numbers: cells have been randomly adjusted to protect persons",
    "nothing": "Counts of persons",
}


def _cells(rng, kind):
    """Counts by 9 places, two sexes and three kinds as published, with the totals over each, and those of the cells."""
    true = rng.poisson(12, (9, 2, 3))
    noise = rng.integers(-2, 3, (10, 3, 4))
    cells = true + (noise[:9, :2, :3] if kind != "exact" else 0)
    shown = np.zeros((10, 3, 4), int)
    shown[:9, :2, :3] = np.maximum(cells, 0)
    totals = np.maximum(true, 0) if kind == "noise of its own" else shown[:9, :2, :3]
    rows = totals.sum(axis=0, keepdims=True)
    full = np.concatenate([totals, rows])
    full = np.concatenate([full, full.sum(axis=1, keepdims=True)], axis=1)
    full = np.concatenate([full, full.sum(axis=2, keepdims=True)], axis=2)
    if kind == "noise of its own":
        full = np.maximum(full + noise, 0)
    return full


def _file(path, shown, title, layout, hidden=False):
    places = [f"Ward {'abcdefghi'[k]}" for k in range(9)] + ["Total"]
    sexes, kinds = ("Men", "Women", "Total"), ("red", "blue", "grey", "Total")
    text = [["*" if hidden and 0 < n < 12 else str(n) for n in row.ravel()] for row in shown]
    if layout == "wide":
        head = ["Ward", *(f"{sex}, {kind}" for sex in sexes for kind in kinds)]
        lines = [[place, *row] for place, row in zip(places, text)]
    else:
        head = ["Ward", "Sex", "Colour", "Count"]
        pairs = [(sex, kind) for sex in sexes for kind in kinds]
        lines = [[place, *pair, n] for place, row in zip(places, text) for pair, n in zip(pairs, row)]
    rows = [";".join(row) for row in (head, *lines)]
    path.write_text("\n".join([title, "", *rows]) + "\n", encoding="utf-8")


@pytest.mark.parametrize("title", TITLES)
@pytest.mark.parametrize("layout", ["wide", "long"])
@pytest.mark.parametrize("kind", ["added", "noise of its own", "exact", "hidden"])
def test_totals_added_from_noisy_cells_are_left_out(tmp_path, title, layout, kind):
    shown = _cells(np.random.default_rng(4), "exact" if kind == "hidden" else kind)
    _file(tmp_path / "t.csv", shown, TITLES[title], layout, hidden=kind == "hidden")
    draft = draft_published([tmp_path / "t.csv"])
    spec = parse_perturbed(draft.text)
    said = [text for text in draft.undecided if "perturbed by itself" in text]
    left_out = title != "nothing" and kind in ("added", "exact")
    assert bool(said) is left_out
    measured = read_perturbed(spec, [tmp_path / "t.csv"])
    published = sum(len(values) for values in measured.values)
    if left_out:
        assert said[0].endswith("they are left out")
        assert published == 54
        assert {header.law.name for header in measured.headers} == {"cell-key"}
        spread = infer(measured, draws=60).summary("all")["sd"]
        assert spread[0] > 0
    elif kind != "hidden":
        assert published == shown.size


def test_the_law_that_a_list_gives_stays_where_totals_are_left_out(tmp_path):
    _file(tmp_path / "t.csv", _cells(np.random.default_rng(4), "added"), TITLES["nothing"], "long")
    lines = ["count;published;probability", "1;0;0.5", "1;1;0.25", "1;2;0.25", "2;1;0.5", "2;2;0.5"]
    (tmp_path / "law.csv").write_text("\n".join(lines) + "\n")
    draft = draft_published([tmp_path / "t.csv", tmp_path / "law.csv"])
    assert any(text.endswith("they are left out") for text in draft.undecided)
    measured = read_perturbed(parse_perturbed(draft.text), [tmp_path / "t.csv"])
    assert sum(len(values) for values in measured.values) == 54
    (law,) = {header.law for header in measured.headers}
    assert law.name == "cell-key"
    assert "0.25" in str(law.transitions)


def test_where_places_stand_in_one_column_totals_are_left_out_by_hand(tmp_path):
    """The list of places tells which rows are totals: the draft says how to leave them out, and that leads to 54 cells."""
    shown = _cells(np.random.default_rng(6), "added")[:9]
    kinds = [
        f"{sex}, {kind}" for sex in ("Men", "Women", "Total") for kind in ("red", "blue", "grey", "Total")
    ]
    names = [f"Ward {'abcdefghi'[k]}" for k in range(9)]
    lines = [["Ward", *kinds], ["City", *map(str, shown.sum(axis=0).ravel())]]
    for k, district in enumerate(("Docks", "Hills", "Park")):
        own = range(3 * k, 3 * k + 3)
        lines.append([f"  {district}", *map(str, shown[own].sum(axis=0).ravel())])
        lines += [[f"    {names[j]}", *map(str, shown[j].ravel())] for j in own]
    rows = [TITLES["cell key"], "", *(";".join(line) for line in lines)]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    draft = draft_published([tmp_path / "t.csv"])
    (said,) = [text for text in draft.undecided if "perturbed by itself" in text]
    assert said.endswith("leave their rows out by `only`, and their columns out of `cell`")
    listed = tmp_path / "list.csv"
    listed.write_text("\n".join(map(",".join, [draft.columns, *draft.places])) + "\n", encoding="utf-8")
    kept = [line for line in draft.text.splitlines() if "Total" not in line.partition("where")[0]]
    wards = ", ".join(f'"{name}"' for name in names)
    text = "\n".join(kept).replace("\ncell = [", f'\nonly = {{ "Ward" = [{wards}] }}\ncell = [')
    measured = read_perturbed(parse_perturbed(text), [tmp_path / "t.csv"], listed)
    assert sum(len(values) for values in measured.values) == 54


def _followed(draft, said):
    """The spec of a draft after the entry `only` that a note prints is written, and `total` and its cells are left out."""
    only = re.search(r"write (only = \{.*\}), leave out", said)[1]
    cells = re.findall(r'"([^"]+)"', said.partition("leave out")[2])
    kept = [line for line in draft.text.splitlines() if not line.startswith(("only =", "total ="))]
    kept = [line for line in kept if not any(f'count = "{name}" ' in line for name in cells)]
    return (
        "\n".join(kept)
        .replace("\ncount =", f"\n{only}\ncount =")
        .replace("\ncell = [", f"\n{only}\ncell = [")
    )


@pytest.mark.parametrize("layout", ["wide", "long"])
@pytest.mark.parametrize("law", ["rounded", "small"])
@pytest.mark.parametrize("added", [True, False])
def test_whether_totals_were_added_is_asked_and_the_way_to_leave_them_out_works(tmp_path, layout, law, added):
    """Small counts only are perturbed, or all are rounded and sums are few: exact and added totals look alike."""
    rng = np.random.default_rng(11)
    true = rng.poisson(3 if law == "small" else 12, (9, 4))
    published = {
        "rounded": lambda x: (x + 2) // 5 * 5,
        "small": lambda x: np.where(x < 3, np.where(rng.random(x.shape) < x / 3, 3, 0), x),
    }[law]
    cells, totals = published(true), published(true.sum(axis=1))
    totals = cells.sum(axis=1) if added else totals + 5 * (np.arange(9) % 2)
    columns = ("ash", "birch", "cedar", "dill")
    if layout == "wide":
        lines = [["Parish", *columns, "Total"]]
        lines += [[f"P{k} x", *map(str, cells[k]), str(totals[k])] for k in range(9)]
    else:
        lines = [["Parish", "Tree", "Number"]]
        for k in range(9):
            lines += [[f"P{k} x", name, str(n)] for name, n in zip(columns, cells[k])]
            lines.append([f"P{k} x", "Total", str(totals[k])])
    (tmp_path / "t.csv").write_text("\n".join(map(",".join, lines)) + "\n", encoding="utf-8")
    draft = draft_published([tmp_path / "t.csv"])
    said = [text for text in draft.undecided if text.startswith("whether totals were added")]
    assert bool(said) is added, draft
    if added:
        said = [said[0].replace("t.csv' leave out", "t.csv' write only = {}, leave out")]
        measured = read_perturbed(parse_perturbed(_followed(draft, said[0])), [tmp_path / "t.csv"])
        assert sum(len(values) for values in measured.values) == 36


@pytest.mark.parametrize("added", [True, False])
def test_reading_warns_of_totals_that_always_add(added):
    rng = np.random.default_rng(3)
    cells = 3 * rng.integers(0, 9, (12, 3))
    totals = cells.sum(axis=1) + (0 if added else 3 * rng.integers(0, 2, 12))
    spec = parse_perturbed("""
        format = 1
        title = "Herds"
        table = { name = "herds", counts = "unit" }
        level = [{ name = "all" }, { name = "parish", column = "parish" }]
        [[attribute]]
        name = "animal"
        values = ["cow", "goat", "hen"]
        [[published]]
        name = "herds"
        level = "parish"
        attributes = ["animal"]
        count = "n"
        total = { animal = "any" }
        law = { name = "random-rounding", base = 3 }
    """)
    rows = [(f"p{k}", name, str(n)) for k in range(12) for name, n in zip(("cow", "goat", "hen"), cells[k])]
    rows += [(f"p{k}", "any", str(totals[k])) for k in range(12)]
    measured = read_perturbed(spec, [pandas.DataFrame(rows, columns=["parish", "animal", "n"])])
    assert added == any("added from the published values" in text for text in measured.spec.noted)
