"""Every item agrees with its paper: quickly here, whole under `-m slow`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from papers import ITEMS
from papers.item import Item, Setting, outcome
from tests.conftest import skip_loudly

pytestmark = pytest.mark.thorough

FINE = {"agrees", "cannot match", "shown only"}


def setting_for(item: Item, quick: bool) -> Setting:
    """The folder of data, or a skip that says what is missing."""
    folder = os.environ.get("TRUEUP_TEST_DATA")
    if item.files and not (folder and Path(folder).is_dir()):
        skip_loudly(f"TRUEUP_TEST_DATA does not name a folder with {', '.join(item.files)}")
    return Setting(quick=quick, data_dir=Path(folder) if folder else None)


def differing(item: Item, setting: Setting) -> list[str]:
    """Rows that differ; fails where the item did not run at all."""
    done = outcome(item, setting)
    assert not done.needs
    assert done.status in FINE | {"differs"}
    return [
        f"{row.label}: {row.paper}, ours {row.text}" for row in done.found.rows if row.verdict == "differs"
    ]


@pytest.mark.parametrize("kind", ITEMS, ids=lambda kind: kind.name)
def test_every_item_agrees_in_a_quick_run(kind):
    item = kind()
    assert differing(item, setting_for(item, quick=True)) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ITEMS, ids=lambda kind: kind.name)
def test_every_item_agrees_in_a_full_run(kind):
    item = kind()
    assert differing(item, setting_for(item, quick=False)) == []
