"""Reservations of a loss: a run begins to draw and commits, or gives the loss back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trueup.errors import BudgetError, BundleError
from trueup.files.target import is_own, refuse_occupied
from trueup.files.writing import publish, sync
from trueup.io.bundle.strict import read_json
from trueup.ledger.questions import Question
from trueup.ledger.stored import StoredLedger
from trueup.ledger.totals import Commit, Totals

MANIFEST = Path("public", "manifest.json")


def published_manifest(manifest: Path) -> tuple[str, dict[str, Any]]:
    """Return the SHA-256 digest of a manifest, and the content of the manifest."""
    try:
        held = dict(read_json(manifest))
        return hashlib.sha256(manifest.read_bytes()).hexdigest(), held
    except (OSError, ValueError, TypeError):
        raise BundleError(
            f"'{manifest.parents[1]}' has no readable {MANIFEST}",
            needed="the folder of a bundle",
            remedy="check the path, or restore the bundle",
        ) from None


def describe_staged(staged: Path, stamp: Mapping[str, Any], seal: str | None = None) -> dict[str, Any]:
    """Check that a staged bundle states its reservation and seal; return the ledger's record of it."""
    digest, manifest = published_manifest(staged / MANIFEST)
    if manifest.get("ledger") != dict(stamp):
        raise BundleError(
            "the bundle that is to be published does not state the reservation of its budget",
            needed="the reservation in the field 'ledger' of its manifest",
            remedy="restore the folder of the run, or begin a new release",
        )
    if seal is not None and manifest.get("seal") != seal:
        raise BundleError(
            "the bundle that is to be published holds other measurements than the ledger has recorded",
            needed="the measurements that were drawn first",
            remedy="restore the folder of the run, or begin a new release",
        )
    return {"manifest": digest, "measurements": manifest.get("measurements")}


def refuse_taken(final: Path, waiting: Iterable[str]) -> None:
    """Refuse a target folder that exists, or that a committed release will take."""
    # A rename may happen between the two looks: then the waiting folder was seen, or the target is.
    if any(Path(other).exists() for other in waiting):
        raise BundleError(
            f"another release is about to be written to '{final}'", remedy="choose another --out"
        )
    refuse_occupied(final)


def finish_publishing(ready: Path, final: Path, reservation: str, manifest: str) -> bool:
    """Rename a committed bundle to its target; return False if that is done, or the bundle is another user's.

    The ledger's word is not enough: whoever may draw may write an entry that names any folder. So the folder must bear the
    name that `ready_name` gives, stand beside its target, belong to this user, and hold the manifest of the digest that was
    committed.

    Raises
    ------
    BundleError
        If something else stands in the way.
    """
    if not _is_of_our_making(ready, final, reservation, manifest):
        return False
    try:
        publish(ready, final)
    except (BundleError, FileNotFoundError):
        if ready.is_dir():
            raise
        return False  # another process was faster
    return True


def ready_name(final: Path, reservation: str) -> str:
    """Return the name of the folder in which a committed bundle waits to be renamed to its target."""
    return f".{final.name}.ready-{reservation}"


def _is_of_our_making(ready: Path, final: Path, reservation: str, manifest: str) -> bool:
    named = final.is_absolute() and ".." not in final.parts
    if not named or ready != final.with_name(ready_name(final, reservation)) or not is_own(ready):
        return False
    if not is_own(ready / MANIFEST.parent) or (ready / MANIFEST).is_symlink():
        return False
    try:
        return published_manifest(ready / MANIFEST)[0] == manifest
    except BundleError:
        return False


