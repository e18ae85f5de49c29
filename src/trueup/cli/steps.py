"""`trueup explain`, `trueup measure` and `trueup reconcile`: the dry run and the two steps of a release."""

from __future__ import annotations

from pathlib import Path

from trueup.cli.options import (
    PUBLISHED_PLACES,
    described,
    given_tables,
    memory_limit,
    open_account,
    option,
    refuse_idle,
    with_encoding,
)
from trueup.cli.printing import print_json, print_table, progress, say_repeated
from trueup.cli.published import refuse_two_sources
from trueup.cli.release import show_release
from trueup.digits import to_digits
from trueup.errors import SpecError


@described(
    persons=option("The number of units in the made-up population on which errors are simulated.", min=1),
    records_of_one="Your guess of how many records units have, as NUMBER=SHARE, such as 1=60,2=25,20=15; limits are "
    "compared with it.",
    quick="Give only those errors for which formulas exist, without simulation.",
)
def explain_command(
    spec: Path,
    geography: Path | None = None,
    encoding: str | None = None,
    method: str | None = None,
    memory: str | None = None,
    persons: int | None = None,
    records_of_one: str | None = None,
    quick: bool = False,
    as_json: bool = False,
) -> None:
    """Show privacy loss, structure, method and expected error from the spec and the public places alone."""
    from trueup.model.spec import load_spec
    from trueup.planning.contributions import RecordsOfUnits
    from trueup.releasing.engine import MEMORY_BYTES
    from trueup.releasing.explain import explain as explain_spec

    with progress(quiet=as_json) as tell:
        plan = explain_spec(
            load_spec(spec),
            with_encoding(geography, encoding),
            method=method,
            memory=memory_limit(memory) or MEMORY_BYTES,
            persons=persons,
            records=RecordsOfUnits.read(records_of_one) if records_of_one is not None else None,
            simulate=not quick,
            progress=lambda done, of: tell("simulating errors", done, of),
        )
    if as_json:
        print_json(plan.document())
    else:
        _show(plan, quick=quick)
        if persons is None and (plan.classes or plan.bounds):
            print("How many there are in all is a guess: state the number with --persons.")


def _show(plan, *, quick: bool) -> None:
    from trueup.model.records.expected_errors import CONFIDENCES
    from trueup.releasing.explain import TAIL_PROBABILITY

    print(plan.title)
    print(f"Structure: {plan.structure}, {plan.cells} finest cells. Method: {plan.method['method']}.")
    if plan.engine != "memory":
        print("Engine: by parts, since the whole does not fit into --memory.")
    for sentence in plan.guarantee.sentences:
        print(sentence)
    charges = [[c.query, c.margin, c.law, f"{c.currency} = {c.amount}"] for c in plan.guarantee.charges]
    print_table("Where the budget goes", ["query", "table", "noise", "cost"], charges)
    tails = [
        [t.query, t.table, t.law, f"{t.counts:,}", "exact" if t.exact else "a proved bound"]
        for t in plan.tails
    ]
    print_table(
        f"What the noise of a count exceeds with a probability of at most {TAIL_PROBABILITY:.0%}",
        ["query", "table", "law", "counts", "figure"],
        tails,
    )
    _show_expected(plan, quick=quick)
    if plan.classes:
        rows = [
            [str(r.table), label, f"{r.bias:+.2f}", f"{r.rmse:.2f}", *(f"{m:g}" for m in r.margins)]
            for r, label in plan.classes.labelled()
        ]
        if rows:
            print_table(
                "Errors to expect by size of the released count (counts)",
                ["table", "released", "bias", "root mean square", *(f"{p} % margin" for p in CONFIDENCES)],
                rows,
            )
        print(plan.classes.note)
    for sentence in plan.unreadable:
        print(sentence)
    if plan.bounds:
        _show_bounds(plan)


