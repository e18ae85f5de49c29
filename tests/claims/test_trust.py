"""Claim: who writes specs learns no more from refusals than is counted, and publishes exactly what was declared.

Each attack worked on the version before: with `[table.join]` it read any person's attribute for nothing, 60 of 60 right; an
invariant declared by its name published any column, 300 of 300 values; one counted check told 32 of 32 files apart; row
numbers gave 17 bits for an answer.
"""

import json
import re
import traceback
from fractions import Fraction

import numpy as np
import pandas
import pytest

from trueup.errors import BudgetError, DataError, InfeasibleError, TrueupError
from trueup.files import JoinedTables
from trueup.ledger.account import Account
from trueup.ledger.ledger import Ledger
from trueup.ledger.request import DEFAULT_UNLISTED_RULES, Terms
from trueup.model.mechanism import plan_measurements
from trueup.model.problem import public_cells
from trueup.model.spec import Spec, parse_spec
from trueup.releasing import pipeline
from trueup.run.local import LocalPool

NOISE = {"noise": "discrete-gaussian", "rho": {"all": "1/1000", "block": "1/1000"}}
PLACES = pandas.DataFrame({"block": ["11", "12"]})


def account_of(folder, name="t", checks=DEFAULT_UNLISTED_RULES, unit="household", **more):
    ledger = Ledger.create(str(folder / f"{name}.db"))
    ledger.init("t", {"rho": "100"}, terms=Terms(unit, "add-remove", checks=checks, **more))
    return Account(ledger, "ana")


def counted(account):
    return len(account.ledger.state().shown["t"].counted)


class Attempts:
    """Somebody who submits specs and sees whether they run, and what the message says."""

    def __init__(self, folder, account):
        self.folder, self.account, self.tries, self.said = folder, account, 0, []

    def __call__(self, spec, data, places=PLACES, **more):
        """Whether a run went on to draw; BudgetError if the ledger refused it."""
        self.tries += 1
        try:
            out = self.folder / f"out{self.tries}"
            run = pipeline.release if more else pipeline.measure_only
            run(spec, data, out, geography=places, account=self.account, **more)
        except (DataError, InfeasibleError) as error:
            self.said.append("".join(traceback.format_exception(error)))
            self.error = error
            return False
        return True


def joined(ssn):
    """A spec that stops if and only if the person of this number is sick."""
    return Spec.model_validate(
        {
            "format": 2,
            "title": "t",
            "table": {
                "name": "t",
                "kind": "records",
                "counts": "person",
                "join": {"counts": "household", "id": "hid", "reference": {"column": "ssn", "value": ssn}}
                | {"apart": ["households without a reference person"]},
            },
            "privacy": {"unit": "household", "neighbours": "add-remove", "contribution": {"records": 2}},
            "level": [{"name": "all"}, {"name": "block", "column": "block"}],
            "attribute": [
                {"name": "disease", "of": "reference", "values": ["well", "frail"]},
                {"name": "size", "persons": {}},
            ],
            "query": [
                {"name": "q", "counts": "household", "attributes": ["size", "disease"]} | NOISE,
                {"name": "p", "counts": "person"} | NOISE,
            ],
        }
    )


def test_no_attribute_of_a_person_is_read_by_the_reference_of_a_join(tmp_path, rng):
    people = 20
    ids = [f"s{i}" for i in range(people)]
    sick = rng.random(people) < 0.5
    persons = pandas.DataFrame({"hid": ids, "ssn": ids, "disease": np.where(sick, "sick", "well")})
    data = JoinedTables(persons, pandas.DataFrame({"hid": ids, "block": "11"}))
    account = account_of(tmp_path)
    attempt, learnt = Attempts(tmp_path, account), 0
    for number in ids:
        before = counted(account)
        try:
            answer = attempt(joined(number), data)
        except BudgetError:
            continue
        learnt += 1
        assert counted(account) > before or (answer and learnt == 1), (
            "an answer is a check; one first may be free"
        )
    assert learnt <= DEFAULT_UNLISTED_RULES + 1
    assert not any(number in said for said in attempt.said for number in ids)


