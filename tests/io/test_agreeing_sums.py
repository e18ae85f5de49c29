"""The chance that published sums equal the sums of their parts, where each value is perturbed by itself."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas
import pytest

from trueup.io.published.drafting import draft_published
from trueup.io.published.perturbed import agreeing, read_perturbed
from trueup.io.published.perturbed.agreeing import SOME_CHANCE, sums_kept
from trueup.model.perturbed import parse_perturbed

KEEPS = 0.98
RARE = (
    'name = "cell-key", transitions = [{ 0 = 1 }, { 0 = 0.98, 1 = 0.02 }, { -1 = 0.01, 0 = 0.98, 1 = 0.01 }]'
)
OFTEN = 'name = "cell-key", transitions = [{ 0 = 1 }, { 0 = 0.5, 1 = 0.5 }, { -1 = 0.3, 0 = 0.4, 1 = 0.3 }]'
LAWS = [
    RARE,
    OFTEN,
    'name = "cell-key", maximum = 3, change_variance = 2',
    'name = "random-rounding", base = 3',
    'name = "random-rounding", base = 10',
    'name = "rounded", base = 5',
    'name = "discrete-laplace", epsilon = "1/2"',
]
VALUES = {"tree": ("ash", "birch", "cedar", "dill"), "soil": ("clay", "sand")}


def _spec(law, names):
    parts = [f'[[attribute]]\nname = "{name}"\nvalues = {[*VALUES[name]]}' for name in names]
    total = ", ".join(f'{name} = "any"' for name in names)
    return parse_perturbed(f"""
        format = 1
        title = "Plants"
        table = {{ name = "plants", counts = "unit" }}
        level = [{{ name = "all" }}, {{ name = "parish", column = "parish" }}]
        {chr(10).join(parts)}
        [[published]]
        name = "plants"
        level = "parish"
        attributes = {[*names]}
        count = "n"
        total = {{ {total} }}
        law = {{ {law} }}
    """)


def _rows(table, names):
    """The rows of a table `(places, values + 1, ...)` whose last values are the totals."""
    keys = product((f"p{k}" for k in range(len(table))), *((*VALUES[name], "any") for name in names))
    rows = [(*key, str(n)) for key, n in zip(keys, table.ravel().tolist())]
    return pandas.DataFrame(rows, columns=["parish", *names, "n"])


def _read(law, table, names):
    return read_perturbed(_spec(law, names), [_rows(table, names)])


def _warned(measured):
    return any("added from the published values" in text for text in measured.spec.noted)


def _with_totals(cells):
    for axis in range(1, cells.ndim):
        cells = np.concatenate([cells, cells.sum(axis=axis, keepdims=True)], axis=axis)
    return cells


def _published(law, true, rng):
    """Values perturbed each by itself, by a law without or with added noise."""
    law = _spec(law, ["tree"]).published[0].rule.law
    if law.additive:
        return true + law.quantile(rng.random(true.shape)).astype(int)
    return law.publish(true, rng.random(true.shape))


def _true(rng, places, names):
    return rng.integers(12, 60, (places, *(len(VALUES[name]) for name in names)))


def _as_for_rounding(own, parts, errors):
    """A wrong version: the chance of values that are rounded, whatever their law is."""
    return np.minimum(0.75, 1.4 / np.sqrt(parts.sum(axis=1)))


def _chance_of_each(law, rng):
    """The chance of one of many like sums of four parts."""
    cells = _published(law, _true(rng, 200, ["tree"]), rng)
    return sums_kept(_read(law, _with_totals(cells), ["tree"]), [_name(law)]).chance ** (1 / 200)


def _name(law):
    return law.split('"')[1]


@pytest.mark.parametrize("law", LAWS)
def test_the_chance_is_the_frequency_of_sums_that_agree(law, monkeypatch):
    """It lies from 5 standard errors below to .07 above the frequency among 20,000 sums; a chance of .7 for all does not."""
    rng = np.random.default_rng(5)
    true = _with_totals(_true(rng, 20_000, ["tree"]))
    published = _published(law, true, rng)
    agree = (published[:, :4].sum(axis=1) == published[:, 4]).mean()
    error = 5 * np.sqrt(agree * (1 - agree) / 20_000)
    assert agree - error <= _chance_of_each(law, rng) <= agree + error + 0.07
    monkeypatch.setattr(agreeing, "_chances", _as_for_rounding)
    wrong = _chance_of_each(law, rng)
    assert ("rounded" in law) or not agree - error <= wrong <= agree + error + 0.07


def _product_of_margins(measured, laws, **asked):
    """A wrong version: the chances of all pairs of margins multiplied, as if they shared no errors."""
    chances, plain = [], agreeing._chances
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreeing, "_chances", lambda *given: chances.append(plain(*given)) or chances[-1])
        found = sums_kept(measured, laws, **asked)
    return found._replace(chance=float(np.prod([each.prod() for each in chances])))


def _agreeing_by_chance(law, places, names, rng):
    """A table of values that were perturbed each by itself, drawn until all sums agree."""
    while True:
        published = _published(law, _with_totals(_true(rng, places, names)), rng)
        if (published == _with_totals(published[(slice(None), *[slice(-1)] * len(names))])).all():
            return published


def test_sums_of_values_that_rarely_change_agree_by_chance():
    """The chance is at least that of no change at all; that of rounding, and a product over margins, are below it."""
    names = ["tree", "soil"]
    published = _agreeing_by_chance(RARE, 9, names, np.random.default_rng(8))
    measured = _read(RARE, published, names)
    unchanged = KEEPS**published.size
    found = sums_kept(measured, ["cell-key"])
    assert found.kept == 81
    assert SOME_CHANCE < unchanged <= found.chance
    assert not _warned(measured)
    assert _product_of_margins(measured, ["cell-key"]).chance < unchanged
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreeing, "_chances", _as_for_rounding)
        assert _warned(_read(RARE, published, names))


@pytest.mark.thorough
def test_a_draft_keeps_totals_that_agree_by_chance_and_leaves_out_those_that_were_added(tmp_path):
    rng = np.random.default_rng(8)
    by_chance = _agreeing_by_chance(RARE, 9, ["tree", "soil"], rng)
    added = _with_totals(_published(OFTEN, _true(rng, 9, ["tree", "soil"]), rng))
    for name, table, keeps in (("chance", by_chance, KEEPS), ("added", added, 0.4)):
        _rows(table, ["tree", "soil"]).to_csv(tmp_path / f"{name}.csv", index=False)
        law = ["count;published;probability", "0;0;1", f"1;1;{keeps}", f"1;2;{1 - keeps:.2f}"]
        change = f"{(1 - keeps) / 2:.2f}"
        law += [f"2;1;{change}", f"2;2;{keeps}", f"2;3;{change}"]
        (tmp_path / "law.csv").write_text("\n".join(law) + "\n")
        files = [tmp_path / f"{name}.csv", tmp_path / "law.csv"]
        draft = draft_published(files)
        assert any(text.endswith("they are left out") for text in draft.undecided) is (name == "added")
        measured = read_perturbed(parse_perturbed(draft.text), files[:1])
        assert {header.law.name for header in measured.headers} == {"cell-key"}
        assert sum(map(len, measured.values)) == (72 if name == "added" else table.size)


def test_reading_warns_of_totals_that_were_added_from_values_that_often_change():
    rng = np.random.default_rng(3)
    cells = _published(OFTEN, _true(rng, 9, ["tree"]), rng)
    assert _warned(_read(OFTEN, _with_totals(cells), ["tree"]))
    assert not _warned(_read(OFTEN, _with_totals(cells[:1]), ["tree"]))


@pytest.mark.parametrize(
    ("law", "chance"),
    [('name = "random-rounding", base = 3', 141 / 243), ('name = "rounded", base = 11', 91 / 121)],
)
def test_zeros_do_not_make_sums_less_likely(law, chance):
    """Most zeros are no rounded counts: a sum with two zeros has the chance of the sum of the two others."""
    cells = np.tile([33, 66, 0, 0], (9, 1))
    few = sums_kept(_read(law, _with_totals(cells), ["tree"]), [_name(law)])
    many = sums_kept(_read(law, _with_totals(cells + np.array([0, 0, 33, 33])), ["tree"]), [_name(law)])
    assert few.kept == many.kept == 9
    assert few.chance == pytest.approx(chance**9)
    assert many.chance < few.chance / 2


def test_noise_that_is_too_wide_to_tabulate_tells_nothing():
    law = 'name = "gaussian", sigma2 = "1000000000000"'
    measured = _read(law, _with_totals(_true(np.random.default_rng(2), 9, ["tree"])), ["tree"])
    assert sums_kept(measured, ["gaussian"]) == (0, 1.0)
    assert not _warned(measured)
