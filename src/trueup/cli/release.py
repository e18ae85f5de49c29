"""`trueup release`: measure, reconcile and report in one command."""

from __future__ import annotations

import typer

from trueup.cli.console import (
    Analyst,
    AsJson,
    DataPath,
    GeographyPath,
    Key,
    LedgerUrl,
    OutPath,
    SpecPath,
    print_json,
    progress,
    warm_up,
)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def release(
        spec: SpecPath,
        data: DataPath,
        out: OutPath,
        geography: GeographyPath = None,
        ledger: LedgerUrl = None,
        analyst: Analyst = None,
        key: Key = None,
        as_json: AsJson = False,
    ) -> None:
        """Measure with exact noise, reconcile and report: one command, one folder."""
        from trueup import workflow
        from trueup.ledger.account import Account

        account = Account.open(ledger, analyst, key)
        warm_up(quiet=as_json)
        with progress(quiet=as_json) as tell:
            released = workflow.release(spec, data, out, geography=geography, account=account, tell=tell)
        show_release(released, str(out), as_json=as_json)


def show_release(released, out: str, *, as_json: bool) -> None:
    """Print what a release is: public quantities only."""
    if as_json:
        print_json(
            {
                "out": out,
                "report": f"{out}/public/report.html",
                "method": dict(released.method),
                "checks": dict(released.checks),
                "tables": [str(margin) for margin in released.published],
                "guarantee": list(released.measurements.guarantee.sentences),
            }
        )
        return
    for sentence in released.measurements.guarantee.sentences:
        print(sentence)
    print(f"Checked: {', '.join(rule for rule, holds in released.checks.items() if holds)}.")
    print(f"Report: {out}/public/report.html")
