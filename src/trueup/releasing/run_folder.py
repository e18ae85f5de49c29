"""The run folder: everything a run needs to go on after any kill, readable by its owner alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError, DataError
from trueup.files.staging import holding, replace_whole
from trueup.io.bundle.manifest import header_in
from trueup.io.bundle.places import read_places
from trueup.io.microdata.sparse import Occupied, SparseCounts
from trueup.model.build import build_cells
from trueup.model.cells import Cells
from trueup.model.header import Measured
from trueup.model.spec import Spec, parse_spec
from trueup.model.tree import Tree
from trueup.releasing.cut import Cut, PlacePart, Stage
from trueup.run.parts import Parts

FORMAT = 3
PLAN = "plan.json"


@dataclass(frozen=True)
class Branch:
    """The public places of a bundle.

    Attributes
    ----------
    tree
        The bundle's levels of the tree: a forest.
    starts
        `(levels,)`: at which position of the whole level the bundle's places start.
    """

    tree: Tree
    starts: NDArray[np.int64]


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps its plan, its parts and, under `confidential/`, what must not leave it.

    Attributes
    ----------
    path
        The folder, on a file system that all workers share.
    """

    path: Path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from this run until the block or this process ends.

        Raises
        ------
        BundleError
            If another process works on it.
        """
        try:
            with holding(self.path):
                yield
        except BlockingIOError:
            raise BundleError(
                f"another process works on '{self.path}'", remedy="wait for it, or end it"
            ) from None

    @cached_property
    def plan(self) -> dict[str, Any]:
        """What the run began with.

        Raises
        ------
        BundleError
            If the folder is not a run's, or of another format.
        """
        try:
            plan = json.loads((self.path / PLAN).read_text(encoding="utf-8"))
            known = plan["format"] == FORMAT
        except OSError:
            raise BundleError(
                f"'{self.path}' is not the folder of a run: it has no {PLAN}",
                remedy="check the path given to --resume",
            ) from None
        except (ValueError, KeyError, TypeError):
            raise BundleError(
                f"the plan of the run '{self.path}' is damaged", remedy="start a new run"
            ) from None
        if not known:
            raise BundleError(f"the run '{self.path}' has format {plan['format']}", needed=f"format {FORMAT}")
        return plan

    def write_plan(self, spec_text: str, plan: Mapping[str, Any]) -> None:
        """Write what the run begins with; with it the run has begun."""
        replace_whole(self.path / "spec.toml", spec_text)
        replace_whole(self.path / PLAN, json.dumps({"format": FORMAT, **plan}, indent=1))

    @cached_property
    def spec_text(self) -> str:
        """The spec as it was given."""
        return (self.path / "spec.toml").read_text(encoding="utf-8")

    @cached_property
    def spec(self) -> Spec:
        """The spec."""
        return parse_spec(self.spec_text)

    @cached_property
    def cut(self) -> Cut:
        """Where the tree is cut."""
        return Cut.of_plain(self.plan["cut"])

    @cached_property
    def headers(self) -> tuple[Measured, ...]:
        """Every measurement of the spec."""
        return tuple(header_in(entry) for entry in self.plan["headers"])

    @cached_property
    def places(self) -> Parts:
        """The public places of every bundle."""
        return Parts(self.path / "places")

    @cached_property
    def measured(self) -> Parts:
        """The measurements of every bundle, to be published."""
        return Parts(self.path / "measured")

    @cached_property
    def estimates(self) -> Parts:
        """What every bundle tells the bundle above it; follows from the measurements."""
        return Parts(self.path / "estimates")

    @cached_property
    def settled(self) -> Parts:
        """Settled tables that bundles below need, and what settling reported; follows from the measurements."""
        return Parts(self.path / "settled")

    @cached_property
    def tables(self) -> Parts:
        """The released tables of every bundle, to be published."""
        return Parts(self.path / "tables")

    @property
    def confidential(self) -> Path:
        """The folder of what must not leave the run."""
        return self.path / "confidential"

    @cached_property
    def sums(self) -> Parts:
        """Exact counts of every bundle's roots, for the bundle above it."""
        return Parts(self.confidential / "sums", bytes.fromhex((self.confidential / "key").read_text()))

    @property
    def counts(self) -> SparseCounts:
        """The tabulated counts of the last stage's bundles."""
        return SparseCounts(self.confidential / "counts", self.cut.stages[-1].bundles)

    @property
    def tabulated(self) -> bool:
        """Whether the confidential table was read."""
        return self.counts.folder.exists()

    @property
    def checked(self) -> bool:
        """Whether all confidential counts are in order: the sums of the top bundle come last."""
        return self.sums.find(str(self.cut.bundles[0][0])) is not None

    def top_of(self, bundles: Sequence[PlacePart]) -> str:
        """The level at the top of a stage's bundles."""
        return self.spec.levels[self.cut.stages[bundles[0].stage].top].name

    def occupied(self, number: int) -> Occupied:
        """Read the tabulated counts of a bundle of the last stage.

        Raises
        ------
        BundleError
            If they are damaged: the disk is at fault then, and not the data.
        """
        try:
            return self.counts.read(number)
        except DataError:
            raise BundleError(
                f"the tabulated counts of bundle {number} in '{self.confidential}' are missing or damaged",
                needed="the file that was written",
                remedy="restore it, then continue with --resume",
            ) from None

    def tree(self) -> Tree:
        """Read all public places."""
        return read_places(self.places.path("all"), self.spec)

    def branch(self, bundle: PlacePart) -> Branch:
        """Read the places of a bundle."""
        stage = self.cut.stages[bundle.stage]
        levels = [level.name for level in self.spec.levels][stage.top : stage.bottom + 1]
        held = load_arrays(self.places.path(str(bundle)))
        keys = tuple(_named(held, f"key {i} ") for i in range(len(levels)))
        names = tuple(held.get(f"name {i}") for i in range(len(levels)))
        limits = tuple(_named(held, f"limit {i} ") for i in range(len(levels)))
        tree = Tree(tuple(levels), held["child_ptr"], held["level_ptr"], keys, names, limits)
        return Branch(tree, held["starts"])

    def write_branch(self, tree: Tree, stage: Stage, bundle: PlacePart) -> None:
        """Write the places of a bundle."""
        first, last = stage.edges[bundle.number : bundle.number + 2]
        part = tree.branch(stage.top, first, last, stage.bottom)
        starts = [tree.starts(stage.top, level)[first] for level in range(stage.top, stage.bottom + 1)]
        keys = {f"key {i} {name}": col for i, held in enumerate(part.keys) for name, col in held.items()}
        names = {f"name {i}": col for i, col in enumerate(part.names) if col is not None}
        arrays = {"child_ptr": part.child_ptr, "level_ptr": part.level_ptr, "starts": np.array(starts)}
        limits = {
            f"limit {i} {name}": col for i, held in enumerate(part.limits) for name, col in held.items()
        }
        self.places.commit(str(bundle), lambda path: save_arrays(path, arrays | keys | names | limits))

    def cells(self, branch: Branch) -> Cells:
        """The finest cells of a bundle."""
        return build_cells(self.spec, branch.tree)

    def headers_of(self, stage: int) -> tuple[Measured, ...]:
        """What the bundles of a stage measure."""
        levels = {self.spec.levels[level].name for level in self.cut.levels(stage)}
        return tuple(h for h in self.headers if h.margin.level in levels)


def save_arrays(path: Path, arrays: Mapping[str, NDArray]) -> None:
    """Write named arrays to one file."""
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load_arrays(path: Path) -> dict[str, NDArray]:
    """Read named arrays."""
    with np.load(path) as held:
        return dict(held)


def _named(held: Mapping[str, NDArray], prefix: str) -> dict[str, NDArray]:
    return {name.removeprefix(prefix): col for name, col in held.items() if name.startswith(prefix)}
