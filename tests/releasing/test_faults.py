"""Every file of a run folder lost, cut short or altered: refused by name, or made again; a draw is never replaced."""

import json
import os
import shutil
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import trueup
from tests.releasing.bad_input import account, interrupted
from tests.releasing.fault_table import MOMENTS, documented, label
from trueup.checking.bundle import check as check_bundle
from trueup.errors import BudgetError, BundleError, TrueupError
from trueup.io.bundle.manifest import read_manifest
from trueup.releasing.draws import Draws
from trueup.releasing.pipeline import resume
from trueup.releasing.run_folder import RunFolder
from trueup.run.local import LocalPool

CHECKED, DRAWING, SEALED, DOWN = 13, 20, 28, 44
"""After how many tasks a run is interrupted: all is checked; some parts are drawn; all are; some are settled."""
PURE = ("places", "estimates", "settled", "tables")
"""Folders whose parts follow from others."""
CLASSES = {
    "plan.json": (DRAWING, SEALED),
    "spec.toml": (DRAWING, SEALED),
    "seal.json": (SEALED, DOWN),
    "drawn/2-00000": (DRAWING, DOWN),
    "journal": (DRAWING, SEALED, DOWN),
    "measured/2-00000.part": (DRAWING, SEALED, DOWN),
    "measured/2-00000.*.parquet": (DRAWING, SEALED, DOWN),
    "measured/0-00000.part": (SEALED, DOWN),
    "places/all.part": (CHECKED, DOWN),
    "places/all.*.parquet": (CHECKED, DOWN),
    "places/1-00000.part": (DRAWING, DOWN),
    "places/1-00000.[0-9a-f]*": (DRAWING, DOWN),
    "estimates/2-00000.part": (DOWN,),
    "estimates/2-00000.[0-9a-f]*": (DOWN,),
    "settled/leaves-0-00000.part": (DOWN,),
    "settled/leaves-0-00000.[0-9a-f]*": (DOWN,),
    "settled/report-0-00000.[0-9a-f]*": (DOWN,),
    "tables/00-0-00000.part": (DOWN,),
    "tables/00-0-00000.*.parquet": (DOWN,),
    "confidential/key": (CHECKED, DRAWING),
    "confidential/fingerprint": (CHECKED, DRAWING),
    "confidential/counts.json": (CHECKED, DRAWING),
    "confidential/counts/part-000001.parquet": (CHECKED, DRAWING),
    "confidential/sums/2-00001.part": (CHECKED, DRAWING),
    "confidential/sums/2-00001.[0-9a-f]*": (CHECKED, DRAWING),
}
"""Every class of file, and the moments at which one of it is damaged."""


def removed(path: Path) -> None:
    path.unlink()


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path: Path) -> None:
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 1
    path.write_bytes(held)


DAMAGES = (removed, cut_short, flipped)
CASES = [(name, stage, damage) for name, stages in CLASSES.items() for stage in stages for damage in DAMAGES]
SHORT = {
    ("measured/0-00000.part", DOWN, removed),
    ("measured/2-00000.part", DRAWING, removed),
    ("measured/2-00000.*.parquet", SEALED, flipped),
    ("seal.json", DOWN, removed),
    ("seal.json", SEALED, flipped),
    ("places/all.*.parquet", DOWN, removed),
    ("tables/00-0-00000.*.parquet", DOWN, removed),
    ("confidential/counts/part-000001.parquet", DRAWING, flipped),
    ("confidential/fingerprint", DRAWING, removed),
    ("journal", DRAWING, removed),
    ("journal", DRAWING, flipped),
}
"""Cases of the default suite; the others are slow by their number alone."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs interrupted at each moment, as they were left; one place, since a run goes on where it began."""
    place, kept = tmp_path_factory.mktemp("state"), {}

    def left_at(stage: int) -> Path:
        if stage not in kept:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            interrupted(place, after=stage)
            kept[stage] = tmp_path_factory.mktemp(f"after-{stage}") / "kept"
            shutil.copytree(place, kept[stage])
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(kept[stage], place)
        return place / "out.run"

    return left_at


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "stage", "damage"),
    [
        pytest.param(
            *case,
            marks=[] if case in SHORT else [pytest.mark.slow],
            id=f"{case[2].__name__} {case[0]} {case[1]}",
        )
        for case in CASES
    ],
)
def test_a_damaged_file_is_refused_by_name_or_made_again(runs, name, stage, damage):
    run = runs(stage)
    drawn = digests(run)
    damage(sorted(run.glob(name))[0])
    released = said = None
    try:
        released = resume(run, executor=LocalPool(1))
    except TrueupError as error:
        said = str(error)
    happened(name, stage, damage, "refused by name" if released is None else "goes on")
    if released is None:
        assert "internal error" not in said
        assert "continue the run with --resume" not in said, "that is what failed"
        assert not (run.parent / "out").exists()
        assert damage is not removed or name.split("/")[0] not in PURE, (
            "what follows from others is made again"
        )
        return
    assert drawn.items() <= read_manifest(released.folder)["parts"].items(), "a draw was replaced"
    assert all(check.holds for check in check_bundle(released.folder))
    assert not list(run.parent.glob("out.run*"))


