"""Claim: a process and its fork never draw the same noise, whatever their process numbers."""

from __future__ import annotations

import errno
import ssl
import subprocess
import sys

import pytest

from tests.claims.forked import IMPOSSIBLE
from tests.conftest import skip_loudly
from trueup.errors import TrueupError
from trueup.measuring import entropy

WAYS = ("namespace", "recycled")


def same_noise(way: str, source: str) -> bool:
    """Whether a fork with its parent's process number drew the parent's noise."""
    command = [sys.executable, "-m", "tests.claims.forked", way, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode == IMPOSSIBLE:
        skip_loudly(f"this system grants no fork with its parent's number by '{way}'")
    assert done.returncode == 0, done.stderr
    parent, child = done.stdout.split()
    assert len(parent) == len(child) == 20 * 6 * 16  # twenty measurements of six counts of 64 bits, in hex
    return parent == child


@pytest.mark.parametrize("way", WAYS)
def test_a_fork_with_its_parents_number_draws_noise_of_its_own(way):
    """Equal by chance: twenty draws of six counts agree with probability below 1e-60."""
    assert not same_noise(way, "kernel")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "source",
    [
        "numpy",
        pytest.param(
            "openssl",
            marks=pytest.mark.skipif(
                ssl.OPENSSL_VERSION_INFO[0] < 3, reason="before version 3 OpenSSL is told of forks"
            ),
        ),
    ],
)
def test_a_generator_with_a_state_in_the_process_is_found_out(way, source):
    """The same test rejects what it is there to reject."""
    assert same_noise(way, source)


def _fails(error):
    def source(count):
        raise error

    return source


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (_fails(OSError(errno.EIO, "Input/output error")), "Input/output error"),
        (_fails(NotImplementedError()), "has none"),
        (lambda count: bytes(count - 1), "gave 15 of 16 bytes"),
    ],
)
def test_a_failing_source_is_said_to_be_that(monkeypatch, source, said):
    monkeypatch.setattr(entropy.os, "urandom", source)
    with pytest.raises(TrueupError, match="source of randomness failed") as caught:
        entropy.words(16)
    assert said in str(caught.value)
