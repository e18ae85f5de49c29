"""The table of inputs that assess refuses before a replicate is drawn; no message holds a count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas

from tests.assessing.worlds import SMALL, area_spec, areas, block_spec
from trueup.assessing import assess
from trueup.cli.assess import parse_method, parse_thresholds
from trueup.errors import DataError, InfeasibleError, PrivacyError, SpecError
from trueup.measuring import measure
from trueup.model.records.assessment import refuse_confidential
from trueup.model.spec import parse_spec
from trueup.reconciling import reconcile
from trueup.reconciling.tree_topdown import TreeTopDown

SECRET = 987_654
"""A count that no message may hold."""


def ask(truth=None, *, spec=None, **options):
    """Assess three areas, of which one is the secret."""
    options.setdefault("replicates", 40)
    return assess(spec or area_spec(), areas([SECRET, 3, 4]) if truth is None else truth, **options)


def released(counts):
    """A release of three areas whose counts are replaced."""
    release = reconcile(measure(area_spec(), areas([SECRET, 3, 4])))
    return replace(release, counts=np.array(counts))


def bounded():
    """A spec whose bound the secret breaks."""
    text = 'constraints = { bounds = [{ level = "area", upper = 90 }] }\n'
    return parse_spec(SMALL + text)


HIDDEN = pandas.DataFrame({"area": ["a"], "n": [-SECRET]})

BAD = [
    ("no replicate", lambda: ask(replicates=0), SpecError, "replicates is 0"),
    ("39 replicates", lambda: ask(replicates=39), SpecError, "from 40"),
    ("replicates as a float", lambda: ask(replicates=1e3), SpecError, "a float"),
    ("replicates True", lambda: ask(replicates=True), SpecError, "replicates is True"),
    ("10 replicates for inference", lambda: ask(infer=True, infer_replicates=10), SpecError, "infer_replicates is 10"),
    ("an unknown method", lambda: ask(methods=["tree-topdwn"]), SpecError, "did you mean 'tree-topdown'?"),
    ("a method that misfits the structure", lambda: ask(methods=["margins-projection"]), SpecError, "does not fit"),
    ("an unknown parameter of a method", lambda: ask(methods=[("tree-topdown", {"round": "none"})]), SpecError, "'round'"),
    ("a method as a number", lambda: ask(methods=[3]), SpecError, "a int is given as a method"),
    ("one method twice", lambda: ask(methods=["tree-topdown", TreeTopDown()]), SpecError, "given twice"),
    ("an unknown method of inference", lambda: ask(infer="tree-exakt"), SpecError, "did you mean 'tree-exact'?"),
    ("a method of inference for released counts", lambda: ask(infer="released-multinomial"), SpecError, "on released"),
    ("no budget", lambda: ask(budgets=[]), SpecError, "no multiple of the budget"),
    ("a budget scale of 0", lambda: ask(budgets=[0]), SpecError, "the budget scale is 0"),
    ("a budget scale as a float", lambda: ask(budgets=[0.1]), SpecError, "the float 0.1"),
    ("one budget scale twice", lambda: ask(budgets=["1/2", "0.5"]), SpecError, "given twice"),
    ("a budget scale that leaves no noise", lambda: ask(budgets=["1000000000"]), SpecError, "practically no noise"),
    ("an unknown interval rule", lambda: ask(intervals=["wald"]), SpecError, "interval rule 'wald' is unknown"),
    ("one interval rule twice", lambda: ask(intervals=["noise", "noise"]), SpecError, "given twice"),
    ("intervals that claim 100 %", lambda: ask(level=1.0), SpecError, "not a probability"),
    ("a threshold on an unknown table", lambda: ask(thresholds={"county": 5}), SpecError, "a threshold is given for 'county'"),
    ("an infinite threshold", lambda: ask(thresholds={"area": float("inf")}), SpecError, "is not a number"),
    ("size classes that do not grow", lambda: ask(sizes=(10, 1)), SpecError, "size classes"),
    ("no worker", lambda: ask(workers=0), SpecError, "workers is 0"),
    ("a negative seed", lambda: ask(seed=-1), SpecError, "seed is -1"),
    ("a truth with a negative count", lambda: ask(HIDDEN), DataError, "a negative number"),
    ("a truth with a fraction", lambda: ask(areas([1.5, 3, 4])), DataError, "a fraction"),
    ("a truth without the spec's columns", lambda: ask(spec=block_spec()), DataError, "no column"),
    ("a truth that breaks a bound of the spec", lambda: ask(spec=bounded()), InfeasibleError, "bound of 'area'"),
    ("a release with a count below zero", lambda: ask(released([-5, 3, 4])), DataError, "below zero or fractions"),
    ("a release with fractions", lambda: ask(released([0.5, 3, 4])), DataError, "below zero or fractions"),
    ("a release of other levels", lambda: ask(released([1, 3, 4]), spec=block_spec()), DataError, "other levels"),
    ("publishing one on confidential counts", lambda: refuse_confidential(ask().public), PrivacyError, "no noise"),
    ("a figure of an unknown column", lambda: ask().rows(tract="a"), SpecError, "no column 'tract'"),
    ("a misspelt statistic", lambda: ask().table("area", statistic="baias"), SpecError, "did you mean 'bias'"),
    ("a table that was not assessed", lambda: ask().figure("bias", "county"), SpecError, "no row has the level 'county'"),
    ("a figure that is not single", lambda: ask(budgets=[1, 2]).figure("bias", "area"), SpecError, "2 figures 'bias'"),
    ("--method with a parameter without a value", lambda: parse_method("tree-topdown:rounding"), SpecError, "has no value"),
    ("--threshold without a count", lambda: parse_thresholds(["area=many"]), SpecError, "TABLE=COUNT"),
]  # fmt: skip
