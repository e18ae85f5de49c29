"""Specs whose rules contradict each other, or whose noise no method can weigh together, and counts that break a rule."""

from __future__ import annotations

import pandas

from tests.model.bad_input import RULES, SPEC
from trueup.measuring import measure
from trueup.model.spec import parse_spec
from trueup.releasing.explain import explain

COUNTS = pandas.DataFrame({"area": ["a", "a", "b", "b"], "sex": ["female", "male"] * 2, "n": [4, 0, 7, 9]})
CROSSING = SPEC.replace('levels = ["area"]', 'levels = ["all", "area"]')
AGES = """[[attribute]]
name = "age"
values = ["0-4", "5-17", "18-64", "65+"]
[[attribute.recode]]
name = "adult"
groups = { no = ["0-4", "5-17"], yes = ["18-64", "65+"] }
[[attribute.recode]]
name = "small"
groups = { no = ["5-17", "18-64", "65+"], yes = ["0-4"] }
[[query]]
name = "total\""""


def ruled(text: str, spec: str = SPEC) -> str:
    """The spec with constraints."""
    return spec.replace(RULES, f"[constraints]\n{text}\n{RULES}", 1)


def _explained(text: str):
    return lambda: explain(parse_spec(text), COUNTS)


def _measured(text: str):
    return lambda: measure(parse_spec(text), COUNTS)


SUMS = 'bounds = [{ level = "all", lower = 9 }, { level = "area", attributes = ["sex"], upper = 2 }]'
ZERO = 'zeros = [{ sex = "male" }]\nlinear = ["male >= 1"]'
WIDTHS = ruled('linear = ["male <= 9 + 9*female"]').replace(
    '{ all = "0.1", area = "1/3" }', '{ all = 40, area = "1/3" }'
)
RECODES = SPEC.replace('[[query]]\nname = "total"', AGES, 1).replace('["sex"]', '["adult", "small"]')

BAD = [
    ("rules that exclude each other", _explained(ruled('linear = ["male >= 5", "male <= 3"]'))),
    ("rules that exclude each other by way of a third",
     _explained(ruled('linear = ["male + female == 2", "male >= 1", "female >= 2"]'))),
    ("a rule that counts of at least zero exclude", _explained(ruled('linear = ["male <= -1"]'))),
    ("a rule without a solution in whole numbers", _explained(ruled('linear = ["2*male + 4*female == 7"]'))),
    ("bounds that exclude each other by way of sums", _explained(ruled(SUMS, CROSSING))),
    ("a structural zero under a rule that wants somebody", _explained(ruled(ZERO))),
    ("a rule that only the data break", _measured(ruled('linear = ["male >= 1"]'))),
    ("a bound that only the data break", _measured(ruled('bounds = [{ level = "area", lower = 5 }]'))),
    ("noise that vanishes", _explained(SPEC.replace("epsilon = 1", "epsilon = 1000"))),
    ("noise of epsilon 40 beside noise of 1/3 under a linear rule", _explained(WIDTHS)),
    ("noise of epsilon 20 beside noise of 1/10 on crossing margins",
     _explained(CROSSING.replace('"1/3" }', '20 }').replace('epsilon = 1', 'epsilon = "0.1"'))),
    ("two recodes of one attribute in a query", _explained(RECODES)),
]  # fmt: skip
