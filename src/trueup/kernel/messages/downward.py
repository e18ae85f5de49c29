"""Messages down a tree: the exact marginal of every node, also averaged over several solutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba.typed import List
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages import PairPlan, above
from trueup.kernel.messages.pmf import correlate, fft_convolve
from trueup.kernel.messages.upward import (
    DIRECT,
    MASSES,
    NODES_A_CALL,
    OVERFLOWING,
    Messages,
    Tilted,
    array_of,
    rounding_error,
    scaled_factor,
    set_array,
)

Reals = NDArray[np.float64]
NEGLIGIBLE_MASS = 1e-18
"""Mass of one count that is less than rounding moves."""
LACKING = 1e-7
"""Mass of a marginal that may be where floating-point numbers end."""
ROUNDED, TERM_BY_TERM = 1e-11, 1 << 30
"""Mass that rounding may move, and windows up to which a convolution is by terms where more would be."""


@njit(cache=True)
def given_to_parts(tilted, v, messages, down):
    """Return what node `v` passes to its parts: its own factor times the message from outside its subtree."""
    if v >= len(tilted.low) or not tilted.informs[v]:
        return down
    masses = messages.masses[v]
    out = down * np.exp(scaled_factor(tilted, v, messages.offset[v], len(masses)) - messages.evidence[v])
    if not np.isfinite(out.sum()):
        for i in range(len(out)):
            if not np.isfinite(out[i]) and masses[i] * down[i] < NEGLIGIBLE_MASS:
                out[i] = 0.0
    return out


@njit(cache=True)
def _sweep_down(position, end, plan, tilted, messages, down, direct):
    """Send messages down until a pair is too wide for direct sums; return the position, and whether it was too wide."""
    for place in range(position, end, -1):
        v = plan.order[place]
        a, b = plan.left[v], plan.right[v]
        if a < 0:
            continue
        one = messages.masses[a]
        weights = given_to_parts(tilted, v, messages, down[v])
        shift = messages.offset[a] - messages.offset[v]
        if b < 0:
            down[a] = correlate(weights, np.ones(1), shift, len(one))
            continue
        other = messages.masses[b]
        if min(len(one), len(other)) > direct:
            return place, True
        shift += messages.offset[b]
        down[a] = correlate(weights, other, shift, len(one))
        down[b] = correlate(weights, one, shift, len(other))
    return end, False


@njit(cache=True)
def _start_down(masses):
    down = List.empty_list(MASSES)
    for v in range(len(masses)):
        down.append(np.ones(len(masses[v])))
    return down


@njit(cache=True)
def window_sizes(masses, n):
    """Return the lengths of the windows of the first `n` nodes."""
    sizes = np.empty(n, np.int64)
    for v in range(n):
        sizes[v] = len(masses[v])
    return sizes


@njit(cache=True)
def products(masses, offset, down, first, last):
    """Return the marginals of consecutive nodes in one array, with their starts and first counts.

    Steep tilts make a message vanish where what is above overflows. Products sum to 1, so what such counts lack is known: they
    are taken as 0 if that is next to nothing; else the marginal is not-a-number.
    """
    start = np.zeros(last - first + 1, np.int64)
    for v in range(first, last):
        start[v - first + 1] = start[v - first] + len(masses[v])
    out = np.empty(start[-1])
    for v in range(first, last):
        product = masses[v] * down[v]
        if not np.isfinite(product.sum()):
            product = np.where(np.isfinite(product), product, 0.0)
            if abs(product.sum() - 1.0) > LACKING:
                product[:] = np.nan
        out[start[v - first] : start[v - first + 1]] = product / product.sum()
    return start, offset[first:last].copy(), out


def downward(
    plan: PairPlan, tilted: Tilted, messages: Messages, roots: Sequence[Reals] = (), direct: int = DIRECT
) -> tuple[List, float]:
    """Return, for every node, the message from all nodes outside its subtree.

    Also a bound on the mass of any marginal that rounding of FFTs has moved; were it large, nothing is left to them. An FFT
    errs by at most `e` at every count; a node's message sums to 1, so its marginal errs by `e`, and those below it by no more,
    as every step down is linear and keeps mass.

    `roots` holds that of the first nodes, where what is above them was worked out elsewhere. Nodes below those that
    `plan.order` leaves out are left at 1.
    """
    down = _start_down(messages.masses)
    for v, weights in enumerate(roots):
        set_array(down, v, weights)
    rounding = np.zeros(len(plan.left))
    position = len(plan.order) - 1
    while position >= 0:
        end = max(position - NODES_A_CALL, -1)
        position, wide = _sweep_down(position, end, plan, tilted, messages, down, direct)
        if not wide:
            continue
        v = plan.order[position]
        a, b = plan.left[v], plan.right[v]
        weights = given_to_parts(tilted, v, messages, array_of(down, v))
        shift = int(messages.offset[a] + messages.offset[b] - messages.offset[v])
        one, other = array_of(messages.masses, a), array_of(messages.masses, b)
        for child, mine, sibling in ((a, one, other), (b, other, one)):
            set_array(down, child, _correlate_fast(weights, sibling, shift, len(mine)))
            rounding[v] = max(rounding[v], rounding_error(weights, sibling))
        position -= 1
    moved = float(above(plan, rounding, np.zeros(1)).max()) if rounding.any() else 0.0
    return (down, moved) if moved <= ROUNDED else downward(plan, tilted, messages, roots, TERM_BY_TERM)


@OVERFLOWING
def _correlate_fast(weights: Reals, other: Reals, shift: int, size: int) -> Reals:
    """Return the same as `correlate`, computed by fast Fourier transform."""
    full = fft_convolve(weights, other[::-1])  # entry i + shift + len(other) - 1 is out[i]
    at = np.arange(size) + shift + len(other) - 1
    inside = (at >= 0) & (at < len(full))
    return np.where(inside, np.maximum(full[np.clip(at, 0, len(full) - 1)], 0.0), 0.0)


Integers = NDArray[np.int64]
Exact = tuple[Integers, Integers, Reals]
"""Marginals as `trueup.kernel.messages.solve.marginals` has them."""


def mixed(parts: Sequence[Exact], weights: Reals) -> Exact:
    """Return the weighted mean of the marginals of several solutions.

    Examples
    --------
    >>> one, other = (np.array([0, 1]), np.array([3]), np.ones(1)), (np.array([0, 1]), np.array([5]), np.ones(1))
    >>> start, offset, masses = mixed([one, other], np.array([0.25, 0.75]))
    >>> start.tolist(), offset.tolist(), masses.tolist()
    ([0, 3], [3], [0.25, 0.0, 0.75])
    """
    low = np.min([offset for _, offset, _ in parts], axis=0)
    high = np.max([offset + np.diff(start) for start, offset, _ in parts], axis=0)
    begin = np.concatenate([[0], np.cumsum(high - low)])
    out = np.zeros(begin[-1])
    for (start, offset, masses), weight in zip(parts, weights):
        _add(begin, low, out, start, offset, masses, np.broadcast_to(weight, len(low)))
    return begin, low, out


def joined_marginals(parts: Sequence[Exact]) -> Exact:
    """Return the marginals of several groups of nodes, joined end to end."""
    starts = np.cumsum([0, *(start[-1] for start, _, _ in parts)])
    start = np.concatenate([[0], *(own[1:] + before for (own, _, _), before in zip(parts, starts))])
    return start, np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts])


@njit(cache=True)
def _add(begin, low, out, start, offset, masses, weights):
    for v in range(len(low)):
        at = begin[v] + offset[v] - low[v]
        for i in range(start[v], start[v + 1]):
            out[at + i - start[v]] += weights[v] * masses[i]


def mixed_above(
    offsets: Sequence[Integers], above: Sequence[Sequence[Reals]], weights: Reals, nodes: slice
) -> tuple[Integers, list[Reals]]:
    """Return, for some nodes, the weighted mean of the downward messages of several solutions.

    Parameters
    ----------
    offsets, above
        For each solution, the count at which every node's window starts, and the messages down.
    nodes
        The nodes to return.

    Returns
    -------
    offset, above
        The counts at which these nodes' windows start, and their messages.
    """
    at = range(nodes.start, nodes.stop)
    low = np.min([offset[nodes] for offset in offsets], axis=0)
    out = []
    for k, v in enumerate(at):
        each = [array_of(down, v) for down in above]
        ends = [int(offset[v] - low[k]) + len(one) for offset, one in zip(offsets, each)]
        total = np.zeros(max(ends))
        for one, weight, end in zip(each, weights, ends):
            total[end - len(one) : end] += weight * one
        out.append(total)
    return low, out
