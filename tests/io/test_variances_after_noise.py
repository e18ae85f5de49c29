"""Noise whose variance every row gives may be rounded, and negative numbers published as 0, before it is published."""

from __future__ import annotations

import json

import pytest

from trueup.errors import DataError, SpecError
from trueup.io.published.drafting import draft_published
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed
from trueup.noise import law_named
from trueup.noise.laws.undrawn import Exact
from trueup.noise.perturbed.after_noise import AfterNoise

SPEC = """format = 1
title = "t"
table = {{ name = "published", counts = "unit" }}
level = [{{ name = "all" }}, {{ name = "area", column = "area" }}]
[[published]]
name = "t"
file = "t.csv"
level = "area"
count = "n"
variance = "v"
law = {law}
"""
ROUNDED = '{ name = "rounded", base = 5, ties = "even" }'
LISTS = {
    f'[{{ name = "gaussian" }}, {ROUNDED}]': ("gaussian", {"base": 5, "ties": "even"}),
    '[{ name = "gaussian" }, { name = "nonnegative" }]': ("gaussian", {"nonnegative": True}),
    f'[{{ name = "discrete-gaussian" }}, {ROUNDED}, {{ name = "nonnegative" }}]': (
        "discrete-gaussian",
        {"base": 5, "ties": "even", "nonnegative": True},
    ),
    '[{ name = "discrete-gaussian" }, { name = "random-rounding", base = 5 }]': (
        "discrete-gaussian",
        {"base": 5, "ties": "random"},
    ),
}


def read(folder, law, rows):
    (folder / "t.csv").write_text("area,n,v\n" + rows)
    return read_perturbed(parse_perturbed(SPEC.format(law=law)), [folder / "t.csv"])


@pytest.mark.parametrize("law", LISTS)
def test_each_row_has_the_law_that_a_table_of_its_variance_would_have(tmp_path, law):
    measured = read(tmp_path, law, "a,10,4\nb,0,9\nc,25,4\nd,15,0\n")
    name, after = LISTS[law]
    wanted = {
        k: AfterNoise(law_named(name)(variance), **after) for k, variance in ((0, "4"), (1, "9"), (2, "4"))
    }
    found = {}
    for header in measured.headers:
        groups = range(4) if header.groups is None else header.groups
        found |= {int(group): header.law for group in groups}
    assert found == wanted | {3: Exact()}


@pytest.mark.parametrize(
    ("rows", "given"),
    [("a,-5,4\nb,5,4\n", "-5"), ("a,7,4\nb,5,4\n", "7")],
)
def test_values_that_the_list_cannot_give_are_refused(tmp_path, rows, given):
    law = f'[{{ name = "gaussian" }}, {ROUNDED}, {{ name = "nonnegative" }}]'
    with pytest.raises(DataError, match=f"has {given}.* for 'a'.*gives for no count"):
        read(tmp_path, law, rows)


@pytest.mark.parametrize(
    "law",
    [
        '[{ name = "gaussian", sigma2 = "4" }, { name = "nonnegative" }]',
        '[{ name = "nonnegative" }, { name = "gaussian" }]',
        '{ name = "random-rounding", base = 3 }',
    ],
)
def test_other_laws_beside_variances_are_refused_and_the_form_that_is_printed_works(tmp_path, law):
    with pytest.raises(SpecError, match="other parameters of its law") as refused:
        read(tmp_path, law, "a,1,4\n")
    form = str(refused.value).partition("numbers: law = ")[2].partition("]")[0] + "]"
    assert len(read(tmp_path, form.replace('"..."', json.dumps("gaussian")), "a,1,4\n").headers) == 1


@pytest.mark.parametrize(
    "last", ['{ name = "suppressed", threshold = 3 }', '{ name = "cell-key", maximum = 2 }']
)
def test_what_is_no_rounding_of_noise_is_refused(tmp_path, last):
    with pytest.raises(SpecError, match="after 'gaussian'"):
        read(tmp_path, f'[{{ name = "gaussian" }}, {last}]', "a,1,4\n")


@pytest.mark.parametrize("margins", ["margin of error", "standard error"])
def test_a_draft_of_values_with_errors_says_how_a_rounding_is_declared_and_that_works(tmp_path, margins):
    path = tmp_path / "t.csv"
    path.write_text(f"area,cats,{margins}\nAyr,12,3\nBute,0,2\nColl,31,5\nDeal,4,1\n")
    draft = draft_published([path])
    told = next(said for said in draft.undecided if "negative ones published as 0" in said).partition(
        "write law = "
    )[2]
    text = draft.text.replace('law = { name = "gaussian" }', f"law = {told}")
    laws = {header.law for header in read_perturbed(parse_perturbed(text), [path]).headers}
    assert len(laws) == 4
    assert all(law.base == 1 and law.nonnegative for law in laws)
    path.write_text(path.read_text().replace("Bute,0", "Bute,-3"))
    assert not [said for said in draft_published([path]).undecided if "negative ones published as 0" in said]
