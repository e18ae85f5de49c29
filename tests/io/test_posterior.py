"""Draws on disk: every row has its chain, draw, keys and count, however many files and groups of rows there are."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from trueup.files import writing
from trueup.io.bundle import posterior as written
from trueup.io.bundle.posterior import write_posterior
from trueup.model.cells import Attribute, Cells
from trueup.model.records.drawn import Drawn
from trueup.model.records.posterior import Posterior
from trueup.model.tree import Tree


@pytest.mark.thorough
@pytest.mark.parametrize("few", [0, 1 << 17])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_draws_are_written_in_order_each_with_its_keys(tmp_path, monkeypatch, ending, few, rng):
    """In several files, several groups of rows each, whether texts are held as numbers or not."""
    monkeypatch.setattr(written, "MOST_ROWS", 20_000)
    monkeypatch.setattr(written, "ROW_GROUP_ROWS", 2048)
    monkeypatch.setattr(writing, "MAX_DICTIONARY_TEXTS", few)
    places = sorted(f"a {k % 7}'\"{k}" for k in range(300))
    tree = Tree.from_columns(["all", "area"], [{}, {"area": places}])
    cells = Cells(tree, (Attribute("sex", ("f", "m")),))
    draws = rng.integers(0, 99, (2, 40, cells.n)).astype(np.int32)
    posterior = Posterior(cells, Drawn(draws, independent=False), {"method": "demo"}, "")
    write_posterior(tmp_path / "out", posterior, as_csv=ending == "csv")
    assert len(list((tmp_path / "out" / "draws").iterdir())) == 3
    found = duckdb.sql(f"FROM '{tmp_path}/out/draws/*.{ending}'")
    assert found.columns == ["chain", "draw", "area", "sex", "count"]
    assert [str(kind) for kind in found.types] == ["BIGINT", "BIGINT", "VARCHAR", "VARCHAR", "BIGINT"]
    rows = [
        (chain, draw, area, sex, int(draws[chain, draw, 2 * i + j]))
        for chain in range(2)
        for draw in range(40)
        for i, area in enumerate(places)
        for j, sex in enumerate("fm")
    ]
    assert found.fetchall() == rows
