"""`trueup check`: verify a bundle from its files alone."""

from __future__ import annotations

from dataclasses import asdict

import typer

from trueup.cli.app import FAILED_CHECK
from trueup.cli.options import AsJson, BundlePath, MemoryLimit, memory_limit
from trueup.cli.printing import print_json


def check_command(bundle: BundlePath, memory: MemoryLimit = None, as_json: AsJson = False) -> None:
    """Check digests, sums, signs, invariants and every constraint of a bundle."""
    from trueup.checking.bundle import check as check_bundle

    checks = check_bundle(bundle, memory=memory_limit(memory))
    if as_json:
        print_json([asdict(c) for c in checks])
    else:
        for c in checks:
            print(f"{'ok  ' if c.holds else 'FAIL'} {c.rule}{': ' + '; '.join(c.where) if c.where else ''}")
    if not all(c.holds for c in checks):
        raise typer.Exit(FAILED_CHECK)
