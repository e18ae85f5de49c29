"""Two linked tables assessed: errors of both and of their ratio, what truncation takes, and who may see it."""

from __future__ import annotations

import numpy as np
import pytest

from tests import linked_tables
from tests.assessing.worlds import every_replicate
from tests.command import run
from trueup.assessing import assess
from trueup.io.bundle.assessment import read_assessment
from trueup.model.cells import Margin
from trueup.model.spec import Spec

RATIO = "person per household"


@pytest.fixture
def given(rng):
    spec = Spec.model_validate(linked_tables.document())
    return spec, linked_tables.population(rng, 60), linked_tables.PLACES


@pytest.mark.thorough
def test_ratios_and_both_tables_are_told_apart(given, held):
    found = assess(*given, replicates=40)
    every = every_replicate(held["simulation"], held["blocks"], number=0)
    for strata in held["simulation"].strata:
        if strata.margin.attributes != ("counted",):
            continue
        persons, households = strata.truth.reshape(-1, 2).T
        made = every[strata.margin].reshape(40, -1, 2)
        errors = made[..., 0] / np.maximum(made[..., 1], 1) - persons / np.maximum(households, 1)
        errors = errors[:, households > 0]
        bias, _ = found.figure("bias of the ratio", str(strata.margin), about=RATIO)
        distance, _ = found.figure("mean absolute error of the ratio", str(strata.margin), about=RATIO)
        assert bias == pytest.approx(errors.mean())
        assert distance == pytest.approx(np.abs(errors).mean())
        for k, unit in enumerate(("person", "household")):
            own, _ = found.figure("bias", str(strata.margin), by="counted", unit=unit)
            assert own == pytest.approx((made[..., k] - strata.truth.reshape(-1, 2)[:, k]).mean())
    assert found.stats["records dropped"] == _beyond(given[1])
    assert "records dropped" not in repr(found)


def _beyond(tables, most=4) -> int:
    """How many persons households have beyond those that are kept."""
    sizes = tables.persons.groupby("hid").size()
    return int((sizes - most).clip(lower=0).sum())


@pytest.mark.thorough
def test_places_without_households_have_no_ratio(given):
    """Their errors would count as none in the average."""
    spec, tables, places = given
    empty = tables.households["block"] == "23"
    gone = set(tables.households.loc[empty, "hid"])
    tables = type(tables)(tables.persons[~tables.persons["hid"].isin(gone)], tables.households[~empty])
    found = assess(spec, tables, places, replicates=40)
    margin = Margin("block", ("counted",))
    _, errors = next(
        figures["bias of the ratio", RATIO] for key, figures in found.figures.items() if key[2] == margin
    )
    assert np.isnan(errors[-1])
    value, _ = found.figure("mean absolute error of the ratio", str(margin), about=RATIO)
    assert np.isfinite(value)
    assert value > 0


@pytest.mark.thorough
def test_the_command_takes_both_tables_and_prints_no_figure(rng, tmp_path):
    paths = linked_tables.write_tables(tmp_path, rng, 60)
    told = ["assess", paths["spec"], "--data", paths["data"], "--geography", paths["geography"]]
    refused = run(*told, "--out", tmp_path / "none")
    assert refused.returncode == 2
    assert "another --data FILE" in refused.stderr
    assert not (tmp_path / "none").exists()
    done = run(*told, "--data", paths["households"], "--replicates", 40, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "Confidential" in done.stdout
    record, _ = read_assessment(tmp_path / "out")
    assert record.stats["records dropped"] > 0
    page = (tmp_path / "out" / "internal" / "report.html").read_text()
    assert "Ratios of the two tables" in page
    assert f"{record.stats['records dropped']:,} records dropped" in page
    said = done.stdout.replace(str(tmp_path), "")  # whose name holds numbers of its own
    assert str(tmp_path) in done.stdout
    assert str(record.stats["records dropped"]) not in said
