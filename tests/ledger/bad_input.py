"""The table of inputs that accounting, ledger and planning refuse; each row acts on a fresh ledger.

The ledger holds a cap of epsilon = 1 on the dataset `survey`, and a release under the key `done`.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas

from tests.ledger.helpers import PERSON as TERMS
from tests.ledger.helpers import epsilon, request, rho
from trueup.arrays.losses import epsilon_of
from trueup.errors import BudgetError, PrivacyError, SpecError
from trueup.ledger.account import Account
from trueup.ledger.ledger import Ledger
from trueup.ledger.questions import Question
from trueup.ledger.request import Terms
from trueup.ledger.state import parse_caps
from trueup.model.spec import parse_spec
from trueup.noise.law import Cost
from trueup.planning.plan import plan
from trueup.privacy import Loss, compose
from trueup.privacy.contribution import Contribution

HALF = Fraction(1, 2)
HOUSEHOLD = Terms("household", "add-remove")
PERSON = Contribution.partition()


def ask(ledger, loss=None, key=None, **more):
    """Reserve, by default half of the cap."""
    return ledger.reserve(request(epsilon(HALF) if loss is None else loss, key, **more))


def cap(ledger, amount, currency="epsilon"):
    """Declare a cap on another dataset."""
    return ledger.init("panel", {currency: amount}, terms=TERMS)


def rules(count):
    """Rules that were never checked."""
    return tuple(Question.of(f"a <= {i}", i) for i in range(count))


SPEC = parse_spec("""
format = 2
title = "Two areas"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", epsilon = { all = "1/2", area = "1/2" } }]
""")


def planned(**options):
    """Plan a total and two areas."""
    return plan(SPEC, pandas.DataFrame({"area": ["a", "b"]}), **options)


# what is tried, the call, the error, and words of its message
BAD = [
    ("a cost as a float", lambda x: compose([Cost("epsilon", 0.1)]), SpecError, "type float"),
    ("a cost as a NumPy float", lambda x: compose([Cost("epsilon", np.float64(0.1))]), SpecError, "type float64"),
    ("a cost that is not a number", lambda x: compose([Cost("epsilon", float("nan"))]), SpecError, "type float"),
    ("an infinite cost", lambda x: compose([Cost("epsilon", float("inf"))]), SpecError, "type float"),
    ("a cost as a bool", lambda x: compose([Cost("epsilon", True)]), SpecError, "type bool"),
    ("a cost as text", lambda x: compose([Cost("epsilon", "1/2")]), SpecError, "type str"),
    ("a negative cost", lambda x: compose([Cost("epsilon", -HALF)]), SpecError, "negative"),
    ("a negative delta", lambda x: compose([Cost("epsilon", HALF, -HALF)]), SpecError, "delta of a cost is negative"),
    ("a delta as a float", lambda x: compose([Cost("epsilon", HALF, 1e-9)]), SpecError, "the delta of a cost is"),
    ("a cost in an unknown currency", lambda x: compose([Cost("mu", HALF)]), SpecError, "'mu'"),
    ("a number where a cost belongs", lambda x: compose([HALF]), SpecError, "a Fraction is given"),
    ("a number where a loss belongs", lambda x: ask(x, HALF), SpecError, "a Fraction is given"),
    ("a loss as a float", lambda x: ask(x, Loss(epsilon=0.1)), SpecError, "of type float"),
    ("a negative loss", lambda x: ask(x, Loss(rho=-HALF)), SpecError, "the rho of a loss is negative"),
    ("no analyst", lambda x: ask(x, analyst=None), SpecError, "the analyst has no name"),
    ("an analyst without letters", lambda x: ask(x, analyst=" "), SpecError, "the analyst has no name"),
    ("an analyst that is a number", lambda x: ask(x, analyst=7), SpecError, "the analyst has no name"),
    ("a name of 300 letters", lambda x: ask(x, analyst="a" * 300), SpecError, "too long"),
    ("a name with a line break", lambda x: ask(x, analyst="a\nb"), SpecError, "not printable"),
    ("no dataset", lambda x: ask(x, dataset=""), SpecError, "the dataset has no name"),
    ("a dataset without a cap", lambda x: ask(x, dataset="census"), BudgetError, "'census' has no cap"),
    ("an empty key", lambda x: ask(x, key=""), SpecError, "the key has no name"),
    ("a key of another release", lambda x: ask(x, key="done"), BudgetError, "belongs to another release"),
    ("one part in 10^30 over the cap", lambda x: ask(x, epsilon(1 + Fraction(1, 10**30))), BudgetError, "more epsilon"),
    ("a cost of 10^300", lambda x: ask(x, epsilon(10**300)), BudgetError, "more epsilon"),
    ("rho without a cap in rho", lambda x: ask(x, rho(HALF)), BudgetError, "no cap in rho"),
    ("delta without a cap in delta", lambda x: ask(x, compose([Cost("epsilon", HALF, HALF)])), BudgetError, "no cap in delta"),
    ("an invariant that was not declared", lambda x: ask(x, invariants=rules(1)), BudgetError, "is not declared"),
    ("four new rules where three may be checked", lambda x: ask(x, questions=rules(4)), BudgetError, "at most 3 new checks"),
    ("an account without a unit", lambda x: x.init("panel", {"epsilon": "1"}), BudgetError, "--unit"),
    ("an account for another unit", lambda x: x.init("survey", {"rho": "1"}, terms=HOUSEHOLD), BudgetError, "other terms"),
    ("an account under an unknown relation", lambda x: Terms("person", "swap"), SpecError, "'swap'"),
    ("an account whose unit has no name", lambda x: Terms("", "replace"), SpecError, "the unit has no name"),
    ("an invariant by its name alone", lambda x: Terms("person", "replace", {"all": ""}), SpecError, "without its meaning"),
    ("a cap of another currency afterwards", lambda x: x.init("survey", {"rho": "1"}), BudgetError, "only in other currencies"),
    ("telling analysts apart on a file", lambda x: x.grant("ana"), BudgetError, "PostgreSQL"),
    ("-1 checks", lambda x: Terms("person", "replace", checks=-1), SpecError, "number of checks"),
    ("a cap as a float", lambda x: cap(x, 0.1), SpecError, '"0.1" or "1/10"'),
    ("a cap of zero", lambda x: cap(x, 0), SpecError, "above zero"),
    ("a negative cap", lambda x: cap(x, "-1"), SpecError, "above zero"),
    ("a cap that is not a number", lambda x: cap(x, float("nan")), SpecError, "finite"),
    ("an infinite cap", lambda x: cap(x, "inf"), SpecError, "finite"),
    ("an infinite decimal cap", lambda x: cap(x, Decimal("Infinity")), SpecError, "finite"),
    ("a cap as a bool", lambda x: cap(x, True), SpecError, "the cap in epsilon is True"),
    ("a cap of nothing", lambda x: cap(x, None), SpecError, "NoneType"),
    ("a cap with an exponent that fills the memory", lambda x: cap(x, "1e999999999"), SpecError, "finite"),
    ("a cap in an unknown currency", lambda x: cap(x, "1", "dollars"), SpecError, "'dollars'"),
    ("a dataset declared without caps", lambda x: x.init("panel", {}), SpecError, "no cap is given"),
    ("a list where caps belong", lambda x: x.init("panel", ["epsilon"]), SpecError, "no cap is given"),
    ("another value for a declared cap", lambda x: x.init("survey", {"epsilon": "2"}), BudgetError, "never change"),
    ("the cap 'epsilon'", lambda x: parse_caps(["epsilon"]), SpecError, "CURRENCY=AMOUNT"),
    ("the cap '=1'", lambda x: parse_caps(["=1"]), SpecError, "CURRENCY=AMOUNT"),
    ("the cap 'epsilon='", lambda x: parse_caps(["epsilon="]), SpecError, "CURRENCY=AMOUNT"),
    ("one cap twice", lambda x: parse_caps(["epsilon=1", "epsilon=2"]), SpecError, "given twice"),
    ("an analyst's cap without the analyst", lambda x: parse_caps([":epsilon=1"]), SpecError, "NAME:CURRENCY=AMOUNT"),
    ("a ledger without an analyst", lambda x: Account.open("ledger.db", None, None), SpecError, "--analyst"),
    ("an analyst without a ledger", lambda x: Account.open(None, "ana", None), SpecError, "--ledger"),
    ("a key without a ledger", lambda x: Account.open(None, None, "k"), SpecError, "--ledger"),
    ("a ledger that does not exist", lambda x: Ledger.open("/nowhere/ledger.db"), BudgetError, "no ledger"),
    ("a ledger at an unknown kind of URL", lambda x: Ledger.open("mysql://host/name"), BudgetError, "'mysql'"),
    ("a neighbour relation that is misspelt", lambda x: PERSON.sensitivity("add_remove", cells=2), SpecError, "'add-remove'"),
    ("a neighbour relation in capitals", lambda x: PERSON.sensitivity("REPLACE", cells=2), SpecError, "one of"),
    ("no neighbour relation", lambda x: PERSON.sensitivity(None, cells=2), SpecError, "of another type"),
    ("a query of less than no counts", lambda x: PERSON.sensitivity("replace", cells=-1), SpecError, "is negative"),
    ("a unit that touches no count", lambda x: Contribution(0, 1), SpecError, "is zero"),
    ("a unit that touches -1 counts", lambda x: Contribution(-1, 1), SpecError, "is negative"),
    ("a unit that touches 1.0 counts", lambda x: Contribution(1.0, 1), SpecError, "type float"),
    ("a unit that touches True counts", lambda x: Contribution(True, 1), SpecError, "type bool"),
    ("a contribution of 1/2", lambda x: Contribution(1, HALF), SpecError, "type Fraction"),
    ("a delta that was spent", lambda x: compose([Cost("rho", HALF, HALF)]).at_delta(HALF), PrivacyError, "delta above 0.5"),
    ("rho converted at delta 0", lambda x: epsilon_of(HALF, Fraction(0)), SpecError, "between 0 and 1"),
    ("rho converted at delta 1", lambda x: epsilon_of(HALF, Fraction(1)), SpecError, "between 0 and 1"),
    ("rho converted at a delta in words", lambda x: epsilon_of(HALF, "little"), SpecError, "between 0 and 1"),
    ("a negative rho converted", lambda x: epsilon_of(-HALF, HALF), SpecError, "rho is negative"),
    ("a plan for an unknown level", lambda x: planned(weights={"block": 1.0}), SpecError, "no level 'block'"),
    ("a plan with a target of 0", lambda x: planned(targets={"area": 0.0}), SpecError, "out of range"),
    ("a plan with a target at 100 %", lambda x: planned(targets=["area=5@100%"]), SpecError, "percentage"),
    ("a plan of an epsilon at no delta", lambda x: planned(total="3@"), SpecError, "delta of the total"),
    ("a plan of an epsilon at delta 1", lambda x: planned(total="3@1"), SpecError, "1 or more"),
    ("a plan with a weight that is not a number", lambda x: planned(weights={"area": float("nan")}), SpecError, "out of range"),
]  # fmt: skip
