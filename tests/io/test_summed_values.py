"""Values of an attribute that are sums of others: the draft leaves them out, and reading names them with a way out."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from tests.parameters import one_in
from trueup.inferring import infer
from trueup.io.published.drafting import draft_published
from trueup.io.published.perturbed import read_perturbed
from trueup.io.published.perturbed.parts import equal_runs, summed_values
from trueup.model.perturbed import parse_perturbed

pd = pytest.importorskip("pandas")


def _rounded(rng, counts, base, *, at_random):
    if base == 1:
        return counts
    return (counts + (rng.integers(0, base, counts.shape) if at_random else base // 2)) // base * base


SECTORS = {  # name: its parts among the finest
    "agriculture": [0],
    "goods": [1, 2],
    "manufacturing": [1],
    "construction": [2],
    "services": [3, 4],
    "trade": [3],
    "transport": [4],
    "economy": [0, 1, 2, 3, 4],
}
MARITAL = {
    "ledig": [0],
    "verheiratet": [1],
    "verwitwet": [2],
    "geschieden": [3],
    "nicht verheiratet": [0, 2, 3],
}
ACTIVITY = {"population active": [0, 1], "actifs occupés": [0], "chômeurs": [1], "inactifs": [2]}


@pytest.mark.parametrize(
    ("values", "base", "at_random"), [(SECTORS, 1, False), (MARITAL, 5, False), (ACTIVITY, 3, True)]
)
@pytest.mark.parametrize("wide", [False, True])
def test_a_draft_leaves_sums_of_values_out(tmp_path, values, base, at_random, wide):
    rng = np.random.default_rng(len(values) + base)
    finest = max(max(parts) for parts in values.values()) + 1
    true = rng.poisson(60, (14, finest))
    shown = {
        v: _rounded(rng, true[:, parts].sum(axis=1), base, at_random=at_random) for v, parts in values.items()
    }
    table = pd.DataFrame({"place": [f"P{chr(65 + k)}" for k in range(14)], **shown})
    if not wide:
        table = table.melt("place", var_name="kind", value_name="count")
    table.to_csv(tmp_path / "t.csv", index=False)
    draft = draft_published([tmp_path / "t.csv"])
    spec = parse_perturbed(draft.text)
    assert len(spec.attributes[0].values) == finest
    read = read_perturbed(spec, [tmp_path / "t.csv"])
    total = infer(read, draws=20).summary("all")["mean"][0]
    assert abs(total - true.sum()) < 4 * base * np.sqrt(true.size) + 1e-6


def test_codes_and_a_whole_confirm_sums_that_few_numbers_leave_open(tmp_path):
    rng = np.random.default_rng(5)
    true = rng.poisson(25, (8, 4))
    parts = {"T": [0, 1, 2, 3], "A": [0, 1], "A1": [0], "A2": [1], "B": [2, 3], "B1": [2], "B2": [3]}
    shown = {code: _rounded(rng, true[:, own].sum(axis=1), 5, at_random=False) for code, own in parts.items()}
    table = pd.DataFrame({"municipality": list("abcdefgh"), **shown}).melt("municipality", var_name="nace")
    table.to_csv(tmp_path / "t.csv", index=False)
    draft = draft_published([tmp_path / "t.csv"])
    assert parse_perturbed(draft.text).attributes[0].values == ("A1", "A2", "B1", "B2")


def test_what_a_draft_says_of_sums_that_are_open_leads(tmp_path):
    rng = np.random.default_rng(8)
    true = rng.poisson(20, (4, 3))
    shown = {"rot": true[:, 0], "blau": true[:, 1], "grün": true[:, 2], "bunt": true[:, 0] + true[:, 2]}
    shown = {name: _rounded(rng, counts, 5, at_random=False) for name, counts in shown.items()}
    table = pd.DataFrame({"Ort": list("abcd"), **shown}).melt("Ort", var_name="Farbe", value_name="Zahl")
    table.to_csv(tmp_path / "t.csv", index=False)
    draft = draft_published([tmp_path / "t.csv"])
    said = next(
        text for text in draft.undecided if "'bunt' of 'Farbe' may be the sum of 'rot', 'grün'" in text
    )
    found = re.search(r"write (only = .*?) in its entry", said)
    assert found
    text = draft.text.replace(', "bunt"', "").replace('count = "Zahl"', f'count = "Zahl"\n{found[1]}')
    total = infer(read_perturbed(parse_perturbed(text), [tmp_path / "t.csv"]), draws=20).summary("all")[
        "mean"
    ][0]
    assert total == sum(int(counts.sum()) for name, counts in shown.items() if name != "bunt")


def test_totals_of_parts_alone_are_parts(tmp_path):
    rows = [
        (f"p{k}", v, n + k) for k in range(6) for v, n in (("Total employed", 60), ("Total unemployed", 9))
    ]
    pd.DataFrame(rows, columns=["place", "status", "n"]).to_csv(tmp_path / "t.csv", index=False)
    draft = draft_published([tmp_path / "t.csv"])
    assert parse_perturbed(draft.text).attributes[0].values == ("Total employed", "Total unemployed")


@pytest.mark.thorough
def test_two_attributes_with_sums_of_some_values(tmp_path):
    rng = np.random.default_rng(12)
    true = rng.poisson(30, (9, 3, 3))
    first = {"rot": [0], "grün": [1], "bunt": [0, 1], "grau": [2], "jede": [0, 1, 2]}
    second = {"klein": [0], "mittel": [1], "groß": [2], "nicht klein": [1, 2], "jedes": [0, 1, 2]}
    rows = [
        (f"P{k}", a, b, true[k][np.ix_(i, j)].sum())
        for k in range(9)
        for a, i in first.items()
        for b, j in second.items()
    ]
    pd.DataFrame(rows, columns=["Ort", "Farbe", "Größe", "Zahl"]).to_csv(tmp_path / "t.csv", index=False)
    spec = parse_perturbed(draft_published([tmp_path / "t.csv"]).text)
    assert [a.values for a in spec.attributes] == [("rot", "grün", "grau"), ("klein", "mittel", "groß")]
    assert spec.published[0].total == {"Farbe": "jede", "Größe": "jedes"}
    assert infer(read_perturbed(spec, [tmp_path / "t.csv"]), draws=20).summary("all")["mean"][0] == true.sum()


PARTITIONS = {
    "sexes and ages": (("m", "w"), ("unter 40", "40 und mehr")),
    "three": (("Male", "Female"), ("Owner", "Renter"), ("Urban", "Rural")),
    "of unlike length": (("employés", "sans emploi"), ("nord", "centre", "sud")),
}


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("wide", [False, True])
def test_partitions_in_one_column_are_as_many_attributes(tmp_path, name, wide):
    rng = np.random.default_rng(len(name))
    groups = PARTITIONS[name]
    size = tuple(map(len, groups))
    true = rng.poisson(300 / np.prod(size), (10, *size))
    shown = {}
    for axis, group in enumerate(groups, 1):
        sums = true.sum(axis=tuple(other for other in range(1, len(size) + 1) if other != axis))
        shown |= {value: _rounded(rng, sums[:, k], 3, at_random=True) for k, value in enumerate(group)}
    table = pd.DataFrame({"place": [f"P{k}" for k in "abcdefghij"], **shown})
    if not wide:
        table = table.melt("place", var_name="kind", value_name="count")
    table.to_csv(tmp_path / "t.csv", index=False)
    spec = parse_perturbed(draft_published([tmp_path / "t.csv"]).text)
    assert [a.values for a in spec.attributes] == [*groups]
    read = read_perturbed(spec, [tmp_path / "t.csv"])
    assert {header.margin.attributes for header in read.headers} == {(a.name,) for a in spec.attributes}


def test_runs_without_the_same_sums_are_one_attribute():
    """Of 400 tables of six values with shares alike none falls apart."""
    rng = np.random.default_rng(6)
    for _ in range(400):
        counts = rng.poisson(rng.dirichlet([8] * 6)[:, None] * rng.gamma(2, 90, 20)) // 3 * 3.0
        assert equal_runs(np.stack([counts, counts], axis=2).astype(np.float64), 8 / 6) == []


@pytest.mark.thorough
def test_values_in_no_sum_stay(tmp_path):
    rng = np.random.default_rng(4)
    for k in range(20):
        table = pd.DataFrame(
            [(f"p{i}", v, rng.poisson(30)) for i in range(12) for v in "abcde"],
            columns=["place", "kind", "count"],
        )
        table.to_csv(tmp_path / f"{k}.csv", index=False)
        draft = draft_published([tmp_path / f"{k}.csv"])
        assert 'values = ["a", "b", "c", "d", "e"]' in draft.text


@pytest.mark.thorough
def test_sums_are_told_from_shares_that_are_alike():
    """Of 400 tables without sums none has one by error; of 400 with one, it is found in at least 380."""
    rng = np.random.default_rng(9)
    for base in (1, 3):
        wrong = right = 0
        for _ in range(200):
            size = rng.gamma(2, 40, 30)
            parts = rng.poisson(rng.dirichlet([3] * 5)[:, None] * size)
            plain = _rounded(rng, np.vstack([parts, rng.poisson(size / 2)]), base, at_random=True).astype(
                float
            )
            summed = _rounded(rng, np.vstack([parts, parts[1:4].sum(axis=0)]), base, at_random=True).astype(
                float
            )
            variance = (base**2 - 1) / 6
            wrong += any(each.sure for each in summed_values(np.stack([plain] * 2, axis=2), variance))
            found = summed_values(np.stack([summed] * 2, axis=2), variance)
            right += [(each.value, each.parts) for each in found if each.sure] == [(5, (1, 2, 3))]
        assert wrong == 0
        assert right >= 190


def _noted(text, table):
    return getattr(read_perturbed(parse_perturbed(text), [table]).spec, "noted", ())


SPEC = """
format = 1
title = "t"
table = { name = "t", counts = "unit" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "kind", values = ["a", "b", "ab", "c", "whole"] }]
[[published]]
name = "t"
level = "area"
law = { name = "exact" }
"""


@pytest.mark.parametrize("whole", ["in values", "declared"])
def test_what_reading_says_of_sums_leads(whole):
    rng = np.random.default_rng(2)
    true = rng.poisson(40, (15, 3))
    rows = [
        (f"p{k}", kind, count)
        for k, (a, b, c) in enumerate(true.tolist())
        for kind, count in {"a": a, "b": b, "ab": a + b, "c": c, "whole": a + b + c}.items()
    ]
    table = pd.DataFrame(rows, columns=["area", "kind", "n"])
    text = SPEC + 'attributes = ["kind"]\ncount = "n"\n'
    if whole == "declared":
        text = text.replace(', "whole"]', "]") + 'total = { kind = "whole" }\n'
    noted = _noted(text, table)
    said = next(note for note in noted if note.startswith("'ab' of 'kind' is about the sum of 'a', 'b'"))
    found = re.search(r"declare (values = \S.*?\]) and, .*?, (only = .*? \}) and (total = .*? \})", said)
    assert found
    values, only, total = found.groups()
    followed = re.sub(r"values = \[.*?\]", values, text.split("total =")[0]) + f"{only}\n{total}\n"
    read = read_perturbed(parse_perturbed(followed), [table])
    assert not any("sum of" in note for note in _noted(followed, table))
    assert infer(read, draws=20).summary("all")["mean"][0] == true.sum()


def test_columns_that_are_sums_are_named(tmp_path):
    rng = np.random.default_rng(3)
    a, b, c = rng.poisson(40, (3, 15))
    table = pd.DataFrame(
        {"area": [f"p{k}" for k in range(15)], "a": a, "b": b, "ab": a + b, "c": c, "whole": a + b + c}
    )
    cells = [f'{{ count = "{name}", where = {{ kind = "{name}" }} }}' for name in table.columns[1:]]
    noted = _noted(f"{SPEC}cell = [{', '.join(cells)}]", table)
    said = next(note for note in noted if note.startswith("'ab' of 'kind'"))
    assert 'leave out the `cell` of ["ab"] and take `where` out of the `cell` of ["whole"]' in said
    followed = SPEC.replace(json.dumps(["a", "b", "ab", "c", "whole"]), json.dumps(["a", "b", "c"]))
    left = [cell for cell in cells if '"ab"' not in cell and '"whole"' not in cell] + ['{ count = "whole" }']
    read = read_perturbed(parse_perturbed(f"{followed}cell = [{', '.join(left)}]"), [table])
    assert infer(read, draws=20).summary("all")["mean"][0] == a.sum() + b.sum() + c.sum()


JOINED = {
    "HM": "HM",
    "MF": "FM",
    "Women and men": ("Women", "Men"),
    "Miehiä ja naisia": ("Miehiä", "Naisia"),
    "K/M": "KM",
    "甲乙": "甲乙",
}


@pytest.mark.parametrize("whole", one_in(2, JOINED))
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("layout", ["long", "wide", "crossed"])
def test_a_value_that_joins_the_names_of_others_is_their_whole(tmp_path, whole, alone, layout):
    first, second = JOINED[whole]
    true = np.random.default_rng(5).poisson(70, (12, 3, 2))
    shown = {first: true[..., 0], second: true[..., 1]}
    shown = {first: shown[first]} if alone else shown
    both = (
        [(whole, true.sum(axis=2)), *shown.items()]
        if len(whole) % 2
        else [*shown.items(), (whole, true.sum(axis=2))]
    )
    places = [f"P{chr(65 + k)}" for k in range(12)]
    if layout == "long":
        rows = [(place, name, n[k].sum()) for k, place in enumerate(places) for name, n in both]
        table = pd.DataFrame(rows, columns=["place", "who", "count"])
    else:
        kinds = ["rot", "blau", "grün"] if layout == "crossed" else [""]
        columns = {
            ", ".join(filter(None, (kind, name))): n[:, k] if kind else n.sum(axis=1)
            for k, kind in enumerate(kinds)
            for name, n in both
        }
        table = pd.DataFrame({"place": places, **columns})
    table.to_csv(tmp_path / "t.csv", index=False)
    draft = draft_published([tmp_path / "t.csv"])
    spec = parse_perturbed(draft.text)
    names = {value.casefold() for value in spec.attributes[-1].values}
    assert names == {first.casefold(), second.casefold()}
    assert any("nothing shows it by itself" in text for text in draft.undecided) is alone
    posterior = infer(read_perturbed(spec, [tmp_path / "t.csv"]), draws=20)
    assert posterior.summary("all")["mean"][0] == true.sum()


@pytest.mark.parametrize(
    "values", [("A", "B", "AB", "O"), ("Owned", "Owned and let"), ("Rented", "Let/Owned")]
)
def test_values_that_join_names_and_are_below_their_sums_are_no_wholes(tmp_path, values):
    true = np.random.default_rng(6).poisson([60, 40, 30, 50][: len(values)], (12, len(values)))
    pd.DataFrame({"place": [f"P{chr(65 + k)}" for k in range(12)], **dict(zip(values, true.T))}).to_csv(
        tmp_path / "t.csv", index=False
    )
    spec = parse_perturbed(draft_published([tmp_path / "t.csv"]).text)
    assert spec.attributes[0].values == values


@pytest.mark.parametrize("layout", ["long", "wide", "crossed"])
def test_what_a_draft_asks_of_a_value_nowhere_below_another_leads(tmp_path, layout):
    true = np.random.default_rng(8).poisson(70, (14, 3, 2))
    shown = {"gesamte Zahl": true.sum(axis=2), "mit Auto": true[..., 0]}
    places = [f"P{chr(65 + k)}" for k in range(14)]
    if layout == "long":
        rows = [(place, name, n[k].sum()) for k, place in enumerate(places) for name, n in shown.items()]
        table = pd.DataFrame(rows, columns=["place", "who", "count"])
    else:
        kinds = ["rot", "blau", "grün"] if layout == "crossed" else [""]
        columns = {
            f"{kind}; {name}".strip("; "): n[:, k] if kind else n.sum(axis=1)
            for k, kind in enumerate(kinds)
            for name, n in shown.items()
        }
        table = pd.DataFrame({"place": places, **columns})
    table.to_csv(tmp_path / "t.csv", index=False)
    draft = draft_published([tmp_path / "t.csv"])
    (asked,) = [text for text in draft.undecided if "is nowhere below 'mit Auto'" in text]
    assert 'write "other" for "gesamte Zahl"' in asked
    assert 'unlisted = "unknown"' in asked
    text = re.sub(r'(values = \[[^]]*)"gesamte Zahl"', r'\1"other"', draft.text)
    if layout == "long":
        assert 'add "who" = "gesamte Zahl" to `total`' in asked
        text += 'total = { "who" = "gesamte Zahl" }\n'
    else:
        assert 'take "gesamte Zahl" out of `where` in all cells' in asked
        text = re.sub(r',? "[^"]*" = "gesamte Zahl"', "", text)
    posterior = infer(
        read_perturbed(parse_perturbed(text + 'unlisted = "unknown"\n'), [tmp_path / "t.csv"]), draws=20
    )
    assert posterior.summary("all")["mean"][0] == true.sum()


def _with_laplace(rng, table, scale):
    noise = np.where(rng.random(table.shape) < 0.5, -1, 1) * rng.exponential(scale, table.shape)
    shown = np.maximum(np.rint(table + noise), 0.0)
    return np.stack([shown, shown], axis=2)


@pytest.mark.thorough
@pytest.mark.parametrize("parts", [2, 3, 5])
def test_noise_that_nobody_declares_hides_no_whole(parts):
    """Of 200 tables with noise of variance 18 at least 160 show their wholes: with the variance of rounding alone 2 do."""
    rng = np.random.default_rng(parts)
    found = 0
    for _ in range(200):
        true = rng.poisson(rng.gamma(2, 40, (30, 1)), (30, parts)).T.astype(float)
        ends = _with_laplace(rng, np.vstack([true, true.sum(axis=0)]), 3.0)
        found += any(each.value == parts and each.sure for each in summed_values(ends, 0.0))
    assert found >= 160


@pytest.mark.parametrize("noisy", [False, True])
def test_shares_that_sum_by_chance_are_no_noisy_whole(noisy):
    """Of 400 tables in which one value is half of all by chance, fewer than 4 are taken for a whole and its parts."""
    rng = np.random.default_rng(9 + noisy)
    taken = 0
    for _ in range(400):
        sizes = rng.gamma(2, 60, (25, 1))
        table = rng.poisson(sizes * [0.5, 0.3, 0.2]).T.astype(float)
        ends = _with_laplace(rng, table, 2.0) if noisy else np.stack([table, table], axis=2)
        taken += any(each.sure for each in summed_values(ends, 0.0))
    assert taken < 4
