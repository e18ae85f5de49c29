"""The methods of a verb: frozen dataclasses, named in a spec and made from its entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, ClassVar, Protocol, TypeVar

from trueup.errors import SpecError, did_you_mean
from trueup.model.faults import fault_text
from trueup.registry import Registry


class Named(Protocol):
    """A method: a frozen dataclass whose fields are its parameters."""

    name: ClassVar[str]
    structures: ClassVar[frozenset[str]]


M = TypeVar("M", bound=Named)


def make(kinds: Sequence[type[M]], noun: str, name: str, parameters: Mapping[str, Any]) -> M:
    """Make a method from its name and parameters.

    Parameters
    ----------
    kinds
        The verb's methods.
    noun
        What the verb's methods do, for messages: `reconciliation`, `inference`.

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
            f"method '{name}' has no parameter '{unknown[0]}'", needed=f"among: {', '.join(known) or 'none'}"
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
    """Split a spec's entry into the method's name (None if not named) and its parameters."""
    parameters = dict(entry)
    name = parameters.pop("method", None)
    return None if name is None else str(name), parameters


def structural_misfit(method: Named, structure: str) -> str | None:
    """Return the reason why a method does not fit a structure, or None."""
    if structure in method.structures:
        return None
    return f"it handles {', '.join(sorted(method.structures))}, and the spec's structure is '{structure}'"


def refuse_method(method: Named, why: str | None) -> None:
    """Raise SpecError if there is a reason why a method does not fit."""
    if why:
        raise SpecError(f"method '{method.name}' does not fit: {why}", remedy="see `trueup methods`")


def describe(method: Named) -> dict[str, Any]:
    """Return name and parameters of a method, for records."""
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
