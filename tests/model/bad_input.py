"""Specs with a mistake that the words of the page `docs/bad-input.md` describe."""

from __future__ import annotations

from trueup.model.spec import parse_spec

SPEC = """
format = 2
title = "Areas"
[table]
name = "areas"
kind = "counts"
counts = "person"
count = "n"
keys = "public"
[privacy]
unit = "person"
neighbours = "add-remove"
[[level]]
name = "all"
[[level]]
name = "area"
column = "area"
[[attribute]]
name = "sex"
values = ["female", "male"]
[[query]]
name = "total"
epsilon = { all = "0.1", area = "1/3" }
[[query]]
name = "by sex"
attributes = ["sex"]
levels = ["area"]
epsilon = 1
"""

RULES = "[privacy]"
"""Where rules can be put in."""


def _rules(text: str) -> tuple[str, str]:
    return RULES, f"{text}\n{RULES}"


MISTAKES = [
    ("lists that are nested 5,000 deep", 'title = "Areas"', f"title = {'[' * 5000}{']' * 5000}"),
    ("tables that are nested 300 deep", 'title = "Areas"', f"title = {'{ a = ' * 300}1{' }' * 300}"),
    ("a budget of 5,000 digits", "epsilon = 1", f"epsilon = {'1' * 5000}"),
    ("a budget of 5,000 hexadecimal digits", "epsilon = 1", f"epsilon = 0x{'1' * 5000}"),
    ("another format", "format = 2", "format = 1"),
    ("a neighbour relation that is none", '"add-remove"', '"swap"'),
    ("a unit without a name", 'unit = "person"', 'unit = ""'),
    ("a query whose name is a blank", 'name = "by sex"', 'name = " "'),
    ("a query without a budget", '{ all = "0.1", area = "1/3" }', '{}\nlevels = ["area"]'),
    ("an attribute without values", 'values = ["female", "male"]', "values = []"),
    ("an attribute with text for its values", 'values = ["female", "male"]', 'values = "female"'),
    ("an attribute with numbers for its values", 'values = ["female", "male"]', "values = [1, 2]"),
    ("a number for the constraints", 'title = "Areas"', 'title = "Areas"\nconstraints = 3'),
    ("a structural zero without a condition", *_rules("[constraints]\nzeros = [{}]")),
    ("a bound without a limit", *_rules('[constraints]\nbounds = [{ level = "area" }]')),
    ("a limit of 10^20", *_rules(f'[constraints]\nbounds = [{{ level = "area", upper = {10**20} }}]')),
    ("a rule with 1e400", *_rules('[constraints]\nlinear = ["male <= 1e400"]')),
    (
        "a rule with an exponent that fills the memory",
        *_rules('[constraints]\nlinear = ["male <= 1e999999999"]'),
    ),
    ("a rule with 1e-19", *_rules('[constraints]\nlinear = ["1e-19 * male <= 1"]')),
    ("a parameter without its method", *_rules('[reconcile]\nrounding = "none"')),
    ("a parameter with another value", *_rules('[reconcile]\nmethod = "tree-topdown"\nrounding = 3')),
]


def call_of(old: str, new: str):
    """Read the spec with `new` in place of `old`, and make its method."""

    def call() -> None:
        from trueup.model.verb import entry_of
        from trueup.reconciling import build

        assert old in SPEC
        spec = parse_spec(SPEC.replace(old, new, 1))
        name, parameters = entry_of(spec.reconcile)
        build(name or "", parameters)

    return call


BAD = [(what, call_of(old, new)) for what, old, new in MISTAKES]
