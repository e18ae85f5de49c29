"""Rhode Island's blocks, published under six compositions of laws: intervals hold the true counts as often as they claim."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import trueup as tu
from tests.inferring.perturbed_problems import block_counts
from trueup.io.published.perturbed import read_perturbed
from trueup.model.cells import Margin
from trueup.model.perturbed import parse_perturbed
from trueup.noise import law_named

HELD = 0.87
COMPOSED = {
    "suppressed, then rounded at random": (("random-rounding", {"base": 3}), (1, 4), None),
    "suppressed, then rounded": (("rounded", {"base": 5}), (1, 7), None),
    "rounded, then suppressed": (("random-rounding", {"base": 5}), None, (1, 9)),
    "cell key, then suppressed": (("cell-key", {"maximum": 2, "change_variance": "1"}), None, (1, 3)),
    "suppressed, then cell key": (("cell-key", {"maximum": 2, "change_variance": "1"}), (1, 2), None),
    "noise, shown from a threshold": (("discrete-laplace", {"epsilon": "1/5"}), None, (-(10**9), 19)),
}


def spec_of(name, parameters, hidden, concealed):
    text = ", ".join(
        f"{key} = {value!r}".replace("'", '"') for key, value in {"name": name, **parameters}.items()
    )
    codes = {"*": f"{hidden[0]}-{hidden[1]}"} if hidden else {}
    if concealed:
        low, high = concealed
        codes["c"] = f"published <{high + 1}" if low < 0 else f"published {low}-{high}"
    written = ", ".join(f'"{code}" = "{said}"' for code, said in codes.items())
    levels = [
        '{ name = "state" }',
        '{ name = "tract", column = "GEOID", prefix = 11 }',
        '{ name = "block", column = "GEOID" }',
    ]
    tables = [
        f'[[published]]\nname = "{level}"\nlevel = "{level}"\ncount = "n"\nlaw = {{ {text} }}\ncodes = {{ {written} }}\n'
        for level in ("tract", "block")
    ]
    head = 'format = 1\ntitle = "RI"\ntable = { name = "ri", counts = "person" }\n'
    return parse_perturbed(head + f"level = [{', '.join(levels)}]\n" + "\n".join(tables))


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSED)
def test_intervals_hold_under_composed_laws(name, data_dir, rng):
    (law, parameters), hidden, concealed = COMPOSED[name]
    cells, counts = block_counts(data_dir, by_race=False)
    block = np.array([str(key) for key in cells.tree.keys[-1]["block"]])
    if "noise" in name:  # whose prior takes long to be estimated
        block, counts = block[:1500], counts[:1500]
    tract = np.array([key[:11] for key in block])
    made, tables = law_named(law)(**parameters), []
    for keys in (tract, block):
        places, at = np.unique(keys, return_inverse=True)
        true = np.bincount(at, counts).astype(np.int64)
        u = rng.random(len(true))
        shown = true + made.quantile(u).astype(np.int64) if made.additive else made.publish(true, u)
        texts = shown.astype(str).astype(object)
        if concealed:
            texts[(shown >= concealed[0]) & (shown <= concealed[1])] = "c"
        if hidden:
            texts[(true >= hidden[0]) & (true <= hidden[1])] = "*"
        tables.append(pandas.DataFrame({"GEOID": places, "n": texts}))
    posterior = tu.infer(read_perturbed(spec_of(law, parameters, hidden, concealed), tables), draws=1)
    order = np.argsort(block)
    for level, true in (
        ("block", counts[order]),
        ("tract", np.bincount(np.unique(tract, return_inverse=True)[1], counts)),
    ):
        exact = posterior.drawn.marginals[Margin(level)]
        low, high = exact.quantile(0.05), exact.quantile(0.95)
        held = ((low <= true) & (true <= high)).mean()
        print(f"{name}, {level}: {held:.3f}")
        assert held >= HELD
