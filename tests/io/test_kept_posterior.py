"""Posteriors on disk are read back as they were, and nothing altered is."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trueup.errors import BundleError, TrueupError
from trueup.files.writing import write_parquet
from trueup.io.bundle import posterior as written
from trueup.io.bundle.kept_posterior import read_posterior
from trueup.io.bundle.manifest import digest
from trueup.io.bundle.posterior import write_posterior
from trueup.model.cells import Attribute, Cells, Recode
from trueup.model.records.drawn import Conflict, Drawn
from trueup.model.records.posterior import Posterior
from trueup.model.records.quantity import Ratio
from trueup.model.tree import Tree


@pytest.fixture
def posterior(rng) -> Posterior:
    keys = [{}, {"county": list("nnsss")}, {"town": ["1", "2", "1", "3", "4"]}]
    tree = Tree.from_columns(
        ["all", "county", "town"], keys, names=[None, ["North"] * 2 + ["South"] * 3, None]
    )
    adult = Recode.of("adult", {"no": ["0-17"], "yes": ["18+"]}, ("0-17", "18+"))
    cells = Cells(tree, (Attribute("age", ("0-17", "18+"), recodes=(adult,)),))
    prior = {"name": "hierarchical", "shares": "uniform", "total": "flat", "most_kinds": 2}
    return Posterior(
        cells,
        Drawn(
            rng.integers(0, 99, (2, 30, cells.n)),
            False,
            stats={"doubt": "Few counts.", "steps": 7},
            connected=True,
        ),
        {"method": "demo", "prior": prior},
        "ab" * 32,
        0.8,
        ratios=(Ratio("share", "'0-17'"),),
        conflicts=(Conflict("town", "total", 3.0, -20.0),),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("as_csv", [False, True])
@pytest.mark.parametrize("rows", [100, 1 << 21])
def test_a_posterior_is_read_back_as_it_was(posterior, tmp_path, monkeypatch, as_csv, rows):
    monkeypatch.setattr(written, "MOST_ROWS", rows)
    posterior = Posterior(**{**vars(posterior), "ratios": ()})
    write_posterior(tmp_path / "out", posterior, as_csv=as_csv)
    kept = read_posterior(tmp_path / "out")
    np.testing.assert_array_equal(kept.draws, posterior.draws)
    assert kept.promise == posterior.promise
    assert repr(kept).startswith("Posterior: of the record abababababab\n")
    assert kept.cells.tree.digest == posterior.cells.tree.digest
    assert kept.cells.attributes == posterior.cells.attributes
    assert kept.cells.tree.names[1].tolist() == ["North", "South"]
    for name in ("source", "level", "conflicts", "prior"):
        assert getattr(kept, name) == getattr(posterior, name)


def test_draws_within_one_place_are_read_back(posterior, tmp_path):
    south = Cells(posterior.cells.tree.branch(1, 1, 2, 2), posterior.cells.attributes)
    part = Posterior(
        south, Drawn(posterior.draws[..., 4:], True), {"method": "demo", "within": "county=s"}, ""
    )
    write_posterior(tmp_path / "out", part)
    kept = read_posterior(tmp_path / "out")
    np.testing.assert_array_equal(kept.draws, part.draws)
    assert kept.cells.label(0) == south.label(0)


def _sealed(folder, change) -> None:
    """Alter a manifest as somebody would who can state digests anew."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    manifest["files"] = {
        name: digest(folder / name) for name in manifest["files"] if (folder / name).exists()
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


HOSTILE = {
    "no draws": lambda m: m.update(shape={"chains": 0, "draws": 1, "cells": 10}),
    "other draws": lambda m: m["shape"].update(draws=31),
    "fewer draws": lambda m: m["shape"].update(draws=29),
    "vast": lambda m: m["shape"].update(draws=2**31),
    "other places": lambda m: m["levels"][-1].update(places=6),
    "more cells": lambda m: m["attributes"][0]["values"].append("x"),
    "a recode beyond": lambda m: m["attributes"][0]["recodes"][0].update(groups=[0, 5]),
    "no level": lambda m: m.update(level=2.0),
    "text for a number": lambda m: m.update(level="0.9"),
    "a path": lambda m: m["files"].update({"../x": "00"}),
    "no method": lambda m: m.update(method={}),
    "a prior that is a list": lambda m: m["method"].update(prior=[1]),
    "doubts that are numbers": lambda m: m["stats"].update(prior={"estimates": 1, "doubts": 3}),
    "a value that is listed twice": lambda m: m["attributes"][0].update(values=["0-17", "0-17"]),
    "a recode with one group twice": lambda m: m["attributes"][0]["recodes"][0].update(values=["no", "no"]),
    "a table of no level": lambda m: m["tables"].append({"level": "no", "attributes": []}),
}


@pytest.mark.parametrize("which", HOSTILE)
def test_manifests_that_do_not_fit_are_refused(posterior, tmp_path, which):
    write_posterior(tmp_path / "out", Posterior(**{**vars(posterior), "ratios": ()}))
    _sealed(tmp_path / "out", HOSTILE[which])
    if which == "a path":
        manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
        manifest["files"]["../x"] = "00"
        (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(TrueupError):
        read_posterior(tmp_path / "out")


@pytest.mark.thorough
def test_files_that_were_altered_or_linked_are_refused(posterior, tmp_path):
    posterior = Posterior(**{**vars(posterior), "ratios": ()})
    for name in ("altered", "missing", "linked", "unsealed"):
        write_posterior(tmp_path / name, posterior)
    (tmp_path / "altered" / "draws.parquet").write_bytes(b"PAR1")
    (tmp_path / "missing" / "places.parquet").unlink()
    draws = tmp_path / "linked" / "draws.parquet"
    draws.rename(tmp_path / "elsewhere.parquet")
    draws.symlink_to(tmp_path / "elsewhere.parquet")
    write_parquet(tmp_path / "unsealed" / "draws.parquet", {"count": np.array(["1"] * 600)})
    write_posterior(tmp_path / "huge", posterior)
    write_parquet(tmp_path / "huge" / "draws.parquet", {"count": np.full(600, 2**62)})
    for name in ("unsealed", "huge"):
        _sealed(tmp_path / name, lambda m: None)
    for name in ("altered", "missing", "linked", "unsealed", "huge"):
        with pytest.raises(BundleError):
            read_posterior(tmp_path / name)


def test_another_folder_is_told_from_a_posterior(tmp_path):
    with pytest.raises(BundleError, match="trueup infer --out"):
        read_posterior(tmp_path / "none")
