"""`trueup measure`: noisy counts alone."""

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
)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def measure(
        spec: SpecPath,
        data: DataPath,
        out: OutPath,
        geography: GeographyPath = None,
        ledger: LedgerUrl = None,
        analyst: Analyst = None,
        key: Key = None,
        as_json: AsJson = False,
    ) -> None:
        """Measure with exact noise; reconcile later, or let others do it."""
        from trueup.ledger.account import Account
        from trueup.releasing import pipeline as workflow

        account = Account.open(ledger, analyst, key)
        with progress(quiet=as_json) as tell:
            measurements = workflow.measure_only(
                spec, data, out, geography=geography, account=account, tell=tell
            )
        if as_json:
            print_json({"out": str(out), "measurements": measurements.digest})
        else:
            print("\n".join(measurements.guarantee.sentences))
            print(f"Measurements: {out}/public")
