"""Checks of a ledger, and of published bundles against it.

The chain alone finds an altered, removed or inserted entry. It cannot find that the last entries
were cut off, or that an older copy was put back: what is left is a valid chain. The keeper's anchor finds that, and published
manifests do, because each holds the hash of the entry that granted it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trueup.errors import BudgetError, BundleError
from trueup.ledger.entries import Entry, this_time
from trueup.ledger.keeper import Keeper
from trueup.ledger.ledger import Ledger
from trueup.ledger.reservation import MANIFEST, published_manifest
from trueup.ledger.state import State
from trueup.ledger.stored import refuse_cut, refuse_unsigned


@dataclass(frozen=True)
class Verification:
    """The results of a check of the ledger.

    Attributes
    ----------
    entries, head
        Number of entries, and the hash of the last one.
    bundles
        Number of bundles that were compared.
    unrecorded
        Bundles that say themselves that no ledger was kept.
    findings
        Everything that is wrong, in sentences; empty if nothing is.
    """

    entries: int
    head: str
    bundles: int
    unrecorded: tuple[str, ...]
    findings: tuple[str, ...]


def verify_ledger(ledger: Ledger, against: str | Path | None = None) -> Verification:
    """Check chain and caps of a ledger, and compare it with the bundles in a folder.

    Parameters
    ----------
    ledger
        The ledger.
    against
        A bundle, or a folder that holds bundles at any depth.

    Raises
    ------
    BundleError
        If there is no bundle there.
    BudgetError
        If the ledger cannot be read at all.

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger.create(tempfile.mkdtemp() + "/ledger.db")
    >>> verify_ledger(ledger).findings
    ()
    """
    entries = ledger.entries()
    state, findings = _replay(entries, ledger.keeper)
    manifests = _manifests(Path(against)) if against is not None else []
    unrecorded = []
    for path in manifests:
        digest, manifest = published_manifest(path)
        if manifest.get("ledger") is None:
            unrecorded.append(str(path.parents[1]))
        elif what := _mismatch(digest, manifest, entries, state):
            findings.append(f"{path.parents[1]}: {what}")
    head = entries[-1].hash if entries else ""
    return Verification(len(entries), head, len(manifests), tuple(unrecorded), tuple(findings))


def _replay(entries: list[Entry], keeper: Keeper | None) -> tuple[State, list[str]]:
    state = State()
    try:
        state.read(entries)
        refuse_unsigned(entries, keeper)
        refuse_cut(state, keeper)
    except BudgetError as error:
        return state, [error.given]
    return state, _misdated(entries) if any(t.renews or t.series for t in state.terms.values()) else []


def _misdated(entries: list[Entry]) -> list[str]:
    """Return a sentence for each entry that is dated in the future, or in an earlier month than an entry before it."""
    found, latest = [], ""
    for entry in entries:
        month = entry.fields["time"][:7]
        if month < latest or month > this_time()[:7]:
            found.append(
                f"entry {entry.number} is dated {month}, which the entries before it, or today, contradict"
            )
        latest = max(latest, month)
    return found


def _manifests(folder: Path) -> list[Path]:
    here = folder / MANIFEST
    every = [here] if here.is_file() else sorted(folder.glob(f"**/{MANIFEST.as_posix()}"))
    # Folders whose name begins with a dot are what interrupted runs left: never published.
    found = [p for p in every if not any(part.startswith(".") for part in p.relative_to(folder).parts)]
    if not found:
        raise BundleError(f"'{folder}' holds no bundle", needed="a bundle, or a folder of bundles")
    return found


def _mismatch(digest: str, manifest: Mapping[str, Any], entries: list[Entry], state: State) -> str:
    """Return a phrase on how a published manifest differs from the ledger; empty if it does not differ."""
    stamp = manifest["ledger"]
    number = stamp.get("entry") if isinstance(stamp, dict) else None
    if not isinstance(number, int) or number < 1:
        return "its manifest names no entry"
    if (other := str(stamp.get("ledger"))) != state.ledger:
        return f"it was charged to another ledger ({other[:8]}; this one is {state.ledger[:8]}): verify it with that one"
    if number > len(entries):
        return f"entry {number} is missing: the end of the ledger was cut off, or an older copy was restored"
    if entries[number - 1].hash != stamp.get("head"):
        return f"entry {number} is another one: the ledger was altered or replaced"
    commit = next((c for c in state.commits.values() if c.stamp["entry"] == number), None)
    if commit is None:
        return "it was published without a committed entry"
    sealed = state.sealed.get(commit.reservation)
    if sealed is not None and manifest.get("seal", sealed) != sealed:
        return "its measurements are not those that were sealed when they were drawn"
    # Other tables made from the same measurements are post-processing: they cost nothing more.
    same = commit.measurements is not None and commit.measurements == manifest.get("measurements")
    return "" if same or commit.manifest == digest else "its measurements are not those that were committed"
