"""`trueup plan`: the smallest budget for given margins of error, or the best division of a given budget."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from math import isinf
from pathlib import Path
from typing import Any

from trueup.cli.options import described, named_areas, named_number, refuse_idle, with_encoding
from trueup.cli.printing import print_json, print_table
from trueup.errors import SpecError
from trueup.files.target import refuse_file
from trueup.files.writing import write_whole


@described(
    total="The budget to divide: 1/2, or an epsilon at a delta, 8@1e-10. By default the least that meets the targets or, without "
    "targets, the budget of the spec.",
    weight="TABLE=NUMBER: the weight of the table's mean error variance (by default 1).",
    target="TABLE=COUNTS@PERCENT%: the largest margin of error for every count; mean:TABLE=... for their mean.",
    preset="Instead of weights and targets: relative (each table's error relative to its present error) or no-worse (no table's "
    "largest error may grow).",
    out="The file to write: .html for a page, .toml for the spec with the planned budgets; repeat it for both.",
)
def plan_command(
    spec: Path,
    geography: Path | None = None,
    encoding: str | None = None,
    total: str | None = None,
    weight: list[str] | None = None,
    target: list[str] | None = None,
    areas: str | None = None,
    preset: str | None = None,
    out: list[Path] | None = None,
    as_json: bool = False,
) -> None:
    """Find the smallest budget for given margins of error, or the division of a budget with the smallest error."""
    from trueup.digits import rational
    from trueup.model.spec import load_spec
    from trueup.planning.allocation import planned_spec
    from trueup.planning.plan import plan as plan_spec

    mapping, column = named_areas(areas)
    refuse_idle({"--areas": areas}, f"a --target on '{column}'", _about_areas(target or [], column))
    for path in out or []:
        refuse_file(path)
        if path.suffix not in (".html", ".toml"):
            raise SpecError(
                f"'{path}' has an unknown file extension", needed=".html for a page, or .toml for a spec"
            )
        if (out or []).count(path) > 1:
            raise SpecError(f"--out gives the path '{path}' twice", needed="a different path for each result")
    loaded = load_spec(spec)
    planned = plan_spec(
        loaded,
        with_encoding(geography, encoding),
        total=total if total is None or "@" in total else rational(total, "the total"),
        weights=dict(named_number(text, "TABLE=NUMBER") for text in weight or []),
        targets=target,
        preset=_preset(preset, bool(weight or target)),
        areas=mapping,
        column=column,
    )
    for path in out or []:
        from trueup.reporting import report

        write_whole(path, report(planned) if path.suffix == ".html" else planned_spec(loaded, planned).text())
    if as_json:
        found = asdict(replace(planned, problem=None))
        print_json({name: value for name, value in found.items() if name != "problem"})
    else:
        _show_plan(planned)


def _noise(deviation: float) -> str:
    """Return the standard deviation of the noise on a table as text, or words if the table has no noise."""
    return "not measured" if isinf(deviation) else f"{deviation:.2f}" if deviation else "exact"


def _about_areas(targets: list[str], column: str) -> bool:
    """Return True if a target is about a table of areas, or about its mean."""
    tables = (text.partition("=")[0].removeprefix("mean:").partition(" x ")[0].strip() for text in targets)
    return column in tables


def _preset(name: str | None, wishes: bool) -> Any:
    """Return the preset that an option names; refuse it together with weights or targets."""
    if name not in (None, "relative", "no-worse"):
        raise SpecError(f"there is no preset '{name}'", needed="relative or no-worse")
    if name and wishes:
        raise SpecError(
            "--preset is given together with weights or targets",
            needed="either a preset, or weights and targets",
            remedy="leave out --preset, or leave out the weights and targets",
        )
    return name or "equal"


def _show_plan(planned: Any) -> None:
    from trueup.model.toml import amount_text

    rows = zip(
        planned.levels,
        planned.given,
        planned.budgets,
        planned.noise,
        planned.given_error,
        planned.error,
        planned.worst,
    )
    print_table(
        f"{planned.currency} = {amount_text(planned.total)} (errors: standard deviation in counts, after least squares)",
        ["table", "in the spec", "planned", "noise", "error now", "error planned", "largest"],
        [
            [name, amount_text(now), amount_text(then), _noise(noise), *(f"{v:.2f}" for v in errors)]
            for name, now, then, noise, *errors in rows
        ],
    )
    dropped = [
        name for name, now, then in zip(planned.levels, planned.given, planned.budgets) if now > then == 0
    ]
    if dropped:
        print(
            f"Not measured under this plan, but summed from others: {', '.join(dropped)}. A release shows no table of it; "
            f"its counts: trueup export BUNDLE --to csv --table {shlex.quote(dropped[0])}."
        )
    if planned.targets:
        print_table(
            "Margins of error (counts)",
            ["target", "planned", "now", "largest at"],
            [[str(r.target), f"{r.margin:.2f}", f"{r.given:.2f}", r.place] for r in planned.targets],
        )
    for sentence in planned.certificate.sentences:
        print(sentence)
