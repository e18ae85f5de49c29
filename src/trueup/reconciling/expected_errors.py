"""Expected errors of a release, from measuring and reconciling simulated populations.

Populations are measured under the laws of the release and reconciled as it was, again and again; the errors are sorted by
the size of the count that came out. After a release they are drawn from what its measurements say of the true counts (see
`populations`): a parametric bootstrap (Efron 1982, chapter 5) whose parameters are drawn, not estimated. Errors on a point
are those of another population: released counts of weakly measured places are far too large or zero, and counts that were
drawn towards a prior vary less than true ones. Before a release they are made up. Confidential counts are never read, and
no entropy is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import TrueupError
from trueup.kernel import Status
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, simulate_many
from trueup.model.problem import Problem
from trueup.model.records.expected_errors import ErrorClass, ExpectedErrors, error_classes
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.reconciling.method import Method
from trueup.reconciling.populations import drawn_populations

WORK = 2**18
"""Cells that are reconciled in all, replicates times cells, by a method of effort 1."""
DRAWN_CELL_COST = 8
"""Time of a cell of a drawn population, relative to a reconciled one: 1 in histograms, 25 in trees; 8 is between."""
MAX_POPULATIONS = 20
"""Most populations that are drawn."""
MIN_REPLICATES, MAX_REPLICATES = 8, 200
"""Fewest replicates (a problem too large for so many is represented by some of its places), and most."""
CELLS_AT_ONCE = 2**20
"""Most measured values and cells of replicates that are worked on at once."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class ErrorSimulation:
    """A function that simulates the errors of a release.

    Attributes
    ----------
    method, constraints
        The method and the constraints of the release.
    published
        The tables whose errors are wanted.
    state
        The state that the method prepared for these constraints and laws; None if it is still to be prepared.
    """

    method: Method
    constraints: Constraints
    published: tuple[Margin, ...]
    state: Any = None

    def __call__(self, release: Release) -> ExpectedErrors:
        """Return the simulated errors of a release, by table and by size of the count."""
        noisy = release.measurements
        if noisy.value_bounds:
            why = "Errors of perturbed values, whose limits depend on the values, are not simulated."
            return ExpectedErrors((), why)
        rng = np.random.default_rng([int(noisy.digest, 16), 1])
        spec = None if noisy.bounds else noisy.spec
        found = self.simulate(release.counts, noisy.flat, noisy.headers, rng, spec=spec)
        return at_standard_errors(found, release.errors, self.constraints.cells, WORK // self.method.effort)

    def simulate(
        self,
        counts: NDArray,
        values: NDArray,
        headers: Sequence[Measured],
        rng: np.random.Generator,
        *,
        spec: Spec | None = None,
        work: int = WORK,
        said: str = "",
    ) -> ExpectedErrors:
        """Simulate errors on populations that are drawn given measured values, or on the released counts.

        With a spec, a sample of the places may be simulated.
        """
        cells, number = self.constraints.cells, populations(self.constraints.cells, work)
        local, places = self._places(headers, spec, work, rng)
        made = f"{number} populations" if number > 1 else "a population"
        made += " drawn given the measurements"
        try:
            drawn = drawn_populations(self.constraints, headers, values, number, rng, places)
        except TrueupError:
            drawn, made = np.maximum(np.rint(counts), 0).astype(np.int64)[None], "the released counts"
        some = Sample(cells, drawn, self.constraints, headers, self.state)
        if local:
            drawn = drawn.reshape(len(drawn), cells.shape[0], -1)[:, places].reshape(len(drawn), -1)
            some = Sample(local.cells, drawn, local.constraints, local.headers)
        said = f"{made}, of {said or some.of(cells)}"
        return expected_errors(self.method, some, self.published, rng, said=said, work=work)

    def _places(
        self, headers: Sequence[Measured], spec: Spec | None, work: int, rng: np.random.Generator
    ) -> tuple[Problem | None, NDArray[np.bool_] | None]:
        """Return the problem on a sample of places with a mask of the sample, or None twice if all fit."""
        cells = self.constraints.cells
        if spec is None or any(h.groups is not None for h in headers):
            return None, None
        some, leaves = some_places(cells, work // self.method.effort, rng)
        local = Problem(spec, some)
        try:
            found = some is not cells and local.headers
        except TrueupError:
            found = False
        return (local, np.isin(np.arange(cells.shape[0]), leaves)) if found else (None, None)


def populations(cells: Cells, work: int) -> int:
    """Return the number of populations to simulate for tables with a given number of cells.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> [populations(Cells(Tree.from_columns(["all", "area"], [{}, {"area": np.arange(n)}])), WORK) for n in (9, 5000, 10**6)]
    [20, 6, 1]
    """
    return int(np.clip(work // (cells.n * DRAWN_CELL_COST), 1, MAX_POPULATIONS))


@dataclass(frozen=True, eq=False)
class Sample:
    """Populations `(k, n)` on a sample of places, with the measurements and constraints there."""

    cells: Cells
    populations: NDArray[np.int64]
    constraints: Constraints
    headers: Sequence[Measured]
    state: Any = None

    def of(self, whole: Cells) -> str:
        """Return text that states how many of all places were simulated."""
        return f"{self.cells.shape[0]:,} of {whole.shape[0]:,} places"


def some_places(cells: Cells, work: int, rng: np.random.Generator) -> tuple[Cells, NDArray[np.int64]]:
    """Choose random places within a limit of work, with all places below them.

    The level they are chosen from is the coarsest of which eight fit.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> columns = [{}, {"area": np.repeat(np.arange(50), 20)}, {"block": np.arange(1000)}]
    >>> cells = Cells(Tree.from_columns(["all", "area", "block"], columns))
    >>> some, leaves = some_places(cells, 2400, np.random.default_rng(1))
    >>> some.tree.sizes, len(leaves)
    ((1, 15, 300), 300)
    """
    most, tree, level = work // MIN_REPLICATES, cells.tree, chosen_level(cells, work)
    if level < 0:
        return cells, np.arange(cells.shape[0])
    chosen = rng.permutation(tree.sizes[level])[: max(1, most // (cells.n // tree.sizes[level]))]
    kept, leaves = tree.only(level, np.sort(chosen))
    return Cells(kept, cells.attributes), leaves


def chosen_level(cells: Cells, work: int) -> int:
    """Return the level from which `some_places` draws places, or -1 if it takes all places."""
    most, sizes = work // MIN_REPLICATES, [cells.n // size for size in cells.tree.sizes]
    if cells.n <= most or cells.is_family:
        return -1
    return next((i for i, size in enumerate(sizes) if 8 * size <= most), max(len(sizes) - 2, 0))


def at_standard_errors(
    found: ExpectedErrors, errors: Mapping[Margin, NDArray], cells: Cells, work: int
) -> ExpectedErrors:
    """Replace simulated errors by least-squares standard errors on levels of which only part was simulated.

    Places of the level that it chooses from, and of those above, stand for more places than the sample has of them: the few
    that are below say more of their sums than all do, and noise of a place above is shared by fewer, which zero then biases.
    Their counts are large, so that least squares is what they get.
    """
    thinned = thinned_levels(cells, work)
    return found.at({margin: e for margin, e in errors.items() if margin.level in thinned})


def thinned_levels(cells: Cells, work: int) -> tuple[str, ...]:
    """Return the levels of which `some_places` draws only some of the places.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> columns = [{}, {"area": np.repeat(np.arange(50), 20)}, {"block": np.arange(1000)}]
    >>> cells = Cells(Tree.from_columns(["all", "area", "block"], columns))
    >>> [thinned_levels(cells, work) for work in (8000, 2400, 80)]
    [(), ('all', 'area'), ('all', 'area')]
    """
    levels = cells.tree.levels
    return levels[: min(chosen_level(cells, work) + 1, len(levels) - 1)]


def expected_errors(
    method: Method,
    sample: Sample,
    published: Sequence[Margin],
    rng: np.random.Generator,
    *,
    said: str,
    work: int = WORK,
    progress: Progress = lambda done, of: None,
) -> ExpectedErrors:
    """Return a method's expected errors, simulated on populations, by table and by released size.

    Parameters
    ----------
    sample
        The populations with what is measured of them; each is measured equally often.
    published
        The tables.
    said
        Words for the populations, for the note.
    work
        Cells that are reconciled in all, divided by the method's effort.
    progress
        Called as `progress(done, replicates)`.

    Examples
    --------
    >>> from trueup.demo import AREAS
    >>> from trueup.model.tree import Tree
    >>> from trueup.reconciling import choose
    >>> problem = Problem.of(AREAS, Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> sample = Sample(problem.cells, np.array([[300, 400]]), problem.constraints, problem.headers)
    >>> method, rng = choose({}, problem.constraints), np.random.default_rng(1)
    >>> found = expected_errors(method, sample, [Margin("area")], rng, said="two areas")
    >>> found.classes[0].lowest, found.classes[0].simulated, 1.5 < found.classes[0].rmse < 3
    (100, 400, True)
    """
    replicates = int(np.clip(work // (sample.cells.n * method.effort), MIN_REPLICATES, MAX_REPLICATES))
    try:
        batches = list(_replicates(method, sample, published, replicates, rng, progress))
    except TrueupError as error:
        return ExpectedErrors((), f"Errors could not be simulated: {error}")
    classes = [c for margin in published for c in _classes(margin, batches, whole=method.integer)]
    note = f"Simulated: {replicates} replicates of measuring and reconciling {said}."
    return ExpectedErrors(tuple(classes), note)


Errors = dict[Margin, tuple[NDArray, NDArray]]
"""Released counts and their errors, by table."""


def _replicates(
    method: Method,
    sample: Sample,
    published: Sequence[Margin],
    replicates: int,
    rng: np.random.Generator,
    progress: Progress,
) -> Iterator[Errors]:
    """Yield released counts and the errors of every table, one batch of replicates at a time."""
    cells, headers = sample.cells, sample.headers
    free = {margin: ~sample.constraints.known_zeros(margin) for margin in published}
    state = method.prepare(sample.constraints, headers) if sample.state is None else sample.state
    values = sum(h.sums(cells, sample.populations[0]).size for h in headers)
    for start, counts in _batches(
        replicates, len(sample.populations), max(1, CELLS_AT_ONCE // max(values, cells.n))
    ):
        progress(start, replicates)
        some = sample.populations[counts > 0]
        measured = [
            simulate_many(cells, population, headers, rng, int(count))
            for population, count in zip(some, counts[counts > 0], strict=True)
        ]
        solution = method.apply(state, np.concatenate(measured), rng)
        if solution.status is not Status.SOLVED:
            raise TrueupError(f"method '{method.name}' cannot solve a simulated release: {solution.status}")
        truth, found = np.repeat(some, counts[counts > 0], axis=0), {}
        for margin, counted in free.items():
            table = cells.sum(solution.values, margin)[..., counted]
            found[margin] = table, table - cells.sum(truth, margin)[..., counted]
        yield found
    progress(replicates, replicates)


def _batches(replicates: int, populations: int, size: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the first replicate of every batch, and the batch's number of replicates per population."""
    owner = np.arange(replicates) * populations // replicates
    for start in range(0, replicates, size):
        yield start, np.bincount(owner[start : start + size], minlength=populations)


def _classes(margin: Margin, batches: Sequence[Errors], *, whole: bool) -> list[ErrorClass]:
    released, errors = (np.concatenate([b[margin][i].ravel() for b in batches]) for i in (0, 1))
    return error_classes(margin, released, errors, whole=whole)
