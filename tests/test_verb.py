"""Verbs are functions that say which record they take; a record knows its spec, a problem what follows from it."""

from __future__ import annotations

import dataclasses
import inspect
import io
import pickle

import pandas
import pytest

import trueup
from tests.areas import SPEC, TABLE
from trueup.errors import SpecError, TrueupError

COUNTIES = pandas.read_csv(io.StringIO(TABLE), dtype={"state": str, "county": str})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda spec: trueup.measure(7, None), "a int is given as spec.*a Problem.*load_spec"),
        (lambda spec: trueup.measure("absent.toml", None), "cannot read the spec 'absent.toml'"),
        (
            lambda spec: trueup.reconcile(spec),
            "given a Spec as measurements.*record: Measurements.*read_measurements",
        ),
        (lambda spec: trueup.infer(spec, 3), "given a int as source.*Measurements or Release"),
        (lambda spec: trueup.infer(None, None), "given a NoneType as spec.*Spec or Constraints"),
        (lambda spec: trueup.assess({}, None), "given a dict as spec"),
    ],
)
def test_what_is_not_the_record_is_refused_by_name(call, said):
    with pytest.raises(TrueupError, match=said):
        call(trueup.parse_spec(SPEC))


def test_verbs_are_functions_that_can_be_pickled_and_read():
    for verb in (
        trueup.measure,
        trueup.reconcile,
        trueup.infer,
        trueup.assess,
        trueup.report,
        trueup.explain,
    ):
        assert pickle.loads(pickle.dumps(verb)) is verb
        assert inspect.isfunction(verb)
        assert verb.__doc__
        assert len(inspect.signature(verb).parameters) > 1
    assert dir(trueup) == sorted(trueup.__all__)


def test_a_record_knows_its_spec_and_the_old_form_of_a_call_warns():
    spec = trueup.parse_spec(SPEC)
    noisy = trueup.measure(trueup.Problem.of(spec, COUNTIES), COUNTIES)
    released = trueup.reconcile(noisy)
    with pytest.warns(DeprecationWarning, match="old form: write trueup.reconcile\\(measurements\\)"):
        old = trueup.reconcile(spec, noisy)
    assert (old.counts == released.counts).all()
    with pytest.raises(SpecError, match="do not know their spec"):
        trueup.reconcile(dataclasses.replace(noisy, spec=None))


def test_a_problem_settles_each_thing_once():
    problem = trueup.Problem.of(trueup.parse_spec(SPEC), COUNTIES)
    assert problem.constraints is problem.constraints
    assert problem.headers is problem.headers
    assert trueup.Problem.of(problem) is problem
    assert len(repr(problem).splitlines()) == 3
    assert "30" not in problem._repr_html_() + repr(problem)  # a count of the table
