"""List the versions of the documentation that stand in a folder: `python docs/versions.py SITE ADDRESS`.

Each version is built into a folder of its own, `sphinx-build -W docs SITE/1.0.0`; its pages then offer the others.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def versions(site: Path) -> list[str]:
    """Return the versions of a site, the newest first."""
    found = [
        held.name
        for held in site.iterdir()
        if _VERSION.fullmatch(held.name) and (held / "index.html").is_file()
    ]
    return sorted(found, key=lambda name: [int(part) for part in name.split(".")], reverse=True)


def write_versions(site: Path, address: str) -> None:
    """Write what the pages' switch of versions reads, and a first page that leads to the newest version."""
    newest, *others = versions(site)
    entries = [
        {"version": newest, "name": f"{newest} (newest)", "url": f"{address}/{newest}/", "preferred": True}
    ]
    entries += [{"version": name, "url": f"{address}/{name}/"} for name in others]
    (site / "versions.json").write_text(json.dumps(entries, indent=1) + "\n")
    (site / "index.html").write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>trueup</title>'
        f'<meta http-equiv="refresh" content="0; url={newest}/"><a href="{newest}/">trueup {newest}</a></html>\n'
    )


if __name__ == "__main__":
    write_versions(Path(sys.argv[1]), sys.argv[2].rstrip("/"))
