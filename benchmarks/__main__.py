"""``python -m benchmarks NAME [--json] [--full] [--part PART] [--previous FOLDER]``; without a name, the list of benchmarks.

``python -m benchmarks --join FILE...`` shows what ``--part ... --json`` gave for all parts of a benchmark as one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness import Case, Harness, Picture

NOT_BENCHMARKS = {"__init__", "__main__", "harness"}


def names() -> list[str]:
    """Every benchmark by its public name: its file's name with hyphens."""
    stems = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(stem.replace("_", "-") for stem in stems if stem not in NOT_BENCHMARKS and stem[0] != "_")


def load(name: str):
    return importlib.import_module(f"benchmarks.{name.replace('-', '_')}")


def title(module) -> str:
    return (module.__doc__ or "").strip().splitlines()[0]


def show(name: str, heading: str, cases: list[Case], console: Console) -> None:
    table = Table(title=f"{name}: {heading}")
    for column in Case.__annotations__:
        table.add_column(column, justify="left" if column in ("case", "peer") else "right")
    for case in cases:
        table.add_row(*(_text(value) for value in case.values()))
    console.print(table)


def draw(picture: Picture, console: Console) -> None:
    table = Table(*picture["columns"], title=picture["title"])
    for row in picture["rows"]:
        table.add_row(*row)
    console.print(table)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=names(), metavar="NAME", help=", ".join(names()))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--full", action="store_true", help="large sizes and slow peers as well")
    parser.add_argument(
        "--previous",
        type=Path,
        metavar="FOLDER",
        help="a checkout of a previous version, or a folder it was installed to",
    )
    parser.add_argument("--part", help="one of the parts of a long benchmark alone")
    parser.add_argument(
        "--join", type=Path, nargs="+", metavar="FILE", help="JSON objects of parts, shown as one"
    )
    options = parser.parse_args(arguments)
    if options.join:
        return report(joined(options.join), options.json)
    if options.name is None:
        for name in names():
            print(f"{name:24} {title(load(name))}")
        return 0
    module = load(options.name)
    parts = getattr(module, "PARTS", ())
    if options.part and options.part not in parts:
        parser.error(f"{options.name} has no part '{options.part}': {', '.join(parts) or 'it is one piece'}")
    progress = Console(stderr=True)
    harness = Harness(
        full=options.full,
        seconds=40.0 if options.full else 10.0,
        progress=lambda line: progress.print(f"  {line}", style="dim"),
        previous=options.previous,
        part=options.part,
    )
    cases = list(module.cases(harness))
    pictures = list(module.pictures(harness)) if hasattr(module, "pictures") else []
    more = {"pictures": pictures} if pictures else {}
    return report({"name": options.name, "cases": cases, **more}, options.json)


def joined(files: list[Path]) -> dict:
    """One benchmark's JSON objects as one, in the order of the files."""
    found = [json.loads(file.read_text()) for file in files]
    if len(names := {part["name"] for part in found}) > 1:
        raise SystemExit(f"these are parts of several benchmarks: {', '.join(sorted(names))}")
    return {
        "name": found[0]["name"],
        "cases": [case for part in found for case in part["cases"]],
        "pictures": [picture for part in found for picture in part.get("pictures", [])],
    }


def report(found: dict, as_json: bool) -> int:
    """Print what a benchmark found."""
    if as_json:
        print(json.dumps(found, allow_nan=False))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 200)
    show(found["name"], title(load(found["name"])), found["cases"], console)
    for picture in found.get("pictures", []):
        draw(picture, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
