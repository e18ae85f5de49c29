# ruff: noqa: E501
"""What rounding explains of parts that miss their totals, and values of one attribute that nothing else links."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import trueup as tu
from trueup.inferring.conflict import inconsistencies
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed

TWO_LEVELS = """format = 1
title = "Rounded"
table = { name = "r", counts = "claim" }
level = [{ name = "all" }, { name = "district", column = "d" }, { name = "area", column = "a" }]
[[published]]
name = "areas"
level = "area"
count = "n"
law = { name = "rounded", base = BASE }
codes = { "*" = "unknown" }
[[published]]
name = "districts"
level = "district"
count = "n"
law = { name = "rounded", base = BASE }
"""


@pytest.mark.parametrize("base", [3, 10])
def test_rounding_to_the_nearest_explains_what_it_causes(base, rng):
    """The mean square difference of 200 districts of 20 areas is within .35 of what the laws make of it; 0 would not be."""
    true = rng.poisson(40, (200, 20))

    def nearest(x):
        return base * ((2 * x + base) // (2 * base))

    d, a = np.indices(true.shape)
    shown = nearest(true).astype(str).astype(object)
    shown[0, 0] = "*"
    areas = pandas.DataFrame(
        {"d": [f"{k:03}" for k in d.ravel()], "a": [f"{k:02}" for k in a.ravel()], "n": shown.ravel()}
    )
    districts = pandas.DataFrame({"d": [f"{k:03}" for k in range(200)], "n": nearest(true.sum(axis=1))})
    measured = read_perturbed(parse_perturbed(TWO_LEVELS.replace("BASE", str(base))), [areas, districts])
    [found] = inconsistencies(measured, tu.infer(measured, draws=200))
    assert (found.compared, found.left_out) == (199, 1)
    assert found.mean_square == pytest.approx(found.by_law, rel=0.35)
    [inside] = inconsistencies(measured, tu.infer(measured, draws=20, within="district=003"))
    assert (inside.compared, inside.left_out) == (1, 0)


def test_values_that_nothing_links_are_inferred_in_seconds_and_the_rest_is_said_not_to_be_known():
    names = {"a": 2, "b": 3, "c": 4, "d": 5}
    attributes = "".join(
        f'[[attribute]]\nname = "{k}"\nvalues = {[str(i) for i in range(n)]}\n' for k, n in names.items()
    )
    spec = (
        'format = 1\ntitle = "T"\ntable = { name = "t", counts = "person" }\nlevel = [{ name = "all" }]\n'
        + attributes
        + '[[published]]\nname = "d"\nlevel = "all"\nattributes = ["d"]\ncount = "n"\nlaw = { name = "discrete-gaussian", sigma2 = "4" }\n'
    )
    table = pandas.DataFrame({"d": list("01234"), "n": [1013, 988, 2150, 790, 1059]})
    posterior = tu.infer(read_perturbed(parse_perturbed(spec), [table]), draws=100)
    found = posterior.summary("all x d")
    assert np.abs(found["mean"] - table["n"]).max() < 1
    assert found["sd"] == pytest.approx(np.full(5, 2.0), abs=0.2)
    assert "No table shows 'a', 'b', 'c'" in posterior.promise
