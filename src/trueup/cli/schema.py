"""`trueup schema`: the JSON Schema of a spec."""

from __future__ import annotations

import typer

from trueup.cli.printing import print_json


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def schema() -> None:
        """Print the JSON Schema of the spec, for editors and validators."""
        from trueup.schema import spec_schema

        print_json(spec_schema())
