"""Sources of `trueup infer`: a bundle, a spec with Census files or released counts, or tables that somebody else published."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from trueup.errors import SpecError


def refuse_two_sources(source: Path | None) -> None:
    """Refuse another source beside --perturbed."""
    if source is not None:
        raise SpecError("--perturbed is given beside another source", needed="one of them")


def read_source(
    source: Path | None, perturbed: Path | None, tables: list[Any], geography: Any, released: Any = None
) -> Any:
    """Return a spec and what was published: somebody else's tables, a bundle, or files with a spec."""
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
        raise SpecError(f"there is no '{source}'", needed=needed, remedy="check the path")
    return _read_census(source, tables)


def read_periods(bundle: Path | None, first: Any, later: list[Path]) -> dict[str, Any]:
    """Return what was measured in the first period and in later ones, by the names of their folders."""
    if bundle is None or not all(folder.is_dir() for folder in later):
        raise SpecError("--later is given with what is no bundle", needed="a bundle for each period")
    folders = [bundle, *later]
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise SpecError("two periods have folders of one name", needed="names that tell periods apart")
    return dict(zip(names, [first, *(_read_bundle(folder, [])[1] for folder in later)]))


def is_census_file(source: Path | None, tables: list[Any]) -> bool:
    """Return True if a spec is given with S-DHC files."""
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
    from trueup.io.released import read_released

    if perturbed is not None or tables or path is None or path.is_dir():
        raise SpecError(
            "--released is given without the spec of the release, or beside another source",
            needed="trueup infer SPEC --released FILE",
        )
    read = read_released(path, released, geography)
    return read.problem.spec, read


def _read_bundle(folder: Path, tables: list[Any]) -> Any:
    from trueup.io.bundle.manifest import read_manifest, read_spec
    from trueup.io.bundle.read import read_measurements, read_release

    if tables:
        raise SpecError("a bundle holds its own measurements", remedy="give a spec with --table")
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
        raise SpecError("a folder of noisy-measurement files is given with other tables", needed="it alone")
    from trueup.io.published.nmf import read_nmf

    return spec, read_nmf(spec, tables[0])
