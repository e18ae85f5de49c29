"""Hostile files given to the readers that take files from elsewhere, and what comes of it."""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import sysconfig
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz import honest, mutate
from tests.fuzz.watch import Opened, watched
from trueup.checking.bundle import check
from trueup.cli.published import read_source
from trueup.errors import TrueupError
from trueup.files.source import open_table
from trueup.inferring.asking import ask
from trueup.inferring.checkpoint import Checkpoint, key_of
from trueup.io.bundle.areas import write_areas
from trueup.io.bundle.kept_posterior import read_posterior
from trueup.io.bundle.manifest import digest
from trueup.io.export import FORMATS, export
from trueup.io.published.perturbed import read_perturbed
from trueup.model.mechanism import plan_measurements
from trueup.model.perturbed import load_perturbed
from trueup.model.problem import public_cells
from trueup.model.spec import load_spec
from trueup.releasing.again import reconcile_bundle, render_bundle

SECONDS, MEMORY = 10.0, 200_000_000
"""Of a processor, and bytes above those of an honest read, that a hostile file may take."""
ROWS = 3_000_000
"""Of a table of a bundle that holds far more rows than it should."""
Call = Callable[[], Any]


@dataclass
class Figures:
    """What came of some hostile files."""

    made: int = 0
    read: int = 0
    slowest: float = 0.0
    most: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.made:7} made, {self.read:6} read, {len(self.faults)} faults; at most {self.slowest:.1f} s and "
            f"{self.most / 1e6:.0f} MB"
        )


