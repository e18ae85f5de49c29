"""`trueup export`: the tables of a bundle as CSV, Excel, Parquet or SDMX-CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from trueup.cli.options import AsJson, BundlePath, option, refuse_idle
from trueup.cli.printing import print_json
from trueup.cli.progress import progress

To = Annotated[
    str, option("--to", "csv, xlsx, parquet, sdmx-csv, records, or metadata for a registry of deployments.")
]
Out = Annotated[
    Path | None, option("--out", "A new folder, or file.xlsx; by default named after the bundle.")
]
Table = Annotated[
    list[str] | None, option("--table", "Such as county or 'county x sex'; repeat it. By default all.")
]
Wide = Annotated[str | None, option("--wide", "The attribute whose values become columns.")]
Level = Annotated[str, option("--level", "Probability of the margins of error.", shown=True)]
Guarded = Annotated[
    bool,
    option(
        "--for-spreadsheets", "In CSV: guard labels that a spreadsheet would run as formulas; mark UTF-8."
    ),
]
Agency = Annotated[
    str,
    option(
        "--agency",
        "In SDMX: who maintains the structures; in metadata: the curator.",
        shown=True,
    ),
]


def export_command(
    bundle: BundlePath,
    to: To,
    out: Out = None,
    table: Table = None,
    wide: Wide = None,
    level: Level = "90%",
    for_spreadsheets: Guarded = False,
    agency: Agency = "TRUEUP",
    as_json: AsJson = False,
) -> None:
    """Write the tables of a bundle, names beside keys, with a page that says what was protected."""
    from trueup.io.export import export as run

    refuse_idle({"--for-spreadsheets": for_spreadsheets}, "--to csv", to == "csv")
    refuse_idle({"--agency": agency != "TRUEUP"}, "--to sdmx-csv", to in ("sdmx-csv", "metadata"))
    with progress(quiet=as_json) as tell:
        tell("writing the tables")
        written = run(
            bundle,
            out or default_out(bundle, to),
            to,
            tables=table or (),
            wide=wide,
            level=level,
            for_spreadsheets=for_spreadsheets,
            agency=agency,
        )
    if as_json:
        print_json({"out": str(written), "format": to})
    else:
        print(f"Tables: {written}")


def default_out(bundle: Path, to: str) -> Path:
    """Return the default target beside the bundle, named after it and the format."""
    name = bundle.absolute().name
    ending = {"xlsx": ".xlsx", "metadata": "-metadata.json"}.get(to, f"-{to}")
    return bundle.absolute().with_name(name + ending)
