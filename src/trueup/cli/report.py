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
        from trueup.errors import BundleError

        if out.exists():
            raise BundleError(f"'{out}' exists", remedy="choose another --out")
        page = workflow.render_bundle(bundle)
        try:
            out.write_text(page, encoding="utf-8")
        except OSError as error:
            raise BundleError(f"cannot write '{out}': {error.strerror}", remedy="check the folder") from None
        print(f"Report: {out}")
