"""The form of every benchmark: names, keys, missing peers, honest memory."""

import importlib
import json
import math

import numpy as np
import pytest

from benchmarks.__main__ import main, names, title
from benchmarks.harness import Harness, available, largest_difference

KEYS = ["case", "ours_s", "peer", "peer_s", "ratio", "peak_mb", "difference"]


@pytest.mark.parametrize("name", names())
def test_every_benchmark_has_a_title_and_cases(name):
    module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
    assert title(module)
    assert callable(module.cases)


@pytest.mark.thorough
def test_cases_have_the_promised_keys_and_name_missing_peers():
    peers = {
        "math": lambda: 3.5,
        "nobody": available("no_such_module", lambda: 0),
        "slow": "not run above 10",
    }
    cases = list(Harness(repeats=3).compare("sum", lambda: 3.0, peers))
    assert [list(case) for case in cases] == [KEYS] * 3
    assert [case["peer"] for case in cases] == ["math", "nobody (not installed)", "slow (not run above 10)"]
    assert cases[0]["difference"] == 0.5
    assert math.isclose(cases[0]["ratio"] * cases[0]["ours_s"], cases[0]["peer_s"])
    assert cases[1]["peer_s"] is cases[1]["ratio"] is cases[1]["difference"] is None


@pytest.mark.thorough
def test_memory_is_that_of_the_run():
    small, large = (
        next(Harness(repeats=1).compare("zeros", lambda size=size: np.ones(size).sum()))["peak_mb"]
        for size in (10, 40_000_000)
    )
    assert 300 < large - small < 400  # 40 million doubles are 320 MB


def test_a_failing_run_is_an_error():
    with pytest.raises(ZeroDivisionError):
        list(Harness().compare("bad", lambda: 1 / 0))


def test_difference_that_is_not_a_number_is_null():
    case = next(
        Harness(repeats=1).compare(
            "nan", lambda: np.array([math.nan]), {"zero": lambda: np.zeros(1)}, memory=False
        )
    )
    assert case["difference"] is None
    assert largest_difference([], []) == 0


def test_list_and_json(capsys):
    assert main([]) == 0
    assert "tree-release" in capsys.readouterr().out


def test_json_is_one_object(capsys, monkeypatch):
    import benchmarks.tree_release as module

    monkeypatch.setattr(module, "cases", lambda harness: harness.compare("one", lambda: 1.0, memory=False))
    assert main(["tree-release", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "tree-release"
    assert list(found["cases"][0]) == KEYS


def test_parts_are_shown_as_one(tmp_path, capsys):
    rows = [{"title": part, "columns": ["a"], "rows": [["1"]]} for part in ("first", "second")]
    files = [tmp_path / f"{row['title']}.json" for row in rows]
    for file, row in zip(files, rows):
        file.write_text(json.dumps({"name": "startup", "cases": [], "pictures": [row]}))
    assert main(["--json", "--join", *map(str, files)]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "startup", "cases": [], "pictures": rows}


def test_a_part_that_a_benchmark_does_not_have_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["accuracy", "--part", "everything"])
    assert "bristol" in capsys.readouterr().err