class Attack:
    """Honest files in a folder, and copies of them made hostile one after the other."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.seed = folder, seed
        self.honest, self.outside = folder / "honest", folder / "work" / "outside"
        self.work = folder / "work"
        self.honest.mkdir()
        self.outside.mkdir(parents=True)
        for name in ("secret", "secret.parquet"):
            (self.outside / name).write_text("mine")
        honest.write_honest(self.honest)
        self.figures = {kind: Figures() for kind in KINDS}

    @cached_property
    def opened(self) -> Opened:
        """The watch on what Python opens; begun once all modules are loaded."""
        return Opened()

    def warm(self) -> None:
        """Read every kind as it is, so that modules are imported, functions compiled and their memory is known."""
        for kind in KINDS:
            for number in range(0 if kind in SAME else len(BUNDLES) if kind == "manifest" else 3):
                with self._files(kind, number, hostile=False) as calls:
                    for call in calls:
                        call()

    def run(self, kind: str, number: int) -> list[str]:
        """Make one hostile file of a kind, give it to those who read it, and note what came of it; return its faults."""
        figures = self.figures[kind]
        before = len(figures.faults)
        figures.made += 1
        with self._files(kind, number) as calls:
            rng = self._rng(kind, number, "reader")
            chosen = rng.sample(calls, min(2, len(calls)))
            for call in chosen:
                self._read(figures, f"{kind} {number}", call)
            left = sorted(p.name for p in self.work.iterdir())
            if left not in (["outside"], ["given", "outside"]) or sorted(
                p.name for p in self.outside.iterdir()
            ) != [
                "secret",
                "secret.parquet",
            ]:
                figures.faults.append(f"{kind} {number}: left {left}")
            if any((self.outside / name).read_text() != "mine" for name in ("secret", "secret.parquet")):
                figures.faults.append(f"{kind} {number}: a file outside was written")
        return figures.faults[before:]

    def _read(self, figures: Figures, name: str, call: Call) -> None:
        tempfile.tempdir = str(self.folder / "out")
        self.opened.allowed = (*_system(), str(self.work / "given"), str(self.folder / "out"))
        try:
            with watched(self.outside) as seen, _stopped_after(6 * SECONDS), warnings.catch_warnings():
                warnings.simplefilter("error")
                call()
            figures.read += 1
        except TrueupError:
            pass
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            figures.faults.append(f"{name}: {_place(error)}")
        self.opened.allowed = tempfile.tempdir = None
        figures.slowest, figures.most = max(figures.slowest, seen.seconds), max(figures.most, seen.memory)
        if seen.seconds > SECONDS:
            figures.faults.append(
                f"{name}: {seen.seconds:.0f} s of a processor, {getattr(call, '__name__', call)}"
            )
        if seen.memory > MEMORY:
            figures.faults.append(f"{name}: {seen.memory / 1e6:.0f} MB, {call}")
        if seen.touched or self.opened.found:
            figures.faults.append(f"{name}: opened {[*seen.touched, *self.opened.found][:3]}")
            self.opened.found.clear()

    def _rng(self, *parts: Any) -> random.Random:
        return random.Random(repr((self.seed, *parts)))

    @contextmanager
    def _files(self, kind: str, number: int, hostile: bool = True) -> Iterator[list[Call]]:
        """A hostile copy, and the calls that read it; both are removed afterwards."""
        given, out = self.work / "given", self.folder / "out"
        shutil.rmtree(given, ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        yield KINDS[kind](self, given, out, self._rng(kind, number) if hostile else None, number)
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(given, ignore_errors=True)

    def bundle(self, given: Path, number: int) -> Path:
        """A copy of one of the honest bundles."""
        shutil.copytree(self.honest / BUNDLES[number % len(BUNDLES)], given)
        return given


SAME = ("tables", "spec of a bundle")
"""Kinds that are read by those who read the kind `manifest`."""
BUNDLES = ["release", "measured", "parts", "published"]


def _place(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/trueup/" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:150]}"


def _system() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    own = Path(__file__).parents[2]
    return (
        str(own / "src"), str(own / ".venv"), sys.prefix, sys.base_prefix, paths["stdlib"], "/proc/", "/sys/", "/dev/", "/usr/",
        str(Path(__file__).parent), str(Path.home() / ".cache"),
    )  # fmt: skip


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    """Stop what runs for longer, as soon as Python gets to it."""

    def stop(*_: Any) -> None:
        raise TimeoutError("took too long")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _bundle_calls(attack: Attack, given: Path, out: Path, number: int) -> list[Call]:
    areas = attack.honest / "map.parquet"
    shutil.copy(areas, out / "map.parquet")
    shutil.copy(attack.honest / "shapes.json", out / "shapes.json")
    to = FORMATS[number // len(BUNDLES) % len(FORMATS)]
    calls: dict[str, Call] = {
        "check": lambda: check(given),
        "read": lambda: read_source(given, None, [], None),
        "report": lambda: render_bundle(given, shapes=None),
        "reconcile": lambda: reconcile_bundle(given, out / "again"),
        "export": lambda: export(given, out / f"tables{'.xlsx' if to == 'xlsx' else ''}", to),
        "areas": lambda: write_areas(given, out / "map.parquet", out / "areas.csv"),
    }
    for name, call in calls.items():
        call.__name__ = name
    return list(calls.values())


def manifest(attack: Attack, given: Path, out: Path, rng: random.Random | None, number: int) -> list[Call]:
    """A bundle with a hostile manifest."""
    path = attack.bundle(given, number) / "public" / "manifest.json"
    if rng:
        path.write_bytes(mutate.json_mutant(path.read_text(), rng))
    return _allowing(rng, _bundle_calls(attack, given, out, number))


def _allowing(rng: random.Random | None, calls: list[Call]) -> list[Call]:
    """Honest bundles, too, are refused by some commands: what a bundle lacks is no fault."""
    if rng:
        return calls

    def allowed(call: Call) -> Call:
        def called() -> None:
            with suppress(TrueupError):
                call()

        return called

    return [allowed(call) for call in calls]


def tables(attack: Attack, given: Path, out: Path, rng: random.Random | None, number: int) -> list[Call]:
    """A bundle with a hostile table, whose manifest has its digest."""
    public = attack.bundle(given, number) / "public"
    if rng:
        path = rng.choice(sorted(public.rglob("*.parquet")))
        path.write_bytes(mutate.parquet_mutant(path.read_bytes(), rng, ROWS))
        mutate.signed(given)
    return _allowing(rng, _bundle_calls(attack, given, out, number))


def spec_of_bundle(
    attack: Attack, given: Path, out: Path, rng: random.Random | None, number: int
) -> list[Call]:
    """A bundle with a hostile spec, whose manifest has its digest."""
    path = attack.bundle(given, number) / "public" / "spec.toml"
    if rng:
        path.write_bytes(mutate.toml_mutant(path.read_text(), rng))
        mutate.signed(given)
    return _allowing(rng, _bundle_calls(attack, given, out, number))


def spec(attack: Attack, given: Path, out: Path, rng: random.Random | None, number: int) -> list[Call]:
    """A hostile spec, with honest places and tables."""
    given.mkdir()
    source = ["spec.toml", "perturbed.toml"][number % 2]
    text = (attack.honest / source).read_text()
    (given / source).write_bytes(mutate.toml_mutant(text, rng) if rng else text.encode())
    for name in ("places.parquet", "table.csv"):
        shutil.copy(attack.honest / name, given / name)

    def plan() -> None:
        held = load_spec(given / source)
        plan_measurements(held, public_cells(held, geography=given / "places.parquet"))

    def perturbed() -> None:
        read_perturbed(load_perturbed(given / source), [given / "table.csv"])

    return [plan if source == "spec.toml" else perturbed]


def workbook(attack: Attack, given: Path, out: Path, rng: random.Random | None, number: int) -> list[Call]:
    """A hostile workbook."""
    given.mkdir()
    held = (attack.honest / "table.xlsx").read_bytes()
    (given / "table.xlsx").write_bytes(mutate.zip_mutant(held, rng) if rng else held)
    return _table_calls(attack, given / "table.xlsx")


def parquet(attack: Attack, given: Path, out: Path, rng: random.Random | None, number: int) -> list[Call]:
    """A hostile table in Parquet, as data, as places, as a map of areas."""
    given.mkdir()
    name = ["table.parquet", "places.parquet", "map.parquet"][number % 3]
    held = (attack.honest / name).read_bytes()
    (given / name).write_bytes(mutate.parquet_mutant(held, rng) if rng else held)
    if name == "table.parquet":
        return _table_calls(attack, given / name)[:1]
    if name == "places.parquet":
        spec = load_spec(attack.honest / "spec.toml")
        return [lambda: public_cells(spec, geography=given / name)]
    shutil.copytree(attack.honest / "release", given / "release")
    return [lambda: write_areas(given / "release", given / name, out / "areas.csv")]


def text(attack: Attack, given: Path, out: Path, rng: random.Random | None, number: int) -> list[Call]:
    """A hostile table in CSV."""
    given.mkdir()
    held = (attack.honest / "table.csv").read_bytes()
    (given / "table.csv").write_bytes(mutate.bytes_mutant(held, rng) if rng else held)
    return _table_calls(attack, given / "table.csv")


def _table_calls(attack: Attack, path: Path) -> list[Call]:
    def columns() -> None:
        held = open_table(path)
        held.select(held.columns())

    spec = load_perturbed(attack.honest / "perturbed.toml")
    return [columns, lambda: read_perturbed(spec, [path])]


def shapes(attack: Attack, given: Path, out: Path, rng: random.Random | None, number: int) -> list[Call]:
    """Hostile shapes of places, for the map of a report."""
    shutil.copytree(attack.honest / "release", given)
    text = (attack.honest / "shapes.json").read_text()
    (given / "shapes.json").write_bytes(mutate.json_mutant(text, rng) if rng else text.encode())
    return [lambda: render_bundle(given, shapes=given / "shapes.json")]


def assessment(attack: Attack, given: Path, out: Path, rng: random.Random | None, number: int) -> list[Call]:
    """A hostile assessment."""
    shutil.copytree(attack.honest / "assessment", given)
    inside, which = given / "public", number % 3
    if rng and which == 0:
        path = inside / "summary.parquet"
        path.write_bytes(mutate.parquet_mutant(path.read_bytes(), rng, ROWS))
    elif rng and which == 1:
        path = inside / "spec.toml"
        path.write_bytes(mutate.toml_mutant(path.read_text(), rng))
    elif rng:
        path = inside / "assessment.json"
        path.write_bytes(mutate.json_mutant(path.read_text(), rng))
    return [lambda: render_bundle(given, publish=True)]


def checkpoint(attack: Attack, given: Path, out: Path, rng: random.Random | None, number: int) -> list[Call]:
    """Hostile checkpoints of chains."""
    shutil.copytree(attack.honest / "chains", given)
    if rng:
        path = rng.choice(sorted(given.iterdir()))
        new = (
            mutate.json_mutant(path.read_text(), rng)
            if path.suffix == ".json"
            else mutate.zip_mutant(path.read_bytes(), rng)
        )
        path.write_bytes(new)

    def load() -> None:
        keep = Checkpoint.of(given, key_of("fuzz"))
        keep.load("run", 0, np.random.default_rng(2))
        assert isinstance(keep.run, str)

    return [load]


def posterior(attack: Attack, given: Path, out: Path, rng: random.Random | None, number: int) -> list[Call]:
    """A kept posterior with a hostile manifest, or with hostile draws or places whose digests its manifest has."""
    shutil.copytree(attack.honest / "posterior", given)
    manifest = given / "manifest.json"
    if rng and number % 2:
        manifest.write_bytes(mutate.json_mutant(manifest.read_text(), rng))
    elif rng:
        path = given / rng.choice(["draws.parquet", "places.parquet"])
        path.write_bytes(mutate.parquet_mutant(path.read_bytes(), rng, ROWS))
        held = json.loads(manifest.read_text())
        held["files"][path.name] = digest(path)
        manifest.write_text(json.dumps(held))

    def asked() -> None:
        kept = read_posterior(given)
        assert isinstance(kept.promise + repr(kept), str)
        ask(kept, "'county, adult=child' / county").figures()
        ask(kept, "rank(block)").figures()

    return [asked]


KINDS: dict[str, Callable[..., list[Call]]] = {
    "manifest": manifest,
    "tables": tables,
    "spec of a bundle": spec_of_bundle,
    "spec": spec,
    "workbook": workbook,
    "parquet": parquet,
    "text": text,
    "shapes": shapes,
    "assessment": assessment,
    "checkpoint": checkpoint,
    "posterior": posterior,
}
"""What makes a hostile file of each kind, and the calls that read it."""
