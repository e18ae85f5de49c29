"""The command `trueup`: parse, call the verb, print."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module

import typer

from trueup.cli.app import new_app, run_app

COMMANDS = {
    "new": "new",
    "release": "release",
    "explain": "explain",
    "plan": "plan",
    "measure": "steps",
    "reconcile": "steps",
    "infer": "infer",
    "ask": "questions",
    "change": "questions",
    "assess": "assess",
    "report": "bundles",
    "export": "bundles",
    "areas": "bundles",
    "check": "bundles",
    "budget": "budget",
    "audit": "listings",
    "methods": "listings",
    "schema": "listings",
    "demo": "starting",
    "studio": "starting",
    "synth": "starting",
}
"""Commands and their modules, in the order of `trueup --help`; `budget` is a group of commands."""

EXAMPLES = {
    "new": "trueup new towns.toml --data people.csv --geography places.csv",
    "release": "trueup release towns.toml --data people.csv --geography places.csv --out towns",
    "explain": "trueup explain towns.toml --geography places.csv",
    "plan": "trueup plan towns.toml --geography places.csv --target town=10@95%",
    "measure": "trueup measure towns.toml --data people.csv --geography places.csv --out noisy",
    "reconcile": "trueup reconcile noisy --out towns",
    "infer": "trueup infer towns --out posterior",
    "ask": "trueup ask posterior \"'county=001' - 'county=003'\"",
    "change": "trueup change towns-2025 towns-2026 --table county",
    "assess": "trueup assess towns.toml --data counts.csv --geography places.csv --public-truth --out assessment",
    "report": "trueup report towns --shapes places.geojson --out report.html",
    "export": "trueup export towns --to xlsx --out towns.xlsx",
    "areas": "trueup areas towns --map districts.csv --out districts.parquet",
    "check": "trueup check towns",
    "audit": "trueup audit discrete-laplace:epsilon=1",
    "methods": "trueup methods",
    "schema": "trueup schema > spec.schema.json",
    "demo": "trueup demo",
    "studio": "trueup studio",
    "synth": "trueup synth towns.toml --out made",
}
"""One example for each command, at the end of its help."""


def whole_app(asked: str | None = None) -> typer.Typer:
    """Return the application with all its commands, or with the one that is asked for."""
    app = new_app()
    for name in [asked] if asked in COMMANDS else COMMANDS:
        module = import_module(f"trueup.cli.{COMMANDS[name]}")
        if name == "budget":
            app.add_typer(module.budget_group(), name=name)
        else:
            epilog = f"Example: {EXAMPLES[name]}"
            app.command(name, epilog=epilog)(getattr(module, f"{name}_command"))
    return app


def main() -> None:
    """Run the command line; `app.EXIT_CODES` lists its exit codes."""
    # By default a tenth of a short command goes to searching modules for garbage, and another twentieth when it ends.
    gc.set_threshold(200_000, 50, 50)
    atexit.register(gc.freeze)
    # To load all commands and read their options takes longer than to run some of them.
    run_app(whole_app(next(iter(sys.argv[1:]), None)))