@dataclass(frozen=True)
class Reservation:
    """A loss that is charged in advance for one release.

    Attributes
    ----------
    ledger, name
        The ledger that holds the reservation, and the reservation's name.
    stamp
        The entry on the ledger that the release's manifest must hold under `ledger`.
    committed
        The release that was committed under the same key; then nothing may be drawn.
    """

    ledger: StoredLedger
    name: str
    stamp: Mapping[str, Any]
    committed: Commit | None = None

    @property
    def drawn(self) -> bool:
        """Return True if the ledger has recorded that drawing began."""
        return self.name in self.ledger.state().drawn

    @property
    def sealed(self) -> str | None:
        """Return the digest of everything drawn under the reservation; None until drawing is complete."""
        return self.ledger.state().sealed.get(self.name)

    @contextmanager
    def returning(self) -> Iterator[None]:
        """Give the reserved loss back if the block fails before drawing began; exact answers stay counted."""
        try:
            yield
        except BaseException:
            with suppress(BudgetError):  # then it stays open, and `recover` gives it back
                self.give_back()
            raise

    def give_back(self) -> None:
        """Record that the loss is given back, unless drawing began or the loss was given back already.

        Raises
        ------
        BudgetError
            If the ledger cannot be written.
        """
        with self.ledger.writing() as locked:
            if locked.state.is_open(self.name):
                locked.append("return", {"reservation": self.name})

    def refuse(self, topic: str) -> Question | None:
        """Record that confidential rows were refused, give the loss back, and return the question that the error may name.

        Parameters
        ----------
        topic
            The topic of the refusal (`TrueupError.about`).

        Returns
        -------
        None where what failed is no question, or where to name it would take more checks than are left.

        Raises
        ------
        BudgetError
            If the ledger cannot be written: then nothing may be told.
        """
        with self.ledger.writing() as locked:
            if not locked.state.is_open(self.name):
                return None
            request = locked.state.reserved[self.name][1]
            shown, checks = locked.state.shown[request.dataset], locked.state.terms[request.dataset].checks
            named = next((q for q in request.questions if q.answers(topic)), None)
            left = shown.left(request, checks, self.name)
            if named and (price := shown.of(request).price(self.name, named)) and price > left:
                named = None
            locked.append("refuse", {"reservation": self.name, "named": named and named.digest})
        return named

    def begin(self) -> None:
        """Record durably that drawing begins, before any noise is drawn.

        A run that goes on may say so again. Invariants that no release of the account has published are recorded too.
        """
        with self.ledger.writing() as locked:
            if self.name in locked.state.drawn:
                return
            if not locked.state.is_open(self.name):
                raise BudgetError(
                    "the reserved budget was returned before noise was drawn; nothing was drawn",
                    remedy="run again",
                )
            request = locked.state.reserved[self.name][1]
            published = locked.state.shown[request.dataset].published
            new = {i.text: i.digest for i in request.invariants if i.text not in published}
            if new:
                locked.append(
                    "invariants",
                    {
                        "dataset": request.dataset,
                        "invariants": new,
                        "joint": request.joint,
                        "reservation": self.name,
                    },
                )
            locked.append("draw", {"reservation": self.name})

    def seal(self, seal: str) -> None:
        """Record the digest of everything drawn, so that no other measurements can be committed.

        A run that goes on may say so again.
        """
        with self.ledger.writing() as locked:
            known = locked.state.sealed.get(self.name)
            if known is None and self.name in locked.state.drawn:
                locked.append("seal", {"reservation": self.name, "seal": seal})
            elif known != seal:
                raise BudgetError(
                    "the measurements differ from those that the ledger has recorded for this release",
                    needed="the measurements that were drawn first; the budget does not cover a second draw",
                    remedy="restore those measurements, or begin a new release with its own charge",
                )

    def commit(self, staged: str | Path, final: str | Path) -> Commit:
        """Record a staged bundle durably and rename it to its target.

        Parameters
        ----------
        staged
            The finished bundle, on the same file system as its target.
        final
            The folder in which it is published; must not exist, or be an empty folder.

        Raises
        ------
        BundleError
            If the bundle does not carry the reservation's stamp, or the target is occupied.
        BudgetError
            If drawing was not recorded, if the reservation or its key was committed before, or the ledger cannot be
            written.
        """
        staged, final = Path(staged).absolute(), Path(final).absolute()
        self._refuse_second(self.ledger.state())  # before the bundle bears the name that `recover` looks for
        self.ledger.sweep(final)
        fields = describe_staged(staged, self.stamp, self.sealed)
        sync(staged)
        # Under its new name the bundle is out of reach of whoever cleans up the staging folder.
        ready = staged.rename(final.with_name(ready_name(final, self.name)))
        try:
            self._record(ready, final, fields)
        except BaseException:
            if self.name not in self.ledger.state().commits:
                ready.rename(staged)
            raise
        finish_publishing(ready, final, self.name, fields["manifest"])
        return self.ledger.state().commits[self.name]

    def _record(self, ready: Path, final: Path, fields: Mapping[str, Any]) -> None:
        with self.ledger.writing() as locked:
            self._refuse_second(locked.state)
            refuse_taken(final, locked.state.ready_for(str(final)))
            places = {"reservation": self.name, "ready": str(ready), "final": str(final)}
            locked.append("commit", {**places, **fields})

    def _refuse_second(self, state: Totals) -> None:
        if self.name not in state.drawn:
            raise BudgetError(
                "the ledger has no record that this release was drawn", remedy="begin the release again"
            )
        if self.name in state.commits or state.finished(state.reserved[self.name][1].key):
            raise BudgetError(
                "another run has already published the release that this budget was reserved for",
                remedy="use the published release; this draw is discarded, and its loss stays charged",
            )
