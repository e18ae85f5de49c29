"""`python -m papers`: the published tables and figures on one command."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from trueup.cli import FAILURE, run_app
from trueup.cli.printing import print_json, print_table, progress
from trueup.errors import DataError

Name = Annotated[
    str | None,
    typer.Argument(help="An item, a paper's short name, or `all`; without it, the list.", show_default=False),
]
Listed = Annotated[bool, typer.Option("--list", help="List the items and run none.")]
Quick = Annotated[bool, typer.Option("--quick", help="A fiftieth of the replicates, wider tolerances.")]
Seed = Annotated[int, typer.Option("--seed", help="Of all simulations.", min=0)]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Folder with the census counts that some items need.",
        envvar="TRUEUP_TEST_DATA",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.", show_default=False)]
PageOut = Annotated[
    Path | None,
    typer.Option("--out", help="A new folder for the page with pictures and the JSON.", show_default=False),
]

WORKERS = 2


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def reproduce(
        name: Name = None,
        listed: Listed = False,
        out: PageOut = None,
        data_dir: DataDir = None,
        seed: Seed = 0,
        quick: Quick = False,
        as_json: AsJson = False,
    ) -> None:
        """Run published tables and figures again, and compare with what was printed."""
        from papers import ITEMS, Setting
        from papers import reproduce as run

        if listed or name is None:
            _list([_described(item) for item in ITEMS], as_json)
            return
        if out:
            from trueup.files.writing import refuse_occupied

            refuse_occupied(out)  # now, not after minutes of work
        setting = Setting(seed, quick, data_dir)
        _refuse_absent(data_dir)
        with progress(quiet=as_json) as tell:
            tell(name)
            outcomes = run(name, setting, workers=WORKERS, tell=tell)
        if out:
            _write(out, outcomes, setting)
        print_json(_record(outcomes, setting)) if as_json else _show(outcomes)
        if any(each.status in ("differs", "error") for each in outcomes):
            raise typer.Exit(FAILURE)


def _refuse_absent(data_dir: Path | None) -> None:
    """Refuse a folder that is none; the list, which reads no data, does not ask."""
    if data_dir is not None and not data_dir.is_dir():
        raise DataError(
            f"'{data_dir}' of --data-dir (or of the environment variable TRUEUP_TEST_DATA) is no folder",
            needed="the folder with the census counts",
            remedy="correct it, or leave it out: items that need data are then skipped by name",
        )


def _described(item: Any) -> dict[str, Any]:
    return {
        "name": item.name,
        "paper": item.paper,
        "place": item.place,
        "needs": [*item.packages, *item.files],
    }


def _list(items: list[dict[str, Any]], as_json: bool) -> None:
    """Print the items under their papers; names stay whole, to be copied."""
    if as_json:
        print_json(items)
        return
    width = max(len(item["name"]) for item in items)
    for paper, of_paper in groupby(items, key=lambda item: item["paper"]):
        print(paper)
        for item in of_paper:
            needs = f" (needs {', '.join(item['needs'])})" if item["needs"] else ""
            print(f"  {item['name']:{width}}  {item['place']}{needs}")


def counted(outcomes: Sequence[Any]) -> str:
    """How many figures were held to what was printed, and how many were not: the first line."""
    found = Counter(row.verdict for each in outcomes for row in each.found.rows)
    verdicts = [f"{found[name]} {said}" for name, said in _VERDICTS.items()]
    left = sum(not each.found.rows for each in outcomes)
    unseen = f"; {left} of {len(outcomes)} items have none" if left else ""
    return f"{sum(found.values())} figures: {', '.join(verdicts)}{unseen}"


_VERDICTS = {
    "agrees": "agree",
    "differs": "differ",
    "shown only": "shown only (nothing asserted)",
    "cannot match": "cannot match (the printed figure is not what its setting gives)",
}


def _show(outcomes: Sequence[Any]) -> None:
    from papers.page import tolerance

    print(counted(outcomes))
    for each in outcomes:
        rows = [[r.label, r.paper or "-", r.text, tolerance(r), r.verdict] for r in each.found.rows]
        title = f"{each.name} ({each.paper}, {each.place}): {each.status}"
        if rows:
            print_table(title, ["figure", "printed", "ours", "tolerance", "verdict"], rows)
        else:
            print(f"{title}: {each.needs}\n")
        print(f"  Tells from the right version: {'; '.join(each.catches)}.")
        for note in dict.fromkeys([*each.found.notes, *(r.note for r in each.found.rows if r.note)]):
            print(f"  {note}")
    print_table(
        "",
        ["item", "verdict", "processor seconds"],
        [[each.name, each.status, f"{each.seconds:.1f}"] for each in outcomes],
    )


def _record(outcomes: Sequence[Any], setting: Any) -> dict[str, Any]:
    """Everything but the pictures, which are marks on paper."""
    items = [_item(each) for each in outcomes]
    return {"figures": counted(outcomes), "seed": setting.seed, "quick": setting.quick, "items": items}


def _item(each: Any) -> dict[str, Any]:
    kept = {
        key: getattr(each, key)
        for key in ("name", "paper", "place", "shows", "catches", "status", "needs", "seconds")
    }
    return {**kept, "rows": [asdict(row) for row in each.found.rows], "notes": list(each.found.notes)}


def _write(out: Path, outcomes: Sequence[Any], setting: Any) -> None:
    from papers.page import render
    from trueup.files.writing import staged

    with staged(out) as folder:
        (folder / "reproduce.html").write_text(render(outcomes, setting), encoding="utf-8")
        text = json.dumps(_record(outcomes, setting), indent=2)
        (folder / "reproduce.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Run the command line; exit code 0 where all agrees, 1 where something differs, 2 for bad input."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    register(app)
    run_app(app)


if __name__ == "__main__":
    main()