COUNTS = """
format = 2
title = "t"
table = { name = "t", kind = "counts", counts = "person", count = "n" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "block", column = "block" }]
attribute = [{ name = "sex", column = "COLUMN", values = ["f", "m"] }]
query = [{ name = "q", attributes = ["sex"], noise = "discrete-gaussian", rho = { block = "1/1000" } }]
"""
PUBLIC = """
format = 2
title = "t"
table = { name = "t", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "block", column = "COLUMN" }]
query = [{ name = "q", noise = "discrete-gaussian", rho = { block = "1/1000" } }]
"""
INVARIANT = 'constraints = { invariants = [{ level = "all", attributes = ["sex"] }] }\n'
TABLE = pandas.DataFrame(
    {"block": ["11", "11", "12", "12"], "sex": list("fmfm"), "sick": list("fmmf"), "n": [5, 6, 7, 8]}
)


def test_an_invariant_is_declared_by_its_columns_and_not_by_its_name(tmp_path):
    declared = parse_spec(COUNTS.replace("COLUMN", "sex") + INVARIANT)
    terms = Terms("person", "add-remove").listing(declared, public_cells(declared, geography=PLACES))
    ledger = Ledger.create(str(tmp_path / "t.db"))
    ledger.init("t", {"rho": "1"}, terms=terms)
    attempt = Attempts(tmp_path, Account(ledger, "ana"))
    other = parse_spec(COUNTS.replace("COLUMN", "sick") + INVARIANT)
    with pytest.raises(BudgetError, match="declared under this name"):
        attempt(other, TABLE)
    with pytest.raises(BudgetError, match="declared under this name"):
        attempt(declared, TABLE, pandas.DataFrame({"block": ["11", "12", "13"]}))
    assert attempt(declared, TABLE)


def test_places_are_taken_from_columns_alone_that_the_keeper_declared_public(tmp_path):
    """Else the places of a spec would be the values of any column: of another column of counts each exact count."""
    data = write(tmp_path, "d", TABLE.assign(k=[7345, 4000, 10, 3]).groupby("block", as_index=False).first())
    account = account_of(tmp_path, unit="person", public=("block",))
    attempt = Attempts(tmp_path, account)
    for column in ("sick", "k", "BLOCK"):
        spec = parse_spec(PUBLIC.replace("COLUMN", column))
        with pytest.raises(BudgetError, match="takes its places from the column") as refused:
            attempt(spec, data, None)
        assert not {"7345", "f", "11"} & set(re.findall(r"\w+", str(refused.value)))
        with pytest.raises(BudgetError, match="takes its places"):
            attempt(spec, data, None, executor=LocalPool(1))
    labelled = PUBLIC.replace('"COLUMN"', '"block", label = "sick"')
    with pytest.raises(BudgetError, match="column 'sick'"):
        attempt(parse_spec(labelled), data, None)
    assert attempt(parse_spec(PUBLIC.replace("COLUMN", "block")), data, None)
    listed = Terms("person", "add-remove").listing(
        spec := parse_spec(PUBLIC.replace("COLUMN", "block")), public_cells(spec, data)
    )
    assert listed.public == ("block",)


def test_the_confidential_table_is_no_list_of_places(tmp_path):
    """Given with --geography it would publish any of its columns, and tell repeated values by name."""
    data, account = write(tmp_path, "d", TABLE), account_of(tmp_path, unit="person", public=("block",))
    (linked := tmp_path / "places.csv").symlink_to(data)
    attempt = Attempts(tmp_path, account)
    hidden = parse_spec(PUBLIC.replace("COLUMN", "sick").replace('"public"', '"confidential"'))
    for places in (data, str(data), linked):
        with pytest.raises(BudgetError, match="--geography takes its places from the column 'sick'"):
            attempt(hidden, data, places)
        with pytest.raises(BudgetError, match="--geography takes its places"):
            attempt(hidden, data, places, executor=LocalPool(1))
    with pytest.raises(BudgetError, match="--geography takes its places"):
        attempt(hidden, TABLE, TABLE)
    once = write(tmp_path, "once", TABLE.drop_duplicates("block"))
    assert attempt(parse_spec(PUBLIC.replace("COLUMN", "block")), once, once)


