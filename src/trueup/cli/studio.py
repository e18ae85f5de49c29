"""`trueup studio`: design a release by its accuracy, or explore one, on a local page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from trueup.cli.options import GeographyPath, argument, option

Bundle = Annotated[Path | None, argument("A bundle to explore; without one a release is designed.")]
Folder = Annotated[
    Path, option("--folder", "Where decisions are kept; made if it does not exist.", shown=True)
]
SpecFile = Annotated[Path | None, option("--spec", "Begin with this spec, a TOML file.")]
Data = Annotated[str, option("--data", "The confidential table: its header is read.")]
Shapes = Annotated[str, option("--shapes", "Outlines of the places, as GeoJSON, to draw maps.")]
Demo = Annotated[bool, option("--demo", "Begin with a synthetic table.")]
Port = Annotated[int, option("--port", "By default a free one.", shown=True, min=0, max=65535)]
Browser = Annotated[bool, option("--browser", "Open the page in the browser.")]


def studio_command(
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
