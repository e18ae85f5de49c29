"""Reader of posteriors from the folders that `infer` wrote, which checks every file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError, TrueupError
from trueup.files.database import connect_to_files, literal, parquet, quiet_duckdb
from trueup.files.memory import PROCESS_BYTES, machine_bytes, refuse_needed
from trueup.io.bundle.kept_parts import LARGEST_COUNT, DrawsInParts
from trueup.io.bundle.manifest import FORMAT, MANIFEST, digest, margin_in
from trueup.io.bundle.places import read_place_levels
from trueup.io.bundle.posterior import PLACES
from trueup.io.bundle.schema import KeptPosterior
from trueup.io.bundle.strict import KINDS, columns_of, read_json, refuse_links, refuse_names
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.family import family_of
from trueup.model.records.drawn import Conflict, Drawn
from trueup.model.records.posterior import Posterior
from trueup.model.records.quantity import Ratio

LARGEST_DRAWS = 1 << 32
"""Largest number of counts, in all draws together, that is read at once."""


def read_posterior(folder: str | Path, *, memory: int | None = None) -> Posterior:
    """Read a posterior from a folder that `trueup infer --out` wrote, in order to query it further.

    Its figures come from the draws alone: exact marginals of trees are in the tables of the folder.

    Parameters
    ----------
    folder
        The folder of the posterior, with its manifest.
    memory
        Bytes that may be used; by default there is no limit.

    Returns
    -------
    Posterior
        The posterior with draws `(chains, draws, n)`, method, diagnostics and promise as they were written.

    Raises
    ------
    BundleError
        If the folder is no posterior, or a file is missing, a link, or not the one that was written.
    TrueupError
        If it needs more memory than is given.

    Examples
    --------
    >>> import pandas, tempfile, trueup
    >>> from trueup.demo import AREAS
    >>> from trueup.io.bundle.posterior import write_posterior
    >>> noisy = trueup.measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}))
    >>> posterior, out = trueup.infer(noisy), Path(tempfile.mkdtemp()) / "posterior"
    >>> write_posterior(out, posterior)
    >>> kept = read_posterior(out)
    >>> bool((kept.draws == posterior.draws).all()), kept.source == noisy.digest
    (True, True)
    """
    held = open_posterior(folder, memory=memory)
    if not isinstance(held.draws, DrawsInParts):
        return held
    refuse_needed(
        f"'{folder}'", PROCESS_BYTES + 8 * held.draws.size, min(memory or machine_bytes(), machine_bytes())
    )
    return replace(held, drawn=replace(held.drawn, draws=held.draws.whole()))


def open_posterior(folder: str | Path, *, memory: int | None = None) -> Posterior:
    """Read a posterior as `read_posterior` does, but leave draws stored by parts in their files."""
    folder = Path(folder)
    manifest = _read_manifest(folder)
    shape = (manifest["shape"]["chains"], manifest["shape"]["draws"], manifest["shape"]["cells"])
    by_parts = bool(manifest.get("by parts"))
    if not by_parts:
        refuse_needed(f"'{folder}'", PROCESS_BYTES + 8 * prod(shape), memory)
    cells = _cells(folder, manifest)
    if cells.n != shape[2] or (by_parts and (shape[0] != 1 or cells.is_family)):
        raise BundleError(
            f"the places in '{folder}' differ from those of its draws",
            remedy="restore the folder, or infer again",
        )
    files = {name: manifest["files"][name] for name in _names_of_draws(folder, manifest)}
    drawn = manifest["drawn"]
    conflicts = manifest["conflicts"]
    return Posterior(
        cells,
        Drawn(
            DrawsInParts(folder, files, cells, shape[1]) if by_parts else _draws(folder, files, shape),  # pyright: ignore[reportArgumentType]
            drawn["independent"],
            connected=drawn["connected"],
            approximate=drawn["approximate"],
            stats=manifest["stats"],
            tables=tuple(cells.margin(margin_in(entry)) for entry in manifest["tables"]),
        ),
        manifest["method"],
        manifest["source"],
        manifest["level"],
        tuple(Ratio(**entry) for entry in manifest["ratios"]),
        conflicts=None if conflicts is None else tuple(Conflict(**entry) for entry in conflicts),
        counted=manifest["counted"],
    )


def is_posterior(folder: Path) -> bool:
    """Return True if a folder has the files of a posterior rather than those of a bundle."""
    return (folder / MANIFEST.name).is_file() and not (folder / MANIFEST).is_file()


def _damaged(what: str) -> BundleError:
    return BundleError(
        what, needed="the files as `trueup infer` wrote them", remedy="restore them, or infer again"
    )


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Return a posterior's manifest after checking the digest of every file that is not read later."""
    if not is_posterior(folder):
        bundle = (folder / MANIFEST).is_file()
        raise BundleError(
            f"'{folder}' is {'a bundle, and' if bundle else 'missing, or'} holds no posterior",
            needed="a folder that `trueup infer --out` wrote",
            remedy=f"trueup infer {folder} --out posterior" if bundle else "check the path",
        )
    try:
        manifest = read_json(folder / MANIFEST.name)
        if manifest["format"] != FORMAT or manifest["kind"] != "posterior":
            raise ValueError
        KeptPosterior.model_validate(manifest)
        refuse_names(manifest["files"])
    except (OSError, ValueError, LookupError, TypeError):
        raise _damaged(f"the manifest of '{folder}' is damaged, or is not one of a posterior") from None
    refuse_links(folder, [MANIFEST.name, *manifest["files"]])
    later = "draws/" if manifest.get("by parts") else None  # of a nation, when they are read
    for name, written in manifest["files"].items():
        if later and name.startswith(later):
            continue
        if not (path := folder / name).is_file() or digest(path) != written:
            raise _damaged(f"'{name}' of '{folder}' is missing or was changed after it was written")
    return manifest


