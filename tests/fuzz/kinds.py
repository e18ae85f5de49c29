"""Hostile files of each kind that may come from elsewhere, and the calls that read them."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz import mutate
from trueup.checking.bundle import check
from trueup.cli.published import read_source
from trueup.errors import TrueupError
from trueup.files import Encoded
from trueup.files.source import open_table
from trueup.inferring.chains import Checkpoint, key_of
from trueup.inferring.questions import ask
from trueup.io.bundle.areas import write_areas
from trueup.io.bundle.kept_posterior import read_posterior
from trueup.io.bundle.manifest import digest
from trueup.io.bundle.read import read_release
from trueup.io.export import FORMATS, export
from trueup.io.published.drafting import draft_published
from trueup.io.published.nmf import read_nmf
from trueup.io.published.perturbed import read_perturbed
from trueup.io.published.sdhc import read_sdhc
from trueup.model.mechanism import plan_measurements
from trueup.model.perturbed import load_perturbed
from trueup.model.problem import public_cells
from trueup.model.records.release import Release
from trueup.model.spec import load_spec
from trueup.releasing.again import reconcile_bundle, render_bundle
from trueup.releasing.changing import changes
from trueup.reporting import report

ROWS = 3_000_000
"""Of a table of a bundle that holds far more rows than it should."""
BUNDLES = ["release", "measured", "parts", "published", "family"]
Call = Callable[[], Any]


@dataclass(frozen=True)
class Given:
    """Where a hostile copy goes, and the chance by which it is made.

    Attributes
    ----------
    honest, place, out
        The honest files, the place of the copy, and a folder for what is written.
    rng
        None for an honest copy.
    number
        Of the copy; by it kinds take turns in what they change.
    """

    honest: Path
    place: Path
    out: Path
    rng: random.Random | None
    number: int

    def folder(self, name: str) -> Path:
        """A copy of an honest folder."""
        shutil.copytree(self.honest / name, self.place)
        return self.place

    def file(self, name: str, mutant: Callable[..., bytes], *more: Any, packed: bool = False) -> Path:
        """A changed copy of an honest file."""
        self.place.mkdir(exist_ok=True)
        path = self.place / Path(name).name
        shutil.copy(self.honest / name, path)
        self.change(path, mutant, *more)
        if packed:
            path = path.rename(path.with_name(path.name + ".gz"))
            path.write_bytes(gzip.compress(path.read_bytes(), 1))
        return path

    def change(self, path: Path, mutant: Callable[..., bytes], *more: Any) -> None:
        """Make a file hostile."""
        if self.rng:
            held = path.read_bytes()
            text = mutant in (mutate.json_mutant, mutate.toml_mutant)
            path.write_bytes(mutant(held.decode() if text else held, self.rng, *more))


def _bundle(given: Given) -> Path:
    return given.folder(BUNDLES[given.number % len(BUNDLES)])


def _bundle_calls(given: Given) -> list[Call]:
    """Whoever reads a bundle; honest ones, too, are refused by some commands."""
    place, out = given.place, given.out
    shutil.copy(given.honest / "map.parquet", out / "map.parquet")
    to = FORMATS[given.number // len(BUNDLES) % len(FORMATS)]
    calls: dict[str, Call] = {
        "check": lambda: check(place),
        "read": lambda: read_source(place, None, [], None),
        "report": lambda: render_bundle(place, shapes=None),
        "reconcile": lambda: reconcile_bundle(place, out / "again"),
        "export": lambda: export(place, out / f"tables{'.xlsx' if to == 'xlsx' else ''}", to),
        "areas": lambda: write_areas(place, out / "map.parquet", out / "areas.csv"),
    }
    for name, call in calls.items():
        call.__name__ = name
    if not given.rng:
        return [_allowed(call) for call in calls.values()]
    quick = [call for name, call in calls.items() if name not in ("report", "reconcile")]
    return [*quick, *quick, *calls.values()]  # the two take most of the time, all of it after reading


def _allowed(call: Call) -> Call:
    def called() -> None:
        with suppress(TrueupError):
            call()

    return called


def manifest(given: Given) -> list[Call]:
    """A bundle with a hostile manifest."""
    given.change(_bundle(given) / "public" / "manifest.json", mutate.json_mutant)
    return _bundle_calls(given)


def tables(given: Given) -> list[Call]:
    """A bundle with a hostile table, whose manifest has its digest."""
    public = _bundle(given) / "public"
    if given.rng:
        given.change(given.rng.choice(sorted(public.rglob("*.parquet"))), mutate.parquet_mutant, ROWS)
        mutate.signed(given.place)
    return _bundle_calls(given)


def spec_of_bundle(given: Given) -> list[Call]:
    """A bundle with a hostile spec, whose manifest has its digest."""
    given.change(_bundle(given) / "public" / "spec.toml", mutate.toml_mutant)
    mutate.signed(given.place)
    return _bundle_calls(given)


def spec(given: Given) -> list[Call]:
    """A hostile spec, with honest places and tables."""
    source = ["spec.toml", "perturbed.toml", "family.toml"][given.number % 3]
    path, honest = given.file(source, mutate.toml_mutant), given.honest
    for name in ("places.parquet", "table.csv"):
        shutil.copy(honest / name, given.place / name)

    def plan() -> None:
        held = load_spec(path)
        plan_measurements(held, public_cells(held, geography=given.place / "places.parquet"))

    def perturbed() -> None:
        read_perturbed(load_perturbed(path), [given.place / "table.csv"])

    return [perturbed if source == "perturbed.toml" else plan]


def workbook(given: Given) -> list[Call]:
    """A hostile workbook."""
    return _table_calls(
        given, given.file("table.ods" if given.number % 2 else "table.xlsx", mutate.zip_mutant)
    )


def parquet(given: Given) -> list[Call]:
    """A hostile table in Parquet, as data, as a map of areas."""
    if given.number % 2:
        path = given.file("table.parquet", mutate.parquet_mutant)
        return _table_calls(given, path)[:1]
    path, out = given.file("map.parquet", mutate.parquet_mutant), given.out / "areas.csv"
    return [lambda: write_areas(given.honest / "release", path, out)]


def text(given: Given) -> list[Call]:
    """A hostile table in CSV, packed or of another encoding."""
    path = given.file("table.csv", mutate.bytes_mutant, packed=given.number % 4 == 1)
    return _table_calls(given, Encoded(str(path), "latin-1") if given.number % 4 == 2 else path)


def _table_calls(given: Given, path: Any) -> list[Call]:
    def columns() -> None:
        held = open_table(path)
        held.select(held.columns())

    spec = load_perturbed(given.honest / "perturbed.toml")
    return [columns, lambda: read_perturbed(spec, [path]), lambda: draft_published([path], "fuzz", None)]


def places(given: Given) -> list[Call]:
    """A hostile list of places, in Parquet or CSV."""
    which = given.number % 6
    name = "pointers.csv" if which > 3 else ["places.parquet", "places.csv"][which % 2]
    mutant = (
        mutate.parquet_mutant if which in (0, 2) else [mutate.bytes_mutant, mutate.cell_mutant][which % 2]
    )
    path = given.file(name, mutant)
    held = load_spec(given.honest / ["spec.toml", "family.toml", "pointers.toml"][which // 2])
    return [lambda: public_cells(held, geography=path)]


def sdhc(given: Given) -> list[Call]:
    """A hostile file of noisy S-DHC counts."""
    spec = load_spec(given.honest / "sdhc.toml")
    path = given.file("sdhc.csv", mutate.bytes_mutant if given.number % 3 else mutate.cell_mutant)
    return [lambda: read_sdhc(spec, [path])]


def noisy(given: Given) -> list[Call]:
    """A folder of noisy-measurement files, one of them hostile."""
    folder = given.folder("nmf")
    if given.rng:
        given.change(
            given.rng.choice(sorted(p for p in folder.rglob("*.parquet") if p.is_file())),
            mutate.parquet_mutant,
        )
    spec = load_spec(given.honest / "nmf.toml")
    return [lambda: read_nmf(spec, folder)]


def crosswalk(given: Given) -> list[Call]:
    """A hostile crosswalk between two releases."""
    if given.number % 2:
        path = given.file(
            "crosswalk.csv", mutate.cell_mutant if given.number % 4 == 1 else mutate.bytes_mutant
        )
    else:
        path = given.file("crosswalk.parquet", mutate.parquet_mutant)
    return [lambda: changes(*_two_releases(given.honest), "block", crosswalk=path)]


@cache
def _two_releases(honest: Path) -> tuple[Release, Release]:
    return read_release(honest / "release"), read_release(honest / "release again")


def shapes(given: Given) -> list[Call]:
    """Hostile shapes of places, for the map of a report."""
    path = given.file("shapes.json", mutate.json_mutant)
    spec = load_spec(given.honest / "spec.toml")
    return [lambda: report(_two_releases(given.honest)[0], spec, shapes=path)]


def assessment(given: Given) -> list[Call]:
    """A hostile assessment."""
    inside, which = given.folder("assessment") / "public", given.number % 3
    name = ["summary.parquet", "spec.toml", "assessment.json"][which]
    mutant = [mutate.parquet_mutant, mutate.toml_mutant, mutate.json_mutant][which]
    given.change(inside / name, mutant, *[ROWS][which:])
    return [lambda: render_bundle(given.place, publish=True)]


def checkpoint(given: Given) -> list[Call]:
    """Hostile checkpoints of chains."""
    folder = given.folder("chains")
    if given.rng:
        path = given.rng.choice(sorted(folder.iterdir()))
        given.change(path, mutate.json_mutant if path.suffix == ".json" else mutate.zip_mutant)

    def load() -> None:
        keep = Checkpoint.of(folder, key_of("fuzz"))
        keep.load("run", 0, np.random.default_rng(2))
        assert isinstance(keep.run, str)

    return [load]


def posterior(given: Given) -> list[Call]:
    """A kept posterior with a hostile manifest, or with hostile draws or places whose digests its manifest has."""
    folder = given.folder("posterior")
    manifest = folder / "manifest.json"
    if given.rng and given.number % 2:
        given.change(manifest, mutate.json_mutant)
    elif given.rng:
        path = folder / given.rng.choice(["draws.parquet", "places.parquet"])
        given.change(path, mutate.parquet_mutant, ROWS)
        held = json.loads(manifest.read_text())
        held["files"][path.name] = digest(path)
        manifest.write_text(json.dumps(held))

    def asked() -> None:
        kept = read_posterior(folder)
        assert isinstance(kept.promise + repr(kept), str)
        ask(kept, "'county, adult=child' / county").figures()
        ask(kept, "rank(block)").figures()

    return [asked]


KINDS: dict[str, Callable[[Given], list[Call]]] = {
    "manifest": manifest,
    "tables": tables,
    "spec of a bundle": spec_of_bundle,
    "spec": spec,
    "workbook": workbook,
    "parquet": parquet,
    "text": text,
    "places": places,
    "S-DHC": sdhc,
    "noisy measurements": noisy,
    "crosswalk": crosswalk,
    "shapes": shapes,
    "assessment": assessment,
    "checkpoint": checkpoint,
    "posterior": posterior,
}
"""What makes a hostile file of each kind, and the calls that read it."""
SAME = ("tables", "spec of a bundle")
"""Kinds that are read by those who read the kind `manifest`."""
