"""What is public stays public: names, options and exit codes may be added, and none is taken away or given another meaning."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from inspect import isclass, isfunction
from pathlib import Path
from typing import Any

import typer.main

import trueup
from trueup.cli import EXIT_CODES, whole_app
from trueup.cli.options import taken_by
from trueup.model.verb import argument_names

FROZEN = Path(__file__).with_name("public_names.json")
"""Names as they were frozen; `python -m tests.test_public_names` prints those of today, to add new ones."""


def public() -> dict[str, Any]:
    """List what users may rely on: names of the package with their arguments or attributes, commands with their options."""
    return {
        "names": {name: _parts(getattr(trueup, name)) for name in trueup.__all__},
        "commands": dict(sorted(_commands("trueup", typer.main.get_command(whole_app())))),
        "exit codes": sorted(map(str, EXIT_CODES)),
    }


def _parts(named: Any) -> list[str]:
    """Arguments of a function; fields and public methods of a class."""
    if isclass(named):
        own = [field.name for field in fields(named)] if is_dataclass(named) else []
        inherited = [
            name for kind in named.__mro__ if kind.__module__.startswith("trueup") for name in vars(kind)
        ]
        return sorted({name for name in (*own, *inherited) if not name.startswith("_")})
    return sorted(argument_names(named)) if isfunction(named) else []


def _commands(name: str, command: Any):
    if not hasattr(command, "commands"):
        own = (option for each in command.params for option in (*each.opts, *each.secondary_opts))
        yield name, sorted([*own, *taken_by(command)])
        return
    for inner in command.commands.values():
        if not inner.hidden:
            yield from _commands(f"{name} {inner.name}", inner)


def _lost(before: Any, now: Any, at: str = "") -> list[str]:
    """Name what was there and is not any more."""
    if isinstance(before, dict):
        gone = [f"{at}{name}" for name in before if name not in now]
        return gone + [
            one for name in before if name in now for one in _lost(before[name], now[name], f"{at}{name}: ")
        ]
    return [f"{at}{name}" for name in before if name not in now]


def test_nothing_that_is_public_is_taken_away():
    assert not _lost(json.loads(FROZEN.read_text()), public())


def test_what_is_new_is_frozen_too():
    assert not _lost(public(), json.loads(FROZEN.read_text())), (
        "run: python -m tests.test_public_names > tests/public_names.json"
    )


def test_a_name_an_argument_or_an_option_that_is_lost_is_seen():
    before = {
        "names": {"ask": ["question", "level"]},
        "commands": {"trueup ask": ["--level"]},
        "exit codes": ["0"],
    }
    now = {"names": {"ask": ["question"]}, "commands": {}, "exit codes": ["0", "1"]}
    assert _lost(before, now) == ["names: ask: level", "commands: trueup ask"]


if __name__ == "__main__":
    print(json.dumps(public(), indent=1, ensure_ascii=False))
