"""Percentages and other shares in published tables: left out beside counts, refused alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.io.test_drafted_values import plain
from tests.io.test_published_as_they_come import values
from trueup.errors import DataError
from trueup.io.published.drafting import draft_published
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

COUNTS = {"Ash": 4127, "Birch": 2511, "Elm": 88}
BESIDE = {
    "percent signs": ("Canton,Persons,Share", ["61.4%", "37.3%", "1.3%"]),
    "percent signs apart, in cells with commas": ("Kanton;Personen;Pct", ["61,4 %", "37,3 %", "1,3 %"]),
    "a share that is hidden": ("Town,Persons,Pct", ["61.4%", "37.3%", "*"]),
    "bounds of shares": ("Town,Persons,Pct", ["61%", "37%", "<2%"]),
    "a name": ("Stadt;Personen;Anteil", ["61,4", "37,3", "1,3"]),
    "a name in the middle": ("Ville,Taux,Personnes", ["60.1", "12.5", "4.0"]),
    "proportions in percent": ("Town,Persons,Weight", ["61.4", "37.3", "1.3"]),
    "proportions of one": ("Town,Persons,p", ["0.614", "0.373", "0.013"]),
}


def drafted(folder, text):
    file = folder / "t.csv"
    file.write_text(text)
    found = draft_published([file])
    return found, read_perturbed(parse_perturbed(found.text), [file])


@pytest.mark.parametrize("name", BESIDE)
def test_shares_beside_counts_are_left_out(name, tmp_path):
    header, shares = BESIDE[name]
    sign = ";" if ";" in header else ","
    lines = [header]
    for (town, count), share in zip(COUNTS.items(), shares):
        row = [town, share, str(count)] if "middle" in name else [town, str(count), share]
        lines.append(sign.join(row))
    found, measured = drafted(tmp_path, "\n".join(lines) + "\n")
    assert {plain(label): value for label, value in values(measured).items()} == {
        (town,): count for town, count in COUNTS.items()
    }
    assert "exact" in found.text
    assert any("left out" in said for said in found.undecided)


@pytest.mark.parametrize(
    "text",
    [
        "area;unemployed %\na;5,1\nb;6,2\nc;7,0\n",
        "area,Share\na,50%\nb,30%\nc,20%\n",
        "area,rate\na,51\nb,62\nc,7\n",
        "Stadt;Arbeitslosenquote;Erwerbsquote\na;5,1;60,3\nb;6,2;58,0\nc;7,0;61,1\n",
    ],
)
def test_shares_alone_are_refused(text, tmp_path):
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=r"only percentages or rates .* give the file of these counts"):
        draft_published([file])


def test_the_counts_beside_a_file_of_shares_are_drafted(tmp_path):
    shares, counts = tmp_path / "shares.csv", tmp_path / "counts.csv"
    shares.write_text("area;unemployed %\na;5,1\nb;6,2\nc;7,0\n")
    counts.write_text("area,unemployed\na,51\nb,62\nc,71\n")
    found = draft_published([shares, counts])
    assert "'shares.csv' holds percentages alone, and is left out" in found.undecided
    assert found.files == ("counts.csv",)
    assert values(read_perturbed(parse_perturbed(found.text), [counts]))


def test_a_column_without_words_for_shares_holds_counts(tmp_path):
    assert "gaussian" in drafted(tmp_path, "area;unemployed\na;5,1\nb;6,2\nc;7,0\n")[0].text


def test_noisy_counts_with_decimals_are_counts(tmp_path):
    rng = np.random.default_rng(5)
    counts = rng.integers(5, 90, 12)
    noisy = counts + rng.normal(0, 2, (2, 12))
    rows = [f"t{k},{n},{a:.1f},{b:.1f}" for k, (n, a, b) in enumerate(zip(counts, *noisy))]
    found, measured = drafted(tmp_path, "\n".join(["town,all,men,women", *rows]) + "\n")
    assert "gaussian" in found.text
    assert len(values(measured)) == 36


def test_names_of_counts_with_their_shares_or_of_all_are_counts(tmp_path):
    text = "Town,n (%)\nAsh,120 (62.5%)\nBirch,72 (37.5%)\nElm,0\n"
    assert len(values(drafted(tmp_path, text)[1])) == 3
    text = "Town,Persons (100%)\nAsh,12\nBirch,72\nElm,33\n"
    assert len(values(drafted(tmp_path, text)[1])) == 3
