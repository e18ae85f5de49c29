"""Checks that verbs are given the record that they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar

from trueup.errors import TrueupError, did_you_mean

_SOURCES = {
    "Spec": "trueup.load_spec(path) reads one",
    "PerturbedSpec": "trueup.read_perturbed reads one with its tables",
    "Problem": "trueup.Problem.of(path, places) makes one",
    "Constraints": "trueup.load_spec(path) reads a spec, which serves as well",
    "Measurements": "trueup.measure makes them, trueup.read_measurements(folder) reads them; a release has .measurements",
    "ReleasedCounts": "trueup.read_released reads them",
    "Release": "trueup.reconcile makes one, trueup.read_release(folder) reads one",
}
"""Where each record comes from."""
_SEVERAL: dict[str, Any] = {
    "Sequence[Measurements]": list | tuple,
    "Mapping[str, Measurements | Release]": Mapping,
}
"""Ways to give several records, as annotations say them."""

P = ParamSpec("P")
R = TypeVar("R")


def takes_records(verb: Callable[P, R]) -> Callable[P, R]:
    """Refuse, by name, an argument that is not the record which the verb's annotation asks for.

    Raises
    ------
    TrueupError
        When the verb is called with another kind of value, or with an argument that it does not have.

    Examples
    --------
    >>> import pickle, trueup
    >>> pickle.loads(pickle.dumps(trueup.measure)) is trueup.measure
    True
    """
    expected = signature(verb)

    @wraps(verb)
    def checked(*arguments: P.args, **options: P.kwargs) -> R:
        _refuse_unknown_options(verb.__name__, expected, options)
        for name, given in (*zip(expected.parameters, arguments), *options.items()):
            _refuse_other_kinds(verb.__name__, name, str(expected.parameters[name].annotation), given)
        return verb(*arguments, **options)

    return checked


def _refuse_unknown_options(verb: str, expected: Signature, options: Mapping[str, Any]) -> None:
    if any(p.kind is Parameter.VAR_KEYWORD for p in expected.parameters.values()):
        return
    for name in set(options) - set(expected.parameters):
        raise TrueupError(
            f"trueup.{verb} has no argument '{name}'",
            needed=f"among: {', '.join(expected.parameters)}",
            remedy=did_you_mean(name, expected.parameters),
        )


def _refuse_other_kinds(verb: str, name: str, annotation: str, given: Any) -> None:
    """Compare records by the names of their types, so that none need be imported."""
    several = {kind: type_ for kind, type_ in _SEVERAL.items() if kind in annotation}
    for kind in several:
        annotation = annotation.replace(f" | {kind}", "")
    kinds = [kind for kind in annotation.split(" | ") if kind != "None"]
    if not set(kinds) <= set(_SOURCES) or any(kind.__name__ in kinds for kind in type(given).__mro__):
        return
    if (given is None and "None" in annotation) or isinstance(given, tuple(several.values())):
        return
    raise TrueupError(
        f"trueup.{verb} was given a {type(given).__name__} as {name}",
        needed=f"a record: {' or '.join(kinds)}" if name != "spec" else " or ".join(kinds),
        remedy=_SOURCES[kinds[0]],
    )