def _cells(folder: Path, manifest: Mapping[str, Any]) -> Cells:
    if PLACES not in manifest["files"]:
        raise _damaged(f"'{folder}' holds no keys of places, so that its places have no names")
    levels = manifest["levels"]
    attributes = tuple(_attribute(entry) for entry in manifest["attributes"])
    try:
        tree = read_place_levels(
            folder / PLACES, [each["level"] for each in levels], most=levels[-1]["places"]
        )
        if tree.sizes != tuple(each["places"] for each in levels):
            raise _damaged(f"'{PLACES}' of '{folder}' holds other numbers of places than its manifest states")
    except BundleError:
        raise
    except TrueupError:
        raise _damaged(f"'{PLACES}' of '{folder}' is damaged") from None
    return _of_tables(Cells(tree, attributes), [margin_in(entry) for entry in manifest["tables"]])


def _of_tables(whole: Cells, tables: Sequence[Margin]) -> Cells:
    """Return the cells of the full cross if its table was written, else of the family of written tables."""
    listed = [whole.margin(table) for table in tables if not table.where]
    one = not listed or any(whole.contains(whole.finest, table) for table in listed)
    return whole if one else family_of(whole, listed)


def _attribute(entry: Mapping[str, Any]) -> Attribute:
    names = [entry["values"], *(r["values"] for r in entry["recodes"])]
    if any(len(set(values)) < len(values) for values in names):
        raise _damaged(f"the attribute '{entry['name']}' lists a value twice")
    recodes = (Recode(r["name"], tuple(r["values"]), tuple(r["groups"])) for r in entry["recodes"])
    return Attribute(entry["name"], tuple(entry["values"]), entry["partition"], tuple(recodes))


def _names_of_draws(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    names = sorted(name for name in manifest["files"] if name.startswith(("draws.", "draws/")))
    if not names:
        raise BundleError(f"'{folder}' holds no draws", remedy="infer again; draws are written with --out")
    return names


def _draws(folder: Path, names: Iterable[str], shape: tuple[int, int, int]) -> NDArray[np.int64]:
    """Read counts `(chains, draws, cells)` from files that list every cell of one draw after another."""
    if prod(shape) > LARGEST_DRAWS:
        raise BundleError(
            f"'{folder}' holds too many draws to be read at once",
            needed=f"at most {LARGEST_DRAWS:,} counts in all draws",
            remedy="infer again with fewer --draws",
        )
    counts, done = np.empty(prod(shape), np.int64), 0
    for name in names:
        part = _counts(folder / name, counts.size - done)
        counts[done : done + part.size] = part
        done += part.size
    if done != counts.size:
        raise _damaged(f"'{folder}' holds fewer draws than its manifest states")
    return counts.reshape(shape)


def _counts(path: Path, most: int) -> NDArray:
    """Read the column of counts from one file, and refuse a file with more than `most` rows."""
    table = _table_name(path)
    with connect_to_files([path], threads=1) as connection, quiet_duckdb(f"'{path.name}'"):
        if path.suffix == ".parquet" and columns_of(connection, [path]).get("count") not in KINDS["whole"]:
            raise _damaged(f"'{path.name}' has no column of whole numbers called 'count'")
        if connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] > most:
            raise _damaged(f"'{path.name}' holds more rows than its manifest states")
        found = connection.execute(f'SELECT "count"::BIGINT AS n FROM {table}').fetchnumpy()["n"]
    if np.ma.is_masked(found):
        raise _damaged(f"'{path.name}' holds a row without a count")
    if found.size and not -LARGEST_COUNT < found.min() <= found.max() < LARGEST_COUNT:
        raise _damaged(f"'{path.name}' holds a count above 2^53")
    return np.asarray(found)


def _table_name(path: Path) -> str:
    if path.suffix == ".parquet":
        return parquet([path])
    return f"read_csv({literal(str(path.absolute()))}, header = true, all_varchar = true, auto_detect = true)"
