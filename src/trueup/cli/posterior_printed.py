"""A posterior on the screen and as JSON."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from trueup.cli.printing import print_table
from trueup.digits import to_figure

if TYPE_CHECKING:
    from trueup.model.records.posterior import Posterior


def print_missed(missed: list[dict]) -> None:
    """Print how far published parts miss their published totals."""
    rows = [
        [
            f"{each['parts']} to {each['total']}",
            f"{each['compared']:,}"
            + (f" of {each['compared'] + each['left_out']:,}" if each["left_out"] else ""),
            f"{each['missed']:.1%}",
            to_figure(each["mean_square"]),
            to_figure(each["by_law"]),
        ]
        for each in missed
    ]
    if rows:
        heads = ["parts to total", "totals", "missed", "mean square", "by the laws"]
        print_table("How far published parts miss published totals (counts squared)", heads, rows)
        if any(each["left_out"] for each in missed):
            print("Totals of which some part is not shown are not compared.")


def posterior_as_json(posterior) -> dict:
    from trueup.io.bundle.posterior import margins

    tables = {str(m): {k: v.tolist() for k, v in posterior.summary(m).items()} for m in margins(posterior)}
    quantities = {k: v.tolist() for k, v in posterior.ratio_summary().items()} if posterior.ratios else {}
    drawn = posterior.drawn
    return {
        "method": dict(posterior.method),
        "draws": drawn.kind,
        "intervals": posterior.promise,
        "stats": dict(drawn.stats),
        "summary": tables,
        "quantities": quantities,
    }


def print_posterior(
    posterior: Posterior, show: int, out: Path | None, areas: dict | None = None, column: str = ""
) -> None:
    """Print what was asked for first: areas, then ratios of the spec; every table where neither was."""
    from trueup.kernel.statistics.diagnostics import MIN_CHAIN_DRAWS

    print_areas(areas, column, show)
    _print_ratios(posterior, show)
    if areas is None and not posterior.ratios:
        _print_tables(posterior, show)
    drawn, (chains, draws, _) = posterior.drawn, posterior.draws.shape
    kind = drawn.kind if drawn.independent else f"{drawn.kind},"
    print(f"{chains * draws:,} {kind} by method '{posterior.method['method']}'")
    if not drawn.independent and draws < MIN_CHAIN_DRAWS:
        print("too few draws to judge how far their means are from the posterior's; ask for more")
    print(posterior.promise)
    if drawn.stats.get("interrupted"):
        print("interrupted: fewer draws than were asked for")
    if out is not None:
        print(f"Posterior: {out}, to be asked with: trueup ask {shlex.quote(str(out))} QUESTION")
        print(f"Report: {out / 'report.html'}")


def _print_tables(posterior: Posterior, show: int) -> None:
    from trueup.io.bundle.posterior import margins

    for margin in margins(posterior):
        columns = posterior.summary(margin, rows=show)
        print_table(
            str(margin),
            ["", "mean", "sd", "interval", "its probability"],
            _printed_rows(columns, "label", show),
        )


def _print_ratios(posterior: Posterior, show: int) -> None:
    if posterior.ratios:
        columns = posterior.ratio_summary(rows=show)
        names = [f"{p} {q}" for p, q in zip(columns["place"], columns["quantity"])]
        rows = [
            [*r, f"{zero:.3g}"]
            for r, zero in zip(
                _printed_rows({**columns, "name": names}, "name", show), columns["denominator_zero"]
            )
        ]
        heads = ["", "mean", "sd", "interval", "its probability", "P(denominator is 0)"]
        print_table("quantities, given that their denominators are not 0", heads, rows)


def print_areas(found: dict | None, column: str, show: int) -> None:
    if found is not None:
        names = list(found)[: list(found).index("mean")]
        labels = [", ".join(map(str, each)) for each in zip(*(found[name] for name in names))]
        heads = ["", "mean", "sd", "interval", "its probability"]
        print_table(column, heads, _printed_rows(found | {"label": labels}, "label", show))


def _printed_rows(columns, label: str, show: int) -> list[list[str]]:
    rows = zip(*(columns[name] for name in (label, "mean", "sd", "low", "high", "mass")))
    return [
        [str(name), to_figure(mean), to_figure(sd), f"{to_figure(low)} to {to_figure(high)}", f"{mass:.3f}"]
        for (name, mean, sd, low, high, mass), _ in zip(rows, range(show))
    ]
