"""`trueup schema`: the JSON Schema of a spec."""

from __future__ import annotations

from typing import Annotated

import typer

from trueup.cli.options import option
from trueup.cli.printing import print_json

Published = Annotated[bool, option("--published", "Of the spec of tables that somebody else published.")]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def schema(published: Published = False) -> None:
        """Print the JSON Schema of the spec, for editors and validators."""
        from trueup.schema import published_schema, spec_schema

        print_json(published_schema() if published else spec_schema())
