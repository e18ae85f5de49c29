"""The folder of a run by parts, which holds everything needed to resume it.

One file: all that the folder holds, and all that is made of it, stands in one place.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError, DataError
from trueup.files import source_at
from trueup.files.database import connect
from trueup.files.values import as_text
from trueup.files.writing import replace_whole, to_disk
from trueup.io.bundle.manifest import header_in, seal_of
from trueup.io.bundle.places import read_places, write_places
from trueup.io.microdata.by_parts import Occupied, SparseCounts
from trueup.io.microdata.truncate import Limit
from trueup.model.build import build_cells, build_constraints, cells_of_sizes
from trueup.model.cells import Cells, Margin
from trueup.model.family import FamilyCells
from trueup.model.geography import read_tree
from trueup.model.header import Measured
from trueup.model.spec import Spec, parse_spec
from trueup.model.tree import Tree
from trueup.reconciling import published
from trueup.releasing.cut import Cut, Layer, PlacePart
from trueup.releasing.draws import Draws
from trueup.run.parts import Parts

FORMAT = 5
PLAN = "plan.json"
REMOVED = ".removed"
"""Ending of the name of a run folder that is no longer needed."""


@dataclass(frozen=True)
class Branch:
    """The public places of one part of the tree.

    Attributes
    ----------
    tree
        The part's levels of the tree: a forest.
    starts
        `(levels,)`: at which position of the whole level the part's places start.
    """

    tree: Tree
    starts: NDArray[np.int64]


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run: plan, parts and, under `confidential/`, confidential files.

    Attributes
    ----------
    path
        The folder, on a file system that all workers share.
    """

    path: Path

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Return the settings with which the run began.

        Raises
        ------
        BundleError
            If the folder is not a run's, or of another format.
        """
        try:
            plan = json.loads((self.path / PLAN).read_text(encoding="utf-8"))
            digest = plan.pop("digest", None)
            known = plan["format"] == FORMAT
        except OSError:
            raise BundleError(
                f"'{self.path}' is not the folder of a run: it has no {PLAN}",
                remedy="give --resume the folder that ends in .run",
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._damaged(PLAN) from None
        if not known:
            raise BundleError(
                f"the run '{self.path}' was begun by trueup {plan.get('trueup', 'of another version')} (format "
                f"{plan['format']}; this is {FORMAT})",
                needed="the version that began it, because noise is never drawn again",
                remedy="finish the run with that version, or remove the folder and begin a new run with its own charge",
            )
        if digest != _digest(plan):
            raise self._damaged(PLAN)
        return plan

    def write_plan(self, spec_text: str, plan: Mapping[str, Any]) -> None:
        """Write the settings with which a run begins."""
        plan = {"format": FORMAT, **plan}
        replace_whole(self.path / "spec.toml", spec_text)
        replace_whole(self.path / PLAN, json.dumps(plan | {"digest": _digest(plan)}, indent=1))
        for name in vars(self).keys() - {"path"}:
            del self.__dict__[name]

    def _damaged(self, name: str) -> BundleError:
        return BundleError(
            f"'{self.path / name}' of the run is missing, truncated or altered",
            needed="the file as the run wrote it",
            remedy="restore the file, or start a new run with its own charge",
        )

    def _read(self, name: str) -> str:
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise self._damaged(name) from None

    @cached_property
    def spec_text(self) -> str:
        """Return the text of the spec as it was given."""
        return self._read("spec.toml")

    @cached_property
    def spec(self) -> Spec:
        """Return the spec of the run."""
        return _spec_of(self.spec_text)

    @property
    def database(self) -> Any:
        """Return a DuckDB connection that is limited to this folder and shared by all tasks of a process."""
        return _database(self.path)

    @cached_property
    def cut(self) -> Cut:
        """Return the division of the tree into parts."""
        return Cut.of_plain(self.plan["cut"])

    @cached_property
    def headers(self) -> tuple[Measured, ...]:
        """Return the headers of all measurements of the spec."""
        return tuple(header_in(entry) for entry in self.plan["headers"])

    @property
    def method(self) -> str:
        """Return the name of the method that reconciles the measurements."""
        return self.plan["method"]["method"]

    @cached_property
    def key(self) -> bytes:
        """Return the secret key for digests of confidential files."""
        try:
            return bytes.fromhex(self._read("confidential/key"))
        except ValueError:
            raise self._damaged("confidential/key") from None

    @cached_property
    def places(self) -> Parts:
        """Return the public places of every part."""
        return Parts(self.path / "places", follows=True)

    @cached_property
    def measured(self) -> Parts:
        """Return the files of each part's measurements, which will be published."""
        return Parts(self.path / "measured")

    @cached_property
    def estimates(self) -> Parts:
        """Return the files of each part's estimates, which the part above uses."""
        return self._following("estimates")

    @cached_property
    def settled(self) -> Parts:
        """Return the files of each part's reconciled counts, which the parts below use, and of its reports."""
        return self._following("settled")

    @cached_property
    def tables(self) -> Parts:
        """Return the files of each part's released tables, which will be published."""
        return self._following("tables")

    def _following(self, name: str) -> Parts:
        return Parts(self.path / name, seal=self.seal, follows=True)

    @property
    def confidential(self) -> Path:
        """Return the folder of confidential files."""
        return self.path / "confidential"

    @property
    def limit(self) -> Limit | None:
        """Return the limit on each unit's records, with the numbers left out once the table is tabulated."""
        if Limit.of(self.spec, lambda: self.key) is None:
            return None
        try:
            held = json.loads(self._read("confidential/contribution"))
            return Limit(**held | {"units": {int(many): n for many, n in held["units"].items()}})
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._damaged("confidential/contribution") from None

    @cached_property
    def sums(self) -> Parts:
        """Return the files of exact counts at each part's roots, which the part above uses."""
        return Parts(self.confidential / "sums", self.key, follows=True)

    @property
    def counts(self) -> SparseCounts:
        """Return the tabulated counts, stored by part of the last layer."""
        return SparseCounts(self.confidential / "counts", self.cut.layers[-1].parts)

    @property
    def tabulated(self) -> bool:
        """Return True if the confidential table was tabulated completely."""
        return (self.confidential / "counts.json").exists()

    def keep_counts(self) -> None:
        """Write keyed digests of the files of tabulated counts, which marks these as complete."""
        digests = [self._keyed(self.counts.part(n)) for n in range(self.counts.parts)]
        replace_whole(self.confidential / "counts.json", json.dumps(digests), private=True)

    def _keyed(self, path: Path) -> str:
        with path.open("rb") as file:
            return hmac.new(self.key, file.read(), "sha256").hexdigest()

    @property
    def all_parts(self) -> list[PlacePart]:
        """Return all parts, from the top layer down."""
        return [part for parts in self.cut.parts for part in parts]

    @cached_property
    def draws(self) -> Draws:
        """Return the lasting records of the run's draws."""
        return Draws(self.path, self.measured, tuple(map(str, self.all_parts)))

    @cached_property
    def seal(self) -> str:
        """Return the seal on all measurements; raise BundleError if they are not complete."""
        return seal_of(self.draws.parts)

    def forget_counts(self) -> None:
        """Remove the confidential counts, which are no longer needed."""
        for name in ("counts", "sums", "grouped"):
            shutil.rmtree(self.confidential / name, ignore_errors=True)

    def remove(self) -> None:
        """Remove the run folder, in an order that lets an interrupted removal continue."""
        _database.cache_clear()  # its threads would be missing in a process that is forked later
        gone = self.path.with_name(self.path.name + REMOVED)
        self.path.rename(gone)
        to_disk(gone.parent)
        RunFolder(gone).finish_removing()

    def finish_removing(self) -> None:
        """Complete the removal of a run folder that was interrupted."""
        if self.confidential.exists():
            shutil.rmtree(self.confidential)
        for path in self.path.iterdir():
            if path.name != PLAN:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        remove_plan(self.path)

    def top_of(self, parts: Sequence[PlacePart]) -> str:
        """Return the name of the top level of the layer to which some parts belong."""
        return self.spec.levels[self.cut.layers[parts[0].layer].top].name

    def occupied(self, number: int) -> Occupied:
        """Return the tabulated counts of a part of the last layer."""
        try:
            digests = json.loads(self._read("confidential/counts.json"))
            if hmac.compare_digest(self._keyed(self.counts.part(number)), digests[number]):
                return self.counts.read(number, self.database)
        except (OSError, ValueError, LookupError, TypeError, DataError):
            pass
        raise BundleError(
            f"the tabulated counts of part {number} in '{self.confidential}' are missing or damaged",
            needed="the file that the run wrote",
            remedy="restore the file, then continue with --resume",
        )

    def tree(self) -> Tree:
        """Read all public places as a tree."""
        return read_places(self.places.path("all"), self.spec)

    def rebuild_places(self, geography: Any = None) -> None:
        """Write the public places again after they were lost.

        Raises
        ------
        BundleError
            If the list of places is needed for that, and is not given or is another one.
        """
        found = None if self.places.find("all") else self._places_again(geography)
        if any(self.places.find(str(part)) is None for part in self.all_parts):
            self.write_branches(found or self.tree(), self.cut)

    def _places_again(self, geography: Any) -> Tree:
        given = source_at(self.plan["geography"]) if geography is None else geography
        if given is None:
            raise BundleError(
                f"the public places in '{self.places.folder}' are missing",
                remedy="give --geography FILE, as when the run began",
            )
        tree = read_tree(self.spec, given)
        if tree.digest != self.plan["places"]:
            raise BundleError(
                "the places differ from those with which the run began",
                remedy="give the same file as --geography",
            )
        cells = build_cells(self.spec, tree)
        self.places.commit("all", lambda path: write_places(path, cells), ".parquet")
        return tree

    def branch(self, part: PlacePart) -> Branch:
        """Read the public places of a part."""
        layer = self.cut.layers[part.layer]
        levels = [level.name for level in self.spec.levels][layer.top : layer.bottom + 1]
        held = load_arrays(self.places.path(str(part)))
        keys = tuple(_named(held, f"key {i} ") for i in range(len(levels)))
        names = tuple(held.get(f"name {i}") for i in range(len(levels)))
        limits = tuple(_named(held, f"limit {i} ") for i in range(len(levels)))
        tree = Tree(tuple(levels), held["child_ptr"], held["level_ptr"], keys, names, limits)
        return Branch(tree, held["starts"])

    def write_branches(self, tree: Tree, cut: Cut) -> None:
        """Write the public places of every part that lacks the file."""
        for layer, parts in zip(cut.layers, cut.parts):
            for part in parts:
                self.write_branch(tree, layer, part)

    def write_branch(self, tree: Tree, layer: Layer, part: PlacePart) -> None:
        """Write the public places of a part."""
        first, last = layer.edges[part.number : part.number + 2]
        places = tree.branch(layer.top, first, last, layer.bottom)
        starts = [tree.starts(layer.top, level)[first] for level in range(layer.top, layer.bottom + 1)]
        keys = {f"key {i} {name}": col for i, held in enumerate(places.keys) for name, col in held.items()}
        names = {f"name {i}": col for i, col in enumerate(places.names) if col is not None}
        arrays = {"child_ptr": places.child_ptr, "level_ptr": places.level_ptr, "starts": np.array(starts)}
        limits = {
            f"limit {i} {name}": col for i, held in enumerate(places.limits) for name, col in held.items()
        }
        self.places.commit(str(part), lambda path: save_arrays(path, arrays | keys | names | limits))

    @cached_property
    def _one_place(self) -> Cells:
        """Return the cells of a tree with one place on every level."""
        return cells_of_sizes(self.spec, [1] * len(self.spec.levels))

    def cells(self, branch: Branch) -> Cells:
        """Return the finest cells of a part."""
        if isinstance(self._one_place, FamilyCells):
            return self._one_place.within(branch.tree)
        return build_cells(self.spec, branch.tree)

    @cached_property
    def released(self) -> tuple[Margin, ...]:
        """Return the margins of the released tables."""
        if isinstance(self._one_place, FamilyCells):
            return published(build_constraints(self.spec, self._one_place))
        attributes = tuple(a.name for a in self.spec.attributes)
        return tuple(Margin(level.name, attributes) for level in self.spec.levels)

    def released_by(self, layer: int) -> list[tuple[str, Margin]]:
        """Return the numbers and margins of the released tables that the parts of a layer write."""
        levels = {self.spec.levels[level].name for level in self.cut.settled(layer)}
        return [(f"{i:02d}", margin) for i, margin in enumerate(self.released) if margin.level in levels]

    def headers_of(self, layer: int) -> tuple[Measured, ...]:
        """Return the headers of the margins that the parts of a layer measure."""
        levels = {self.spec.levels[level].name for level in self.cut.levels(layer)}
        return tuple(h for h in self.headers if h.margin.level in levels)


