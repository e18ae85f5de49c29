"""`trueup ask` and `trueup change`: questions to a stored posterior, and changes between two releases or periods."""

from __future__ import annotations

from dataclasses import replace
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueup.cli import leave_refused
from trueup.cli.options import argument, described, named_areas, names_in, option
from trueup.cli.printing import print_json, print_table
from trueup.digits import to_figure
from trueup.errors import TrueupError

if TYPE_CHECKING:
    from trueup.model.records.answer import PosteriorAnswer


@described(
    folder=argument("A posterior that `trueup infer --out` wrote."),
    question=argument(
        "Names of counts with + - * /, rank(...) and at most one comparison: \"'county=001, sex=f' / 'county=001'\". "
        'The name of a level stands for each of its places: "rank(county)".'
    ),
    level="The probability of the intervals; by default that of the posterior.",
    show=option("Rows to print.", min=1),
)
def ask_command(
    folder: Path,
    question: list[str],
    areas: str | None = None,
    level: str | None = None,
    show: int = 20,
    as_json: bool = False,
) -> None:
    """Answer a question from a stored posterior, such as a sum, ratio, rank or comparison; nothing is drawn."""
    from trueup.inferring.questions import ask as answer
    from trueup.io.bundle.kept_posterior import open_posterior
    from trueup.model.tables import probability_of

    mapping, column = named_areas(areas)
    kept = open_posterior(folder)
    if level is not None:  # the promise below is that of the intervals above it
        kept = replace(kept, level=probability_of(level))
    answers, refused = [], []
    for one in question:
        try:
            answers.append(answer(kept, one, areas=mapping, column=column, level=level))
        except TrueupError as error:
            refused.append(error)
    if not answers:
        raise refused[0]
    for error in refused[1:]:
        refused[0].add_note(str(error))
    if as_json:
        found = [
            {"question": one.question, "level": one.level}
            | {name: column.tolist() for name, column in one.figures().items()}
            for one in answers
        ]
        document = {"source": kept.source, "promise": kept.promise, "answers": found}
        if refused:
            leave_refused(refused[0], document)
        print_json(document)
        return
    for one in answers:
        _print(one, show)
    print(
        f"Figures and intervals are from {answers[0].rests_on}; nothing was drawn anew, and it costs no privacy."
    )
    print(kept.promise)
    if refused:
        raise refused[0]


def _print(answer: PosteriorAnswer, show: int) -> None:
    columns = answer.figures()
    names = answer.asked.names or (answer.question,)
    undefined = columns.get("undefined")
    more = [] if undefined is None else ["P(denominator is 0)"]
    heads = ["probability"] if answer.asked.event else ["mean", "sd", "interval", "its probability"]
    rows = []
    for i, name in enumerate(names[:show]):
        held = {key: column[i] for key, column in columns.items() if key != answer.asked.level}
        figures = (
            ["–"] * len(heads)
            if undefined is not None and undefined[i] == 1
            else [f"{held['probability']:.3f}"]
            if answer.asked.event
            else [
                _to_digits_known(held["mean"], held["sd"]),
                to_figure(held["sd"]),
                " to ".join(_to_digits_known(held[end], held["sd"]) for end in ("low", "high")),
                f"{held['mass']:.3f}",
            ]
        )
        rows.append([name, *figures, *([] if undefined is None else [f"{undefined[i]:.3g}"])])
    print_table(answer.question, ["", *heads, *more], rows)
    if len(names) > show:
        print(
            f"... and {len(names) - show:,} more; --show {len(names)} prints all, --json gives them to programs"
        )


def _to_digits_known(value: float, sd: float) -> str:
    """Return a number as text, with the decimals that its standard deviation justifies, or else with three digits.

    Examples
    --------
    >>> _to_digits_known(1.01234567, 0.000343), _to_digits_known(0.6112, 0.163), _to_digits_known(2863.0, 0.0)
    ('1.01235', '0.611', '2,863')
    """
    return f"{value:.{1 - floor(log10(sd))}f}" if 1e-12 < sd < 0.1 else to_figure(value)


@described(
    before=argument("The earlier bundle, or a posterior that `trueup infer --out` wrote."),
    after=argument(
        "The later bundle or posterior; leave it out if BEFORE is a posterior of several periods."
    ),
    table="The table to compare, such as 'county x sex'; by default totals of the lowest level.",
    question=option(
        "The question to compare between two posteriors, instead of a table: \"'county, sex=f' / county\".",
        flag="--ask",
    ),
    crosswalk="A table of places that were split, merged or renamed, with the columns before and after.",
    periods="The two periods to compare in a posterior of several, such as 2025,2026; by default the last two.",
    level="The probability of each interval, such as 90% or .9.",
    show=option("The number of rows to print, largest changes first.", min=1),
    out="The new .csv or .parquet file to which all rows are written.",
)
def change_command(
    before: Path,
    after: Path | None = None,
    table: str | None = None,
    question: str | None = None,
    crosswalk: Path | None = None,
    periods: str | None = None,
    level: str = "90%",
    show: int = 20,
    out: Path | None = None,
    as_json: bool = False,
) -> None:
    """Compare two releases of the same places, and state the changes with intervals."""
    import numpy as np

    from trueup.releasing.changing import changes as compare
    from trueup.releasing.changing import write_change

    two: Any = None if periods is None else tuple(names_in(periods))
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
        moved if moved.startswith("-") or moved == "0" else f"+{moved}",
        f"{low} to {high}",
        str(columns["direction"][at]),
    ]
