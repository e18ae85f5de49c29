"""`trueup areas`: released counts of areas outside the hierarchy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from trueup.cli.options import AsJson, BundlePath, option
from trueup.cli.printing import print_json
from trueup.cli.progress import progress


def areas_command(
    bundle: BundlePath,
    mapping: Annotated[Path, option("--map", "Areas and their places: CSV or Parquet.")],
    out: Annotated[Path, option("--out", "A new .parquet or .csv file.")],
    by: Annotated[
        str | None,
        option(
            "--by", "Attributes to keep, with commas; '' for totals. By default all, if one table has them."
        ),
    ] = None,
    column: Annotated[str, option("--column", "The map's column of areas.", shown=True)] = "area",
    memory: Annotated[str, option("--memory", "What may be held in memory.", shown=True)] = "2GB",
    as_json: AsJson = False,
) -> None:
    """Sum released counts over school districts, places or any other lists of finest places."""
    from trueup.io.bundle.areas import write_areas

    kept = None if by is None else [name.strip() for name in by.split(",") if name.strip()]
    with progress(quiet=as_json) as tell:
        tell("summing over areas")
        made = write_areas(bundle, mapping, out, attributes=kept, column=column, memory=memory)
    if as_json:
        print_json({"out": str(out), "areas": made})
        return
    areas = "one area" if made == 1 else f"{made:,} areas"
    print(f"Summed from released counts for {areas}: nothing was measured, and it costs no privacy.")
    print(f"Table: {out}")