def remove_plan(path: Path) -> None:
    """Remove the plan and the empty folder of a run."""
    (path / PLAN).unlink(missing_ok=True)
    path.rmdir()


@lru_cache(1)
def _spec_of(text: str) -> Spec:
    """Return the spec in a text, from a cache, because parsing takes longer than many tasks."""
    return parse_spec(text)


@lru_cache(1)
def _database(path: Path) -> Any:
    """Return a DuckDB connection from a cache, because opening is slow; it keeps no data."""
    return connect(folders=[path], threads=1, enable_external_file_cache="false")


def _digest(plan: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


def save_arrays(path: Path, arrays: Mapping[str, NDArray]) -> None:
    """Write named arrays to one file."""
    held: dict[str, NDArray] = {}
    for name, array in arrays.items():
        if array.dtype == object:
            texts = [text.encode() for text in array.tolist()]
            held[f"{_TEXTS}{name}"] = np.frombuffer(b"".join(texts), np.uint8)
            held[f"{_LENGTHS}{name}"] = np.array(list(map(len, texts)), np.int64)
        else:
            held[name] = array
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **held)


def load_arrays(path: Path) -> dict[str, NDArray]:
    """Return the named arrays in a file."""
    with np.load(path) as file:
        held = dict(file)
    for name in [name for name in held if name.startswith(_LENGTHS)]:
        ends, name = np.cumsum(held.pop(name)), name.removeprefix(_LENGTHS)
        text = held.pop(f"{_TEXTS}{name}").tobytes()
        held[name] = as_text([text[a:b].decode() for a, b in pairwise([0, *ends.tolist()])])
    return held


_TEXTS, _LENGTHS = "texts of ", "lengths of "


def _named(held: Mapping[str, NDArray], prefix: str) -> dict[str, NDArray]:
    return {name.removeprefix(prefix): col for name, col in held.items() if name.startswith(prefix)}
