"""`trueup plan`: divide a budget between levels before anything is spent."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from trueup.cli.console import AsJson, GeographyPath, SpecPath, print_json, table
from trueup.errors import BundleError, SpecError

Total = Annotated[
    str | None, typer.Option("--total", help="What to divide, such as 1/2; by default what the spec spends.")
]
Weights = Annotated[
    list[str] | None,
    typer.Option("--weight", help="LEVEL=NUMBER: what its error variance is worth (default 1)."),
]
Targets = Annotated[
    list[str] | None, typer.Option("--target", help="LEVEL=COUNTS: the 90 % margin of error that is wanted.")
]
Picture = Annotated[Path | None, typer.Option("--out", help="Write table and picture to a new HTML file.")]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def plan(
        spec: SpecPath,
        geography: GeographyPath = None,
        total: Total = None,
        weight: Weights = None,
        target: Targets = None,
        out: Picture = None,
        as_json: AsJson = False,
    ) -> None:
        """Divide a budget between levels so that the error after reconciliation is least."""
        from trueup.model.spec import load_spec
        from trueup.noise.rational import rational
        from trueup.planning.plan import plan as plan_spec

        loaded = load_spec(spec)
        planned = plan_spec(
            loaded,
            geography,
            total=None if total is None else rational(total, "the total"),
            weights=_numbers(weight),
            targets=_numbers(target),
        )
        if out:
            _write(out, planned, loaded)
        if as_json:
            print_json(_finite(asdict(planned)))
        else:
            _show(planned)


def _numbers(texts: list[str] | None) -> dict[str, float]:
    return dict(_number(text) for text in texts or [])


def _number(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        return name, float(value)
    except ValueError:
        raise SpecError(f"'{text}' cannot be read", needed="LEVEL=NUMBER") from None


def _write(path: Path, planned: Any, spec: Any) -> None:
    from trueup.reporting import report

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(report(planned, spec))
    except OSError as error:
        raise BundleError(f"cannot write '{path}': {error.strerror}", remedy="choose another --out") from None


def _finite(value: Any) -> Any:
    """JSON knows no infinity: an unmeasured level has no noise to state."""
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _show(planned: Any) -> None:
    rows = zip(
        planned.levels,
        planned.given,
        planned.budgets,
        planned.noise,
        planned.given_error,
        planned.error,
        planned.worst,
    )
    table(
        f"{planned.currency} = {planned.total} divided (errors: standard deviation in counts, after least squares)",
        ["level", "in the spec", "planned", "noise", "error now", "error planned", "largest"],
        [[level, str(now), str(then), *(f"{v:.2f}" for v in counts)] for level, now, then, *counts in rows],
    )
    print(
        "; ".join(
            f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}"
            for name, value in planned.stats.items()
        )
    )
