"""A disk that fills up: the system's reason, exit code 1, and what became of the loss."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas
import pytest

from trueup.cli import run_app
from trueup.demo import AREAS
from trueup.errors import ResourceError
from trueup.files.database import writing_by_duckdb
from trueup.ledger.account import Account
from trueup.ledger.ledger import Ledger
from trueup.ledger.request import Terms
from trueup.releasing.pipeline import release

TABLE = pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]})
FULL = duckdb.IOException(
    "IO Error: Could not write all bytes to file: wanted=1 wrote=0: No space left on device"
)


@pytest.fixture
def account(tmp_path):
    ledger = Ledger.create(str(tmp_path / "l.db"))
    terms = Terms(AREAS.privacy.unit, AREAS.privacy.neighbours, public=("area",))
    ledger.init(AREAS.table.name, {"epsilon": "2"}, terms=terms)
    return Account.open(str(tmp_path / "l.db"), "ana", None)


def ended(app, capsys):
    with pytest.raises(SystemExit) as end:
        run_app(app)
    return end.value.code, capsys.readouterr().err


def test_duckdb_s_word_is_the_system_s():
    with pytest.raises(ResourceError, match=r"cannot write 'counts\.parquet': No space left on device"):
        _through_the_writer()


def test_the_loss_stays_spent_where_noise_was_drawn(account, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("trueup.releasing.engine.write_measurements", _through_the_writer)
    code, said = ended(lambda: release(AREAS, TABLE, tmp_path / "out", account=account), capsys)
    assert code == 1
    assert "No space left on device" in said
    assert "the loss stays spent" in said
    state = account.ledger.state()
    assert len(state.drawn) == 1
    assert not state.commits
    assert not (tmp_path / "out").exists()


def _through_the_writer(*_):
    with writing_by_duckdb(Path("counts.parquet")):
        raise FULL


def test_without_noise_nothing_is_said_of_a_loss(account, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("trueup.releasing.engine.read_confidential", _refused)
    code, said = ended(lambda: release(AREAS, TABLE, tmp_path / "out", account=account), capsys)
    assert code == 1
    assert "spent" not in said


def _refused(*_, **__):
    raise OSError(28, "No space left on device")


def test_an_unforeseen_error_says_it_as_well(account, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("trueup.releasing.engine.write_measurements", lambda *_: 1 / 0)
    code, said = ended(lambda: release(AREAS, TABLE, tmp_path / "out", account=account), capsys)
    assert code == 1
    assert "internal error ZeroDivisionError" in said
    assert "the loss stays spent" in said
