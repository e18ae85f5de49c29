"""Errors to expect of a run by parts: those of levels that a sample of places thins are no smaller than all places allow."""

import numpy as np
import pytest

import trueup
from tests.releasing.state import MOST, write_state
from trueup.io.bundle.manifest import read_manifest
from trueup.model.build import build_constraints
from trueup.model.cells import Margin
from trueup.model.header import split
from trueup.model.records.expected_errors import ExpectedErrors
from trueup.reconciling.histogram_tree import HistogramTree
from trueup.releasing import pipeline
from trueup.releasing.errors_of_parts import standard_errors
from trueup.run.local import LocalPool


@pytest.fixture(scope="module")
def thinned(tmp_path_factory):
    """A release by parts whose errors are simulated on some of its blocks."""
    folder = tmp_path_factory.mktemp("thinned")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trueup.releasing.errors_of_parts.WORK", 800)
        pipeline.release(**write_state(folder), out=folder / "out", executor=LocalPool(1), places=MOST)
    return folder / "out"


def _least_squares(release):
    constraints = build_constraints(release.spec, release.cells)
    method = HistogramTree(estimates="least-squares")
    return method.errors(method.prepare(constraints, release.measurements.headers))


@pytest.mark.thorough
def test_standard_errors_from_the_shape_of_the_tree_are_those_of_least_squares_in_memory(thinned):
    release = trueup.read_release(thinned)
    whole = _least_squares(release)
    zeros = release.spec.constraints.zeros
    found = standard_errors(release.cells, release.measurements.headers, list(whole), zeros)
    for table, errors in whole.items():
        can_occur = errors[errors > 0]
        root = np.sqrt(np.square(can_occur).mean()) if can_occur.size else 0.0
        assert found.get(table, np.zeros(1))[0] == pytest.approx(root, rel=1e-6), table


@pytest.mark.thorough
def test_levels_that_the_sample_thins_err_as_least_squares_on_all_places_does(thinned):
    expected = ExpectedErrors.read(read_manifest(thinned)["expected errors"])
    whole = _least_squares(trueup.read_release(thinned))
    assert " of 34 places" in expected.note
    for level in ("county", "tract"):
        table = Margin(level, ("race", "age"))
        least = np.sqrt(np.square(whole[table]).mean())
        assert all(c.rmse >= least - 1e-9 for c in expected.tables[table])


def _simulated_values(folder, work):
    """What was measured of the places whose errors a run by parts simulates, as the simulation takes it; and the release."""
    taken = []

    def simulate(self, counts, values, headers, rng, **options):
        taken.append((self.constraints.cells, counts, values, headers))
        return ExpectedErrors((), "not simulated")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trueup.releasing.errors_of_parts.WORK", work)
        patch.setattr("trueup.reconciling.expected_errors.ErrorSimulation.simulate", simulate)
        pipeline.release(**write_state(folder), out=folder / "out", executor=LocalPool(1), places=MOST)
    return taken[0], trueup.read_release(folder / "out")


@pytest.mark.thorough
def test_where_all_places_are_simulated_every_measured_value_is_taken(tmp_path):
    (_, counts, values, _), release = _simulated_values(tmp_path, 10**6)
    np.testing.assert_array_equal(counts, release.counts)
    np.testing.assert_array_equal(values, release.measurements.flat)


@pytest.mark.thorough
def test_of_some_places_what_was_measured_is_taken_and_of_those_above_released_counts_measured_again(
    tmp_path,
):
    (cells, counts, values, headers), release = _simulated_values(tmp_path, 800)
    last, last_values = cells.tree.levels[-1], split(values, headers, cells)
    whole = split(release.measurements.flat, release.measurements.headers, release.cells)
    labels = [release.cells.tree.label(last, i) for i in range(release.cells.tree.sizes[-1])]
    at = [labels.index(cells.tree.label(last, i)) for i in range(cells.tree.sizes[-1])]
    assert len(at) < len(labels)
    for header, ours, all_ in zip(headers, last_values, whole, strict=True):
        rows = ours.reshape(cells.margin_shape(header.margin)[0], -1)
        if header.margin.level == last:
            np.testing.assert_array_equal(rows, all_.reshape(len(labels), -1)[at])
        elif header.exact and header.margin.level == cells.tree.levels[0]:
            np.testing.assert_array_equal(rows.ravel(), cells.sum(counts, header.margin))
