"""Sweeps of a chain on histograms of a hierarchy: counts along all directions, sizes, compositions and concentrations."""

from __future__ import annotations

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.columns import column_sweep
from trueup.kernel.table_walks.compositions import draw_prior
from trueup.kernel.table_walks.sizes import draw_sizes

EVERY = 3
"""Sweeps between two draws of compositions and concentrations, which many places inform."""


@njit(cache=True, error_model="numpy")
def histogram_sweeps(rng, places, tables, moves, state, work, open_, room, hyper, learn, first, count):
    """Run sweeps from a state, which is overwritten; returns how many directions were left out.

    Parameters
    ----------
    rng
        A NumPy generator.
    open_, room, hyper, learn
        As `draw_prior` takes them.
    first, count
        Number of the first sweep, by which prior's numbers take turns; sweeps.
    """
    failed = 0
    for sweep in range(first, first + count):
        failed += column_sweep(rng, places, tables, moves, state, work)
        draw_sizes(rng, places, state)
        if sweep % EVERY == 0:
            draw_prior(rng, places, state, open_, room, hyper, learn)
    return failed
