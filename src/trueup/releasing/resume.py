"""Checks that a resumed run has the settings with which it began."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trueup.errors import BudgetError, BundleError, DataError, SpecError
from trueup.ledger.account import Account
from trueup.model.geography import read_tree
from trueup.model.spec import Spec, read_spec_text
from trueup.releasing.run_folder import RunFolder
from trueup.releasing.start import account_out, run_path


def refuse_changes(
    folder: RunFolder,
    spec: Spec | str | Path | None,
    geography: Any,
    out: str | Path | None,
    expect_rows: int | None = None,
) -> None:
    """Refuse a run folder that was copied, moved or altered, and settings that differ from the beginning."""
    plan, home = folder.plan, run_path(Path(folder.plan["out"]))
    if not (home.exists() and home.samefile(folder.path)):
        raise BundleError(
            f"'{folder.path}' is a copy, or was moved: its run began in '{home}'",
            needed="the folder that the run began in; from a copy noise would be drawn a second time",
            remedy="give that folder, or move this one back if it is the only one",
        )
    if hashlib.sha256(folder.spec_text.encode()).hexdigest() != plan["spec"]:
        raise BundleError(f"the spec in '{folder.path}' was altered", remedy="restore it")
    if spec is not None and _text(spec) != folder.spec_text:
        raise SpecError(
            "the spec is not the one that the run began with", remedy="give the same spec, or start a new run"
        )
    if geography is not None and read_tree(folder.spec, geography).digest != plan["places"]:
        raise DataError(
            "the places are not those that the run began with",
            remedy="give the same file, or start a new run",
        )
    if expect_rows is not None and expect_rows != plan["rows"]:
        raise SpecError(
            "--expect-rows is not what the run began with", remedy="give the same number, or none"
        )
    if out is not None and str(Path(out).absolute()) != plan["out"]:
        raise BundleError(f"the run writes to '{plan['out']}'", remedy="give that folder as --out, or none")


def _text(spec: Spec | str | Path) -> str:
    return spec.text() if isinstance(spec, Spec) else read_spec_text(spec)


def same_account(folder: RunFolder, account: Account | None) -> Account | None:
    """Return the account and key that a run began with; refuse another one, which would be charged a second time."""
    began = folder.plan["account"]
    if began is None and account is None:
        return None
    if began is None:
        raise BudgetError("the run began without a ledger", remedy="give none, or start a new run")
    if account is None:
        raise BudgetError("the run was charged to a ledger", remedy="give --ledger and --analyst as before")
    account = replace(account, key=account.key or began["key"])
    _refuse_other_account(began, account_out(account))
    return account


def _refuse_other_account(began: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    if given["ledger"] != began["ledger"]:
        raise BudgetError(
            "the run was charged to another ledger than the one that is given",
            needed="the same ledger, or it would be charged as well",
            remedy="give --ledger as before",
        )
    for what in ("analyst", "key"):
        if given[what] != began[what]:
            was = f"was charged to the {what} '{began[what]}'" if began[what] else f"began without a {what}"
            raise BudgetError(
                f"the run {was}, and '{given[what]}' is given",
                remedy=f"give --{what} as before, or start a new run",
            )