def happened(name: str, stage: int, damage, outcome: str) -> None:
    """Hold the documentation to what happened, or note it for the table there."""
    if notes := os.environ.get("TRUEUP_FAULTS"):
        with Path(notes).open("a") as file:
            file.write(json.dumps([name, stage, damage.__name__, outcome]) + "\n")
    else:
        assert documented()[label(name), MOMENTS[stage], damage.__name__] == outcome


def digests(run: Path) -> dict[str, str]:
    """The digests of all committed draws."""
    measured = RunFolder(run).measured
    return {name: measured.part(name).digest for name in measured.names()}


@pytest.mark.thorough
def test_a_run_that_makes_lost_files_again_ends_with_the_same_integers(runs):
    run = runs(DOWN)
    undisturbed = trueup.read_release(resume(run, executor=LocalPool(1)).folder).counts
    run = runs(DOWN)
    for folder in PURE:
        shutil.rmtree(run / folder)
    again = trueup.read_release(resume(run, executor=LocalPool(1)).folder).counts
    assert np.array_equal(undisturbed, again)


@pytest.mark.parametrize("lost", ["record and file", "witness as well", "all of both"])
def test_a_draw_that_was_lost_is_not_drawn_again(runs, lost):
    run = runs(DRAWING)
    name = min(digests(run))
    if lost == "all of both":
        shutil.rmtree(run / "measured")
        shutil.rmtree(run / "drawn")
    else:
        for path in (run / "measured").glob(f"{name}.*"):
            path.unlink()
    if lost == "witness as well":
        (run / "drawn" / name).unlink()
    before = digests(run)
    with pytest.raises(BundleError, match=f"part '{name}'.*missing or not those that were drawn"):
        resume(run, executor=LocalPool(1))
    assert digests(run) == before, "nothing was drawn"


@pytest.mark.thorough
def test_a_driver_killed_while_it_wrote_the_journal_goes_on(runs):
    """Half a line is dropped; its draw is found where it was committed."""
    run = runs(DRAWING)
    drawn = digests(run)
    journal = run / "journal"
    journal.write_text(journal.read_text()[:-40])
    released = resume(run, executor=LocalPool(1))
    assert drawn.items() <= read_manifest(released.folder)["parts"].items()


def test_another_draw_in_its_place_is_refused_with_and_without_a_seal(runs):
    for stage in (DRAWING, SEALED):
        run = runs(stage)
        first, second = sorted(digests(run))[:2]
        shutil.copyfile(run / "measured" / f"{second}.part", run / "measured" / f"{first}.part")
        with pytest.raises(BundleError, match=f"part '{first}'.*missing or not those that were drawn"):
            resume(run, executor=LocalPool(1))


@pytest.mark.thorough
def test_without_witnesses_and_journal_the_claim_breaks(runs, monkeypatch):
    """The check has power: a run that forgets what it drew draws it a second time."""
    monkeypatch.setattr(Draws, "find", lambda self, name: self.measured.find(name))
    monkeypatch.setattr(Draws, "_refuse_lost", lambda self: None)
    run = runs(DRAWING)
    before = digests(run)
    for path in (run / "measured").glob(f"{min(before)}.*"):
        path.unlink()
    released = resume(run, executor=LocalPool(1))
    assert read_manifest(released.folder)["parts"][min(before)] != before[min(before)]


@pytest.mark.thorough
def test_no_confidential_count_is_left_once_all_is_drawn(runs):
    held = {path.name for path in (runs(DOWN) / "confidential").iterdir()}
    assert held == {"key", "fingerprint", "counts.json"}


def test_uncommitted_draws_are_destroyed_when_all_is_sealed(runs):
    run = runs(DRAWING)
    (run / "measured" / "2-00000.0123456789abcdef.parquet").write_bytes(b"a draw that lost")
    (run / "measured" / ".draw.parquet.tmp").write_bytes(b"a draw whose writer died")

    with (
        patch("trueup.releasing.run_folder.RunFolder.forget_counts", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        resume(run, executor=LocalPool(1))
    left = {path.name for path in (run / "measured").iterdir()}
    assert not left & {"2-00000.0123456789abcdef.parquet", ".draw.parquet.tmp"}
    assert len(left) == 2 * 13


def test_the_seal_is_in_the_ledger_and_other_measurements_are_refused(tmp_path):
    """A folder from before its seal would draw what was lost a second time under the same charge."""
    run = interrupted(tmp_path, after=SEALED, account=account(tmp_path))
    ledger = account(tmp_path).ledger
    assert list(ledger.state().sealed.values()) == [RunFolder(run).seal]
    (run / "seal.json").unlink()
    with pytest.raises(BudgetError, match="no record of them"):
        resume(run, executor=LocalPool(1), account=account(tmp_path))
