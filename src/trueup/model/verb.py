"""Checks of the records given to public functions, and the choice of a method by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import wraps
from inspect import Parameter, signature, unwrap
from typing import Any, ClassVar, ParamSpec, Protocol, TypeVar

from trueup.errors import SpecError, TrueupError, did_you_mean
from trueup.model.toml import fault_text
from trueup.registry import Registry

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
    """Return a public function that refuses arguments that are not of the annotated record type, with an error that names them.

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
    known, kinds = argument_names(verb), {k: str(p.annotation) for k, p in signature(verb).parameters.items()}

    @wraps(verb)
    def checked(*arguments: P.args, **options: P.kwargs) -> R:
        _refuse_unknown_options(verb.__name__, known, options)
        for name, given in (*zip(kinds, arguments), *options.items()):
            _refuse_other_kinds(verb.__name__, name, kinds.get(name, "Any"), given)
        return verb(*arguments, **options)

    return checked


def argument_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's arguments, with those of a typed dictionary `**options: Unpack[...]` in its place.

    Examples
    --------
    >>> from trueup.arrays import project
    >>> argument_names(project)[-4:]
    ['upper', 'R', 'least', 'most']
    """
    names: list[str] = []
    for name, parameter in signature(function).parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            kind = str(parameter.annotation).removeprefix("Unpack[").removesuffix("]")
            names += unwrap(function).__globals__[kind].__annotations__
        else:
            names.append(name)
    return names


def _refuse_unknown_options(verb: str, known: Sequence[str], options: Mapping[str, Any]) -> None:
    for name in set(options) - set(known):
        raise TrueupError(
            f"trueup.{verb} has no argument '{name}'",
            needed=f"one of: {', '.join(known)}",
            remedy=did_you_mean(name, known),
        )


def _refuse_other_kinds(verb: str, name: str, annotation: str, given: Any) -> None:
    """Refuse a value of the wrong record type; types are compared by name, without importing them."""
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


class Named(Protocol):
    """The interface of a method, which is a frozen dataclass with parameters as fields."""

    name: ClassVar[str]
    structures: ClassVar[frozenset[str]]


M = TypeVar("M", bound=Named)


def make(kinds: Sequence[type[M]], noun: str, name: str, parameters: Mapping[str, Any]) -> M:
    """Return the method with the given name and parameters.

    Parameters
    ----------
    kinds
        The verb's methods.
    noun
        The noun for what the verb's methods do, for messages: `reconciliation`, `inference`.

    Examples
    --------
    >>> from trueup.reconciling import METHODS
    >>> make(METHODS, "reconciliation", "tree-topdown", {"small_counts": "kept"})
    TreeTopDown(rounding='controlled', small_counts='kept')
    """
    kind = _method_class(kinds, noun, name)
    known = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType]
    if unknown := [p for p in parameters if p not in known]:
        raise SpecError(
            f"method '{name}' has no parameter '{unknown[0]}'", needed=f"one of: {', '.join(known) or 'none'}"
        )
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(dict(parameters))
    except ValidationError as error:
        first = error.errors()[0]
        if isinstance(cause := first.get("ctx", {}).get("error"), SpecError):
            raise cause from None
        raise SpecError(f"method '{name}': {fault_text({**first, 'loc': first['loc'][:1]})}") from None


def entry_of(entry: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the name of a method (None if not named) and its parameters from a spec's entry."""
    parameters = dict(entry)
    name = parameters.pop("method", None)
    return None if name is None else str(name), parameters


def structural_misfit(method: Named, structure: str) -> str | None:
    """Return the reason why a method does not fit a structure, or None."""
    if structure in method.structures:
        return None
    return f"it handles {', '.join(sorted(method.structures))}, and the spec's structure is '{structure}'"


def refuse_method(method: Named, why: str | None) -> None:
    """Raise SpecError with the reason why a method does not fit, if there is one."""
    if why:
        raise SpecError(
            f"method '{method.name}' does not fit: {why}", remedy="choose another (`trueup methods`)"
        )


def describe(method: Named) -> dict[str, Any]:
    """Return a method's name and parameters as plain values, for records."""
    return {"method": method.name, **asdict(method)}  # pyright: ignore[reportArgumentType]


def _method_class(kinds: Sequence[type[M]], noun: str, name: str) -> type[M]:
    names = kinds.names if isinstance(kinds, Registry) else tuple(kind.name for kind in kinds)
    if name not in names:
        raise SpecError(
            f"{noun} method '{name}' is unknown",
            needed=f"one of: {', '.join(names)}",
            remedy=did_you_mean(name, names),
        )
    return kinds[names.index(name)]  # pyright: ignore[reportReturnType]