RULE = 'constraints = { linear = ["f <= 100"] }\n'


def write(folder, name, table):
    path = folder / f"{name}.csv"
    table.to_csv(path, index=False)
    return path


def test_one_check_does_not_tell_files_apart(tmp_path):
    """The account is bound to the first data; others are declared by its keeper, and are asked anew."""
    account = account_of(tmp_path, unit="person")
    attempt = Attempts(tmp_path, account)
    spec = parse_spec(COUNTS.replace("COLUMN", "sex") + RULE)
    files = [write(tmp_path, f"d{i}", TABLE.assign(n=TABLE["n"] + 200 * i)) for i in range(8)]
    assert attempt(spec, files[0])
    for path in files[1:]:
        with pytest.raises(BudgetError, match="differ from those of the account"):
            attempt(spec, path)
    assert counted(account) == 1
    account.ledger.declare("t", files[1])
    assert not attempt(spec, files[1])
    assert counted(account) == 2
    copied = write(tmp_path, "the same", TABLE)
    assert attempt(spec, copied), "data are known by what they hold, and not by their name"
    assert counted(account) == 2


def test_data_that_cannot_be_known_again_are_asked_anew_each_time(tmp_path):
    account = account_of(tmp_path, unit="person")
    attempt = Attempts(tmp_path, account)
    spec = parse_spec(COUNTS.replace("COLUMN", "sex") + RULE)
    import duckdb

    answered = 0
    for _ in range(6):
        try:
            answered += attempt(spec, duckdb.from_df(TABLE))
        except BudgetError:
            break
    assert answered <= DEFAULT_UNLISTED_RULES
    assert counted(account) >= answered


def test_three_corrections_of_a_years_data_need_no_other_account(tmp_path):
    """Each is one declaration of the keeper; what was spent stays spent."""
    account = account_of(tmp_path, unit="person")
    attempt = Attempts(tmp_path, account)
    spec = parse_spec(COUNTS.replace("COLUMN", "sex") + RULE)
    faulty = TABLE.copy()
    faulty.loc[0, "sex"] = "x"
    first = write(tmp_path, "first", faulty)
    assert not attempt(spec, first)
    for number in range(3):
        corrected = write(tmp_path, f"corrected {number}", TABLE.assign(n=TABLE["n"] + number))
        account.ledger.declare("t", corrected)
        assert attempt(spec, corrected)
    assert account.ledger.state().spent["t", None].rho == Fraction(3, 1000)


@pytest.mark.parametrize("by_parts", [False, True])
def test_a_refusal_tells_the_rule_and_no_row_but_to_the_keeper(tmp_path, by_parts):
    table = pandas.DataFrame({"block": ["11"] * 900, "sex": ["f"] * 900})
    table.loc[731, "sex"] = "x"
    records = COUNTS.replace('"counts", counts', '"records", counts').replace(', count = "n"', "")
    spec = parse_spec(records.replace("COLUMN", "sex"))
    account = account_of(tmp_path, unit="person")
    attempt = Attempts(tmp_path, account)
    more = {"executor": LocalPool(1)} if by_parts else {}
    assert not attempt(spec, write(tmp_path, "d", table), **more)
    assert "column 'sex' is there and holds no other value" in attempt.said[0]
    assert not {"732", "733"} & set(re.findall(r"\d+", str(attempt.error)))
    assert (attempt.error.__context__, attempt.error.__cause__) == (None, None)
    private = (account.ledger.keeper.folder / "refusals.jsonl").read_text()
    assert "row 732" in private or "line 733" in private
    assert counted(account) == 2, "the places and the column"
    assert not account.ledger.state().spent["t", None].rho
    entries = "".join(entry.body for entry in account.ledger.entries())
    assert account.ledger.keeper.key.hex() not in entries


