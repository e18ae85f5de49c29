"""Layouts of offices' own: their signs, digits, words and codes, each drafted to the values and the law that its file tells."""

from __future__ import annotations

import numpy as np
import pytest

from tests.io.test_published_as_they_come import values
from trueup.io.published.drafting import draft_published
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed


def drafted(folder, *texts, names=("t.csv", "u.csv", "v.csv")):
    """The draft of files, and the values that its spec reads by their labels."""
    files = [folder / name for name, _ in zip(names, texts)]
    for file, text in zip(files, texts):
        file.write_text(text, encoding="utf-8")
    draft = draft_published(files)
    listed = draft.geography
    spec = parse_perturbed(draft.text)
    if draft.places:
        listed = folder / "places.txt.csv"
        listed.write_text(
            "\n".join(",".join(pair) for pair in [(spec.parents.id, spec.parents.parent), *draft.places])
        )
    read = {part.file for part in spec.published}
    return draft, values(read_perturbed(spec, [file for file in files if file.name in read], listed))


@pytest.mark.parametrize("base", [3, 5])
@pytest.mark.parametrize("hidden", [False, True])
def test_small_counts_that_are_rounded_alone_have_a_law_of_their_own(tmp_path, base, hidden):
    rng = np.random.default_rng(base)
    true = rng.negative_binomial(1, 0.12, (60, 2))
    shown = np.where(true < base, base * (rng.random(true.shape) < true / base), true)
    small = [[".." if 0 < x < base else x for x in row] for row in true.tolist()]
    rows = small if hidden else shown.tolist()
    draft, _ = drafted(tmp_path, "Ort,a,b\n" + "".join(f"Ort {k},{a},{b}\n" for k, (a, b) in enumerate(rows)))
    told = f'law = {{ name = "random-rounding", base = {base}, below = {base} }}' in draft.text
    assert told is not hidden