def _show_expected(plan, *, quick: bool) -> None:
    """Print the expected errors if formulas exist; otherwise print the noise and how to find the errors."""
    known = any(e.most is not None for e in plan.expected)
    rows = [
        [
            e.table,
            f"{e.groups:,}",
            _count_text(e.noise),
            *([_count_text(e.least), _count_text(e.most)] if known else []),
        ]
        for e in plan.expected
    ]
    title = (
        "Expected error (standard deviation, counts; after least squares, before nonnegativity and rounding)"
    )
    columns = ["table", "counts", "noise", *(["error, least", "error, most"] if known else [])]
    print_table(title if known else "Noise of each table (standard deviation, counts)", columns, rows)
    if not known:
        print(
            f"No closed form of the errors is known for the method '{plan.method['method']}'"
            + (": leave out --quick to have them simulated." if quick else ".")
        )


def _show_bounds(plan) -> None:
    """Print for each limit on a unit's records the number of records left out and the noise that it needs."""
    from trueup.planning.contributions import least_typical
    from trueup.reporting.drawing.words import plural

    unit, tables = plan.guarantee.unit, [*plan.bounds[0].noise]
    rows = [
        [
            f"{each.records:,}",
            f"{to_digits(100 * each.share, 2)} %",
            *(f"{to_digits(-each.left_out[t] or 0.0, 3)} ± {to_digits(each.noise[t], 2)}" for t in tables),
        ]
        for each in plan.bounds
    ]
    print_table(
        f"What bounds on the records of one {unit} leave out of a count of average size, ± its noise (standard deviation, "
        "counts), if it is as you suppose",
        [f"of each {unit} at most", "records left out", *tables],
        rows,
    )
    best = (f"{least_typical(plan.bounds, table).records:,} ({table})" for table in tables)
    print(
        f"As counts of all records of {plan.units:,} {plural(unit)} (--persons says how many), counts err least at a bound "
        f"of {', '.join(best)}."
    )


def _count_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


@described()
def measure_command(
    spec: Path,
    data: list[str],
    out: Path,
    geography: Path | None = None,
    encoding: str | None = None,
    ledger: str | None = None,
    analyst: str | None = None,
    key: str | None = None,
    expect_rows: int | None = None,
    as_json: bool = False,
) -> None:
    """Measure counts with exact noise, without reconciling them."""
    from trueup.releasing.pipeline import measure_only

    account = open_account(ledger, analyst, key)
    repeated = account is not None and account.repeats
    with progress(quiet=as_json) as tell:
        measurements = measure_only(
            spec,
            given_tables(data, encoding),
            out,
            geography=with_encoding(geography, encoding),
            account=account,
            expect_rows=expect_rows,
            watch=tell,
        )
    if as_json:
        print_json({"out": str(out), "drawn": not repeated, "measurements": measurements.digest})
    else:
        say_repeated(repeated and key)
        print("\n".join(measurements.guarantee.sentences))
        print(f"Measurements: {out}/public")


@described(geography=PUBLISHED_PLACES)
def reconcile_command(
    out: Path,
    bundle: Path | None = None,
    perturbed: Path | None = None,
    table: list[Path] | None = None,
    geography: Path | None = None,
    encoding: str | None = None,
    method: str | None = None,
    memory: str | None = None,
    as_json: bool = False,
) -> None:
    """Reconcile the measurements of a bundle, or tables that others published, into whole counts that add up."""
    from trueup.releasing.again import reconcile_bundle, reconcile_published

    refuse_idle(
        {"--table": table, "--geography": geography, "--encoding": encoding}, "--perturbed", perturbed
    )
    if perturbed is not None:
        refuse_two_sources(bundle)
    with progress(quiet=as_json) as tell:
        if perturbed is not None:
            given = [with_encoding(path, encoding) for path in table or []]
            places = with_encoding(geography, encoding)
            released = reconcile_published(perturbed, given, out, geography=places, method=method, watch=tell)
        elif bundle is not None:
            released = reconcile_bundle(bundle, out, method=method, memory=memory_limit(memory), watch=tell)
        else:
            needed = "a bundle, or --perturbed SPEC with the published tables"
            raise SpecError("no source is given", needed=needed)
    show_release(released, str(out), as_json=as_json)
