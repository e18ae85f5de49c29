"""Slow obvious twins of the histogram kernels: one dense system over all leaves' cells."""

from __future__ import annotations

import numpy as np

from tests.reference.sums import marginal_matrix


def design(spine, n):
    """Matrix (nodes, leaves) that sums leaves into nodes, and the leaves' numbers."""
    nodes = spine.child_ptr.size - 1
    leaves = np.flatnonzero(np.diff(spine.child_ptr) == 0)
    sums = np.zeros((nodes, leaves.size))
    sums[leaves, np.arange(leaves.size)] = 1
    for v in reversed(range(nodes)):
        sums[v] += sums[spine.child_ptr[v] : spine.child_ptr[v + 1]].sum(axis=0)
    return sums, leaves


def system(spine, plan, answers, n, zeros=None):
    """Normal equations of the noisy answers, and the exact ones with the zero cells as rows."""
    sums, leaves = design(spine, n)
    size = leaves.size * n
    normal, right = np.zeros((size, size)), np.zeros(size)
    rows, values = [np.zeros((0, size))], [np.zeros(0)]
    for level, nodes in enumerate(spine.levels):
        for (marginal, variance), y in zip(plan[level], answers[level], strict=True):
            matrix = marginal_matrix(marginal)
            for answer, node in zip(y, range(nodes.start, nodes.stop), strict=True):
                block = np.kron(sums[node], matrix)
                if variance == 0:
                    rows.append(block)
                    values.append(answer)
                else:
                    normal += block.T @ block / variance
                    right += block.T @ answer / variance
        if zeros is not None:
            for node, cell in np.argwhere(zeros[level]):
                rows.append(np.kron(sums[nodes.start + node], np.eye(n)[cell])[None])
                values.append(np.zeros(1))
    return sums, normal, right, np.vstack(rows), np.concatenate(values)


def least_squares(spine, plan, answers, n, zeros=None):
    """Weighted least squares by its dense optimality system; per level (nodes, n)."""
    sums, normal, right, rows, values = system(spine, plan, answers, n, zeros)
    m = rows.shape[0]
    kkt = np.block([[normal, rows.T], [rows, np.zeros((m, m))]])
    x = np.linalg.lstsq(kkt, np.concatenate([right, values]), rcond=1e-13)[0][: right.size]
    full = sums @ x.reshape(-1, n)
    return [full[nodes] for nodes in spine.levels]


def coefficients(domain, x):
    """Coefficients (..., n) of histograms by the axes' bases as dense matrices, component by component, S axes first."""
    table, k = x.reshape(-1, *domain.sizes), len(domain.axes)
    parts = []
    for component in domain.components:
        part = table
        for i, (axis, contrast) in enumerate(zip(domain.axes, component.contrast, strict=True), start=1):
            basis = axis.contrasts if contrast else axis.spanning
            part = np.moveaxis(np.tensordot(part, basis, (i, 0)), -1, i)
        order = sorted(range(k), key=lambda i: component.contrast[i])
        parts.append(part.transpose(0, *(1 + i for i in order)).reshape(len(table), -1))
    return np.concatenate(parts, axis=1).reshape(x.shape)
