"""The hierarchical prior on a tree: Dirichlet-multinomial splits with few hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.messages.pmf import no_splits
from trueup.kernel.table_walks.weights import SLOPE_SD
from trueup.layouts.factors import Split
from trueup.layouts.prior_inputs import Kinds, numbers_of_nodes
from trueup.model.nested import NestedTree
from trueup.model.prior import Hierarchical

Reals = NDArray[np.float64]
Integers = NDArray[np.signedinteger]
RATIO, RATIO_SD = -3.0, 2.5
"""Mean and SD of the normal hyperprior of the logit of small parts' size: mostly between 1/3000 and 1."""
GROWTH_SD = 1.0
"""Standard deviation of the normal hyperprior of the growth of the odds of small parts: mostly less than with the square of the
number of parts."""
MANY_VALUES, PLACES_OF_MANY = 500, 10
"""Values of a margin beyond which fewer places than these do not inform their shares, which are taken as equal."""


@dataclass(frozen=True, eq=False)
class Splits:
    """The parameters of the splits of every node in a tree, as functions of `k` hyperparameters.

    `a_l` is the concentration of the node's level, `C_v` the number of its parent's children that may hold units,
    and the shares `m_c` are proportional to `exp(log_share_c + covariates_c . beta + gamma[category_c])`.
    The hyperparameters are the logs of the concentrations, then beta, then gamma. Parts of the last level that are alike may
    be of *two kinds*, see `trueup.layouts.prior_inputs`: the last two hyperparameters are then the logits of the share of the
    second kind, and of the ratio of its parameter to that of the first. Where parents differ in the number `C_v` of their
    parts, the one before is the power of `C_v` that the odds of the second kind grow with: of many blocks, more are uninhabited.

    Attributes
    ----------
    child_ptr
        Children of every node; those of all inner nodes, in order, are the nodes from 1 on.
    free
        (n,) whether the node may hold units: structural zeros do not.
    level
        (n,) position of the node's concentration among the hyperparameters; -1 at the root.
    log_share
        (n,) log of the public shares, up to a constant for each parent.
    covariates
        (n, p) public, standardised among the leaves; above them the mean of the parts.
    category
        (n,) position of the attribute value that the node adds to its parent, among all such; -1 where it adds none.
    names, depths
        (k,) of the hyperparameters: names, and the last level of the tree whose nodes they concern.
    mean
        Public mean of a part of the last level, if these are of two kinds; 0 where not.
    middle
        Mean over these parts of the log of the number of parts of their parent, if parents differ in it; None where not.
    """

    child_ptr: Integers
    free: NDArray[np.bool_]
    level: Integers
    log_share: Reals
    covariates: Reals
    category: Integers
    names: tuple[str, ...]
    depths: Integers
    mean: float = 0.0
    middle: float | None = None

    @property
    def of_kinds(self) -> int:
        """Return the number of hyperparameters for two kinds of parts: 0, 2 or 3."""
        return 0 if not self.mean else 2 if self.middle is None else 3

    @property
    def concentrations(self) -> int:
        """Return the number of hyperparameters that are logs of concentrations."""
        others = self.covariates.shape[1] + int(self.category.max(initial=-1) + 1) + self.of_kinds
        return len(self.names) - others

    @property
    def _starts(self) -> Integers:
        inner = self.child_ptr[1:] > self.child_ptr[:-1]
        return self.child_ptr[:-1][inner] - 1

    def _by_parent(self, values: Reals) -> Reals:
        """Return, for each node, the sum of values over all children of its parent; 0 for the root."""
        sums = np.add.reduceat(values[1:], self._starts)
        sizes = np.diff(np.append(self._starts, len(values) - 1))
        return np.concatenate([[0.0], np.repeat(sums, sizes)])

    def shares(self, theta: Reals) -> Reals:
        """Return the share `(n,)` of every node among its siblings, 0 for structural zeros and the root."""
        p = self.concentrations
        score = self.log_share.copy()
        if beta := self.covariates.shape[1]:
            score += self.covariates @ theta[p : p + beta]
        held = self.category >= 0
        score[held] += theta[p + beta :][self.category[held]]
        sizes = np.diff(np.append(self._starts, len(score) - 1))
        score[1:] -= np.repeat(
            np.maximum.reduceat(np.where(self.free, score, -np.inf)[1:], self._starts), sizes
        )
        weight = np.where(self.free, np.exp(np.where(self.free, score, 0.0)), 0.0)
        weight[0] = 0.0
        total = self._by_parent(weight)
        return np.divide(weight, total, out=np.zeros(len(weight)), where=total > 0)

    def of_two_kinds(self, total: float) -> Splits | None:
        """Return the prior with two kinds of parts on the last level, or None if parts are not comparable."""
        last = self.level == self.level.max()
        uneven = (
            self.covariates.shape[1] or (self.category[last] >= 0).any() or np.ptp(self.log_share[last]) > 0
        )
        if uneven or not self.families()[-1]:
            return None
        mean = max(total, 1.0) / self.free[last].sum()
        many = self._by_parent(self.free.astype(float))[last & self.free]
        many = many[many > 1]
        middle = float(np.log(many).mean()) if np.ptp(many) else None
        margin = self.names[self.concentrations - 1].partition(" of ")[2]
        names = [f"logit of the share of small parts of {margin}", f"logit of how small they are of {margin}"]
        if middle is not None:
            names.insert(0, f"growth of the odds of small parts of {margin} with their number")
        depths = np.append(self.depths, [self.depths[self.concentrations - 1]] * len(names))
        return replace(self, names=(*self.names, *names), depths=depths, mean=mean, middle=middle)

    def with_kinds(self, theta: Reals, share: float, ratio: float) -> Reals:
        """Return `theta` with the hyperparameters for two kinds of parts appended."""
        return np.concatenate([theta, np.zeros(self.of_kinds - 2), [share, ratio]])

    def _kinds(self, theta: Reals) -> Kinds:
        share, ratio = theta[-2:]
        return Kinds.of(theta[self.concentrations - 1], share, ratio, self.mean)

    @property
    def _parent(self) -> Integers:
        """Return the parent of every node, and 0 for the root."""
        return np.concatenate([[0], np.repeat(np.arange(len(self.free)), np.diff(self.child_ptr))])

    def _more(self, many: NDArray) -> Reals:
        """Return the logs of numbers of parts, minus their mean."""
        assert self.middle is not None
        return np.log(many) - self.middle

    def _second(self, theta: Reals, shift: float) -> tuple[Reals, Reals, Integers]:
        """Return the fields `second`, `odds` and `parts` of `Split` for every node."""
        second, odds, parts = no_splits(len(self.free))[2:]
        if self.mean:
            last = self.free & (self.level == self.concentrations - 1)
            inner = self.child_ptr[1:] > self.child_ptr[:-1]
            parts[inner] = np.add.reduceat(last[1:].astype(np.int64), self._starts)
            held = last | (parts > 0)
            second[held], odds[held], _ = self._kinds(theta)
            odds[held] += shift
            if self.middle is not None:
                odds[parts > 0] += theta[-3] * self._more(parts[parts > 0])
                odds[last] = odds[self._parent[last]]
        return second, odds, parts

    def parameters(self, theta: Reals, shift: float = 0.0) -> Split:
        """Return the parameters of every split in the layout that the tree kernels read."""
        many = self._by_parent(self.free.astype(float))
        log_a = np.append(theta[: self.concentrations], 0.0)[self.level]
        alpha = np.exp(log_a) * many * self.shares(theta)
        total = np.ones(len(alpha))
        inner = self.child_ptr[1:] > self.child_ptr[:-1]
        total[inner] = np.add.reduceat(alpha[1:], self._starts)
        return np.where(alpha > 0, alpha, 1.0), np.where(total > 0, total, 1.0), *self._second(theta, shift)

    def scores(self, theta: Reals, rises: Reals, total_rises: Reals, second: Reals) -> Reals:
        """Return the contribution `(families, k)` of each family to the gradient of the log evidence.

        Parameters
        ----------
        rises, total_rises
            (n,) posterior means of `psi(x + a) - psi(a)` for the parameters `alpha` and `total`; of parts of two kinds, and
            sums of such, those of the derivatives of factors and of divisors by the log of `a`, over `alpha` and `total`.
        second
            (2, n) posterior means of the derivatives of factors by the logs of `q` and of `b`; 0 where there is one kind.
        """
        p, beta, alpha = self.concentrations, self.covariates.shape[1], self.parameters(theta)[0]
        part = np.where(self.free, alpha * (rises - total_rises[self._parent]), 0.0)
        part[0] = 0.0
        out = np.zeros((len(self._starts), len(theta)))
        sums = np.add.reduceat(part[1:], self._starts)
        out[np.arange(len(sums)), self.level[1:][self._starts]] = sums
        less = part - self.shares(theta) * self._by_parent(part)
        out[:, p : p + beta] = np.add.reduceat((self.covariates * less[:, None])[1:], self._starts)
        held = self.category >= 0
        family = np.searchsorted(self._starts, np.flatnonzero(held) - 1, side="right") - 1
        np.add.at(out, (family, p + beta + self.category[held]), less[held])
        if self.mean:
            sums = self.child_ptr[1:] > self.child_ptr[:-1]
            of_parts = np.where(sums, 0.0, second)[:, 1:]
            of_family = np.add.reduceat(of_parts, self._starts, axis=1) + second[:, sums]
            out[:, [p - 1, -2, -1]] += of_family.T @ self._kinds(theta).slopes.T
            if self.middle is not None:
                many = self._by_parent(self.free.astype(float))[1:][self._starts]
                out[:, -3] = of_family[0] * self._more(np.maximum(many, 1.0))
        return out

    def information(self, scores: Reals) -> Reals:
        """Return the scatter `(k, k)` of the families' scores, which approximates the curvature."""
        level = self.level[1:][self._starts]
        spread = scores.copy()
        for one in np.unique(level):
            spread[level == one] -= scores[level == one].mean(axis=0)
        return spread.T @ spread

    def log_hyperprior(self, theta: Reals) -> tuple[float, Reals]:
        """Return the log density of the hyperprior, up to a constant, and its gradient.

        Each concentration: `a / (1 + a)` uniform on (0, 1), the uniform shrinkage prior (Christiansen and Morris 1997), so
        `log a` is standard logistic: proper, whatever the likelihood does at 0 and at infinity, where it tends to
        constants. Coefficients: normal about 0 with standard deviation `SLOPE_SD`. The share of small parts: uniform; the logit
        of how small they are: normal about `RATIO` with standard deviation `RATIO_SD`; the growth of their odds: normal about 0
        with standard deviation `GROWTH_SD`.
        """
        uniform = np.arange(len(theta)) < self.concentrations
        middle, scale = np.zeros(len(theta)), np.where(uniform, 1.0, SLOPE_SD)
        if self.mean:
            uniform[-2], scale[-2], middle[-1], scale[-1] = True, 1.0, RATIO, RATIO_SD
        if self.middle is not None:
            scale[-3] = GROWTH_SD
        z = (theta - middle) / scale
        log = np.where(uniform, z - 2 * np.logaddexp(0, z), -0.5 * z**2)
        return float(log.sum()), np.where(uniform, -np.tanh(z / 2), -z) / scale

    def held(self) -> Integers:
        """Return, for each attribute value, the number of nodes that have it and whose parents do not."""
        return np.bincount(self.category[self.category >= 0], minlength=0)

    def families(self) -> Integers:
        """Return, for each concentration, the number of children with siblings that inform it."""
        many = self._by_parent(self.free.astype(float))
        counted = self.free & (many > 1)
        return np.bincount(self.level[counted], minlength=self.concentrations)[: self.concentrations]


