"""The command `trueup`: parse, call the verb, print. One command, one file, one line here."""

from __future__ import annotations

import gc

import typer

from trueup.cli import (
    areas,
    assess,
    audit,
    budget,
    check,
    demo,
    explain,
    export,
    infer,
    measure,
    methods,
    plan,
    reconcile,
    release,
    report,
    reproduce,
    schema,
    studio,
    synth,
)
from trueup.cli.console import new_app, run_app

COMMANDS = (
    release,
    explain,
    plan,
    measure,
    reconcile,
    infer,
    assess,
    report,
    export,
    areas,
    check,
    budget,
    audit,
    methods,
    schema,
    demo,
    studio,
    synth,
    reproduce,
)
"""Modules that offer `register(app)`; in the order of `trueup --help`."""


def whole_app() -> typer.Typer:
    """Return the application with all its commands."""
    app = new_app()
    for command in COMMANDS:
        command.register(app)
    return app


def main() -> None:
    """Run the command line; `console.EXIT_CODES` says with what it ends."""
    gc.set_threshold(
        100_000, 50, 50
    )  # by default a tenth of a short command goes to searching modules for garbage
    run_app(whole_app())
