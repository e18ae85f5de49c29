"""Posteriors on disk: tables for people, draws for other programs.

manifest.json             method, parameters, diagnostics, digest of the public record it came from
summary/*.parquet         mean, sd, median, interval and its mass for every count of a margin
report.html               pictures and tables to read
quantities.parquet        ratios and sums that the spec asks for, at every place
draws.parquet             one row per draw and cell: chain, draw, the cell's keys, count
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from trueup.files.columns import write_csv, write_parquet
from trueup.files.staging import staged
from trueup.io.bundle.manifest import slug
from trueup.model.cells import Margin
from trueup.model.records.posterior import Posterior
from trueup.model.tables import margin_columns
from trueup.version import __version__


def write_posterior(
    out: Path, posterior: Posterior, *, draws: bool = True, as_csv: bool = False, page: str = ""
) -> None:
    """Write a posterior as a folder, whole or not at all.

    Parameters
    ----------
    out
        A new folder.
    draws
        Whether to write the draws.
    as_csv
        CSV instead of Parquet.
    page
        Its report, if there is to be one.

    Raises
    ------
    BundleError
        If the folder is occupied or the disk refuses.

    Examples
    --------
    >>> import tempfile
    >>> from trueup.model.cells import Cells
    >>> from trueup.model.records.posterior import Drawn
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> drawn = Drawn(np.array([[[3, 4], [5, 4]]]), independent=True)
    >>> out = Path(tempfile.mkdtemp()) / "posterior"
    >>> write_posterior(out, Posterior(cells, drawn, {"method": "demo"}, ""), as_csv=True)
    >>> (out / "draws.csv").read_text().split()
    ['chain,draw,area,count', '0,0,a,3', '0,0,b,4', '0,1,a,5', '0,1,b,4']
    """
    write, ending = (write_csv, "csv") if as_csv else (write_parquet, "parquet")
    with staged(Path(out)) as folder:
        (folder / "summary").mkdir()
        for margin in margins(posterior):
            columns = margin_columns(posterior.cells, margin) | posterior.summary(margin)
            write(folder / "summary" / f"{slug(margin)}.{ending}", columns)
        if posterior.ratios:
            write(folder / f"quantities.{ending}", posterior.ratio_summary())
        if draws:
            write(folder / f"draws.{ending}", _long(posterior))
        if page:
            (folder / "report.html").write_text(page, encoding="utf-8")
        text = json.dumps(_manifest(posterior), indent=2, sort_keys=True, default=str)
        (folder / "manifest.json").write_text(text + "\n", encoding="utf-8")


def margins(posterior: Posterior) -> list[Margin]:
    """List the margins whose tables are written: those with exact marginals, else the finest."""
    return list(dict.fromkeys([*posterior.drawn.marginals, posterior.cells.finest]))


def _long(posterior: Posterior) -> dict[str, Any]:
    chains, draws, n = posterior.draws.shape
    columns = {
        "chain": np.repeat(np.arange(chains), draws * n),
        "draw": np.tile(np.repeat(np.arange(draws), n), chains),
    }
    keys = margin_columns(posterior.cells, posterior.cells.finest)
    columns |= {name: np.tile(column, chains * draws) for name, column in keys.items()}
    return columns | {"count": posterior.draws.ravel()}


def _manifest(posterior: Posterior) -> dict[str, Any]:
    return {
        "kind": "posterior",
        "trueup": __version__,
        "method": dict(posterior.method),
        "source": posterior.source,
        "level": posterior.level,
        "shape": dict(zip(("chains", "draws", "cells"), posterior.draws.shape)),
        "draws": posterior.drawn.kind,
        "intervals": posterior.promise,
        "conflicts": None if posterior.conflicts is None else [one._asdict() for one in posterior.conflicts],
        "stats": {k: v.item() if isinstance(v, np.generic) else v for k, v in posterior.drawn.stats.items()},
    }
