"""What trueup infer reads: a bundle, published files of counts, or somebody else's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def named_source(source: Path | None, tables: list[Path]) -> Path:
    """The one source that was given."""
    from trueup.errors import SpecError

    if tables:
        raise SpecError(
            "--table is given without --perturbed", remedy="name the spec of the tables: --perturbed SPEC"
        )
    if source is None:
        raise SpecError("no source is given", needed="a bundle, a spec with its files, or --perturbed SPEC")
    return source


def refuse_two_sources(source: Path | None, sdhc: list[Path] | None, nmf: Path | None) -> None:
    from trueup.errors import SpecError

    if source is not None or sdhc or nmf:
        raise SpecError("--perturbed is given beside another source", needed="one of them")


def read_published_tables(path: Path, tables: list[Any], geography: Any) -> Any:
    """Return the spec of published tables, and what they say."""
    from trueup.io.published.perturbed import read_perturbed
    from trueup.model.perturbed import load_perturbed

    spec = load_perturbed(path)
    return spec, read_perturbed(spec, tables, geography)


def read_source(source: Path, sdhc: list[Path], nmf: Path | None) -> Any:
    """Return a spec and what was published, from a bundle or from published files."""
    from trueup.errors import SpecError
    from trueup.io.bundle.manifest import read_manifest, read_spec
    from trueup.io.bundle.read import read_measurements, read_release

    if source.is_dir():
        if sdhc or nmf:
            raise SpecError("a bundle holds its own measurements", remedy="give a spec with --sdhc or --nmf")
        released = "counts" in read_manifest(source)
        read = read_release if released else read_measurements
        return read_spec(source)[1], read(source)
    if not source.exists():
        raise SpecError(
            f"there is no '{source}'",
            needed="a bundle, or a spec with --sdhc or --nmf",
            remedy="check the path",
        )
    from trueup.model.spec import load_spec

    spec = load_spec(source)
    if sdhc:
        from trueup.io.published.sdhc import read_sdhc

        return spec, read_sdhc(spec, sdhc)
    if nmf:
        from trueup.io.published.nmf import read_nmf

        return spec, read_nmf(spec, nmf)
    raise SpecError(
        "a spec is given without measurements", remedy="add --sdhc FILE or --nmf FOLDER, or give a bundle"
    )
