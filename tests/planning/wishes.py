"""Specs, places and wishes that plans are tested with."""

from __future__ import annotations

import numpy as np
import pandas

from tests.reference import planning as dense
from tests.reference.sums import matrix
from trueup.model.spec import parse_spec
from trueup.planning.task import PlanningTask

NOISE = {"rho": "discrete-gaussian", "epsilon": "discrete-laplace"}


QUERIES = {"total": [], "s": ["sex"], "adult": ["adult"], "d": ["sex", "age"]}


def spec_of(currency, budgets, *, neighbours="add-remove", extra=""):
    """Persons by sex and age (with a recode) in areas and blocks; `budgets` by query, then by level."""

    def amounts(by_level):
        return ", ".join(f"{level} = '{amount}'" for level, amount in by_level.items())

    queries = "".join(
        f"[[query]]\nname = '{name}'\nattributes = {QUERIES[name]}\nnoise = '{NOISE[currency]}'\n"
        f"{currency} = {{ {amounts(by_level)} }}\n"
        for name, by_level in budgets.items()
    )
    return parse_spec(f"""
format = 2
title = "Crossing"
table = {{ name = "demo", kind = "counts", counts = "person", count = "n" }}
privacy = {{ unit = "person", neighbours = "{neighbours}" }}
level = [{{ name = "all" }}, {{ name = "area", column = "area" }}, {{ name = "block", column = "block" }}]
{extra}
[[attribute]]
name = "sex"
values = ["f", "m"]
[[attribute]]
name = "age"
values = ["a", "b", "c"]
recode = [{{ name = "adult", groups = {{ minor = ["a"], major = ["b", "c"] }} }}]
{queries}
""")


def places(*counts):
    return pandas.DataFrame(
        [(f"a{i}", f"a{i}b{j}") for i, n in enumerate(counts) for j in range(n)], columns=["area", "block"]
    )


BUDGETS = {
    "total": {"all": "1/9", "area": "1/9"},
    "s": {"area": "1/9", "block": "1/9"},
    "adult": {"area": "1/9", "block": "1/9"},
    "d": {"all": "1/9", "area": "1/9", "block": "1/9"},
}


WISHES = ["area=10@95%", "block x sex=12@90%", "all x age=20@99%"]


def coverage(spec, geography, planned, rng, draws):
    """How many of `draws` least-squares errors of each target's worst count keep within the margin wanted."""
    task = PlanningTask.of(spec, geography, [str(r.target) for r in planned.targets], None, "equal")
    budgets, cells = dict(zip(planned.levels, planned.budgets)), task.expected.cells
    laws = {
        m: h.law.scaled(budgets[str(m)] / c.amount) for m, (h, c) in task.noise.items() if budgets[str(m)]
    }
    tables = list(laws)
    precisions = np.array([1 / law.variance for law in laws.values()])
    covariance = dense.covariance(cells, tables, precisions)
    for reached in planned.targets:
        rows = matrix(cells, reached.target.margin)
        worst = rows[int(np.argmax(np.einsum("ij,jk,ik->i", rows, covariance, rows)))]
        error = np.zeros(draws)
        for (margin, law), p in zip(laws.items(), precisions):
            for weight in p * matrix(cells, margin) @ covariance @ worst:
                error += weight * draw(law, draws, rng)
        yield reached.target, int((np.abs(error) <= reached.target.counts).sum())


def draw(law, size, rng):
    """Noise by inversion of a table of the law's masses: as good as exact, and quick."""
    reach = int(np.ceil(8 * np.sqrt(law.variance))) + 30
    values = np.arange(-reach, reach + 1)
    return rng.choice(values, size, p=(mass := law.pmf(values)) / mass.sum())
