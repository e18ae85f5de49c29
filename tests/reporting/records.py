"""Records of several kinds that the tests of the report share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pandas import DataFrame

from trueup.assessing import assess
from trueup.inferring import infer
from trueup.measuring import simulate
from trueup.model.build import build_cells
from trueup.model.problem import Problem
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.model.records.release import Release
from trueup.model.spec import Spec, parse_spec
from trueup.model.tree import Tree
from trueup.reconciling import reconcile
from trueup.reconciling.multinomial import MultinomialMode
from trueup.reconciling.tree_topdown import TreeTopDown

HOSTILE = "<script>alert('place')</script>"
HOSTILE_TITLE = "</title><img src=x onerror=alert(1)> & \"quoted\" 'title'"

PLAIN = """
format = 2
title = "Areas & places"
table = { name = "areas", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "nation" }, { name = "state", column = "state", label = "name" }, { name = "block_group", column = "bg" }]
query = [{ name = "total", epsilon = { nation = "1/10", state = "2/5", block_group = "1/2" } }]
"""
CROSSED = (
    PLAIN.replace('[{ name = "total", epsilon = { nation', '[{ name = "total", epsilon = { nation')
    .replace('nation = "1/10", state = "2/5", ', "")
    .replace("query =", 'attribute = [{ name = "sex", values = ["female", "male"] }]\nquery =')
    .replace(
        "} }]", '} }, { name = "by_sex", attributes = ["sex"], levels = ["block_group"], epsilon = "1/3" }]'
    )
    + 'constraints = { invariants = [{ level = "state" }], bounds = [{ level = "block_group", upper = 90 }] }\n'
)
RHO = PLAIN.replace("epsilon = {", 'noise = "discrete-gaussian", rho = {')


RATIOS = '[[infer.quantity]]\nname = "share of women"\nnumerator = "female"\ndenominator = "female + male"\n'


def tree(blocks: int = 3, names: tuple[str, str] = ("Avalon", HOSTILE)) -> Tree:
    """Two states with `blocks` block groups each."""
    states = np.repeat(["01", "02"], blocks)
    groups = [f"{i:05d}" for i in range(2 * blocks)]
    return Tree.from_columns(
        ["nation", "state", "block_group"],
        [{}, {"state": states}, {"bg": groups}],
        names=[None, np.repeat(names, blocks), None],
    )


def measured(text: str, *, blocks: int = 3, simulation: bool = False) -> tuple[Measurements, Spec]:
    """Measure made-up counts with seeded noise; by default unmarked, as a real record would be."""
    spec = parse_spec(text)
    problem = Problem(spec, build_cells(spec, tree(blocks)))
    noisy = simulate(problem, np.arange(problem.cells.n) % 37, np.random.default_rng(5))
    return replace(noisy, simulation=simulation), spec


def released(text: str, method=None, **options) -> tuple[Release, Spec]:
    """Reconcile what `measured` returns."""
    measurements, spec = measured(text, **options)
    return reconcile(measurements, method, spec=spec), spec


def posterior(text: str, *, of_release: bool = True, ratios: str = "", **options) -> tuple[Posterior, Spec]:
    """Infer the true counts from a release, or from measurements alone."""
    record, spec = released(text + ratios) if of_release else measured(text + ratios)
    return infer(record, spec=spec, draws=200, **options), spec


RECORDS = {
    "measurements": lambda: measured(PLAIN),
    "measurements with invariants": lambda: measured(CROSSED),
    "release": lambda: released(PLAIN),
    "simulated release": lambda: released(PLAIN, simulation=True),
    "release with attributes and invariants": lambda: released(CROSSED),
    "release in rho": lambda: released(RHO),
    "release of real numbers": lambda: released(PLAIN, TreeTopDown(rounding="none")),
    "release without closed form": lambda: released(PLAIN, MultinomialMode()),
    "release with noise too small to see": lambda: released(
        PLAIN.replace('"1/10"', "100").replace('"2/5"', "100").replace('"1/2"', "100")
    ),
    "release with a hostile title": lambda: _hostile(),
    "assessment": lambda: assessed(),
    "confidential assessment of one method": lambda: assessed(methods=(), budgets=(1,), public=False),
    "posterior of a release": lambda: posterior(PLAIN),
    "posterior of measurements with invariants": lambda: posterior(CROSSED, of_release=False),
    "posterior with ratios": lambda: posterior(CROSSED, of_release=False, ratios=RATIOS),
}


def assessed(methods=("tree-topdown", "multinomial-mode"), budgets=(1, 2), public=True):
    """Assess methods on made-up counts, some of them zero."""
    spec = parse_spec(PLAIN)
    names = ["Avalon", HOSTILE]
    rows = {
        "state": np.repeat(["01", "02"], 6),
        "name": np.repeat(names, 6),
        "bg": [f"{i:05d}" for i in range(12)],
    }
    truth = DataFrame(rows | {"n": [0, 0, 3, 4, 12, 13, 140, 150, 0, 9, 2000, 30]})
    options = {"methods": methods, "budgets": budgets, "thresholds": {"block_group": 10}}
    return assess(spec, truth, replicates=40, public_truth=public, **options), spec


def _hostile() -> tuple[Release, Spec]:
    record, spec = released(PLAIN)
    return record, spec.model_copy(update={"title": HOSTILE_TITLE})