def splits_of(prior: Hierarchical, nested: NestedTree, upper: Reals) -> Splits:
    """Return the splits of a hierarchical prior on the tree of nested margins.

    Raises
    ------
    SpecError
        If a column of shares or covariates is missing, negative, empty or all zero, by name.
    """
    level = np.repeat(np.arange(-1, len(nested.margins) - 1, dtype=np.int16), np.diff(nested.level_ptr))
    inner = nested.child_ptr[1:] > nested.child_ptr[:-1]
    free = np.asarray(upper > 0)
    for v in np.flatnonzero(inner)[::-1]:
        free[v] &= free[nested.child_ptr[v] : nested.child_ptr[v + 1]].any()
    log_share, covariates, slopes = numbers_of_nodes(prior, nested)
    category, values, levels = _categories(nested)
    last = len(nested.margins) - 1
    depths = np.array([*range(1, last + 1), *[last] * len(prior.covariates), *levels], int)
    names = [f"log concentration of {m}" for m in nested.margins[1:]]
    every = (*names, *slopes, *values)
    return Splits(nested.child_ptr, free, level, log_share, covariates, category, every, depths)


def _categories(nested: NestedTree) -> tuple[Integers, list[str], list[int]]:
    """Return the number of the attribute value that each node adds to its parent, value names, and levels."""
    category, names, levels = np.broadcast_to(np.int32(-1), nested.level_ptr[-1]), [], []
    for level, (before, margin) in enumerate(pairwise(nested.margins), start=1):
        if margin.level == before.level and margin.attributes:
            places = nested.cells.tree.sizes[nested.cells.tree.level(margin.level)]
            each = nested.cells.size(margin) // places
            if each > MANY_VALUES and places < PLACES_OF_MANY:
                continue
            category = category if names else category.copy()
            category[nested.nodes[level]] = len(names) + np.arange(places * each) % each
            levels += [level] * each
            names += [f"log weight of {margin} value {k + 1}" for k in range(each)]
    return category, names, levels
