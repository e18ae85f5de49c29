"""`trueup report`: the report of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trueup.cli.console import BundlePath

PageOut = Annotated[Path, typer.Option("--out", help="The HTML file to write.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def report(bundle: BundlePath, out: PageOut) -> None:
        """Write the report of a bundle anew, from its public files."""
        from trueup import workflow
        from trueup.io.staging import write_whole

        write_whole(out, workflow.render_bundle(bundle))
        print(f"Report: {out}")
