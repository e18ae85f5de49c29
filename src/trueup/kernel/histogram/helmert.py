"""The orthogonal transform of `anova.Domain` along one axis at a time, in place and in linear time.

Helmert contrasts of a sequence need only its running sums: with `p_j = x_0 + ... + x_(j-1)` the j-th coefficient is
`(p_j - j x_j) / sqrt(j (j + 1))`, and backwards what the contrasts above j add to `x_j` is a running sum too. The mean of
an atom (times the root of its size) is left at the atom's first code, its j-th contrast at its j-th code.

Every histogram is transformed by itself, in a fixed order of operations: the same histogram gives the same bits,
whatever other histograms come with it.
"""

from __future__ import annotations

import numpy as np

from trueup.kernel.compiled import copy_line, njit


@njit(cache=True)
def _scales(pointer, run):
    """Write `1 / sqrt(j (j + 1))` for every contrast of an axis to `run`, because roots and divisions are slow."""
    most = 1
    for a in range(pointer.size - 1):
        most = max(most, pointer[a + 1] - pointer[a])
    for j in range(1, most):
        run[j] = 1.0 / np.sqrt(j * (j + 1.0))


@njit(cache=True)
def lift(x, outer, inner, codes, pointer, run):
    """Transform `x` (outer, codes, inner) in place to means and contrasts within every atom of the middle axis."""
    size = codes.size
    if inner == 1:
        _scales(pointer, run)
    for o in range(outer):
        base = o * size * inner
        for a in range(pointer.size - 1):
            first, members = pointer[a], pointer[a + 1] - pointer[a]
            start = base + codes[first] * inner
            if inner == 1:
                total = x[start]
                for j in range(1, members):
                    at = base + codes[first + j]
                    value = x[at]
                    x[at] = (total - j * value) * run[j]
                    total += value
                x[start] = total / np.sqrt(float(members))
                continue
            for i in range(inner):
                run[i] = x[start + i]
            for j in range(1, members):
                at = base + codes[first + j] * inner
                scale = 1.0 / np.sqrt(j * (j + 1.0))
                for i in range(inner):
                    value = x[at + i]
                    x[at + i] = (run[i] - j * value) * scale
                    run[i] += value
            scale = 1.0 / np.sqrt(float(members))
            for i in range(inner):
                x[start + i] = run[i] * scale


@njit(cache=True)
def lower(x, outer, inner, codes, pointer, run):
    """Transform means and contrasts back to values along the middle axis of `x`, in place (the inverse of `lift`)."""
    size = codes.size
    if inner == 1:
        _scales(pointer, run)
    for o in range(outer):
        base = o * size * inner
        for a in range(pointer.size - 1):
            first, members = pointer[a], pointer[a + 1] - pointer[a]
            start = base + codes[first] * inner
            if inner == 1:
                rest = x[start] / np.sqrt(float(members))
                for j in range(members - 1, 0, -1):
                    at = base + codes[first + j]
                    contrast = x[at] * run[j]
                    x[at] = rest - j * contrast
                    rest += contrast
                x[start] = rest
                continue
            scale = 1.0 / np.sqrt(float(members))
            for i in range(inner):
                run[i] = x[start + i] * scale
            for j in range(members - 1, 0, -1):
                at = base + codes[first + j] * inner
                scale = 1.0 / np.sqrt(j * (j + 1.0))
                for i in range(inner):
                    contrast = x[at + i] * scale
                    x[at + i] = run[i] - j * contrast
                    run[i] += contrast
            for i in range(inner):
                x[start + i] = run[i]


@njit(cache=True)
def forward(x, axes, codes, pointer, run):
    """Transform one histogram to coefficients along all axes, in place."""
    _along_axes(x, axes, codes, pointer, run, False)


@njit(cache=True)
def backward(x, axes, codes, pointer, run):
    """Transform one histogram's coefficients back along all axes, in place."""
    _along_axes(x, axes, codes, pointer, run, True)


@njit(cache=True)
def _along_axes(x, axes, codes, pointer, run, back):
    inner = x.size
    outer = 1
    for axis in range(axes.shape[0] - 1):
        size, first, atom = axes[axis]
        inner //= size
        atoms = pointer[atom : axes[axis + 1, 2]]
        if atoms.size - 1 < size:
            members = codes[first : first + size]
            if back:
                lower(x, outer, inner, members, atoms, run)
            else:
                lift(x, outer, inner, members, atoms, run)
        outer *= size


@njit(cache=True)
def forward_rows(x, axes, codes, pointer, place):
    """Transform histograms (rows, n) to coefficients in the order `place`."""
    result = np.empty(x.shape)
    one, run = np.empty(x.shape[1]), np.empty(x.shape[1])
    for row in range(x.shape[0]):
        copy_line(one, x[row])
        forward(one, axes, codes, pointer, run)
        for i in range(place.size):
            result[row, i] = one[place[i]]
    return result


@njit(cache=True)
def backward_rows(x, axes, codes, pointer, place):
    """Transform rows of coefficients in the order `place` back to histograms (rows, n)."""
    result = np.empty(x.shape)
    run = np.empty(x.shape[1])
    for row in range(x.shape[0]):
        for i in range(place.size):
            result[row, place[i]] = x[row, i]
        backward(result[row], axes, codes, pointer, run)
    return result


@njit(cache=True)
def add_spread(y, groups, variance, result):
    """Add `y / variance` of each group (rows, groups) to all of the group's cells in histograms (rows, n)."""
    own = np.empty(y.shape[1])
    for row in range(y.shape[0]):
        for g in range(own.size):
            own[g] = y[row, g] / variance
        for i in range(groups.size):
            result[row, i] += own[groups[i]]


@njit(cache=True)
def sum_rows(x, groups, size):
    """Sum cells of histograms (rows, n) into groups (rows, size), one after the other."""
    result = np.zeros((x.shape[0], size))
    for row in range(x.shape[0]):
        for i in range(groups.size):
            result[row, groups[i]] += x[row, i]
    return result
