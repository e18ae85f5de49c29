"""The command `export`, which writes the tables of a release, measurements or a posterior to files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trueup.errors import SpecError, TrueupError
from trueup.files.target import refuse_file, refuse_occupied
from trueup.files.writing import staged, write_csv, write_whole
from trueup.io.export.content import Exported, Record, content, deployment
from trueup.io.export.files import workbook, write_csv_folder, write_parquet_folder
from trueup.io.export.sdmx import write_sdmx_folder
from trueup.model.records.release import Release
from trueup.model.verb import takes_records

FORMATS = ("csv", "xlsx", "parquet", "sdmx-csv", "records", "metadata")
"""Formats of exported tables: a folder with a file for each; one file for `xlsx`; made-up `records` that add up to all; what
registries of deployments ask for (`metadata`), in one file."""
AGENCY = "TRUEUP"
ENDINGS = {"xlsx": ".xlsx", "metadata": ".json"}
"""Endings of formats that are one file."""


@takes_records
def export(
    record: Record | str | Path,
    out: str | Path,
    to: str | None = None,
    *,
    tables: str | Sequence[str] = (),
    wide: str | None = None,
    level: float | str = "90%",
    for_spreadsheets: bool = False,
    agency: str = AGENCY,
) -> Path:
    """Write the tables of a release, measurements or a posterior to files for other programs.

    Parameters
    ----------
    record
        A Release, Measurements or a Posterior; or the folder of a bundle.
    out
        A new folder; for `xlsx` and `metadata` a new file.
    to
        `"csv"`, `"xlsx"`, `"parquet"` or `"sdmx-csv"`; `"records"` for a CSV file of made-up records that add up to every
        released table; `"metadata"` for a JSON file of what registries of deployments ask for; by default the ending of `out`
        if it is one of these, else `"csv"`.
    tables
        Names such as `"county"` or `"county x sex"`; by default every table that the record holds.
    wide
        The attribute whose values become columns. These hold released counts, noisy counts or posterior means.
    level
        Probability with which an error is no larger than its margin.
    for_spreadsheets
        True to write an apostrophe in CSV before labels that a spreadsheet would run as formulas; else labels stay.
    agency
        The maintainer of the SDMX structures, or the curator named in metadata.

    Returns
    -------
    Path
        The folder or file that was written.

    Raises
    ------
    TrueupError
        If the format or a table is unknown, or a table is too long for a sheet.
    BundleError
        If `out` exists, or the disk refuses.

    Examples
    --------
    >>> import pandas, tempfile
    >>> from trueup.demo import AREAS
    >>> from trueup.measuring import measure
    >>> noisy = measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}))
    >>> out = export(noisy, Path(tempfile.mkdtemp()) / "tables", "csv")
    >>> sorted(path.name for path in out.iterdir()), (out / "area.csv").read_text().splitlines()[0]
    (['about.csv', 'all.csv', 'area.csv'], 'area,noisy,margin of error')
    """
    out = Path(out)
    wanted = to or (out.suffix[1:] if out.suffix[1:] in FORMATS else "csv")
    refuse_unwritable(wanted)
    _refuse_target(out, wanted)
    if isinstance(record, str | Path):
        record = _read_record(Path(record))
    if wanted == "metadata":
        if tables or wide:
            raise SpecError(
                "tables are chosen, but the metadata describe the whole release",
                remedy="leave out the choice of tables",
            )
        text = json.dumps(
            deployment(record, None if agency == AGENCY else agency), indent=2, ensure_ascii=False
        )
        write_whole(out, f"{text}\n")
        return out
    named = (tables,) if isinstance(tables, str) else tuple(tables)
    held = content(record, named, wide=wide, level=level)
    if wanted == "xlsx":
        write_whole(out, workbook(held))
        return out
    with staged(out) as folder:
        if wanted == "records":
            _write_records(folder, record, held)
        elif wanted == "csv":
            write_csv_folder(folder, held, for_spreadsheets=for_spreadsheets)
        elif wanted == "parquet":
            write_parquet_folder(folder, held)
        else:
            write_sdmx_folder(folder, held, agency=agency)
    return out


def _write_records(folder: Path, record: Record, held: Exported) -> None:
    """Write artificial records that add up to a release's tables, and `about.csv`, which describes them."""
    from trueup.io.export.files import ABOUT, record_columns

    if not isinstance(record, Release):
        raise SpecError(
            "records are requested, but no released counts are given to which they could add up",
            needed="a release",
            remedy="run `trueup reconcile` on the measurements",
        )
    write_csv(folder / "records.csv", record_columns(record))
    write_csv(folder / "about.csv", replace(held, about=(ABOUT, *held.about)).about_columns)


def _refuse_target(out: Path, to: str) -> None:
    if to not in ENDINGS:
        return refuse_occupied(out)
    if out.suffix != ENDINGS[to]:
        raise SpecError(
            f"the name '{out.name}' does not fit the format '{to}'",
            needed=f"a name that ends in {ENDINGS[to]}",
        )
    return refuse_file(out)


def refuse_unwritable(to: str) -> None:
    """Refuse an unknown format of export before anything is written."""
    if to not in FORMATS:
        raise SpecError(f"there is no format '{to}'", needed=f"one of {', '.join(FORMATS)}")


def _read_record(folder: Path) -> Record:
    from trueup.io.bundle.manifest import read_manifest
    from trueup.io.bundle.read import read_measurements, read_release

    if not folder.is_dir():
        raise TrueupError(f"there is no folder '{folder}'", needed="a bundle", remedy="check the path")
    return read_release(folder) if "counts" in read_manifest(folder) else read_measurements(folder)
