"""Priors as specs write them: the same in every verb, and nothing unknown inside."""

from __future__ import annotations

import jsonschema
import pytest

from trueup import inferring, reconciling
from trueup.errors import SpecError
from trueup.inferring.released_multinomial import ReleasedMultinomial
from trueup.inferring.tree_exact import TreeExact
from trueup.model.prior import FLAT, Bounded, FlatTotal, NegativeBinomial, Poisson, read_prior
from trueup.model.verb import describe, make
from trueup.reconciling.multinomial import MultinomialMode, MultinomialSample
from trueup.schema import spec_schema

WITH_PRIOR = [
    (reconciling.METHODS, "multinomial-mode", MultinomialMode),
    (reconciling.METHODS, "multinomial-sample", MultinomialSample),
    (inferring.METHODS, "tree-exact", TreeExact),
    (inferring.METHODS, "released-multinomial", ReleasedMultinomial),
]


@pytest.mark.parametrize(("kinds", "name", "kind"), WITH_PRIOR)
def test_every_verb_reads_the_same_entries(kinds, name, kind):
    for entry, prior in [
        ("flat", FLAT),
        ({"name": "flat"}, FLAT),
        ({"name": "poisson", "mean": 3.0}, Poisson(3.0)),
        ({"name": "negative-binomial", "mean": [1.0, 2.0], "size": 1.0}, NegativeBinomial((1.0, 2.0), 1.0)),
        (Bounded(9), Bounded(9)),
    ]:
        assert make(kinds, "any", name, {"prior": entry}).prior == prior
        assert kind(prior=entry).prior == prior
    assert describe(kind(prior="flat"))["prior"] == {"name": "flat"}


@pytest.mark.parametrize(("kinds", "name", "kind"), WITH_PRIOR)
@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("jeffreys", "there is no prior 'jeffreys'"),
        ({"mean": 3.0}, "the prior has no name"),
        ({"name": "poisson", "mean": 3.0, "size": 2.0}, "no parameter 'size'"),
        ({"name": "poisson"}, "lacks the parameter mean"),
        ({"name": "poisson", "mean": "many"}, "not a number or a list"),
        ({"name": "poisson", "mean": "3"}, "not a number or a list"),
        ({"name": "poisson", "mean": True}, "not a number or a list"),
        ({"name": "masses", "masses": ["1", "2"]}, "not a number or a list"),
        ({"name": "bounded", "upper": "2"}, "out of range"),
        ({"name": "bounded", "upper": True}, "out of range"),
        ({"name": "bounded", "upper": 2.5}, "out of range"),
        (3, "a int is given"),
    ],
)
def test_every_verb_refuses_the_same_mistakes(kinds, name, kind, entry, says):
    for attempt in (lambda: make(kinds, "any", name, {"prior": entry}), lambda: kind(prior=entry)):
        with pytest.raises(SpecError, match=says):
            attempt()


def test_a_prior_on_the_total_is_no_prior_on_each_count():
    entry = {"name": "flat-total", "upper": 9}
    assert read_prior(entry) == FlatTotal(9)
    with pytest.raises(SpecError, match=r"numbers for: upper\."):  # and not for what it has without
        read_prior("flat-total")
    with pytest.raises(SpecError, match="there is no prior 'flat-total'"):
        MultinomialMode(prior=entry)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SpecError, match=r"type FlatTotal|there is no prior"):
        MultinomialMode(prior=FlatTotal(9))  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def schema():
    return spec_schema()


@pytest.mark.parametrize(("kinds", "name", "kind"), WITH_PRIOR)
def test_the_schema_knows_the_keys_of_priors(schema, kinds, name, kind):
    entry = jsonschema.Draft202012Validator({"$ref": f"#/$defs/method:{name}", "$defs": schema["$defs"]})
    for good in ("flat", {"name": "flat"}, {"name": "poisson", "mean": 3.0}):
        assert entry.is_valid({"method": name, "prior": good})
    for bad in (
        "poisson",
        {"mean": 3.0},
        {"name": "poisson", "mean": 3.0, "size": 2.0},
        {"name": "flat", "x": 1},
    ):
        assert not entry.is_valid({"method": name, "prior": bad})
