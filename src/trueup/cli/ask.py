"""`trueup ask`: questions to a posterior that was kept."""

from __future__ import annotations

from dataclasses import replace
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trueup.cli.options import AsJson, argument, option
from trueup.cli.printing import print_json, print_table
from trueup.digits import to_figure

if TYPE_CHECKING:
    from trueup.model.records.answer import PosteriorAnswer


def ask_command(
    folder: Annotated[Path, argument("A posterior that `trueup infer --out` wrote.")],
    question: Annotated[
        list[str],
        argument(
            "Names with + - * /, rank(...) and one comparison: \"'county=001, sex=f' / 'county=001'\"; the name of a "
            'level asks about each of its places: "rank(county)".'
        ),
    ],
    areas: Annotated[
        Path | None, option("--areas", "Areas of your own and their places: CSV or Parquet.")
    ] = None,
    column: Annotated[
        str,
        option(
            "--column", "The column of --areas that names them, and what questions call them.", shown=True
        ),
    ] = "area",
    level: Annotated[
        str | None, option("--level", "Probability of the intervals; by default the posterior's.")
    ] = None,
    show: Annotated[int, option("--show", "Rows to print.", shown=True, min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """Ask a kept posterior: sums, differences, ratios, ranks, comparisons and areas of your own; nothing is drawn anew."""
    from trueup.cli.options import refuse_idle
    from trueup.inferring.questions import ask as answer
    from trueup.io.bundle.kept_posterior import open_posterior
    from trueup.model.tables import probability_of

    refuse_idle({"--column": column != "area"}, "--areas", areas)
    kept = open_posterior(folder)
    if level is not None:  # the promise below is that of the intervals above it
        kept = replace(kept, level=probability_of(level))
    answers = [answer(kept, one, areas=areas, column=column, level=level) for one in question]
    if as_json:
        print_json(
            {
                "source": kept.source,
                "promise": kept.promise,
                "answers": [_as_json(one) for one in answers],
            }
        )
        return
    for one in answers:
        _print(one, show)
    print(f"From {answers[0].rests_on}; nothing was drawn anew, and it costs no privacy.")
    print(kept.promise)


def _as_json(answer: PosteriorAnswer) -> dict:
    columns = {name: column.tolist() for name, column in answer.figures().items()}
    return {"question": answer.question, "level": answer.level, **columns}


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
    """Return a number with decimals down to the second digit of a standard deviation below a tenth; else in three digits.

    Examples
    --------
    >>> _to_digits_known(1.01234567, 0.000343), _to_digits_known(0.6112, 0.163), _to_digits_known(2863.0, 0.0)
    ('1.01235', '0.611', '2,863')
    """
    return f"{value:.{1 - floor(log10(sd))}f}" if 1e-12 < sd < 0.1 else to_figure(value)
