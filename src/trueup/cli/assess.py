"""`trueup assess`: bias, error and coverage of methods and budgets on known counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trueup.cli.options import (
    TABLES,
    described,
    given_tables,
    named_number,
    named_parameters,
    option,
    refuse_idle,
    with_encoding,
)
from trueup.cli.printing import print_json, print_table, progress
from trueup.digits import error_digit, to_digits
from trueup.errors import SpecError


@described(
    data=f"The counts taken as true: a bundle, of which the released counts are used, or a table: {TABLES}.",
    replicates="The number of times that noise is drawn.",
    method="A method, as NAME or NAME:PARAMETER=VALUE,..; repeat it to compare. By default the spec's.",
    budget_scale="A multiple of the spec's budgets; repeat it to compare. By default 1.",
    interval="A rule for intervals: least-squares (the default), by-size or noise; may be repeated.",
    infer="Also assess this method of inference; 'default' means the spec's.",
    infer_replicates=option("The number of replicates to which inference is applied; by default 200.", min=1),
    level="The stated probability of the intervals, such as 90% or .9.",
    comparator="A method without a formal guarantee, to compare with: cell-key:maximum=5,change_variance=3, "
    "random-rounding:base=3, rounded:base=10, suppressed:threshold=10 or swapping:rate=0.05; may be repeated.",
    published="Counts that somebody else released, in the same form as the true counts, to compare with.",
    threshold="TABLE=COUNT: report how often a released count is on the wrong side of this count; may be repeated.",
    public_truth="Declare the true counts public; otherwise the assessment is confidential.",
    seed=option("The seed of the simulated noise.", min=0),
)
def assess_command(
    spec: Path,
    out: Path,
    data: list[str],
    geography: Path | None = None,
    encoding: str | None = None,
    replicates: int = 1000,
    method: list[str] | None = None,
    budget_scale: list[str] | None = None,
    interval: list[str] | None = None,
    infer: str | None = None,
    infer_replicates: int | None = None,
    level: str = "90%",
    comparator: list[str] | None = None,
    published: Path | None = None,
    threshold: list[str] | None = None,
    public_truth: bool = False,
    seed: int = 0,
    workers: int | None = None,
    as_json: bool = False,
) -> None:
    """Simulate releases of known counts: bias, error, coverage and fairness of methods and budgets."""
    from trueup.model.tables import probability_of
    from trueup.releasing.again import assess_table

    refuse_idle({"--infer-replicates": infer_replicates}, "--infer", infer)
    with progress(quiet=as_json) as tell:
        record = assess_table(
            spec,
            _truth(data, encoding),
            out,
            geography=with_encoding(geography, encoding),
            replicates=replicates,
            methods=[parse_method(text) for text in method or []],
            budgets=[f"0{text}" if text.startswith(".") else text for text in budget_scale or ["1"]],
            intervals=interval or ["least-squares"],
            infer=True if infer == "default" else infer,
            infer_replicates=infer_replicates or 200,
            level=probability_of(level),
            comparators=[parse_method(text) for text in comparator or []],
            released=published,
            thresholds=parse_thresholds(threshold or []),
            public_truth=public_truth,
            seed=seed,
            workers=workers or 1,
            watch=tell,
        )
    _show(record, out, as_json=as_json)


def _truth(data: list[str], encoding: str | None) -> Any:
    """Return the true counts: a table's, or those of a bundle's release."""
    from trueup.io.bundle.manifest import MANIFEST
    from trueup.io.bundle.read import read_release

    bundle = next((path for path in data if (Path(path) / MANIFEST).is_file()), None)
    if bundle is None:
        return given_tables(data, encoding)
    if len(data) > 1:
        raise SpecError(
            f"the bundle '{bundle}' is given together with other tables",
            needed="one bundle or one set of tables as the true counts",
            remedy="leave out the bundle or the other tables",
        )
    return read_release(bundle)


def parse_method(text: str) -> Any:
    """Return a method's name, or a pair of name and parameters if parameters are given."""
    name, parameters = named_parameters(text, "method")
    return (name, parameters) if parameters else name


def parse_thresholds(texts: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        name, limit = named_number(text, "TABLE=COUNT, such as county=50000")
        if name in found:
            raise SpecError(f"two thresholds are given for '{name}'", needed="one threshold for each table")
        found[name] = limit
    return found


def _show(record: Any, out: Path, *, as_json: bool) -> None:
    """Print where the assessment was written, and print figures only if the true counts are public."""
    folder = f"{out}/{'public' if record.public else 'internal'}"
    if as_json:
        print_json(_as_json(record, folder))
        return
    if record.public:
        _print(record)
    else:
        print("Confidential: its figures are functions of the true counts, so none is shown here.")
    if record.interrupted:
        print(f"Interrupted after {record.replicates:,} of {record.asked:,} replicates.")
    print(f"Report: {folder}/report.html")


def _as_json(record: Any, folder: str) -> dict[str, Any]:
    found = {
        "out": folder,
        "public": record.public,
        "replicates": record.replicates,
        "interrupted": record.interrupted,
        "methods": [dict(method.description) for method in record.methods],
        "budgets": [budget.label for budget in record.budgets],
        "tables": [str(margin) for margin in record.levels],
    }
    if not record.public:
        return found
    levels = record.rows(by="level")
    rows = [dict(zip(levels, row)) for row in zip(*(column.tolist() for column in levels.values()))]
    return found | {
        "flags": [flag.sentence for flag in record.flags],
        "levels": rows,
    }


def _print(record: Any) -> None:
    def figure(statistic: str, level: str, method: str, budget: str) -> str:
        value, error = record.figure(statistic, level, method=method, budget=budget)
        return f"{to_digits(value, 3)} ± {error_digit(error, value)}"

    rows = [
        [
            level,
            method.label,
            *record.shown_budgets([method.label], [budget.label]),
            *(figure(s, level, method.label, budget.label) for s in _SHOWN),
        ]
        for level in map(str, record.levels)
        for method in record.methods
        for budget in record.budgets
    ]
    print_table("Figures ± their Monte Carlo errors (counts)", ["table", "method", "budget", *_SHOWN], rows)
    for flag in record.flags:
        print(f"Flag: {flag.sentence}")
    if not record.flags:
        print("No claim was contradicted.")


_SHOWN = ("bias", "rmse")
