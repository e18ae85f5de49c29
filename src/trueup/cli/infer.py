"""`trueup infer`: what the true counts may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from trueup.cli.options import AsJson, MemoryLimit, memory_limit
from trueup.cli.printing import print_json, print_table
from trueup.cli.progress import Tell, progress

Source = Annotated[
    Path | None,
    typer.Argument(help="A bundle, or a spec with --sdhc or --nmf files.", show_default=False),
]
Perturbed = Annotated[
    Path | None,
    typer.Option("--perturbed", help="The spec of tables that somebody else published.", show_default=False),
]
Tables = Annotated[
    list[Path] | None,
    typer.Option("--table", help="One of these tables: CSV, Parquet or xlsx; repeat it.", show_default=False),
]
Geography = Annotated[
    Path | None,
    typer.Option(
        "--geography", help="The places of --perturbed; by default those of its tables.", show_default=False
    ),
]
Sdhc = Annotated[
    list[Path] | None,
    typer.Option("--sdhc", help="Published S-DHC noisy measurements; repeat it.", show_default=False),
]
Nmf = Annotated[
    Path | None,
    typer.Option(
        "--nmf", help="Published 2020 Census noisy-measurement files: their root.", show_default=False
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="Write a new folder.", show_default=False)]
Estimates = Annotated[
    Path | None,
    typer.Option(
        "--estimates",
        help="Write the estimates of S-DHC tables to this file, with the columns that their users know, and those of ratios "
        "beside it.",
        show_default=False,
    ),
]
Draws = Annotated[int, typer.Option("--draws", min=1, help="Number of draws.")]
Level = Annotated[str, typer.Option("--level", help="Probability of the intervals: 95% or .95.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Write CSV instead of Parquet.")]
Chosen = Annotated[
    list[str] | None,
    typer.Option(
        "--chosen", help="Label of a count that the report's pictures show; repeat it.", show_default=False
    ),
]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes that share a large tree.")]
Within = Annotated[
    str | None,
    typer.Option("--within", help="Only this place and all below it: county=44001.", show_default=False),
]
Tier = Annotated[
    str | None,
    typer.Option(
        "--tier",
        help="Of histograms: full chains, or approximate; by default full where these take ten minutes at most.",
        show_default=False,
    ),
]
Areas = Annotated[
    Path | None,
    typer.Option(
        "--areas", help="Areas off the hierarchy and their places: CSV or Parquet.", show_default=False
    ),
]
AreaColumn = Annotated[str, typer.Option("--column", help="The column of --areas that names them.")]
By = Annotated[
    str | None,
    typer.Option("--by", help="Attributes to keep in --areas, with commas.", show_default=False),
]
Show = Annotated[int, typer.Option("--show", min=0, help="Rows to print of each table.")]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def infer(
        source: Source = None,
        sdhc: Sdhc = None,
        nmf: Nmf = None,
        perturbed: Perturbed = None,
        table: Tables = None,
        geography: Geography = None,
        out: Out = None,
        draws: Draws = 1000,
        level: Level = "90%",
        as_csv: AsCsv = False,
        chosen: Chosen = None,
        estimates: Estimates = None,
        show: Show = 20,
        workers: Workers = 1,
        within: Within = None,
        tier: Tier = None,
        areas: Areas = None,
        column: AreaColumn = "area",
        by: By = None,
        memory: MemoryLimit = None,
        as_json: AsJson = False,
    ) -> None:
        """Draw the posterior of the true counts from a bundle, published measurements or perturbed tables."""
        from trueup.files.memory import CELL
        from trueup.inferring import infer as run
        from trueup.inferring import inference_method
        from trueup.io.bundle.posterior import write_posterior
        from trueup.io.bundle.read import refuse_beyond
        from trueup.reporting import report

        if source is not None and source.is_dir() and within is None:
            refuse_beyond(source, memory_limit(memory), each=CELL + 8 * draws)
        if perturbed is not None:
            _refuse_two_sources(source, sdhc, nmf)
            spec, measurements = _read_perturbed(perturbed, table or [], geography)
        else:
            spec, measurements = _read(_source(source, table or []), sdhc or [], nmf)
        if estimates is not None:
            _refuse_estimates(spec, sdhc, estimates)
        with progress(quiet=False) as tell:  # on standard error, whatever goes to standard output
            posterior = run(
                measurements,
                None if tier is None else inference_method("histogram-gibbs", {"tier": tier}),
                spec=spec if perturbed is None else None,
                draws=draws,
                level=level,
                within=within,
                progress=_Shown(tell),
                workers=workers,
            )
            tell("describing every count")
            found = None if areas is None else _areas(posterior, areas, column, by)
        if estimates is not None:
            _write_estimates(estimates, posterior, spec)
        if out is not None:
            shown = replace(posterior, chosen=_known(posterior, chosen or []))
            write_posterior(out, posterior, as_csv=as_csv, page=report(shown, spec), areas=found)
        missed = _missed(measurements, posterior) if perturbed is not None else []
        if as_json:
            more = {"inconsistency": missed} if perturbed is not None else {}
            more |= {} if found is None else {"areas": {k: v.tolist() for k, v in found.items()}}
            print_json(_as_json(posterior) | more)
        else:
            _print(posterior, show, out)
            _print_areas(found, column, show)
            _print_missed(missed)


@dataclass(frozen=True)
class _Shown:
    """Progress of drawing, and the stages before it."""

    tell: Tell

    def __call__(self, done: int, of: int) -> None:
        self.tell("drawing", done, of)

    def stage(self, text: str) -> None:
        """Name the stage that begins."""
        self.tell(text)


def _refuse_estimates(spec: Any, sdhc: list[Path] | None, path: Path) -> None:
    """Refuse estimates of what is no S-DHC table, or of one without ratios."""
    from trueup.errors import BundleError, SpecError

    if not sdhc or not spec.infer.get("quantity"):
        raise SpecError(
            "--estimates is for S-DHC tables and the ratios that their spec names",
            needed="--sdhc FILE, and [[infer.quantity]]",
        )
    if path.exists():
        raise BundleError(f"'{path}' exists", remedy="choose another --estimates")


def _write_estimates(path: Path, posterior: Any, spec: Any) -> None:
    from trueup.io.published.sdhc import write_estimates

    write_estimates(path, posterior, spec)


def _source(source: Path | None, tables: list[Path]) -> Path:
    """The one source that was given."""
    from trueup.errors import SpecError

    if tables:
        raise SpecError(
            "--table is given without --perturbed", remedy="name the spec of the tables: --perturbed SPEC"
        )
    if source is None:
        raise SpecError("no source is given", needed="a bundle, a spec with its files, or --perturbed SPEC")
    return source


def _refuse_two_sources(source: Path | None, sdhc: list[Path] | None, nmf: Path | None) -> None:
    from trueup.errors import SpecError

    if source is not None or sdhc or nmf:
        raise SpecError("--perturbed is given beside another source", needed="one of them")


def _read_perturbed(path: Path, tables: list[Path], geography: Path | None) -> Any:
    """Return the spec of published tables, and what they say."""
    from trueup.io.published.perturbed import read_perturbed
    from trueup.model.perturbed import load_perturbed

    spec = load_perturbed(path)
    return spec, read_perturbed(spec, tables, geography)


def _missed(measurements, posterior) -> list[dict]:
    from trueup.inferring.inconsistency import inconsistencies

    return [
        {**each._asdict(), "total": str(each.total), "parts": str(each.parts), "explained": each.explained}
        for each in inconsistencies(measurements, posterior)
    ]


def _print_missed(missed: list[dict]) -> None:
    """Print how far published parts miss their published totals."""
    rows = [
        [
            f"{each['parts']} to {each['total']}",
            f"{each['compared']:,}",
            f"{each['missed']:.1%}",
            _number(each["mean_square"]),
            _number(each["by_law"]),
        ]
        for each in missed
    ]
    if rows:
        heads = ["parts to total", "totals", "missed", "mean square", "by the laws"]
        print_table("How far published parts miss published totals (counts squared)", heads, rows)


def _known(posterior, labels: list[str]) -> tuple[str, ...]:
    """Refuse labels that no count carries."""
    from trueup.errors import SpecError

    known = posterior.summary()["label"].tolist()
    if unknown := [label for label in labels if label not in known]:
        raise SpecError(
            f"no count is called '{unknown[0]}'",
            needed="a label such as " + ", ".join(f"'{x}'" for x in known[:3]),
        )
    return tuple(labels)


def _read(source: Path, sdhc: list[Path], nmf: Path | None) -> Any:
    """Return a spec and what was published, from a bundle or from published files."""
    from trueup.errors import SpecError
    from trueup.io.bundle.manifest import read_manifest, read_spec
    from trueup.io.bundle.read import read_measurements, read_release

    if source.is_dir():
        if sdhc or nmf:
            raise SpecError("a bundle holds its own measurements", remedy="give a spec with --sdhc or --nmf")
        released = "counts" in read_manifest(source)
        read = read_release if released else read_measurements
        return read_spec(source)[1], read(source)
    if not source.exists():
        raise SpecError(
            f"there is no '{source}'",
            needed="a bundle, or a spec with --sdhc or --nmf",
            remedy="check the path",
        )
    from trueup.model.spec import load_spec

    spec = load_spec(source)
    if sdhc:
        from trueup.io.published.sdhc import read_sdhc

        return spec, read_sdhc(spec, sdhc)
    if nmf:
        from trueup.io.published.nmf import read_nmf

        return spec, read_nmf(spec, nmf)
    raise SpecError(
        "a spec is given without measurements", remedy="add --sdhc FILE or --nmf FOLDER, or give a bundle"
    )


def _as_json(posterior) -> dict:
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


def _print(posterior, show: int, out: Path | None) -> None:
    from trueup.io.bundle.posterior import margins
    from trueup.kernel.statistics.diagnostics import FEWEST

    for margin in margins(posterior):
        columns = posterior.summary(margin, rows=show)
        print_table(
            str(margin), ["", "mean", "sd", "interval", "its probability"], _rows(columns, "label", show)
        )
    if posterior.ratios:
        columns = posterior.ratio_summary()
        columns["name"] = [f"{p} {q}" for p, q in zip(columns["place"], columns["quantity"])]
        rows = [
            [*r, f"{zero:.3g}"] for r, zero in zip(_rows(columns, "name", show), columns["denominator_zero"])
        ]
        heads = ["", "mean", "sd", "interval", "its probability", "P(denominator is 0)"]
        print_table("quantities, given that their denominators are not 0", heads, rows)
    drawn, (chains, draws, _) = posterior.drawn, posterior.draws.shape
    kind = drawn.kind if drawn.independent else f"{drawn.kind},"
    print(f"{chains * draws:,} {kind} by method '{posterior.method['method']}'")
    if not drawn.independent and draws < FEWEST:
        print("too few draws to judge how far their means are from the posterior's; ask for more")
    print(posterior.promise)
    if drawn.stats.get("interrupted"):
        print("interrupted: fewer draws than were asked for")
    if out is not None:
        print(f"Posterior: {out}\nReport: {out / 'report.html'}")


def _areas(posterior, mapping: Path, column: str, by: str | None) -> dict:
    """Describe areas off the hierarchy."""
    from trueup.inferring.areas import infer_areas

    kept = [name.strip() for name in (by or "").split(",") if name.strip()]
    return infer_areas(posterior, mapping, column=column, by=kept)


def _print_areas(found: dict | None, column: str, show: int) -> None:
    if found is not None:
        names = list(found)[: list(found).index("mean")]
        labels = [", ".join(map(str, each)) for each in zip(*(found[name] for name in names))]
        heads = ["", "mean", "sd", "interval", "its probability"]
        print_table(column, heads, _rows(found | {"label": labels}, "label", show))


def _rows(columns, label: str, show: int) -> list[list[str]]:
    rows = zip(*(columns[name] for name in (label, "mean", "sd", "low", "high", "mass")))
    return [
        [str(name), _number(mean), _number(sd), f"{_number(low)} to {_number(high)}", f"{mass:.3f}"]
        for (name, mean, sd, low, high, mass), _ in zip(rows, range(show))
    ]


def _number(value: float) -> str:
    """Counts with one decimal at most; small ratios with three; a dash where there is none."""
    if value != value:
        return "–"
    return (
        f"{value:,.0f}" if value == round(value) else f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"
    )
