"""A bundle's folder may be given as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import trueup

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"


def test_a_folder_given_as_text_is_the_same_bundle():
    by_text, by_path = trueup.read_measurements(str(GOLDEN)), trueup.read_measurements(GOLDEN)
    assert str(by_text.headers) == str(by_path.headers)
    assert np.array_equal(by_text.flat, by_path.flat)
