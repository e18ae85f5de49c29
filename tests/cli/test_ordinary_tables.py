"""Whatever table there is, `new --yes` drafts a spec that every command takes: made-up tables of at most 500 cells."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import pandas
import pytest

from tests.command import run

FEW, MANY, LARGEST = 6, 40, 500
PLACES = [
    "region",
    "district",
    "town",
    "site",
    "GEO",
    "method",
    "part",
    "Área",
    "all",
    "a.b",
    "a.b.c",
    "level 1",
]
ATTRIBUTES = [
    "sex",
    "age group",
    "mean",
    "released",
    "margin of error",
    "total",
    "place",
    "é",
    "kind",
    "Sex!",
    "count by",
    "label",
]
VALUES = ["f", "m", "0-4", "65+", "mean", "1", "2.0", "nobody's", "low", "'", "Ä", "not known", "<5", "draw"]


@dataclass(frozen=True)
class MadeUp:
    """A table, its public places (none where it has none), and the words that `new` is given.

    With `own` places the table of counts lists them itself.
    """

    rows: pandas.DataFrame
    places: pandas.DataFrame | None
    words: tuple[str, ...]
    own: bool = False


def made_up(rng: np.random.Generator) -> MadeUp:
    """Draw a table of counts or of records, by some levels and attributes, of few or many, with or without places."""
    attributes = _attributes(rng)
    cells = prod(len(values) for values in attributes.values())
    depth = int(rng.integers(0, 4))
    places = _places(rng, depth, max(1, LARGEST // cells)) if depth else None
    words = [
        word for name, values in attributes.items() for word in ("--attribute", f"{name}={','.join(values)}")
    ]
    words += ["--epsilon", str(rng.choice(["1/10", "1", "4"]))]
    if places is not None:
        words += ["--levels", ",".join(places)]
    if rng.random() < 0.5:
        own = places is not None and rng.random() < 0.5
        words += ["--count", "how many", *(["--public-places"] if own else [])]
        return MadeUp(_counts(rng, places, attributes), places, tuple(words), own)
    rows = _records(rng, places, attributes)
    if rng.random() < 0.5:
        rows["who"] = rng.integers(0, max(1, len(rows) // 2), len(rows))
        words += ["--id", "who", "--most", str(rng.integers(1, 4))]
    return MadeUp(rows, places, tuple(words))


def _attributes(rng) -> dict[str, list[str]]:
    names = rng.choice(ATTRIBUTES, int(rng.integers(0, 4)), replace=False)
    return {
        name: rng.choice(VALUES, int(rng.integers(1, 5)), replace=False).tolist() for name in names.tolist()
    }


def _places(rng, depth: int, most: int) -> pandas.DataFrame:
    """Nested places: each level splits the places of the one above, and its keys repeat in each, or do not."""
    leaves = int(rng.integers(1, min(most, 40) + 1))
    columns, above = {}, np.zeros(leaves, int)
    for level in range(depth - 1):
        above = np.sort(rng.integers(0, level + 2, leaves)) + above * 7
        columns[level] = [f"k{key}" for key in above]
    columns[depth - 1] = [f"{at:03}" for at in range(leaves)]
    names = rng.choice(PLACES, depth, replace=False).tolist()
    return pandas.DataFrame({name: columns[at] for at, name in enumerate(names)})


def _counts(rng, places, attributes) -> pandas.DataFrame:
    keys = pandas.DataFrame({"one": [0]}) if places is None else places
    for name, values in attributes.items():
        keys = keys.merge(pandas.DataFrame({name: values}), how="cross")
    mean = rng.choice([0.3, 5, 200])
    return keys.drop(columns="one", errors="ignore").assign(
        **{"how many": rng.poisson(mean * rng.gamma(1, 1, len(keys)))}
    )


def _records(rng, places, attributes) -> pandas.DataFrame:
    many = int(rng.integers(1, 200))
    held = {name: rng.choice(values, many) for name, values in attributes.items()}
    rows = pandas.DataFrame({"note": ["x"] * many, **held})
    if places is None:
        return rows
    return rows.join(places.iloc[rng.integers(0, len(places), many)].reset_index(drop=True))


def succeeds(*words) -> str:
    done = run(*words)
    assert done.returncode == 0, f"{shlex.join(map(str, words))}: {done.stderr.splitlines()[-1]}"
    return done.stdout


def goes_all_the_way(table: MadeUp, folder: Path) -> None:
    spec, out = folder / "spec.toml", folder / "released"
    table.rows.to_csv(folder / "rows.csv", index=False)
    listed, places = [], folder / ("rows.csv" if table.own else "places.csv")
    if table.places is not None:
        table.places.to_csv(folder / "places.csv", index=False)
        listed = ["--geography", places]
    data, explained = ["--data", folder / "rows.csv"], listed
    if table.own:
        listed = []
    succeeds("new", spec, *data, *listed, *table.words, "--yes")
    succeeds("explain", spec, *explained)
    succeeds("release", spec, *data, *listed, "--out", out)
    succeeds("check", out)
    succeeds("infer", out, "--draws", 100, "--out", folder / "posterior")
    for to in ("csv", "sdmx-csv"):
        succeeds("export", out, "--to", to, "--out", folder / to)
    succeeds("report", out, "--out", folder / "report.html")


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(FEW))
def test_a_made_up_table_goes_through_every_command(number, rng, tmp_path, monkeypatch):
    monkeypatch.setattr("trueup.releasing.explain.MAX_EXPLAINED_CELLS", 2**12)
    goes_all_the_way(made_up(rng), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(MANY))
def test_many_made_up_tables_go_through_every_command(number, rng, tmp_path):
    goes_all_the_way(made_up(rng), tmp_path)


def test_the_tables_are_as_various_as_they_are_said_to_be():
    tables = [made_up(np.random.default_rng([seed, 7])) for seed in range(60)]
    assert 15 < sum("--count" in table.words for table in tables) < 45
    assert 5 < sum(table.places is None for table in tables) < 30
    assert sum(table.own for table in tables) > 8
    assert sum("--id" in table.words for table in tables) > 8
    assert all(_cells(table) <= LARGEST for table in tables)


def _cells(table: MadeUp) -> int:
    values = [word.partition("=")[2].split(",") for word in table.words if "=" in word]
    return prod(map(len, values)) * (1 if table.places is None else len(table.places))
