"""`trueup infer --engine`: posteriors of large problems, computed by parts, and their printing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueup.cli import saying_resume
from trueup.cli.options import memory_limit, names_in, opened_executor
from trueup.cli.printing import print_json, print_table, progress, writing_log
from trueup.digits import to_figure
from trueup.errors import SpecError

if TYPE_CHECKING:
    from trueup.model.records.posterior import Posterior


MOST_MISSED = 8
"""Pairs of a margin and its parts that are printed."""


def print_missed(missed: list[dict]) -> None:
    """Print how far published parts are from published totals, and the differences that the noise laws explain least."""
    worst = sorted(
        missed, key=lambda each: each["by_law"] / each["mean_square"] if each["mean_square"] else float("inf")
    )
    few = [each for each in missed if each in worst[:MOST_MISSED]]
    rows = [
        [
            f"{each['parts']} to {each['total']}",
            f"{each['compared']:,}"
            + (f" of {each['compared'] + each['left_out']:,}" if each["left_out"] else ""),
            f"{each['missed']:.1%}",
            to_figure(each["mean_square"]),
            to_figure(each["by_law"]),
        ]
        for each in few
    ]
    if rows:
        heads = ["parts to total", "totals", "missed", "mean square", "by the laws"]
        print_table("How far published parts miss published totals (counts squared)", heads, rows)
        if len(few) < len(missed):
            print(
                f"These are the {len(few)} of {len(missed)} of which the laws explain least; --json prints all."
            )
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
    """Print a posterior: the requested areas first, then the spec's ratios or, if there are none, every table."""
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
        _print_summary(str(margin), columns["label"], columns, show)


def _print_ratios(posterior: Posterior, show: int) -> None:
    if posterior.ratios:
        columns = posterior.ratio_summary(rows=show)
        names = [f"{p} {q}" for p, q in zip(columns["place"], columns["quantity"])]
        title = "quantities, given that their denominators are not 0"
        _print_summary(title, names, columns, show, columns["denominator_zero"])


def print_areas(found: dict | None, column: str, show: int) -> None:
    if found is not None:
        names = list(found)[: list(found).index("mean")]
        labels = [", ".join(map(str, each)) for each in zip(*(found[name] for name in names))]
        _print_summary(column, labels, found, show)


def _print_summary(title: str, names: Iterable[Any], columns: Mapping, show: int, zero: Any = None) -> None:
    """Print summaries by name; `zero` are probabilities that denominators are 0."""
    kept = zip(range(show), names, *(columns[name] for name in ("mean", "sd", "low", "high", "mass")))
    rows = [
        [str(name), to_figure(mean), to_figure(sd), f"{to_figure(low)} to {to_figure(high)}", f"{mass:.3f}"]
        + ([] if zero is None else [f"{zero[at]:.3g}"])
        for at, name, mean, sd, low, high, mass in kept
    ]
    more = [] if zero is None else ["P(denominator is 0)"]
    print_table(title, ["", "mean", "sd", "interval", "its probability", *more], rows)


@dataclass(frozen=True)
class InferenceByParts:
    """The options of an inference that is computed by parts.

    Attributes
    ----------
    areas, column, by
        A file of areas off the hierarchy, its column of areas, and the attributes that are kept.
    """

    engine: str | None
    master: str | None
    workers: int | None
    memory: str | None
    draws: int
    level: str
    areas: Path | None
    column: str
    by: str | None
    log: Path | None
    take_over: bool
    summaries_alone: bool
    as_json: bool

    def run(self, bundle: Path | None, out: Path | None, idle: Mapping[str, Any]) -> None:
        """Infer a bundle's counts by parts and print the posterior's path; refuse options without effect."""
        from trueup.inferring.by_parts import infer_by_parts
        from trueup.io.bundle.manifest import read_spec
        from trueup.io.bundle.read import read_measurements
        from trueup.model.records.places_asked import AreaTable

        if given := next((name for name, value in idle.items() if value), None):
            raise SpecError(
                f"{given} has no effect when the posterior is drawn by parts",
                remedy=f"leave out {given} or --engine",
            )
        if bundle is None or out is None:
            raise SpecError(
                f"--engine is given without {'a bundle' if bundle is None else '--out'}",
                needed="a bundle and a new folder: trueup infer BUNDLE --engine local --out NEW",
            )
        measured = read_measurements(bundle)
        kept, own = names_in(self.by), measured.cells
        table = None if self.areas is None else AreaTable.read(self.areas, self.column, own, kept)
        with (
            saying_resume(out.with_name(f"{out.name}.run")),
            opened_executor(
                self.engine, self.master, self.workers, memory=memory_limit(self.memory)
            ) as executor,
            progress(quiet=self.as_json) as tell,
            writing_log(self.log, tell) as watch,
        ):
            manifest = infer_by_parts(
                measured,
                out,
                executor,
                spec=read_spec(bundle)[1],
                draws=self.draws,
                level=self.level,
                areas=table,
                keep_draws=not self.summaries_alone,
                take_over=self.take_over,
                progress=Drawing(watch),
            )
        if self.as_json:
            print_json({"out": str(out)} | {k: manifest[k] for k in ("draws", "intervals", "shape", "stats")})
            return
        print(f"{self.draws:,} {manifest['draws']} of {manifest['shape']['cells']:,} cells, by parts.")
        print(manifest["intervals"])
        draws = next((f", draws: {path}" for path in out.glob("draws*")), "")
        print(f"Tables: {out}/summary{draws}")


@dataclass(frozen=True)
class Drawing:
    """Display of the progress of draws and of earlier stages."""

    watch: Callable[[str, int, int], None]

    def __call__(self, done: int, of: int) -> None:
        self.watch("drawing", done, of)

    def stage(self, text: str) -> None:
        """Show the name of the stage that begins."""
        self.watch(text, 0, 1)
