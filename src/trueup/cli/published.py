"""Reading of tables that others published, for `trueup new --published`, `infer` and `reconcile`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from trueup.cli.options import with_encoding
from trueup.errors import SpecError


def refuse_beside_published(options: dict[str, Any]) -> None:
    """Refuse options that describe a confidential table together with tables that somebody else published."""
    if idle := [name for name, value in options.items() if value is not None]:
        raise SpecError(
            f"{idle[0]} is given together with --published",
            needed=f"{idle[0]} with a table of your own, or published tables without it",
            remedy=f"leave out {idle[0]}, and correct the drafted spec where it is wrong",
        )


def draft_from_published(
    spec: Path, files: list[Path], title: str | None, geography: Path | None, encoding: str | None
) -> None:
    """Draft a spec of published tables, write it to a file, and print what remains undecided."""
    from trueup.files import Encoded
    from trueup.files.target import refuse_file
    from trueup.io.published.drafting import draft_published
    from trueup.io.published.drafting.above import write_indented_places

    places = spec.with_name(f"{spec.stem}-places.csv")
    refuse_file(spec, "name for the spec")
    refuse_file(places, "name for the spec")
    told = {file: with_encoding(file, encoding or _encoding_of(file)) for file in (*files, geography) if file}
    tables = [told[file] for file in files]
    draft = draft_published(tables, title or spec.stem, told[geography] if geography else None)
    spec.write_text(draft.text, encoding="utf-8")
    print(f"Spec: {spec}")
    listed = draft.geography
    if draft.places:
        listed = write_indented_places(places, draft.columns, draft.places)
        print(f"Places, as indents, codes or sums tell them (correct the list where it is wrong): {listed}")
    for text in draft.undecided:
        print(f"To decide: {text.rstrip('.')}.")
    given = [
        part for file in dict.fromkeys(files) if file.name in draft.files for part in ("--table", str(file))
    ]
    given += ["--geography", str(listed)] if listed is not None else []
    named = dict.fromkeys(each.encoding for each in told.values() if isinstance(each, Encoded))
    if named and not encoding:
        print(f"To decide: the encoding, {' or '.join(named)} as the letters suggest; another by --encoding.")
    given += ["--encoding", encoding or next(iter(named))] if encoding or named else []
    print(
        f"What the true counts may be: trueup infer --perturbed {shlex.join([str(spec), *given])} --out NEW"
    )


def _encoding_of(file: Path) -> str | None:
    """Return the likely encoding of a CSV file that is not in Unicode, judged by its letters."""
    from trueup.files import is_csv
    from trueup.files.csv_faults import encoding_of

    found = encoding_of(file) if is_csv(file) else "utf-8"
    return None if found.startswith("utf") else found


def refuse_two_sources(source: Path | None) -> None:
    """Refuse any other source of data together with --perturbed."""
    if source is not None:
        raise SpecError(
            f"--perturbed is given together with '{source}'",
            needed="one source of the published counts",
            remedy="leave out one of the two",
        )


def read_source(
    source: Path | None, perturbed: Path | None, tables: list[Any], geography: Any, released: Any = None
) -> Any:
    """Return a spec and published values, from tables of others, a bundle, or files with a spec."""
    if released is not None:
        return _read_released(source, perturbed, tables, geography, released)
    if perturbed is not None:
        refuse_two_sources(source)
        return _read_perturbed(perturbed, tables, geography)
    if source is None:
        raise SpecError("no source is given", needed="a bundle, a spec with --table, or --perturbed SPEC")
    if source.is_dir():
        return _read_bundle(source, tables)
    if not source.exists():
        needed = "a bundle, or a spec with --table"
        raise SpecError(f"there is no file or folder '{source}'", needed=needed, remedy="check the path")
    return _read_census(source, tables)


def read_periods(bundle: Path | None, first: Any, later: list[Path]) -> dict[str, Any]:
    """Return the measurements of the first and of the later periods, by the names of the folders."""
    if bundle is None or not all(folder.is_dir() for folder in later):
        raise SpecError(
            "--later is given without a bundle of the first period"
            if bundle is None
            else "--later names no folder",
            needed="a bundle folder for each period: trueup infer FIRST --later SECOND",
        )
    folders = [bundle, *later]
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise SpecError(
            f"the folders of two periods have the same name: {', '.join(map(str, folders))}",
            needed="a different folder name for each period, because it names the period",
        )
    return dict(zip(names, [first, *(_read_bundle(folder, [])[1] for folder in later)]))


def is_census_file(source: Path | None, tables: list[Any]) -> bool:
    """Return True if the spec is a file and the first table is not a folder, as S-DHC files are given."""
    return source is not None and not source.is_dir() and bool(tables) and not Path(tables[0]).is_dir()


def _read_perturbed(path: Path, tables: list[Any], geography: Any) -> Any:
    from trueup.io.published.perturbed import read_perturbed
    from trueup.model.perturbed import load_perturbed

    spec = load_perturbed(path)
    measured = read_perturbed(spec, tables, geography)
    for said in getattr(measured.spec, "noted", ()):  # before long output, whose promise says it too
        print(f"note: {said}", file=sys.stderr)
    return spec, measured


def _read_released(
    path: Path | None, perturbed: Path | None, tables: list[Any], geography: Any, released: Any
) -> Any:
    from trueup.io.microdata.tabulate import read_released

    if perturbed is not None or tables or path is None or path.is_dir():
        raise SpecError(
            f"--released is given {'without the spec of the release' if path is None else 'together with another source'}",
            needed="the spec and the released table: trueup infer SPEC --released FILE",
        )
    read = read_released(path, released, geography)
    return read.problem.spec, read


def _read_bundle(folder: Path, tables: list[Any]) -> Any:
    from trueup.io.bundle.manifest import read_manifest, read_spec
    from trueup.io.bundle.read import read_measurements, read_release

    if tables:
        raise SpecError(
            "a table is given together with a bundle, which holds its own measurements",
            remedy="leave out --table, or give a spec instead of the bundle",
        )
    read = read_release if "counts" in read_manifest(folder) else read_measurements
    return read_spec(folder)[1], read(folder)


def _read_census(path: Path, tables: list[Any]) -> Any:
    """Read 2020 Census noisy-measurement files under one folder, or S-DHC files."""
    from trueup.model.spec import load_spec

    spec = load_spec(path)
    if not tables:
        raise SpecError(
            "a spec is given without measurements",
            remedy="add --table with each S-DHC file or the folder of noisy-measurement files, or give a bundle; "
            "the spec of published tables is given as --perturbed SPEC",
        )
    if not Path(tables[0]).is_dir():
        from trueup.io.published.sdhc import read_sdhc

        return spec, read_sdhc(spec, tables)
    if len(tables) > 1:
        raise SpecError(
            f"the folder '{tables[0]}' of noisy-measurement files is given together with other tables",
            needed="that folder alone, or S-DHC files",
        )
    from trueup.io.published.nmf import read_nmf

    return spec, read_nmf(spec, tables[0])
