"""Write the reference of public Python names from their docstrings: `python docs/api.py > docs/python.md`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from textwrap import wrap
from types import ModuleType, UnionType
from typing import Any

import trueup
import trueup.errors
from trueup.errors import TrueupError
from trueup.model.verb import argument_names

HEAD = """# Python

Made by `python docs/api.py`. Examples stand in the docstrings, as `help(trueup.infer)` shows them.

Every verb is a function that takes a spec, a `Problem` or a record, and returns one record. A record knows its problem, so
nothing is given twice. Where nothing else is said, a name is one of `trueup`: `from trueup import infer`."""
GROUPS = {
    "Specs and problems": "Spec load_spec parse_spec Problem JoinedTables",
    "Before a release": "propose_spec explain plan planned_spec Planner margins_by_size MarginsBySize synthesize "
    "made_up_truth simulate",
    "Verbs": "measure reconcile infer ask changes assess report reporting.Report reporting.Picture",
    "Tables that others published": "read_perturbed read_released ReleasedCounts",
    "Whole releases and their files": "release check export read_measurements read_release read_posterior write_areas",
    "Records": "Measurements Release Posterior PosteriorAnswer CountChanges Assessment",
    "Parts of records": "Attribute Cells Margin Measured Constraints Tree",
}
"""Headings with the names of `trueup` below each."""
SPEC_METHODS = ("of", "read", "text", "write", "undecided")
"""Those of a spec; its base class has many more, none of them ours."""
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
WIDTH = 76


def page() -> Iterator[str]:
    """Yield the paragraphs of the page."""
    yield HEAD
    for heading, names in GROUPS.items():
        yield f"## {heading}"
        for name in names.split():
            yield from documented(name, found(name))
    yield "## Errors"
    yield from errors(TrueupError)
    yield "## Arrays"
    yield "Names of `trueup.arrays`; see [arrays in, arrays out](arrays.md)."
    yield from module(trueup.arrays, without=())
    shared = sorted({*trueup.theory.__all__} & {*trueup.arrays.__all__})
    yield "## Theory"
    names = ", ".join(f"`{name}`" for name in shared)
    yield f"Names of `trueup.theory`, which also has {names} of `trueup.arrays`; see [theory](theory.md)."
    yield from module(trueup.theory, without=shared)


def module(of: ModuleType, without: list[str] | tuple[str, ...]) -> Iterator[str]:
    """Yield the entries of a module's public names."""
    for name in sorted({*of.__all__} - {*without}, key=str.casefold):
        yield from documented(name, getattr(of, name))


def found(name: str) -> Any:
    """Return what a name of `trueup`, perhaps with a module before it, stands for."""
    where: Any = trueup
    for part in name.split("."):
        where = getattr(where, part)
    return where


def errors(kind: type) -> Iterator[str]:
    """Yield the entries of an error and of those that are kinds of it."""
    text, parent = Docstring(kind), kind.__mro__[1].__name__
    origin = "" if kind is TrueupError else f" A `{parent}`."
    yield f"### {kind.__name__}"
    yield f"{text.summary}{origin} Exit code of the command: {kind.exit_code}."
    yield from parts(text, {})
    for inner in kind.__subclasses__():
        if (
            inner.__module__ == trueup.errors.__name__
        ):  # others are used inside, and are seen once their module is loaded
            yield from errors(inner)


def documented(name: str, thing: Any, level: int = 3) -> Iterator[str]:
    """Yield the entry of a function, of a class with its methods, or of a name for one of several classes."""
    yield f"{'#' * level} {name}"
    if isinstance(thing, UnionType):
        yield f"One of {', '.join(f'`{kind.__name__}`' for kind in thing.__args__)}."
        return
    text = Docstring(thing)
    short = name.rpartition(".")[2] if inspect.isclass(thing) else name
    constructed = not inspect.isclass(thing) or arguments(thing)
    if constructed and name != "Spec":
        yield f"```python\n{call(short, thing)}\n```"
    yield text.summary
    yield from parts(text, types(thing))
    if inspect.isclass(thing):
        held = dict(methods(name, thing))
        yield from properties(held)
        for method, plain in ((at, function(each)) for at, each in held.items()):
            if plain is not None:
                yield from documented(f"{short}.{method}", plain, level + 1)


def properties(held: Mapping[str, Any]) -> Iterator[str]:
    """Yield the list of a class's properties."""
    rows = [f"- `{name}`: {Docstring(each).summary}" for name, each in held.items() if function(each) is None]
    if rows:
        yield "Properties:\n\n" + "\n".join(rows)


def function(held: Any) -> Any:
    """Return the function behind a method of any kind; None for a property."""
    if isinstance(held, property | cached_property):
        return None
    return held.__func__ if isinstance(held, classmethod | staticmethod) else held


