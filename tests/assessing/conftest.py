"""What tests of assessments share."""

from __future__ import annotations

import pytest

import trueup.assessing as assessing


@pytest.fixture
def held(monkeypatch):
    """The simulation and the blocks that `assess` carried out last."""
    seen = {}
    original = assessing.carry_out

    def spy(simulation, blocks, workers, progress):
        seen.update(simulation=simulation, blocks=blocks)
        return original(simulation, blocks, workers, progress)

    monkeypatch.setattr(assessing, "carry_out", spy)
    return seen
