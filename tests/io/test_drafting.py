# ruff: noqa: E501
"""A first spec of published tables: twelve files of different shapes, each with what is right of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command import run
from trueup.io.published.drafting import draft_published
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

RNG = np.random.default_rng(20)


def thirds(x):
    return int(round(x / 3) * 3)


def lines(*rows, sep=","):
    return "\n".join(sep.join(map(str, row)) for row in rows) + "\n"


def long_rounded():
    """Title above, source below, long with totals by 'Total', multiples of 3."""
    rows = [("Table 4. Residents, randomly rounded to base 3",), (), ("district", "sex", "persons")]
    for d in ("Ash", "Birch", "Cedar", "Dill"):
        f, m = RNG.integers(5, 90, 2)
        rows += [(d, "Female", thirds(f)), (d, "Male", thirds(m)), (d, "Total", thirds(f + m))]
    return lines(*rows, (), ("Source: office",))


def wide_total():
    rows = [("GEOID", "total", "under 15", "15 to 64", "65 and over")]
    for k in range(8):
        parts = RNG.integers(10, 400, 3)
        rows.append((f"0{k + 1}", parts.sum(), *parts))
    return lines(*rows)


def two_headers():
    rows = [("Code", "Sex", "", "Age", "", "All persons"), ("", "F", "M", "0-17", "18+", "")]
    for k in range(6):
        f, m, young = RNG.integers(20, 90, 3)
        rows.append((f"E0{k}", f, m, young // 4, f + m - young // 4, f + m))
    return lines(*rows, sep=";")


def all_levels():
    leaves = {f"XY{a}{b}": int(RNG.integers(20, 300)) for a in (1, 2) for b in (1, 2, 3)}
    rows = [("geo", "OBS_VALUE"), ("XY", sum(leaves.values()))]
    rows += [(f"XY{a}", sum(v for k, v in leaves.items() if k.startswith(f"XY{a}"))) for a in (1, 2)]
    return lines(*rows, *leaves.items())


def thousands():
    rows = [("municipality", "inhabitants")]
    rows += [(f"Town {k}", f'"{int(v):,}"') for k, v in enumerate(RNG.integers(800, 90000, 9))]
    return lines(*rows)


def suppressed():
    rows = [
        ("hospital", "cases"),
        *((f"H{k:02}", v if (v := int(RNG.integers(0, 30))) > 9 or not v else "*") for k in range(20)),
    ]
    return lines(*rows, ("* = 1 to 9; protected",))


def nested_columns():
    rows = [("county", "town", "households")]
    rows += [(c, f"{c}-{t}", int(RNG.integers(30, 900))) for c in ("North", "South") for t in "abcd"]
    return lines(*rows)


def noisy():
    rows = [("tract", "count_noisy"), *((f"0{k}", int(RNG.normal(3, 6))) for k in range(30))]
    return lines(*rows, ("099", -4))


def fractions():
    return lines(("zone", "y"), *((f"z{k}", round(float(RNG.normal(40, 6)), 2)) for k in range(9)))


def variances():
    return lines(
        ("area", "value", "variance"),
        *((f"a{k}", round(float(RNG.normal(40, 2)), 3), 4 if k else 0) for k in range(9)),
    )


def crossed():
    rows = [("sex", "age", "persons")]
    rows += [(s, a, 5 * int(RNG.integers(2, 60))) for s in ("f", "m") for a in ("young", "old", "very old")]
    return lines(*rows)


def with_names():
    rows = [("area code", "area name", "2021")]
    rows += [
        (f"S1200{k}", name, int(RNG.integers(90, 500)))
        for k, name in enumerate(("Fife", "Moray", "Angus", "Bute"))
    ]
    return lines(*rows)


SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "long, rounded": (long_rounded, {"levels": ["district"], "attributes": {"sex": ["Female", "Male"]}, "law": "RandomRounding"}),
    "wide with a total": (wide_total, {"levels": ["GEOID"], "attributes": {"age": ["under 15", "15 to 64", "65 and over"]}, "law": "Exact"}),
    "header of two rows": (two_headers, {"levels": ["Code"], "attributes": {"Sex": ["F", "M"], "Age": ["0-17", "18+"]}, "law": "Exact"}),
    "all levels of a code": (all_levels, {"levels": ["geo 3", "geo"], "attributes": {}, "law": "Exact"}),
    "thousands": (thousands, {"levels": ["municipality"], "attributes": {}, "law": "Exact"}),
    "suppressed": (suppressed, {"levels": ["hospital"], "attributes": {}, "law": "Exact", "undecided": "'*'"}),
    "nested columns": (nested_columns, {"levels": ["county", "town"], "attributes": {}, "law": "Exact"}),
    "noisy": (noisy, {"levels": ["tract"], "attributes": {}, "law": "DiscreteGaussian", "undecided": "sigma2"}),
    "fractions": (fractions, {"levels": ["zone"], "attributes": {}, "law": "Gaussian", "undecided": "sigma2"}),
    "variances": (variances, {"levels": ["area"], "attributes": {}, "law": "gaussian"}),
    "attributes alone": (crossed, {"levels": [], "attributes": {"sex": ["f", "m"], "age": ["young", "old", "very old"]}, "law": "Rounded", "undecided": "multiples of 5"}),
    "names beside codes": (with_names, {"levels": ["area code"], "attributes": {}, "law": "Exact"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_a_drafted_spec_runs_and_is_right(name, tmp_path):
    made, right = SHAPES[name]
    file = tmp_path / "table.csv"
    file.write_text(made())
    draft = draft_published([file])
    print(draft.text, *draft.undecided, sep="\n")
    spec = parse_perturbed(draft.text)
    measured = read_perturbed(spec, [file])
    assert measured.headers
    assert [level.name for level in spec.levels[1:]] == right["levels"]
    assert {a.name: list(a.values) for a in spec.attributes} == right["attributes"]
    law = spec.published[0].rule.law
    assert (law if isinstance(law, str) else type(law).__name__) == right["law"]
    assert right.get("undecided", "") in " ".join(draft.undecided)
    assert not any("refused" in said for said in draft.undecided)


def test_several_files_share_levels_whose_columns_have_other_names(tmp_path):
    fine, coarse = tmp_path / "towns.csv", tmp_path / "counties.csv"
    fine.write_text(nested_columns())
    coarse.write_text("County name,households\nNorth,1200\nSouth,1300\n")
    draft = draft_published([fine, coarse])
    measured = read_perturbed(parse_perturbed(draft.text), [fine, coarse])
    assert {str(h.margin) for h in measured.headers} == {"county", "town"}


def test_the_command_writes_the_spec_and_says_what_it_could_not_decide(tmp_path):
    for name, make in (("a.csv", suppressed), ("b.csv", suppressed)):
        (tmp_path / name).write_text(make())
    spec = tmp_path / "spec.toml"
    done = run("new", spec, "--published", tmp_path / "a.csv", tmp_path / "b.csv")
    assert done.returncode == 0, done.stderr
    assert "what '*' says" in done.stdout
    assert len(parse_perturbed(spec.read_text()).published) == 2
    again = run("new", spec, "--published", tmp_path / "a.csv")
    assert again.returncode != 0
    assert "choose another name" in again.stderr


@pytest.mark.parametrize(
    "text", ["", "no table here\n", "\x00\x01\x02", "a,b\n" * 3, '"' * 100, "," * 20000 + "\n"]
)
def test_files_without_a_table_are_refused(text, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    done = run("new", tmp_path / "s.toml", "--published", tmp_path / "t.csv")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not Path(tmp_path / "s.toml").exists()
