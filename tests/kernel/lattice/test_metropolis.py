"""Steps on a window keep its law, exactly: every table's chance of the next against overlaps of intervals."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.kernel.table_walks.metropolis import WINDOW, draw_window_position
from trueup.kernel.table_walks.moves import LISTED, PAIR, SAME, SINGLE, SQUARE, Moves, propose

GRID = 20_000


def windows(rng, count=20):
    """Log densities on windows, some with impossible places, one that is flat and one that is steep."""
    logs = rng.normal(size=(count, WINDOW)) * rng.choice([0.3, 2, 20], (count, 1))
    logs[rng.random((count, WINDOW)) < 0.2] = -np.inf
    logs[0], logs[1] = 0.0, -8.0 * np.arange(WINDOW)
    return logs[np.isfinite(logs).any(axis=1)]


def chances(logs, fresh):
    """Chance of each place from each possible one, by running the kernel on a grid of uniform numbers."""
    luck = (np.arange(GRID) + 0.5) / GRID
    inside = np.flatnonzero(np.isfinite(logs))
    found = np.zeros((WINDOW, WINDOW))
    for here in inside:
        ends = [draw_window_position(logs.copy(), here, u, fresh) for u in luck]
        found[here] = np.bincount(ends, minlength=WINDOW) / GRID
    return found


def overlaps(masses):
    """What of each place's interval falls on each other one's when all are reflected about the median."""
    ends = np.concatenate([[0.0], np.cumsum(masses)])
    low, high = 1 - ends[1:], 1 - ends[:-1]
    shared = np.minimum.outer(high, ends[1:]) - np.maximum.outer(low, ends[:-1])
    return np.maximum(shared, 0.0)


@pytest.mark.slow
def test_a_reflection_is_the_overlap_of_intervals_and_keeps_the_law(rng):
    for logs in windows(rng):
        masses = np.exp(logs - logs.max())
        masses /= masses.sum()
        joint = masses[:, None] * chances(logs, False)
        assert joint == pytest.approx(overlaps(masses), abs=WINDOW / GRID)
        assert joint == pytest.approx(joint.T, abs=WINDOW / GRID)
        assert joint.sum(axis=0) == pytest.approx(masses, abs=WINDOW / GRID)


@pytest.mark.thorough
def test_a_fresh_draw_has_the_law_wherever_it_comes_from(rng):
    for logs in windows(rng, 6):
        masses = np.exp(logs - logs.max())
        masses /= masses.sum()
        for row in chances(logs, True)[np.isfinite(logs)]:
            assert row == pytest.approx(masses, abs=2 / GRID)


def grid_moves():
    """Every kind of move on places 0 .. 3 in two groups, by attributes of sizes 3 and 2, and two listed vectors."""
    kinds = np.array([SINGLE, PAIR, PAIR, SQUARE, LISTED])
    places = np.array([[SAME, SAME], [SAME, SAME], [1, SAME], [0, SAME], [SAME, SAME]])
    axes = np.zeros((5, 2, 2), bool)
    axes[1, 0, 0] = axes[3, 1, 1] = True
    group = np.array([[0, 0, 0, 0], [0, 0, 1, 1]])
    bounds = np.array([[0, 4, 0, 0, 0], [0, 2, 4, 0, 0]])
    start, cell = np.array([0, 2, 5]), np.array([0, 7, 7, 8, 9])
    return Moves(
        np.arange(24),
        np.array([3, 2]),
        group,
        bounds,
        kinds,
        places,
        axes,
        start,
        cell,
        np.array([1, -1, 1, 1, -2]),
    )


@pytest.mark.thorough
def test_moves_keep_what_their_pattern_keeps(rng):
    """A pair along the first attribute keeps all but that; one of places stays in its group; a square keeps both margins."""
    moves = grid_moves()
    kept = {
        1: lambda x: x.sum(axis=2),
        2: lambda x: x.reshape(-1, 2, 2, 3, 2).sum(axis=2),
        3: lambda x: np.concatenate(
            [x.sum(axis=1).reshape(len(x), -1), x.sum(axis=3).reshape(len(x), -1)], axis=1
        ),
    }
    for pattern, sums in kept.items():
        batch = propose(rng, moves, moves.active, (np.arange(5) >= pattern) * 1.0, 2000)
        table = np.zeros((2000, 24), int)
        for k in range(2000):
            cells = batch.cells[k, : batch.used[k]]
            assert len(set(cells)) == batch.used[k]
            table[k, cells] = batch.change[k, : batch.used[k]]
        assert (batch.used > 0).mean() > 0.3
        assert not sums(table.reshape(-1, 4, 3, 2)).any()
        assert (table != 0).any(axis=0).all()


def test_cells_are_proposed_as_often_as_their_turns_come(rng):
    moves = grid_moves()
    turns = np.repeat([3, 5, 20], [1, 4, 15])
    first = propose(rng, moves, turns, (np.arange(5) >= 0) * 1.0, 40_000).cells[:, 0]
    shares = np.bincount(first, minlength=24) / 40_000
    assert shares[[3, 5, 20]] == pytest.approx([0.05, 0.2, 0.75], abs=6 * 0.5 / 200)
    assert shares.sum() == pytest.approx(shares[[3, 5, 20]].sum())


def test_listed_vectors_come_alone_or_as_two(rng):
    moves = grid_moves()
    batch = propose(rng, moves, moves.active, (np.arange(5) >= 4) * 1.0, 2000)
    seen = set()
    for used, cells, change in zip(batch.used, batch.cells, batch.change):
        table = np.zeros(24, int)
        table[cells[:used]] = change[:used]
        seen.add(tuple(table[[0, 7, 8, 9]].tolist()))
    one, other = np.array([1, -1, 0, 0]), np.array([0, 1, 1, -2])
    either = (one, other, one + other, one - other, other + one, other - one)
    assert seen == {tuple(v.tolist()) for v in either}
