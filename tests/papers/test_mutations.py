"""Wrong versions of the package turn items to "differs": with few replicates here, with all of them under `-m slow`."""

from __future__ import annotations

import pytest

from papers import ITEMS, select
from tests.papers.mutations import MUTATIONS
from tests.papers.test_items import differing, setting_for

PAIRS = [pytest.param(m, item, id=f"{m.name}: {item}") for m in MUTATIONS for item in m.items]
SHORT = [pair for pair in PAIRS if pair.values[1] not in pair.values[0].whole]


def test_every_item_says_what_it_catches_and_that_is_tested():
    tested = {kind.name: {m.name for m in MUTATIONS if kind.name in m.items} for kind in ITEMS}
    assert {kind.name: set(kind.catches) for kind in ITEMS} == tested
    assert all(tested.values())


def turned(mutation, name: str, quick: bool, monkeypatch) -> list[str]:
    """Rows that differ under a wrong version."""
    [item] = select(name)
    setting = setting_for(item, quick)
    mutation.apply(monkeypatch)
    return differing(item, setting)


@pytest.mark.slow
@pytest.mark.parametrize(("mutation", "name"), SHORT)
def test_a_wrong_version_differs_in_a_quick_run(mutation, name, monkeypatch):
    assert turned(mutation, name, True, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("mutation", "name"), PAIRS)
def test_a_wrong_version_differs_in_a_full_run(mutation, name, monkeypatch):
    found = turned(mutation, name, False, monkeypatch)
    assert found
    for label in mutation.rows.get(name, ()):
        assert any(row.startswith(label) for row in found)
