"""Writer of posteriors: tables for people, and draws for other programs.

manifest.json             method, parameters, diagnostics, digest of the public record it came from and of every other file
places.parquet            the places of the last level with their keys and names
summary/*.parquet         mean, sd, median, interval and its mass for every count of a margin
report.html               pictures and tables to read
areas.parquet             sums over areas off the hierarchy, where these were given
quantities.parquet        ratios and sums that the spec asks for, at every place
draws.parquet             one row per draw and cell: chain, draw, the cell's keys, names of places and attributes (of a family
                          its table and its label), count; of more than two million rows a folder `draws` of such files
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files.database import connect, quoted
from trueup.files.writing import hold_keys, staged, write_csv, write_parquet
from trueup.io.bundle.manifest import FORMAT, digest, margin_out, slug
from trueup.io.bundle.places import write_places
from trueup.model.cells import Cells, Margin
from trueup.model.records.posterior import Posterior
from trueup.model.statements import limited_sentence
from trueup.model.tables import margin_columns, named_columns
from trueup.version import __version__

MOST_ROWS, ROW_GROUP_ROWS = 1 << 21, 1 << 19
"""Most rows of a file of draws, and rows of one of its row groups."""
PLACES = "places.parquet"
AT_ONCE = 2
"""Number of files that are written at once; each holds a group of rows in memory."""


def write_posterior(
    out: Path,
    posterior: Posterior,
    *,
    draws: bool = True,
    as_csv: bool = False,
    page: str = "",
    areas: Mapping[str, NDArray] | None = None,
) -> None:
    """Write a posterior to a folder that appears whole or not at all.

    Parameters
    ----------
    out
        A new folder.
    draws
        True to write the draws.
    as_csv
        True to write CSV instead of Parquet.
    page
        HTML of the report; empty for none.
    areas
        Columns of a table of areas off the hierarchy; see `trueup.inferring.questions`.

    Raises
    ------
    BundleError
        If the folder is occupied or the disk refuses.

    Examples
    --------
    >>> import tempfile
    >>> from trueup.model.cells import Cells
    >>> from trueup.model.records.drawn import Drawn
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> drawn = Drawn(np.array([[[3, 4], [5, 4]]]), independent=True)
    >>> out = Path(tempfile.mkdtemp()) / "posterior"
    >>> write_posterior(out, Posterior(cells, drawn, {"method": "demo"}, ""), as_csv=True)
    >>> (out / "draws.csv").read_text().split()
    ['chain,draw,area,count', '0,0,a,3', '0,0,b,4', '0,1,a,5', '0,1,b,4']
    """
    with staged(Path(out)) as folder:
        write_tables(folder, posterior, draws=draws, as_csv=as_csv, areas=areas)
        if page:
            (folder / "report.html").write_text(page, encoding="utf-8")
        if posterior.cells.tree.keys:
            write_places(folder / PLACES, posterior.cells)
        text = json.dumps(
            posterior_manifest(posterior) | {"files": digests_of(folder)}, indent=2, default=str
        )
        (folder / "manifest.json").write_text(text + "\n", encoding="utf-8")


def write_tables(
    folder: Path,
    posterior: Posterior,
    *,
    draws: bool,
    as_csv: bool = False,
    areas: Mapping[str, NDArray] | None = None,
) -> None:
    """Write summaries, sums over areas and draws of a posterior into a folder."""
    write, ending = (write_csv, "csv") if as_csv else (write_parquet_in_groups, "parquet")
    (folder / "summary").mkdir()
    for margin in margins(posterior):
        columns = margin_columns(posterior.cells, margin) | posterior.summary(margin)
        write(folder / "summary" / f"{slug(margin)}.{ending}", columns)
    if posterior.ratios:
        write(folder / f"quantities.{ending}", posterior.ratio_summary())
    if areas is not None:
        write(folder / f"areas.{ending}", dict(areas))
    if draws:
        _write_draws(folder, posterior, write, ending)


def margins(posterior: Posterior) -> list[Margin]:
    """Return the margins to write tables of: published, those with exact marginals, or finest."""
    drawn = posterior.drawn
    return list(dict.fromkeys([*drawn.tables, *drawn.marginals, *posterior.cells.finest_tables]))


def _columns_of_cells(cells: Cells) -> dict[str, NDArray]:
    """Return columns that identify every cell by key, name and attributes, or by table and label."""
    if not cells.is_family:
        return named_columns(cells, cells.finest)
    tables = cells.finest_tables
    table = np.repeat(np.array([str(t) for t in tables], dtype=object), [cells.size(t) for t in tables])
    return {"table": table, "cell": np.array([cells.label(i) for i in range(cells.n)], dtype=object)}


def _write_draws(folder: Path, posterior: Posterior, write: Callable, ending: str) -> None:
    """Write the draws of a posterior as one file or, if there are many, as a folder of files."""
    _, draws, n = posterior.draws.shape
    counts = posterior.draws.reshape(-1, n)
    paths, files = [folder / f"draws.{ending}"], -(-len(counts) // max(1, MOST_ROWS // n))
    if files > 1:
        (folder / "draws").mkdir()
        paths = [folder / "draws" / f"part-{k:05d}.{ending}" for k in range(files)]
    write_drawn(paths, counts, _columns_of_cells(posterior.cells), draws, write)


def write_parquet_in_groups(path: Path, columns: Mapping[str, NDArray], *given: Any, **more: Any) -> None:
    """Write columns to a Parquet file in row groups of `ROW_GROUP_ROWS` rows."""
    write_parquet(path, columns, *given, together=ROW_GROUP_ROWS, **more)


def write_drawn(
    paths: Sequence[Path],
    counts: NDArray,
    columns: Mapping[str, NDArray],
    draws: int,
    write: Callable = write_parquet_in_groups,
) -> None:
    """Write drawn counts `(chains * draws, n)` as rows, divided evenly among several files.

    DuckDB reads the counts where they are, and looks keys up by the number of the cell. Some files are written at once.
    """
    n, each = counts.shape[1], -(-len(counts) // len(paths))
    cell = np.tile(np.arange(1, n + 1, dtype=np.int32), each)
    with connect(folders=[paths[0].parent], threads=1) as connection:  # each thread holds a group of rows
        keys = hold_keys(connection, columns)
        written = {
            "chain": f"draw::BIGINT // {draws}",
            "draw": f"draw::BIGINT % {draws}",
            **{name: f"{column}[cell]" for name, column in keys.items()},
            "count": "count::BIGINT",
        }
        select = ", ".join(f"{what} AS {quoted(name)}" for name, what in written.items())

        def write_part(k: int) -> None:
            own = counts[k * each : (k + 1) * each]
            draw = np.repeat(np.arange(len(own), dtype=np.int32) + k * each, n)
            own = own.reshape(-1)
            write(paths[k], {"count": own, "cell": cell[: len(own)], "draw": draw}, connection, select=select)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(write_part, range(len(paths))))


def digests_of(folder: Path) -> dict[str, str]:
    """Return the digest of every file in a folder, by its path within the folder."""
    names = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): digest(path) for path in names}


def posterior_manifest(posterior: Posterior) -> dict[str, Any]:
    drawn = posterior.drawn
    return {
        "kind": "posterior",
        "format": FORMAT,
        "title": posterior.spec.title if posterior.spec else "",
        "levels": [
            {"level": n, "places": s} for n, s in zip(posterior.cells.tree.levels, posterior.cells.tree.sizes)
        ],
        "attributes": [asdict(attribute) for attribute in posterior.cells.attributes],
        "tables": [margin_out(margin) for margin in margins(posterior)],
        "ratios": [asdict(ratio) for ratio in posterior.ratios],
        "drawn": {
            "independent": drawn.independent,
            "connected": drawn.connected,
            "approximate": drawn.approximate,
        },
        "trueup": __version__,
        "method": dict(posterior.method),
        "source": posterior.source,
        "level": posterior.level,
        "shape": dict(zip(("chains", "draws", "cells"), posterior.draws.shape)),
        "draws": posterior.drawn.kind,
        "intervals": posterior.promise,
        "counted": posterior.counted or limited_sentence(posterior.spec),
        "conflicts": None if posterior.conflicts is None else [one._asdict() for one in posterior.conflicts],
        "stats": {k: v.item() if isinstance(v, np.generic) else v for k, v in posterior.drawn.stats.items()},
    }
