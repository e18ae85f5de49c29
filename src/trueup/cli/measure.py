"""`trueup measure`: noisy counts alone."""

from __future__ import annotations

from trueup.cli.options import (
    Analyst,
    AsJson,
    DataPath,
    Encoding,
    ExpectRows,
    GeographyPath,
    HouseholdsPath,
    Key,
    LedgerUrl,
    OutPath,
    SpecPath,
    given_tables,
    open_account,
    with_encoding,
)
from trueup.cli.printing import print_json, say_repeated
from trueup.cli.progress import progress


def measure_command(
    spec: SpecPath,
    data: DataPath,
    out: OutPath,
    geography: GeographyPath = None,
    households: HouseholdsPath = None,
    encoding: Encoding = None,
    ledger: LedgerUrl = None,
    analyst: Analyst = None,
    key: Key = None,
    expect_rows: ExpectRows = None,
    as_json: AsJson = False,
) -> None:
    """Measure with exact noise; reconcile later, or let others do it."""
    from trueup.releasing.pipeline import measure_only

    account = open_account(ledger, analyst, key)
    repeated = account is not None and account.repeats
    with progress(quiet=as_json) as tell:
        measurements = measure_only(
            spec,
            given_tables(with_encoding(data, encoding), with_encoding(households, encoding)),
            out,
            geography=with_encoding(geography, encoding),
            account=account,
            expect_rows=expect_rows,
            tell=tell,
        )
    if as_json:
        print_json({"out": str(out), "drawn": not repeated, "measurements": measurements.digest})
    else:
        say_repeated(repeated and key)
        print("\n".join(measurements.guarantee.sentences))
        print(f"Measurements: {out}/public")
