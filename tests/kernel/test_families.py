"""Families of tables: acyclic ones against the existence of joint tables by linear programs."""

from itertools import combinations, product

import numpy as np
import pytest
import scipy.optimize

from trueup.kernel.families import closing_sets, cyclic_core, junction_tree, maximal

VARIABLES = "abcd"


def tables(sets):
    """For every set, the index `(cells of all variables,)` of its cell; all variables are binary."""
    cells = np.array(list(product((0, 1), repeat=len(VARIABLES))))
    return [cells[:, [VARIABLES.index(v) for v in sorted(own)]] @ (1 << np.arange(len(own))) for own in sets]


def sums(own, kept):
    """The 0/1 matrix that sums a set's table (variables sorted, first fastest) into some of its variables."""
    bits = np.array(list(product((0, 1), repeat=len(own))))[:, ::-1]
    at = bits[:, [sorted(own).index(v) for v in sorted(kept)]] @ (1 << np.arange(len(kept)))
    return np.equal.outer(np.arange(2 ** len(kept)), at).astype(float)


def agreeing(sets, weights):
    """Nonnegative tables of total 1 that agree pairwise, largest in a direction: a corner of what agreeing tables can be."""
    start = np.cumsum([0, *(2 ** len(own) for own in sets)])
    rows, right = [np.repeat(np.eye(len(sets))[0], np.diff(start))[None]], [1.0]
    for i, j in combinations(range(len(sets)), 2):
        kept = sets[i] & sets[j]
        row = np.zeros((2 ** len(kept), start[-1]))
        row[:, start[i] : start[i + 1]] = sums(sets[i], kept)
        row[:, start[j] : start[j + 1]] -= sums(sets[j], kept)
        rows.append(row)
        right += [0.0] * len(row)
    found = scipy.optimize.linprog(-weights[: start[-1]], A_eq=np.vstack(rows), b_eq=right)
    assert found.status == 0
    return np.split(found.x, start[1:-1])


def has_joint(sets, given):
    """Whether one nonnegative table of all variables has the given margins."""
    rows = np.vstack(
        [np.equal.outer(np.arange(2 ** len(own)), at) for own, at in zip(sets, tables(sets), strict=True)]
    )
    found = scipy.optimize.linprog(np.zeros(rows.shape[1]), A_eq=rows, b_eq=np.concatenate(given))
    return found.status == 0


def random_family(rng):
    chosen = [
        frozenset(v for v in VARIABLES if rng.random() < 0.55) or frozenset("a")
        for _ in range(rng.integers(2, 6))
    ]
    return [chosen[i] for i in maximal(chosen)]


@pytest.mark.thorough
def test_a_family_is_acyclic_exactly_if_agreeing_tables_always_have_a_joint_table(rng):
    kinds = {True: 0, False: 0}
    for _ in range(80):
        sets = random_family(rng)
        acyclic = not cyclic_core(sets)
        kinds[acyclic] += 1
        corners = (agreeing(sets, rng.normal(size=100)) for _ in range(6 if acyclic else 60))
        assert all(has_joint(sets, corner) for corner in corners) == acyclic
    assert min(kinds.values()) >= 5


def test_a_junction_tree_runs_through_what_sets_share(rng):
    for _ in range(300):
        sets = random_family(rng)
        if cyclic_core(sets):
            continue
        tree = junction_tree(sets, root=int(rng.integers(len(sets))))
        for at, i in enumerate(tree.order[1:], start=1):
            before = frozenset().union(*(sets[j] for j in tree.order[:at]))
            assert tree.parent[i] in tree.order[:at]
            assert sets[i] & before == sets[i] & sets[tree.parent[i]]


def test_what_closes_a_family_is_the_smallest_union_that_does(rng):
    sizes = dict(zip(VARIABLES, (2, 3, 5, 7)))

    def cells(union):
        return int(np.prod([sizes[v] for v in union]))

    closed = 0
    for _ in range(200):
        sets = random_family(rng)
        if not cyclic_core(sets):
            continue
        closed += 1
        union = frozenset().union(*(sets[i] for i in closing_sets(sets, cells)))
        assert not cyclic_core([*sets, union])
        every = (frozenset(c) for k in range(2, 5) for c in combinations(VARIABLES, k))
        assert cells(union) == min(cells(one) for one in every if not cyclic_core([*sets, one]))
    assert closed > 10


@pytest.mark.parametrize(
    ("sets", "acyclic"),
    [
        (("ab", "bc", "ac"), False),
        (("abd", "bce", "acf"), False),
        (("abc", "abd", "bce", "acf"), True),
        (("ab", "cd"), True),
        (("ab", "bc", "cd", "da"), False),
    ],
)
def test_known_families(sets, acyclic):
    assert (cyclic_core([frozenset(s) for s in sets]) == []) == acyclic
