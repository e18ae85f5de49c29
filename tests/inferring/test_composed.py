"""Laws after one another, read from tables and inferred, against enumeration by formulas of their own.

A count is hidden before the law, or published by it, or its published value is hidden after it. What each table shows is
written as its publisher would, read by a spec, and the posterior is compared with all tables of counts up to `TOP`, weighed by
probabilities that are written down here and not taken from the package.
"""

from __future__ import annotations

from itertools import product
from math import erf, exp, pi, sqrt
from typing import Any

import numpy as np
import pandas
import pytest

from tests.inferring.test_perturbed import furthest, worst_z
from trueup.errors import ConvergenceError, SpecError
from trueup.inferring import infer
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.inferring.tree_exact import TreeExact
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed
from trueup.model.prior import Bounded
from trueup.model.published_codes import CodeMeaning, read_meaning
from trueup.model.published_rule import read_rule

TOP = 9
Pmf = Any


def rounding(base):
    def pmf(y, x):
        d = x % base
        return {x - d: 1 - d / base, x - d + base: d / base}.get(y, 0.0) if d else float(y == x)

    return pmf


def small_alone(y, x):
    return rounding(3)(y, x) if x < 3 else float(y == x)


def nearest(base):
    return lambda y, x: float(y == base * ((2 * x + base) // (2 * base)))


def changed(y, x):
    return float(y == x) if x == 0 else {x - 1: 0.25, x: 0.5, x + 1: 0.25}.get(y, 0.0)


def two_sided(rate):
    return lambda y, x: (1 - exp(-rate)) / (1 + exp(-rate)) * exp(-rate * abs(y - x))


def after(rounded, *, zero=False):
    """Noise of `two_sided(1)`, then a rounding, then zeros in the place of what is negative."""

    def pmf(y, x):
        if zero and y:
            return 0.0 if y < 0 else apart(y, x)
        return sum(apart(low, x) for low in range(-60, 1)) if zero else apart(y, x)

    def apart(y, x):
        return sum(rounded(y, z) * two_sided(1.0)(z, x) for z in range(y - 4, y + 5))

    return pmf


def whole_normal(y, x):
    def below(t):
        return (1 + erf((t - x) / sqrt(8))) / 2

    return 0.0 if y < 0 else below(y + 0.5) - (below(y - 0.5) if y else 0.0)


NOISE = '{ name = "discrete-laplace", epsilon = "1" }'
LAWS: dict[str, tuple[str, Pmf, Any, range]] = {
    "rounded at random": ('{ name = "random-rounding", base = 3 }', rounding(3), None, range(40)),
    "rounded": ('{ name = "rounded", base = 4 }', nearest(4), None, range(40)),
    "cell key": (
        '{ name = "cell-key", transitions = [{ "0" = 1 }, { "-1" = 0.25, "0" = 0.5, "1" = 0.25 }] }',
        changed,
        None,
        range(40),
    ),
    "small counts rounded": (
        '{ name = "random-rounding", base = 3, below = 3 }',
        small_alone,
        None,
        range(40),
    ),
    "small counts by a table": (
        '{ name = "cell-key", transitions = [{ "0" = 1 }, { "-1" = 0.6, "2" = 0.4 }, { "-2" = 0.3, "1" = 0.7 }, { "0" = 1 }] }',
        lambda y, x: {1: {0: 0.6, 3: 0.4}, 2: {0: 0.3, 3: 0.7}}.get(x, {x: 1.0}).get(y, 0.0),
        None,
        range(40),
    ),
    "exact": ('{ name = "exact" }', lambda y, x: float(y == x), None, range(40)),
    "two-sided geometric": (
        '{ name = "discrete-laplace", epsilon = "1" }',
        two_sided(1.0),
        None,
        range(-80, 120),
    ),
    "normal": (
        '{ name = "gaussian", sigma2 = "4" }',
        lambda y, x: exp(-((y - x) ** 2) / 8) / sqrt(8 * pi),
        lambda low, high, x: (
            (erf((high - x) / sqrt(8)) - (erf((low - x) / sqrt(8)) if low > -1e9 else -1)) / 2
        ),
        range(0),
    ),
    "noise, rounded": (
        f'[{NOISE}, {{ name = "rounded", base = 4 }}]',
        after(nearest(4)),
        None,
        range(-80, 120),
    ),
    "noise, rounded at random, no negatives": (
        f'[{NOISE}, {{ name = "random-rounding", base = 3 }}, {{ name = "nonnegative" }}]',
        after(rounding(3), zero=True),
        None,
        range(60),
    ),
    "noise, no negatives": (
        f'[{NOISE}, {{ name = "nonnegative" }}]',
        after(lambda y, z: float(y == z), zero=True),
        None,
        range(80),
    ),
    "normal, whole, no negatives": (
        '[{ name = "gaussian", sigma2 = "4" }, { name = "rounded", base = 1 }, { name = "nonnegative" }]',
        whole_normal,
        None,
        range(60),
    ),
}


class Rule:
    """A law, a range of counts hidden before it, and a range of values hidden after it; None where there is none."""

    def __init__(self, name, hidden, concealed):
        self.text, self.pmf, self.between, self.values = LAWS[name]
        self.name, self.hidden, self.concealed = name, hidden, concealed

    @property
    def codes(self):
        found = {}
        if self.hidden:
            found["*"] = f"{self.hidden[0]}-{self.hidden[1]}"
        if self.concealed:
            low, high = self.concealed
            found["c"] = f"published <{high + 1}" if low < -1e8 else f"published {low}-{high}"
        return found

    def probability(self, seen, x):
        """Of what is seen, given the true count."""
        inside = self.hidden is not None and self.hidden[0] <= x <= self.hidden[1]
        if seen == "*" or inside:
            return float(seen == "*" and inside)
        if seen != "c":
            return self.pmf(seen, x)
        low, high = self.concealed
        if self.between:
            return self.between(low, high + 1 if low < -1e8 else high, x)
        return sum(self.pmf(y, x) for y in self.values if low <= y <= high)

    def publish(self, x, rng):
        if self.hidden and self.hidden[0] <= x <= self.hidden[1]:
            return "*"
        if self.name == "normal":
            y = round(float(x + 2 * rng.normal()), 2)
            top = self.concealed and (
                self.concealed[1] + 1 if self.concealed[0] < -1e8 else self.concealed[1]
            )
        else:
            p = np.array([self.pmf(y, x) for y in self.values])
            y = int(rng.choice(self.values, p=p / p.sum()))
            top = self.concealed and self.concealed[1]
        return "c" if self.concealed and self.concealed[0] <= y <= top else y


def random_rule(rng):
    hidden = [None, (1, 2), (1, 4), (0, 3)][rng.integers(4)]
    concealed = [None, (-1e9, 3), (1, 3), (2, 5)][rng.integers(4)]
    return Rule(list(LAWS)[rng.integers(len(LAWS))], hidden, concealed)


def spec_of(rules, crossing):
    levels = 'level = [{ name = "all" }, { name = "place", column = "place" }]'
    attributes = (
        'attribute = [{ name = "a", values = ["u", "v"] }, { name = "b", values = ["u", "v"] }]'
        if crossing
        else ""
    )
    parts = [f'format = 1\ntitle = "T"\ntable = {{ name = "t", counts = "unit" }}\n{levels}\n{attributes}']
    for k, (level, names, rule) in enumerate(rules):
        codes = ", ".join(f'"{code}" = "{said}"' for code, said in rule.codes.items())
        parts.append(
            f'[[published]]\nname = "t{k}"\nlevel = "{level}"\nattributes = {list(names)}\ncount = "n"\nkey = "k{k}"\n'
            f"law = {rule.text}\ncodes = {{ {codes} }}\n"
        )
    return parse_perturbed("\n".join(parts))


def posed(seed, *, crossing):
    """A random problem as it is read, all tables that explain it `(k, cells)`, and their probabilities."""
    rng = np.random.default_rng([51, seed])
    places = 1 if crossing else int(rng.integers(1, 4))
    cells = [
        (f"p{k}", a, b)
        for k in range(places)
        for a, b in ([(a, b) for a in "uv" for b in "uv"] if crossing else [("", "")])
    ]
    truth = np.minimum(rng.poisson(rng.choice([1.0, 3.0, 5.0]), len(cells)), TOP)
    sums = (
        [("place", ("a", "b")), ("place", ("a",)), ("place", ("b",))]
        if crossing
        else [("place", ()), ("all", ())]
    )
    rules, tables, seen = [], [], []
    for level, names in sums:
        rule = random_rule(rng)
        keys = list(dict.fromkeys(group_of(cell, level, names) for cell in cells))
        rows = np.array([[group_of(cell, level, names) == key for cell in cells] for key in keys])
        shown = [rule.publish(int(row @ truth), rng) for row in rows]
        frame: dict[str, Any] = {"n": [str(s) for s in shown]}
        frame |= {"place": [k[0] for k in keys]} if level == "place" else {}
        frame |= {name: [k[1 + i] for k in keys] for i, name in enumerate(names)}
        rules.append((level, names, rule))
        tables.append(pandas.DataFrame(frame))
        seen.append((rule, rows, shown))
    measured = read_perturbed(spec_of(rules, crossing), tables)
    assert not measured.spec.noted
    every = np.array(list(product(range(TOP + 1), repeat=len(cells))))
    weight = np.ones(len(every))
    for rule, rows, shown in seen:
        for row, one in zip(rows, shown):
            total = every @ row
            known = np.array([rule.probability(one, x) for x in range(int(total.max()) + 1)])
            weight *= known[total]
    keep = weight > 0
    return measured, every[keep], weight[keep] / weight.sum()


def compared(seed, *, crossing, method):
    """How far a method's marginals are from enumeration."""
    measured, tables, mass = posed(seed, crossing=crossing)
    return furthest(measured.cells, infer(measured, method, draws=2), tables, mass)


def group_of(cell, level, names):
    return (cell[0] if level == "place" else "", *(cell[1 + "ab".index(name)] for name in names))


TREE = TreeExact(prior=Bounded(TOP), tolerance=1e-13, tier="exact")
LISTED = LatticeMoves(prior=Bounded(TOP), enumerate=200_000)


@pytest.mark.parametrize("seed", range(40))
def test_composed_laws_on_trees_equal_enumeration(seed):
    assert compared(seed, crossing=False, method=TREE) < 1e-10


@pytest.mark.parametrize("seed", range(16))
def test_composed_laws_of_tables_that_cross_equal_enumeration(seed):
    assert compared(seed, crossing=True, method=LISTED) < 1e-10


@pytest.mark.slow
def test_three_hundred_composed_laws_equal_enumeration():
    gaps = [compared(1000 + seed, crossing=False, method=TREE) for seed in range(300)]
    assert max(gaps) < 1e-10


@pytest.mark.parametrize("wrong", ["hidden", "concealed"])
def test_a_wrong_rule_is_seen(wrong):
    """The enumeration tells a rule from one that forgets what is hidden."""

    class Forgetful(Rule):
        def probability(self, seen, x):
            if wrong == "hidden" and seen not in ("*", "c"):
                return self.pmf(seen, x)
            if wrong == "concealed" and seen == "c":
                return float(x <= self.concealed[1])
            return super().probability(seen, x)

    right, other = Rule("rounded at random", (1, 4), None), Forgetful("rounded at random", (1, 4), None)
    if wrong == "concealed":
        right, other = (
            Rule("two-sided geometric", None, (-1e9, 3)),
            Forgetful("two-sided geometric", None, (-1e9, 3)),
        )
    seen = "c" if wrong == "concealed" else 6
    masses = [np.array([rule.probability(seen, x) for x in range(TOP + 1)]) for rule in (right, other)]
    gaps = np.abs(masses[0] / masses[0].sum() - masses[1] / masses[1].sum())
    assert gaps.max() > 0.01


def test_probabilities_of_all_that_can_be_seen_sum_to_one():
    for seed in range(60):
        rule = random_rule(np.random.default_rng(seed))
        if rule.name == "normal":
            continue
        low, high = rule.concealed or (1, 0)
        shown = [y for y in rule.values if not low <= y <= high]
        for x in range(12):
            assert sum(
                rule.probability(s, x) for s in [*shown, "*", *(["c"] if rule.concealed else [])]
            ) == pytest.approx(1)


@pytest.mark.parametrize("seed", [1055, 1213, 1277])
def test_holes_of_hidden_counts_and_repeated_values_under_keys_of_their_own(seed):
    """Counts above a hidden range are possible too; a total that repeats its only part's value counts, where keys differ."""
    assert compared(seed, crossing=False, method=TREE) < 1e-10


def chained(seed, *, crossing):
    """The largest standardised difference of a chain from enumeration, and from equally probable tables.

    None without one, or where the chain refuses to answer, as where it begins in a hole that hidden counts leave.
    """
    measured, tables, mass = posed(seed, crossing=crossing)
    try:
        posterior = infer(measured, LatticeMoves(prior=Bounded(TOP), enumerate=0), draws=4000)
    except ConvergenceError:
        return None
    if posterior.drawn.independent or not posterior.drawn.connected:
        return None
    equal = np.full(len(mass), 1 / len(mass))
    return [worst_z(measured.cells, posterior, tables, weights) for weights in (mass, equal)]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [36, pytest.param(450, marks=pytest.mark.slow)])
def test_chains_under_composed_laws_agree_with_enumeration(seeds):
    """And would not if they forgot the laws: then more than a third are far off."""
    found = [chained(seed, crossing=seed % 2 == 0) for seed in range(seeds)]
    right, wrong = np.array([one for one in found if one is not None]).T
    assert len(right) > seeds / 3
    assert right.max() < 5.5
    assert (wrong > 5.5).mean() > 1 / 3


@pytest.mark.parametrize(
    "law",
    [
        f'[{NOISE}, {{ name = "suppressed", threshold = 4 }}]',
        f'[{NOISE}, {{ name = "rounded", base = 4 }}, {{ name = "suppressed", threshold = 4 }}]',
        '{ name = "suppressed", threshold = 4, least = 0 }',
    ],
)
def test_rows_left_out_below_a_threshold_say_what_a_code_would(law):
    head = (
        'format = 1\ntitle = "T"\ntable = { name = "t", counts = "unit" }\n'
        'level = [{ name = "all" }, { name = "place", column = "place" }]\nattribute = [{ name = "a", values = ["u", "v"] }]\n'
        f'[[published]]\nname = "t"\nlevel = "place"\nattributes = ["a"]\ncount = "n"\nlaw = {law}\n'
    )
    rows = [("p", "u", "8"), ("p", "v", "*"), ("q", "u", "*"), ("q", "v", "4")]
    coded = pandas.DataFrame(rows, columns=["place", "a", "n"])
    posteriors = [
        infer(read_perturbed(parse_perturbed(head + more), [table]), TREE, draws=2)
        for more, table in (
            ('codes = { "*" = "hidden" }', coded),
            ('unlisted = "hidden"', coded[coded["n"] != "*"]),
        )
    ]
    one, other = (posterior.summary("place x a") for posterior in posteriors)
    assert [*one["label"]] == [*other["label"]]
    assert np.array_equal(one["mean"], other["mean"])
    assert one["high"][1] > 0


@pytest.mark.parametrize(
    ("ties", "goes"), [("up", lambda z: 10 * ((z + 5) // 10)), ("down", lambda z: 10 * ((z + 4) // 10))]
)
@pytest.mark.parametrize("threshold", [50, 47])
def test_a_threshold_before_a_rounding_hides_noisy_numbers(ties, goes, threshold):
    hides = {"name": "suppressed", "threshold": threshold}
    rounds = {"name": "rounded", "base": 10, "ties": ties}
    rule = read_rule([{"name": "discrete-laplace", "epsilon": "1/4"}, hides, rounds], "t")
    code = read_meaning(f"published <{threshold}")
    assert code is not None
    x, z = np.arange(0, 120)[:, None], np.arange(-200, 400)[None]
    noise = (1 - exp(-0.25)) / (1 + exp(-0.25)) * np.exp(-0.25 * np.abs(z - x))
    said = [np.exp(rule.of_code(meaning).log_mass(0, x[:, 0])) for meaning in (code, CodeMeaning("hidden"))]
    np.testing.assert_allclose(said, [(noise * (z < threshold)).sum(axis=1)] * 2, atol=1e-12)
    for value in (40, 50, 60, 90):
        seen = (noise * ((z >= threshold) & (goes(z) == value))).sum(axis=1)
        np.testing.assert_allclose(np.exp(rule.law.log_mass(value, x[:, 0])), seen, atol=1e-12)


@pytest.mark.parametrize(
    ("law", "word"),
    [
        ('[{ name = "rounded", base = 5 }, { name = "nonnegative" }]', "after 'rounded'"),
        (f'[{NOISE}, {{ name = "nonnegative" }}, {{ name = "nonnegative" }}]', "after 'discrete-laplace'"),
        (
            f'[{NOISE}, {{ name = "suppressed", threshold = 43 }}, {{ name = "rounded", base = 10 }}]',
            "turn 43 into a smaller number",
        ),
        (f'[{NOISE}, {{ name = "rounded" }}]', "after 'discrete-laplace'"),
        (
            '[{ name = "gaussian", sigma2 = "4" }, { name = "random-rounding", base = 3 }]',
            "random rounding is given after",
        ),
        (f'{NOISE}\nunlisted = "hidden"', "hides nothing"),
    ],
)
def test_laws_that_do_not_follow_each_other_are_refused(law, word):
    with pytest.raises(SpecError, match=word):
        parse_perturbed(
            'format = 1\ntitle = "T"\ntable = { name = "t", counts = "unit" }\nlevel = [{ name = "all" }]\n'
            f'[[published]]\nname = "t"\nlevel = "all"\ncount = "n"\nlaw = {law}\n'
        )
