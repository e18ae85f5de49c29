"""`trueup demo`: the main job on synthetic data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from trueup.cli.options import option
from trueup.cli.progress import progress

DemoOut = Annotated[Path | None, option("--out", "A new folder; by default trueup-demo.")]


def demo_command(out: DemoOut = None) -> None:
    """Release a synthetic geography and a fictitious table, end to end."""
    from trueup.demo import run_demo

    out = out or _free_folder()
    with progress(quiet=False) as tell:
        released = run_demo(out, tell)
    print("The data are synthetic: no person or place in them exists. The noise is real and fresh.")
    for name, release in released.items():
        guarantee = release.guarantee
        print(f"\n{name}: {release.cells.n:,} cells, epsilon = {guarantee.amount} for one {guarantee.unit}")
        print(f"  checked: {', '.join(rule for rule, holds in release.checks.items() if holds)}")
        print(f"  report:  {(out / name / 'public' / 'report.html').resolve()}")
    print(f"\nLook inside: {out}. Check the files alone: trueup check {out / 'blocks'}")


def _free_folder() -> Path:
    names = (Path(f"trueup-demo{suffix}") for suffix in ("", *(f"-{i}" for i in range(2, 1000))))
    return next(path for path in names if not path.exists())
