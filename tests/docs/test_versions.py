"""The documentation's versions are listed, the newest first; folders that hold none are not."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path


def test_versions_are_listed_by_number_and_the_first_page_leads_to_the_newest(tmp_path):
    path = Path(__file__).parents[2] / "docs" / "versions.py"
    spec = importlib.util.spec_from_file_location("versions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("1.9.0", "1.10.0", "1.2.0", "drafts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("")
    (tmp_path / "2.0.0").mkdir()  # not built
    module.write_versions(tmp_path, "https://example.org/docs")
    entries = json.loads((tmp_path / "versions.json").read_text())
    assert [entry["version"] for entry in entries] == ["1.10.0", "1.9.0", "1.2.0"]
    assert entries[0]["url"] == "https://example.org/docs/1.10.0/"
    assert 'url=1.10.0/"' in (tmp_path / "index.html").read_text()
