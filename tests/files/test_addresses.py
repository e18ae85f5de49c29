"""A run keeps where its tables are, and how they are read."""

from __future__ import annotations

import json

import pytest

from trueup.errors import DataError
from trueup.files import Encoded, JoinedTables, address_of, source_at


def test_what_is_kept_as_json_leads_to_the_same_table_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("people.csv", "homes.csv"):
        (tmp_path / name).write_text("town\n")
    latin = Encoded("people.csv", "latin-1")
    linked = source_at(json.loads(json.dumps(address_of(JoinedTables(latin, "homes.csv")))))
    assert linked == JoinedTables(str(tmp_path / "people.csv"), str(tmp_path / "homes.csv"))
    assert linked.persons.encoding == "latin-1"
    assert source_at(address_of("homes.csv")) == str(tmp_path / "homes.csv")
    with pytest.raises(DataError, match=r"no file 'lost\.csv'"):
        address_of("lost.csv")
