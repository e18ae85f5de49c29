"""Division of a large hierarchy into parts, determined by public sizes and a memory limit alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import TrueupError
from trueup.model.tree import Tree

PARTS_PER_WORKER = 4
"""Bundles for each worker, where there are places enough: the last ones to finish should be short."""
MIN_LAST_LAYER_PLACES = 400
"""Places of the last layer below which a part is not made smaller for balance: each costs a start of its own."""
MIN_UPPER_LAYER_PLACES = 16
"""Least places of a part in the layers above, whose tables are fuller: a place there takes some thirty times as long."""
ALONE = 1000
"""The first layer is one part, which nobody else helps with: it holds one place for so many of the last level."""


class PlacePart(NamedTuple):
    """A part of the places, which is one unit of work; its layer and its number are counted from 0."""

    layer: int
    number: int

    def __str__(self) -> str:
        return f"{self.layer}-{self.number:05d}"


@dataclass(frozen=True)
class Layer:
    """The levels `top` to `bottom` of the tree, with subtrees grouped into parts.

    A level between two layers belongs to both: the places are the leaves of the upper layer and the roots of the lower
    one. The lower layer measures them, the upper one settles them.

    Attributes
    ----------
    top, bottom
        First and last level.
    edges
        `(parts + 1,)`: part `b` holds the places `edges[b]:edges[b + 1]` of level `top` with all below.
    """

    top: int
    bottom: int
    edges: tuple[int, ...]

    @property
    def parts(self) -> int:
        """Return the number of parts in the layer."""
        return len(self.edges) - 1


@dataclass(frozen=True)
class Cut:
    """The division of a tree of places into layers, from the top down.

    Examples
    --------
    >>> tree = Tree.from_columns(["all", "area", "block"],
    ...     [{}, {"area": ["a", "a", "b", "b"]}, {"block": ["1", "2", "1", "2"]}])
    >>> cut = cut_tree(tree, 3)
    >>> cut.layers
    (Layer(top=0, bottom=1, edges=(0, 1)), Layer(top=1, bottom=2, edges=(0, 1, 2)))
    >>> cut.below(PlacePart(0, 0))
    [PlacePart(layer=1, number=0), PlacePart(layer=1, number=1)]
    """

    layers: tuple[Layer, ...]
    leaves: tuple[
        tuple[int, ...], ...
    ]  # per layer, (parts + 1,) edges of the parts among the places of `bottom`

    @cached_property
    def parts(self) -> list[list[PlacePart]]:
        """Return the parts of every layer."""
        return [[PlacePart(s, b) for b in range(layer.parts)] for s, layer in enumerate(self.layers)]

    def levels(self, layer: int) -> range:
        """Return the levels that a layer measures: all but a last level that begins the next layer."""
        s = self.layers[layer]
        return range(s.top, s.bottom + (layer == len(self.layers) - 1))

    def settled(self, layer: int) -> range:
        """Return the levels whose counts a layer determines: all but a first level that the layer above determines."""
        s = self.layers[layer]
        return range(s.top + (layer > 0), s.bottom + 1)

    def below(self, part: PlacePart) -> list[PlacePart]:
        """Return the parts in the next layer whose roots are the leaves of a part."""
        if part.layer + 1 == len(self.layers):
            return []
        first, last = self.leaves[part.layer][part.number : part.number + 2]
        edges = np.array(self.layers[part.layer + 1].edges)
        numbers = range(*np.searchsorted(edges, [first, last]).tolist())
        return [PlacePart(part.layer + 1, number) for number in numbers]

    def above(self, part: PlacePart) -> PlacePart:
        """Return the part whose leaves include the roots of a part."""
        first = self.layers[part.layer].edges[part.number]
        at = np.searchsorted(self.leaves[part.layer - 1], first, side="right") - 1
        return PlacePart(part.layer - 1, int(at))

    def part_of_leaf(self) -> NDArray[np.int64]:
        """Return the number of the part to which each place of the last level belongs."""
        edges = np.array(self.leaves[-1])
        return np.repeat(np.arange(edges.size - 1), np.diff(edges))

    def plain(self) -> dict[str, Any]:
        """Return the cut as JSON values."""
        return asdict(self)

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> Cut:
        """Return the cut that `plain` turned into JSON values."""
        layers = tuple(Layer(s["top"], s["bottom"], tuple(s["edges"])) for s in plain["layers"])
        return cls(layers, tuple(map(tuple, plain["leaves"])))


def cut_tree(tree: Tree, most: int, workers: int = 1) -> Cut:
    """Cut a tree into layers of parts that contain no more than `most` places each.

    The boundary levels are those closest to the root that leave subtrees small enough, so that layers are few.

    Parameters
    ----------
    tree
        The public places.
    most
        Places that fit into a worker's share of the memory.
    workers
        Bundles are made smaller than that where this keeps all workers busy.

    Raises
    ------
    TrueupError
        If some place has more children than that: between a place and its children nothing can be cut.
    """
    size = min(most, _fair(tree.sizes[-1], workers, MIN_LAST_LAYER_PLACES) or most)
    while (layers := _layers(tree, size)) is None:
        if size == most:
            raise _too_wide(tree, most)
        size = min(most, 2 * size)
    if workers > 1:
        layers = _first_short(tree, layers)
    return _in_parts(tree, layers, size, workers)


def _fair(places: int, workers: int, least: int) -> int | None:
    """Return the number of places per part that keeps all workers busy, or None for one worker."""
    return max(least, -(-places // (PARTS_PER_WORKER * workers))) if workers > 1 else None


def _first_short(tree: Tree, layers: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Divide the first layer in two if it has many places, because a single worker works on that layer."""
    (top, bottom), *others = layers
    most = max(4 * MIN_UPPER_LAYER_PLACES, tree.sizes[-1] // ALONE)
    short = [
        level for level in range(1, bottom) if tree.sizes[level] > 1 and tree.level_ptr[level + 1] <= most
    ]
    if not short or tree.level_ptr[bottom + 1] <= most:
        return layers
    return [(top, short[-1]), (short[-1], bottom), *others]


def _layers(tree: Tree, most: int) -> list[tuple[int, int]] | None:
    """Return the top and bottom level of each layer, or None if parts cannot be small enough."""
    found, bottom = [], len(tree.levels) - 1
    if bottom == 0:
        return [(0, 0)]
    while bottom > 0:
        top = next((t for t in range(bottom) if _subtrees(tree, t, bottom).max() <= most), None)
        if top is None:
            return None
        found.append((top, bottom))
        bottom = top
    return found[::-1]


def _subtrees(tree: Tree, top: int, bottom: int) -> NDArray[np.int64]:
    """Return the number of places in the subtree of each place of level `top`, down to level `bottom`."""
    return np.sum([np.diff(tree.starts(top, level)) for level in range(top, bottom + 1)], axis=0)


def _in_parts(tree: Tree, layers: list[tuple[int, int]], most: int, workers: int) -> Cut:
    done, leaves, borders = [], [], [0, 1]
    for top, bottom in layers:
        sizes = _subtrees(tree, top, bottom)
        last = bottom == len(tree.levels) - 1
        size = most if last else min(most, _fair(int(sizes.sum()), workers, MIN_UPPER_LAYER_PLACES) or most)
        edges = [e for first, end in pairwise(borders) for e in _root_run_starts(sizes, first, end, size)]
        edges.append(borders[-1])
        borders = tree.starts(top, bottom)[edges].tolist()
        done.append(Layer(top, bottom, tuple(edges)))
        leaves.append(tuple(borders))
    return Cut(tuple(done), tuple(leaves))


def _root_run_starts(sizes: NDArray[np.int64], first: int, last: int, most: int) -> list[int]:
    """Divide the roots `first:last` into runs of at most `most` places; return the first root of each run."""
    starts, held = [first], 0
    for root in range(first, last):
        if held and held + sizes[root] > most:
            starts.append(root)
            held = 0
        held += int(sizes[root])
    return starts


def _too_wide(tree: Tree, most: int) -> TrueupError:
    counts = np.diff(tree.child_ptr)
    place = int(counts.argmax())
    level = int(np.searchsorted(tree.level_ptr, place, side="right")) - 1
    label = tree.label(tree.levels[level], place - int(tree.level_ptr[level]))
    return TrueupError(
        f"{tree.levels[level]} '{label}' has {int(counts[place]):,} places directly below it, but a worker's share of "
        f"the memory holds at most {most:,}",
        remedy="raise --memory, give fewer --workers, or declare a level in between",
    )
