"""`trueup report`: the report of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from trueup.cli.options import BundlePath, option

Publish = Annotated[
    bool, option("--publish", "Refuse a page that must not be published: it is read by others.")
]
PageOut = Annotated[Path, option("--out", "The HTML file to write.")]


Level = Annotated[
    str,
    option(
        "--level", "Of margins of error in the report of a release: 50%, 80%, 90%, 95% or 99%.", shown=True
    ),
]
Shapes = Annotated[
    Path | None, option("--shapes", "GeoJSON of the places of a level: the report shows a map.")
]


def report_command(
    bundle: BundlePath,
    out: PageOut,
    level: Level = "90%",
    shapes: Shapes = None,
    publish: Publish = False,
) -> None:
    """Write the report of a bundle or an assessment anew, from its files."""
    from trueup.files.staging import write_whole
    from trueup.io.bundle.assessment import is_confidential
    from trueup.releasing.again import render_bundle

    private = is_confidential(bundle)
    page = render_bundle(bundle, publish=publish, level=level, shapes=shapes)
    write_whole(out, page, private=private)
    for text in {getattr(picture.block, "unmatched", "") for picture in page.pictures} - {""}:
        print(text)
    print(f"Report, confidential: {out}" if private else f"Report: {out}")
