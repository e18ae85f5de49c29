"""`trueup report`, `trueup export`, `trueup areas` and `trueup check`: commands on a finished bundle."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from trueup.cli import FAILED_CHECK
from trueup.cli.options import described, memory_limit, named_areas, names_in, refuse_idle
from trueup.cli.printing import print_json, progress


@described(
    out="The HTML file to write.",
    level="The probability of margins of error in the report of a release: 50%, 80%, 90%, 95% or 99%.",
    shapes="A GeoJSON file with the outlines of a level's places, from which the report draws a map.",
    publish="Write a page for readers outside: refuse one that must not be published.",
)
def report_command(
    bundle: Path,
    out: Path,
    level: str = "90%",
    shapes: Path | None = None,
    publish: bool = False,
) -> None:
    """Write the report of a bundle or an assessment anew, from its files."""
    from trueup.files.writing import write_whole
    from trueup.io.bundle.assessment import is_confidential
    from trueup.releasing.again import render_bundle

    private = is_confidential(bundle)
    page = render_bundle(bundle, publish=publish, level=level, shapes=shapes)
    write_whole(out, page, private=private)
    for text in {getattr(picture.block, "unmatched", "") for picture in page.pictures} - {""}:
        print(text)
    print(f"Report, confidential: {out}" if private else f"Report: {out}")


@described(
    to="The format: csv, xlsx, parquet, sdmx-csv, records, or metadata (for a registry of deployments).",
    out="A new folder, or file.xlsx; by default named after the bundle.",
    table="A table, such as county or 'county x sex'; may be repeated. By default all tables.",
    wide="The attribute whose values become columns.",
    level="The probability of the margins of error.",
    for_spreadsheets="In CSV, protect labels that a spreadsheet would run as formulas, and mark the file as UTF-8.",
    agency="In SDMX, the agency that maintains the structures; in metadata, the curator.",
)
def export_command(
    bundle: Path,
    to: str,
    out: Path | None = None,
    table: list[str] | None = None,
    wide: str | None = None,
    level: str = "90%",
    for_spreadsheets: bool = False,
    agency: str = "TRUEUP",
    as_json: bool = False,
) -> None:
    """Write the tables of a bundle with readable names, and a page that says what was protected."""
    from trueup.io.export import export as write

    refuse_idle({"--for-spreadsheets": for_spreadsheets}, "--to csv", to == "csv")
    refuse_idle({"--agency": agency != "TRUEUP"}, "--to sdmx-csv", to in ("sdmx-csv", "metadata"))
    with progress(quiet=as_json) as tell:
        tell("writing the tables")
        written = write(
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
    """Return a default output path beside the bundle, named after the bundle and the format."""
    name = bundle.absolute().name
    ending = {"xlsx": ".xlsx", "metadata": "-metadata.json"}.get(to, f"-{to}")
    return bundle.absolute().with_name(name + ending)


@described(
    out="A new .parquet or .csv file.",
    by="The attributes to keep, separated by commas; '' for totals. By default all, if one table has all.",
)
def areas_command(
    bundle: Path,
    areas: str | None,
    out: Path,
    by: str | None = None,
    memory: str | None = None,
    as_json: bool = False,
) -> None:
    """Sum released counts over school districts, places or any other lists of finest places."""
    from trueup.io.bundle.areas import write_areas

    mapping, column = named_areas(areas)
    kept = None if by is None else names_in(by)
    with progress(quiet=as_json) as tell:
        tell("summing over areas")
        made = write_areas(bundle, mapping, out, attributes=kept, column=column, memory=memory or "2GB")
    if as_json:
        print_json({"out": str(out), "areas": made})
        return
    said = "one area" if made == 1 else f"{made:,} areas"
    print(f"Summed from released counts for {said}: nothing was measured, and it costs no privacy.")
    print(f"Table: {out}")


@described()
def check_command(bundle: Path, memory: str | None = None, as_json: bool = False) -> None:
    """Check digests, sums, signs, invariants and every constraint of a bundle."""
    from trueup.checking.bundle import check as check_bundle

    checks = check_bundle(bundle, memory=memory_limit(memory))
    if as_json:
        print_json([asdict(c) for c in checks])
    else:
        for c in checks:
            print(f"{'ok  ' if c.holds else 'FAIL'} {c.rule}{': ' + '; '.join(c.where) if c.where else ''}")
    if not all(c.holds for c in checks):
        raise typer.Exit(FAILED_CHECK)
