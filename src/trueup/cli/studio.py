"""`trueup studio`: design a release by its accuracy, or explore one, on a local page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trueup.cli.options import GeographyPath

Bundle = Annotated[
    Path | None,
    typer.Argument(help="A bundle to explore; without one a release is designed.", show_default=False),
]
Folder = Annotated[
    Path, typer.Option("--folder", help="Where decisions are kept; made if it does not exist.")
]
SpecFile = Annotated[
    Path | None, typer.Option("--spec", help="Begin with this spec, a TOML file.", show_default=False)
]
Data = Annotated[
    str, typer.Option("--data", help="The confidential table: its header is read.", show_default=False)
]
Shapes = Annotated[
    str,
    typer.Option("--shapes", help="Outlines of the places, as GeoJSON, to draw maps.", show_default=False),
]
Demo = Annotated[bool, typer.Option("--demo", help="Begin with a synthetic table.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="By default a free one.")]
Browser = Annotated[bool, typer.Option("--browser", help="Open the page in the browser.")]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def studio(
        bundle: Bundle = None,
        folder: Folder = Path("trueup-studio"),
        spec: SpecFile = None,
        data: Data = "",
        geography: GeographyPath = None,
        shapes: Shapes = "",
        demo: Demo = False,
        port: Port = 0,
        browser: Browser = False,
    ) -> None:
        """Design a release by its accuracy, or explore a bundle, on a page of this machine alone."""
        from trueup.errors import load_extra

        for package in ("starlette", "uvicorn"):
            load_extra(package, "studio")
        from trueup.studio.server import serve

        given = "" if geography is None else str(geography)
        serve(
            bundle,
            folder,
            spec=spec,
            data=data,
            geography=given,
            shapes=shapes,
            demo=demo,
            port=port,
            browser=browser,
        )