def methods(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, inherited ones of the package too, in the order of their definition."""
    own = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    seen: dict[str, Any] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("trueup"):
            for at, held in vars(base).items():
                seen.setdefault(at, held)
    for at, held in seen.items():
        if name == "Spec" and at not in SPEC_METHODS:
            continue
        callable_ = isinstance(
            held, property | cached_property | classmethod | staticmethod
        ) or inspect.isfunction(held)
        if not at.startswith("_") and at not in own and callable_ and inspect.getdoc(held):
            yield at, held


class Docstring:
    """The parts of a NumPy docstring.

    Attributes
    ----------
    summary
        Its first paragraph, as one line.
    sections
        The text of each section by its heading.
    """

    def __init__(self, thing: Any) -> None:
        text = inspect.cleandoc(thing.__doc__ or "")
        before, *rest = SECTION.split(text)
        self.summary = " ".join(before.strip().split("\n\n")[0].split())
        self.sections = dict(zip(rest[::2], rest[1::2]))

    def entries(self, heading: str) -> Iterator[tuple[str, str]]:
        """Yield the names and the texts of a section's entries; a name is empty where there is none."""
        text = self.sections.get(heading, "").strip()
        blocks = re.split(r"\n(?=\S)", text) if "\n " in text else [" ".join(text.split())]
        for block in blocks:
            head, _, text = block.partition("\n")
            if head:
                yield (head.strip(), " ".join(text.split())) if text.strip() else ("", head.strip())


def parts(text: Docstring, kinds: Mapping[str, str]) -> Iterator[str]:
    """Yield lists of parameters and attributes, of what is returned, and of errors."""
    for label, headings in (("", ("Parameters", "Other Parameters")), ("Attributes:\n\n", ("Attributes",))):
        entries = (entry for heading in headings for entry in text.entries(heading))
        if rows := [parameter(name, said, kinds) for name, said in entries]:
            yield label + "\n".join(rows)
    for heading in ("Returns", "Yields", "Raises"):
        entries = list(text.entries(heading))
        if len(entries) == 1:
            yield f"{heading} {described(*entries[0])}"
        elif entries:
            yield f"{heading}:\n\n" + "\n".join(f"- {described(*entry)}" for entry in entries)


def described(name: str, said: str) -> str:
    """Return what is returned or raised in words."""
    return f"`{name}`: {said}" if name else f"{said[:1].lower()}{said[1:]}"


def parameter(name: str, said: str, kinds: Mapping[str, str]) -> str:
    """Return the row of one parameter, or of several of one kind."""
    names = [part.strip() for part in name.split(" : ")[0].split(",")]
    kind = {kinds.get(each.lstrip("*"), "") for each in names}
    shown = f" ({code(kind.pop())})" if len(kind) == 1 and kind != {""} else ""
    return f"- {', '.join(f'`{each}`' for each in names if each)}{shown}: {said}"


def code(kind: str) -> str:
    """Return a type as inline code."""
    return f"`{kind}`"


def types(thing: Any) -> dict[str, str]:
    """Return short types of arguments by name; long ones are said in words."""
    named = {name: text_of(p.annotation) for name, p in arguments(thing).items()}
    return {name: kind for name, kind in named.items() if 0 < len(kind) <= 60 and kind != "Any"}


def arguments(thing: Any) -> dict[str, inspect.Parameter]:
    """Return the arguments of a call; keys of a typed dictionary stand in its place, without a default that could be shown."""
    if inspect.isclass(thing) and issubclass(thing, str):
        return {}
    given = dict(inspect.signature(thing).parameters)
    options = [p for p in given.values() if p.kind is p.VAR_KEYWORD and "Unpack" in str(p.annotation)]
    for p in options:
        del given[p.name]
        keys = (
            inspect.unwrap(thing)
            .__globals__[str(p.annotation).removeprefix("Unpack[").removesuffix("]")]
            .__annotations__
        )
        for name in argument_names(thing):
            if name in keys:
                given[name] = inspect.Parameter(name, p.KEYWORD_ONLY, default=..., annotation=keys[name])
    return {name: p for name, p in given.items() if name not in ("self", "cls") and name[0] != "_"}


def call(name: str, thing: Callable[..., Any]) -> str:
    """Return the call of a function or class: its arguments with their defaults, and the type of what it returns."""
    shown, starred = [], False
    for p in arguments(thing).values():
        if p.kind is p.KEYWORD_ONLY and not starred:
            starred = True
            shown.append("*")
        starred |= p.kind is p.VAR_POSITIONAL
        shown.append(argument(p))
    returned = "" if inspect.isclass(thing) else text_of(inspect.signature(thing).return_annotation)
    line = f"{name}({', '.join(shown)})" + (f" -> {returned}" if returned else "")
    return "\n".join(
        wrap(line, WIDTH, subsequent_indent=" " * 4, break_long_words=False, break_on_hyphens=False)
    )


def argument(p: inspect.Parameter) -> str:
    """Return one argument of a call with its default."""
    stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    if p.default is p.empty:
        return stars + p.name
    default = repr(p.default)
    short = p.default is not ... and len(default) <= 24 and not re.search(r" at 0x|<", default)
    return f"{p.name}={default if short else '...'}"


def text_of(annotation: Any) -> str:
    """Return an annotation as its source says it, without the names of modules and the parameters of arrays."""
    if annotation in (inspect.Parameter.empty, "", None, "None"):
        return ""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    text = re.sub(r"^ForwardRef\('(.*)'\)$", r"\1", text)
    text = re.sub(r"NDArray\[[^\[\]]*(\[[^\]]*\])?[^\[\]]*\]", "NDArray", text)
    text = re.sub(r"\b[a-z_]\w*\.(?=[A-Za-z])", "", text)
    return text.strip("'\"")


if __name__ == "__main__":
    print("\n\n".join(page()))
