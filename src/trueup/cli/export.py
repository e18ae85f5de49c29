"""`trueup export`: the tables of a bundle as CSV, Excel, Parquet or SDMX-CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trueup.cli.options import AsJson, BundlePath, refuse_idle
from trueup.cli.printing import print_json
from trueup.cli.progress import progress

To = Annotated[str, typer.Option("--to", help="csv, xlsx, parquet, sdmx-csv or records.", show_default=False)]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="A new folder, or file.xlsx; by default named after the bundle.", show_default=False
    ),
]
Table = Annotated[
    list[str] | None,
    typer.Option(
        "--table", help="Such as county or 'county x sex'; repeat it. By default all.", show_default=False
    ),
]
Wide = Annotated[
    str | None,
    typer.Option("--wide", help="The attribute whose values become columns.", show_default=False),
]
Level = Annotated[str, typer.Option("--level", help="Probability of the margins of error.")]
Guarded = Annotated[
    bool,
    typer.Option(
        "--for-spreadsheets",
        help="In CSV: guard labels that a spreadsheet would run as formulas; mark UTF-8.",
    ),
]
Agency = Annotated[str, typer.Option("--agency", help="In SDMX: who maintains the structures.")]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def export(
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
        refuse_idle({"--agency": agency != "TRUEUP"}, "--to sdmx-csv", to == "sdmx-csv")
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
    """Beside the bundle, by its name and the format's."""
    name = bundle.absolute().name
    return bundle.absolute().with_name(f"{name}.xlsx" if to == "xlsx" else f"{name}-{to}")


def write_tables(out: Path, *, as_csv: bool, as_xlsx: bool) -> list[Path]:
    """Write the tables of a new release beside its public files, which a repeated run finds there."""
    wanted = [(out / "tables", "csv")] * as_csv + [(out / "tables.xlsx", "xlsx")] * as_xlsx
    if not wanted:
        return []
    from trueup.io.export import export as run

    return [path if path.exists() else run(out, path, to) for path, to in wanted]
