"""Names and levels that several columns or files share: one attribute by codes and labels, parts that repeat in each place."""

from __future__ import annotations

import re

import numpy as np
import pytest

from trueup.inferring import infer
from trueup.io.published.drafting import draft_published
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

CODED = {  # the columns of an attribute in each of two files, which tell counts by it, and by it and age
    "codes and labels beside them": (("kod", "naziv"), ("naziv", "kod")),
    "codes, and labels beside them": (("kod",), ("kod", "naziv")),
    "labels, and codes beside them": (("naziv",), ("kod", "naziv")),
    "labels beside codes, and codes": (("naziv", "kod"), ("kod",)),
    "labels beside codes, and labels": (("kod", "naziv"), ("naziv",)),
}
LABELS = {"kod": ("07", "12", "33"), "naziv": ("Vlasnik", "Najam", "Ostalo")}


def _tables_of_tenure(rng, shapes, names=("kod", "naziv")):
    """Counts by place, tenure and age, a text for each of the files, and the counts."""
    true = rng.poisson(40, (7, 3, 2))
    texts = []
    for k, columns in enumerate(shapes):
        head = [*columns, "opština", *["dob"] * (k > 0), "VALUE"]
        rows = [
            (*(LABELS[c][j] for c in columns), f"O{p}", *((age,) if k else ()), n)
            for p in range(7)
            for j in range(3)
            for age, n in (zip(("0-17", "18+"), true[p, j]) if k else [("", true[p, j].sum())])
        ]
        texts.append("\n".join(",".join(map(str, row)) for row in [head, *rows]) + "\n")
    return texts, true


@pytest.mark.parametrize("shapes", CODED)
@pytest.mark.parametrize("turned", [False, True])
def test_codes_and_labels_of_one_attribute_are_one(tmp_path, shapes, turned):
    texts, true = _tables_of_tenure(np.random.default_rng(3), CODED[shapes])
    files = [tmp_path / name for name in ("a.csv", "b.csv")]
    for file, text in zip(files, reversed(texts) if turned else texts):
        file.write_text(text)
    draft = draft_published(files)
    spec = parse_perturbed(draft.text)
    assert sorted(len(a.values) for a in spec.attributes) == [2, 3]
    posterior = infer(read_perturbed(spec, files), draws=20)
    assert posterior.summary("all")["mean"][0] == true.sum()
    left = [said for said in draft.undecided if "names what" in said or "numbers what another" in said]
    assert len(left) == sum(map(len, CODED[shapes])) - 2


def test_what_a_draft_says_of_codes_here_and_labels_there_leads(tmp_path):
    """One file has codes, one labels, and one both: the draft says what to write in a copy."""
    (coded, named), true = _tables_of_tenure(np.random.default_rng(4), (("kod",), ("naziv",)))
    pairs = "".join(
        f"{code},{label},{true[:, j].sum()}\n" for j, (code, label) in enumerate(zip(*LABELS.values()))
    )
    files = [tmp_path / name for name in ("a.csv", "b.csv", "c.csv")]
    for file, text in zip(files, (coded, named, "kod,naziv,VALUE\n" + pairs)):
        file.write_text(text)
    draft = draft_published(files)
    (said,) = [said for said in draft.undecided if "are one attribute" in said]
    found = re.search(r"in a copy of '(.*)' write '(.*)' for '(.*)' in the header, and (.*) below it", said)
    file, *names, words = found.groups()
    text = (tmp_path / file).read_text()
    for new, old in [names, *re.findall("'([^']*)' for '([^']*)'", words)]:
        text = re.sub(rf"^{old},", f"{new},", text, flags=re.MULTILINE)
    (tmp_path / file).write_text(text)
    draft = draft_published(files)
    assert not any("are one attribute" in said for said in draft.undecided)
    posterior = infer(read_perturbed(parse_perturbed(draft.text), files), draws=20)
    assert posterior.summary("all")["mean"][0] == true.sum()
