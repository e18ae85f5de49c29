"""Noise is distinct across forks, threads and processes; the test notices a pool that a fork copies."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest

from trueup.measuring.entropy import words
from trueup.noise import DiscreteGaussian, DiscreteLaplace
from trueup.noise.samplers import Powers

# In an interpreter of its own, since a fork of a test runner may have threads.
FORK = """
import os, sys
from trueup.measuring.entropy import words
from trueup.noise import DiscreteGaussian, DiscreteLaplace

pool = {pool}
def pooled(count, kept=bytearray()):
    while len(kept) < count:
        kept += words(1 << 16)
    taken = bytes(kept[:count])
    del kept[:count]
    return taken

source = pooled if pool else words
laws = [DiscreteLaplace("1/10"), DiscreteLaplace("1/1000"), DiscreteGaussian("100"), DiscreteGaussian("4000000")]
for law in laws:
    law.sample(3, source)       # tables (and a pool) exist before the fork
children = []
for _ in range(4):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, repr([law.sample(40, source).tolist() for law in laws]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    children.append(os.read(read, 1 << 16).decode())
children.append(repr([law.sample(40, source).tolist() for law in laws]))
per_law = zip(*map(eval, children))
print([len(set(map(tuple, draws))) for draws in per_law])
"""


def forked(pool: bool) -> str:
    run = subprocess.run(
        [sys.executable, "-c", FORK.format(pool=pool)], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork on this system")
def test_forks_and_their_parent_draw_different_noise():
    assert forked(pool=False) == "[5, 5, 5, 5]"


@pytest.mark.thorough
def test_a_pool_would_be_noticed():
    assert forked(pool=True) == "[1, 1, 1, 1]"


def test_threads_draw_different_noise():
    laws = [DiscreteLaplace("1/10"), DiscreteLaplace("1/1000"), DiscreteGaussian("100")]
    with ThreadPoolExecutor(4) as threads:
        for law in laws:
            draws = list(threads.map(lambda _, law=law: tuple(law.sample(40, words).tolist()), range(64)))
            assert len(set(draws)) == 64


def test_threads_that_build_the_same_table_at_once_build_it_right():
    """Interrupted as often as can be, from empty caches, with words that reach the deep stages."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            shared, alone = Powers(Fraction(1, 30)), Powers(Fraction(1, 30))
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(lambda i, p=shared: p(20 * i, 192), range(60)))
            for j in range(0, 1180, 7):
                ours, right = shared(j, 192), alone(j, 192)
                assert (ours.lo, ours.hi) == (right.lo, right.hi)
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize(
    "law", [DiscreteLaplace("1/10"), DiscreteLaplace("1/1000"), DiscreteGaussian("4000000")]
)
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_source_that_gives_too_few_bytes_is_refused(law, size):
    with pytest.raises(ValueError, match=r"gave|buffer"):
        law.sample(size, lambda count: words(count)[: count // 2])


@pytest.mark.thorough
def test_processes_draw_different_noise():
    program = "from trueup.measuring.entropy import words; from trueup.noise import DiscreteLaplace as L; "
    program += "print(L('1/10').sample(40, words).tolist())"
    command = [sys.executable, "-c", program]
    drawn = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(3)}
    assert len(drawn) == 3


def test_no_sampler_keeps_random_state():
    """After a draw, every cached sampler is what it was: tables only."""
    laws = [
        DiscreteLaplace("1/10"),
        DiscreteLaplace("1/1000"),
        DiscreteGaussian("100"),
        DiscreteGaussian("4000000"),
    ]
    for law in laws:
        law.sample(1000, words)
        before = frozen(law.sampler)
        law.sample(1000, words)
        law.sample(1, words)
        assert frozen(law.sampler) == before


def frozen(value, depth: int = 0):
    """Write out an object's whole state."""
    if hasattr(value, "tobytes"):
        return value.tobytes()
    if isinstance(value, list | tuple):
        return [frozen(v, depth + 1) for v in value]
    if isinstance(value, dict):
        return {str(k): frozen(v, depth + 1) for k, v in value.items()}
    if hasattr(value, "__dict__") and not callable(value) and depth < 6:
        return {k: frozen(v, depth + 1) for k, v in vars(value).items() if not callable(v)}
    return str(value) if isinstance(value, int | str) or value is None else type(value).__name__
