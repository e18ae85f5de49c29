"""`trueup schema`: the JSON Schema of a spec."""

from __future__ import annotations

from typing import Annotated

from trueup.cli.options import option
from trueup.cli.printing import print_json

Published = Annotated[bool, option("--published", "Of the spec of tables that somebody else published.")]


def schema_command(published: Published = False) -> None:
    """Print the JSON Schema of the spec, for editors and validators."""
    from trueup.schema import published_schema, spec_schema

    print_json(published_schema() if published else spec_schema())
