"""`trueup change`: what changed between two releases, or two periods of one posterior."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from trueup.cli.options import AsJson, argument, option
from trueup.cli.printing import print_json, print_table
from trueup.digits import to_figure


def change_command(
    before: Annotated[Path, argument("The earlier bundle, or posterior of `infer --out`.")],
    after: Annotated[
        Path | None,
        argument("The later one, of the same kind; none if BEFORE is a posterior of several periods."),
    ] = None,
    table: Annotated[
        str | None,
        option("--table", "What is compared, such as 'county x sex'; by default totals of the lowest level."),
    ] = None,
    question: Annotated[
        str | None,
        option(
            "--ask",
            "Of posteriors, in place of a table: what is compared, such as a share, \"'county, sex=f' / county\".",
        ),
    ] = None,
    crosswalk: Annotated[
        Path | None,
        option(
            "--crosswalk",
            "Places that were split, merged or renamed: a table with the columns before and after.",
        ),
    ] = None,
    periods: Annotated[
        str | None,
        option(
            "--periods",
            "Of a posterior of several periods, the two to compare: 2025,2026; by default its last two.",
        ),
    ] = None,
    level: Annotated[str, option("--level", "Probability of each interval: 90% or .9.", shown=True)] = "90%",
    show: Annotated[int, option("--show", "Rows to print, largest changes first.", shown=True, min=1)] = 20,
    out: Annotated[Path | None, option("--out", "Write all rows to a new .csv or .parquet file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two releases of the same places: what changed, with intervals, since each has noise of its own."""
    import numpy as np

    from trueup.releasing.changing import changes as compare
    from trueup.releasing.changing import write_change

    two: Any = None if periods is None else tuple(name.strip() for name in periods.split(","))
    found = compare(before, after, table, crosswalk=crosswalk, question=question, level=level, periods=two)
    if out is not None:
        write_change(found, out)
    if as_json:
        columns = {name: column.tolist() for name, column in found.columns().items()}
        print_json(
            {
                "table": found.question or str(found.table),
                "level": found.level,
                "sources": found.sources,
                **columns,
            }
        )
        return
    order = np.argsort(-np.abs(found.figures["change"]), kind="stable")[:show]
    names = list(found.labels)
    rows = [
        [", ".join(str(found.labels[name][at]) for name in names), *_row(found.columns(), at)]
        for at in order.tolist()
    ]
    print_table(
        f"Change of {found.question or found.table}",
        ["", "before", "after", "change", "interval", "direction"],
        rows,
    )
    total = len(found.direction)
    if total > show:
        print(f"... and {total - show:,} smaller changes; --show {total} prints all, --out writes them")
    print(f"{repr(found).splitlines()[1].strip()}.")
    print(found.promise)
    print("Of many intervals some miss: do not pick the largest change as if it were the only one.")
    if out is not None:
        print(f"Table: {out}")


def _row(columns: dict, at: int) -> list[str]:
    before, after, moved, low, high = (
        to_figure(float(columns[name][at])) for name in ("before", "after", "change", "low", "high")
    )
    return [
        before,
        after,
        moved if moved.startswith("-") else f"+{moved}",
        f"{low} to {high}",
        str(columns["direction"][at]),
    ]