def test_what_a_run_notes_of_its_data_is_the_keepers(tmp_path):
    account = account_of(tmp_path, unit="person")
    attempt = Attempts(tmp_path, account)
    assert attempt(parse_spec(COUNTS.replace("COLUMN", "sex")), write(tmp_path, "d", TABLE))
    log = json.loads((tmp_path / "out1" / "internal" / "run.json").read_text())
    assert "input" not in log
    assert "input" in (account.ledger.keeper.folder / "refusals.jsonl").read_text()


def _values(rng):
    """Another list of values of a column each time."""
    listed = ["f", "m"][: 1 + rng.integers(2)] + ["z"] * int(rng.integers(2))
    return COUNTS.replace('values = ["f", "m"]', f"values = {json.dumps(listed)}")


def _rule(kind):
    texts = {
        "linear": 'linear = ["f <= {}"]',
        "two": 'linear = ["f <= {}", "m <= {}"]',
        "bound": 'bounds = [{{ level = "block", attributes = ["sex"], upper = {} }}]',
        "lower": 'bounds = [{{ level = "all", lower = {} }}]',
        "column": 'linear = ["m <= {} * f"]',
    }
    return lambda rng: COUNTS + "constraints = { " + texts[kind].format(*rng.integers(1, 16, 2)) + " }\n"


def _zero(rng):
    return COUNTS + f'constraints = {{ zeros = [{{ sex = "{rng.choice(["f", "m"])}" }}] }}\n'


SPECS = {kind: _rule(kind) for kind in ("linear", "two", "bound", "lower", "column")} | {
    "values": _values,
    "zero": _zero,
}
STRATEGIES = [
    (spec, column, how)
    for spec in SPECS
    for column, how in (("sex", "same data"), ("any", "same data"), ("sex", "unknown data"))
][:20]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "column", "how"),
    [
        pytest.param(*each, marks=[] if i % 7 == 0 else pytest.mark.thorough if i % 2 else pytest.mark.slow)
        for i, each in enumerate(STRATEGIES)
    ],
)
def test_refusals_carry_no_more_bits_than_checks_were_counted(tmp_path, rng, kind, column, how):
    assert bits_beyond(tmp_path, rng, kind, column, how, secrets=8) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "column", "how"), STRATEGIES)
def test_refusals_carry_no_more_bits_at_full_size(tmp_path, rng, kind, column, how):
    assert bits_beyond(tmp_path, rng, kind, column, how, secrets=40) <= 1


def bits_beyond(tmp_path, rng, kind, column, how, secrets):
    """Kraft's sum over what is heard of so many secrets: above 1 where no code of as many bits as checks tells them."""
    import duckdb

    script = [
        SPECS[kind](rng).replace("COLUMN", rng.choice(["sex", "sick"]) if column == "any" else "sex")
        for _ in range(6)
    ]
    seen = {}
    for secret in range(secrets):
        table = TABLE.assign(n=rng.permutation(15)[:4])
        account = account_of(tmp_path, f"s{secret}", unit="person")
        (tmp_path / f"s{secret}").mkdir()
        attempt = Attempts(tmp_path / f"s{secret}", account)
        heard = []
        for text in script:
            data = duckdb.from_df(table) if how == "unknown data" else table
            try:
                heard.append((attempt(parse_spec(text), data), *attempt.said[-1:]))
            except BudgetError:
                heard.append("refused by the ledger")
            except TrueupError as error:
                heard.append(str(error))
        free = 2 * (column == "any") + 1
        seen.setdefault(json.dumps(heard), []).append(counted(account) + free)
    return sum(2.0 ** -min(costs) for costs in seen.values())


def test_a_guarantee_of_noise_drawn_in_doubles_states_a_delta():
    spec = parse_spec(
        COUNTS.replace("COLUMN", "sex").replace(
            '"discrete-gaussian", rho = { block = "1/1000" }',
            '"lattice-l2-laplace", epsilon = { block = "1/2" }',
        )
        + INVARIANT
    )
    guarantee = plan_measurements(spec, public_cells(spec, geography=PLACES))[1]
    assert 0 < guarantee.delta < Fraction(1, 10**9)
    assert "delta = " in " ".join(guarantee.sentences)
