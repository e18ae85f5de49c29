"""Verbs say which record they take."""

from __future__ import annotations

import pytest

import trueup
from tests.areas import SPEC
from trueup.errors import TrueupError


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda spec: trueup.measure("spec.toml", None), "measure was given a str as spec.*load_spec"),
        (
            lambda spec: trueup.reconcile(spec, spec),
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
