"""Sweeps of a chain on histograms of a hierarchy: counts along all directions, sizes, compositions and concentrations.

One call makes several draws: handing over all that a chain is made of takes as long as moving some places a few times.
"""

from __future__ import annotations

from trueup.kernel.compiled import copy_table, njit
from trueup.kernel.table_walks.columns import column_sweep
from trueup.kernel.table_walks.compositions import draw_prior
from trueup.kernel.table_walks.rate_moves import move_rates
from trueup.kernel.table_walks.rates import draw_sizes

EVERY, SELDOM = 3, 6
"""Sweeps between two draws of compositions, which many places inform, and of concentrations and factors, which take longer."""


@njit(cache=True, error_model="numpy")
def histogram_sweeps(rng, places, tables, moves, state, work, prior, sweeps, part, kept):
    """Run sweeps from a state, which is overwritten; return how many directions were left out.

    Parameters
    ----------
    rng
        A NumPy generator.
    prior
        `open_, alike, room, hyper, learn`, as `draw_prior` takes them.
    sweeps
        Number of the first one, by which the prior's numbers take turns; how many; how many to a draw.
    part
        `begin, end, whole`: the directions of a sweep that are taken, and whether all else of a sweep follows. A part of a sweep
        lets a large problem return to Python in time.
    kept
        What is written: `(k, leaves, n)` the first draws' tables: that of the last one is the state's.
        `(draws, p)` each draw's concentrations of totals and of cells, the root's apart, its mean rate of uninhabited places, and
        slopes of covariates.
    """
    (first, count, thin), levels, failed, drawn = sweeps, state.a.size, 0, 0
    (open_, alike, room, hyper, learn), (begin, end, whole), (tables_kept, learnt) = prior, part, kept
    for sweep in range(first, first + count):
        failed += column_sweep(rng, places, tables, moves, state, work, begin, end)
        if whole:
            draw_sizes(rng, places, state)
        if whole and sweep % EVERY == 1:
            move_rates(rng, places, tables, moves, state, open_, hyper, learn)
        if whole and sweep % EVERY == 0:
            draw_prior(rng, places, state, open_, alike, room, hyper, learn and sweep % SELDOM == 0)
        if (sweep + 1) % thin == 0:
            if drawn < len(tables_kept):
                copy_table(tables_kept[drawn], state.x)
            for level in range(1, levels):
                learnt[drawn, level - 1] = state.a[level]
                learnt[drawn, levels + level - 2] = state.common[level]
            learnt[drawn, 2 * levels - 2] = state.rates_law[0]
            for k in range(state.slope.size):
                learnt[drawn, 2 * levels - 1 + k] = state.slope[k]
            drawn += 1
    return failed
