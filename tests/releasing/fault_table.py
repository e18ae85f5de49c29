"""The table of `docs/nation-design.md`: what happens when a file of a run folder is lost or damaged, at each moment.

`TRUEUP_FAULTS=FILE pytest -m thorough tests/releasing/test_faults.py` notes what happens; the module run with FILE
prints the table of it, which the same tests hold the documentation to.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "nation-design.md"
HEAD = "| file | moment | lost | cut short | altered |"
MOMENTS = {13: "checked", 20: "half drawn", 28: "sealed", 44: "half settled"}
DAMAGES = ("removed", "cut_short", "flipped")


def label(name: str) -> str:
    """What the table calls a class of files."""
    name = re.sub(r"\d-\d{5}(\.part$)?", lambda found: "PART, record" if found[1] else "PART", name)
    name = re.sub(r"(all|PART)\.part$", r"\1, record", name)
    return re.sub(r"\.(\[0-9a-f\]\*|\*\.parquet)$", ", file", name)


def documented() -> dict[tuple[str, str, str], str]:
    """What the documentation says, by file, moment and damage."""
    lines = DOCUMENT.read_text(encoding="utf-8").partition(HEAD)[2].splitlines()[2:]
    told = {}
    for line in lines:
        if not line.startswith("|"):
            break
        name, moment, *outcomes = (cell.strip() for cell in line.strip("|").split("|"))
        told |= {
            (name.strip("`"), moment, damage): outcome
            for damage, outcome in zip(DAMAGES, outcomes, strict=True)
        }
    return told


def table(notes: list[tuple[str, int, str, str]]) -> str:
    """The table of what was noted: name, stage, damage, outcome; moments of equal outcomes in one row each."""
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for name, stage, damage, outcome in notes:
        rows.setdefault((label(name), stage), {})[damage] = outcome
    lines = [HEAD, "|---|---|---|---|---|"]
    for (name, stage), held in rows.items():
        lines.append(f"| `{name}` | {MOMENTS[stage]} | {' | '.join(held[damage] for damage in DAMAGES)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table([tuple(json.loads(line)) for line in Path(sys.argv[1]).read_text().splitlines()]))  # pyright: ignore[reportArgumentType]
