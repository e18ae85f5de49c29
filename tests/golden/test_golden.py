"""Bundles of every release stay readable and give the same integers.

A folder here is a bundle as that version wrote it: `trueup release` on the demonstration's table of
children with the method `tree-topdown`, `public/` alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trueup import check, read_release, reconcile
from trueup.reconciling import build

BUNDLES = sorted(path.parents[1] for path in Path(__file__).parent.glob("*/public/manifest.json"))


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_old_bundles_are_readable_and_whole(folder):
    assert all(each.holds for each in check(folder))


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_old_measurements_still_give_the_same_integers(folder):
    """By the method that the bundle names: the default may be another by now."""
    released = read_release(folder)
    entry = dict(released.method)
    again = reconcile(released.measurements, build(entry.pop("method"), entry))
    np.testing.assert_array_equal(again.counts, released.counts)


def test_there_is_a_bundle_of_this_version():
    from trueup import __version__

    assert __version__ in {folder.name for folder in BUNDLES}
