"""Hostile files of every kind: none is written or opened outside, none ends in an internal error, hangs or fills the memory."""

from __future__ import annotations

import pytest

from tests.fuzz.attack import KINDS, Attack

SHORT, LONG = 10, 1000
"""Hostile files of each kind."""


@pytest.fixture(scope="module")
def attack(tmp_path_factory):
    made = Attack(tmp_path_factory.mktemp("fuzz"), seed=47)
    made.warm()
    return made


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_files_do_no_harm(attack, kind):
    faults = [fault for number in range(SHORT) for fault in attack.run(kind, number)]
    assert not faults
    assert attack.figures[kind].made == SHORT


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_hostile_files_do_no_harm(attack, kind):
    """`python -m tests.fuzz --count N --seed N` runs as many as are wanted."""
    assert not [fault for number in range(SHORT, LONG) for fault in attack.run(kind, number)]


@pytest.mark.slow
def test_harm_is_seen(attack, monkeypatch):
    """A reader that opens a file outside, one that writes there, one that hangs and one that stumbles are found out."""
    secret = attack.outside / "secret"

    def opens(*_):
        return [secret.read_text]

    def writes(*_):
        return [lambda: (attack.outside / "more").write_text("x")]

    def stumbles(*_):
        return [lambda: {}["x"]]

    def fills(*_):
        return [lambda: bytes(300_000_000).replace(b"\0", b"\1")]

    for harm, word in ((opens, "opened"), (writes, "left"), (stumbles, "KeyError"), (fills, "MB")):
        monkeypatch.setitem(KINDS, "harm", harm)
        attack.figures["harm"] = type(attack.figures["text"])()
        assert word in " ".join(attack.run("harm", 0)), word
        (attack.outside / "more").unlink(missing_ok=True)
