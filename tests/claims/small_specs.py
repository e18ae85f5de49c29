"""Random small specs, and what is true of each by enumeration of every pair of databases that it compares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from tests.reference.true_loss import allowed, concentrated, concentrated_on, pure, pure_on, rows
from trueup.errors import TrueupError
from trueup.model.build import build_cells
from trueup.model.guarantee import Guarantee
from trueup.model.mechanism import plan_measurements
from trueup.model.spec import Spec
from trueup.model.tree import Tree

TREES = (
    (["all"], [{}]),
    (["all", "area"], [{}, {"area": ["1", "2"]}]),
    (["all", "area"], [{}, {"area": ["1", "2", "3"]}]),
    (["all", "area", "block"], [{}, {"area": ["1", "1", "2"]}, {"block": ["1", "2", "1"]}]),
    (["all", "area", "block"], [{}, {"area": ["1", "1", "2", "2"]}, {"block": ["1", "2", "1", "2"]}]),
)
MOST_CELLS = 8


def random_spec(rng: np.random.Generator) -> tuple[dict, Tree]:
    """Draw a spec and its places: at most eight cells, some of them structural zeros, some of its margins invariant."""
    while True:
        levels, columns = TREES[rng.integers(len(TREES))]
        sizes = [int(s) for s in rng.choice([2, 2, 3, 4], size=rng.integers(0, 4))]
        places = len(next(iter(columns[-1].values()), [0]))
        if 2 <= places * np.prod(sizes, dtype=int) <= MOST_CELLS:
            break
    attributes = [_attribute(i, size, rng) for i, size in enumerate(sizes)]
    document = {
        "format": 2,
        "title": "random",
        "table": {"name": "t", "kind": "counts", "counts": "person", "count": "n", "keys": "public"},
        "privacy": {"unit": "person", "neighbours": str(rng.choice(["add-remove", "replace"]))},
        "level": [{"name": levels[0]}, *({"name": name, "column": name} for name in levels[1:])],
        "attribute": attributes,
        "constraints": {
            "invariants": [_invariant(levels, attributes, rng) for _ in range(rng.integers(0, 4))],
            "zeros": [_condition(attributes, rng) for _ in range(rng.integers(0, 3)) if attributes],
        },
    }
    if len(sizes) > 1 and rng.random() < 0.2:  # all margins that leave one attribute out
        level = str(rng.choice(levels))
        document["constraints"]["invariants"] = [
            {"level": level, "attributes": [a["name"] for a in attributes if a is not out]}
            for out in attributes
        ]
    if rng.random() < 0.15:
        document["privacy"]["unit"] = "household"
    currency = str(rng.choice(["epsilon", "rho"]))
    document["query"] = [_query(i, document, currency, rng) for i in range(rng.integers(1, 4))]
    return document, Tree.from_columns(levels, columns)


def _attribute(i: int, size: int, rng: np.random.Generator) -> dict:
    name, values = "abc"[i], [f"{'abc'[i]}{v}" for v in range(size)]
    groups = {2: [], 3: [(2, 1)], 4: [(0, 1, 0, 1), (0, 0, 1, 1), (0, 1, 1, 0)]}[size]
    recodes = []
    for j, group in enumerate(groups):
        if size == 3:
            held = {f"{name}x": values[:2], f"{name}y": values[2:]}
        else:
            held = {f"{name}{j}{g}": [v for v, at in zip(values, group) if at == g] for g in (0, 1)}
        recodes.append({"name": f"{name}r{j}", "groups": held})
    return {"name": name, "values": values, "recode": recodes}


def _views(attributes: list[dict], rng: np.random.Generator) -> list[str]:
    chosen = (a for a in attributes if rng.random() < 0.5)
    return [str(rng.choice([a["name"], *(r["name"] for r in a["recode"])])) for a in chosen]


def _condition(attributes: list[dict], rng: np.random.Generator) -> dict:
    chosen = rng.permutation(len(attributes))[: rng.integers(1, 3)]
    return {attributes[i]["name"]: str(rng.choice(attributes[i]["values"])) for i in chosen}


def _invariant(levels: list[str], attributes: list[dict], rng: np.random.Generator) -> dict:
    part: dict = {"level": str(rng.choice(levels)), "attributes": _views(attributes, rng)}
    if attributes and rng.random() < 0.25:
        part["where"] = [_condition(attributes, rng) for _ in range(rng.integers(1, 3))]
    elif len(levels) > 1 and rng.random() < 0.15:
        part["where"] = {"area": "1"}
    return part


def _query(i: int, document: dict, currency: str, rng: np.random.Generator) -> dict:
    levels = [part["name"] for part in document["level"]]
    joint = document["constraints"]["invariants"] and rng.random() < 0.5
    kind = {"epsilon": "laplace", "rho": "gaussian"}[currency]
    amounts = ["1/2", "1", "3/4", "2"]
    chosen = {str(level) for level in rng.choice(levels, size=rng.integers(1, len(levels) + 1))}
    query = {
        "name": f"q{i}",
        "attributes": _views(document["attribute"], rng),
        "noise": f"{'lattice' if joint else 'discrete'}-{kind}",
        currency: {level: str(rng.choice(amounts)) for level in sorted(chosen)},
    }
    if document["privacy"]["unit"] != "person":
        query["noise"] = f"discrete-{kind}"
        query["contribution"] = {"cells": int(rng.integers(1, 3)), "each": int(rng.integers(1, 3))}
    return query


@dataclass
class Case:
    """A spec that is accepted, its guarantee, and what is true of it."""

    document: dict
    spec: Spec
    cells: object
    headers: tuple
    guarantee: Guarantee

    @classmethod
    def of(cls, document: dict, tree: Tree) -> Case | None:
        """Plan a spec; None if it is refused."""
        spec = Spec.model_validate(document)
        cells = build_cells(spec, tree)
        try:
            headers, guarantee = plan_measurements(spec, cells)
        except TrueupError:
            return None
        return cls(document, spec, cells, headers, guarantee)

    @property
    def noisy(self):
        return [h for h in self.headers if not h.exact]

    def by_header(self) -> list[dict]:
        """The declared contribution of each noisy margin, in order."""
        return [query["contribution"] for query in self.document["query"] for _ in self._levels(query)]

    @staticmethod
    def _levels(query: dict) -> dict:
        return query.get("epsilon") or query["rho"]

    @cached_property
    def zeros(self) -> np.ndarray:
        """Structural zeros, cell by cell from the document."""
        names = [a["name"] for a in self.document["attribute"]]
        domains = [a["values"] for a in self.document["attribute"]]
        combinations = [dict(zip(names, values)) for values in product(*domains)]
        here = [
            any(zero.items() <= c.items() for zero in self.document["constraints"]["zeros"])
            for c in combinations
        ]
        return np.array(here * (self.cells.n // len(here)))

    @cached_property
    def sums(self) -> np.ndarray:
        """The invariants, as rows over cells."""
        held = [rows(self.cells, h.margin) for h in self.headers if h.exact]
        return np.vstack([np.zeros((0, self.cells.n), np.int64), *held])

    def changes(self, relation: str) -> np.ndarray:
        """Every change up to a norm that keeps invariants and zeros; under `replace` also the number of units."""
        total = np.ones((int(relation == "replace"), self.cells.n), np.int64)
        return allowed(np.vstack([self.sums, total]), self.zeros)

    def losses(self, changes: np.ndarray) -> np.ndarray:
        """The true loss of each change `(changes,)`: alike changes are measured once."""
        gaussian = self.guarantee.currency == "rho"
        whole: list = [0.0] * len(changes)
        for header in self.noisy:
            moved = changes @ rows(self.cells, header.margin).T
            joint = header.law.joint
            kinds = moved if joint else np.sort(np.abs(moved), axis=1)
            kinds, label = np.unique(kinds, axis=0, return_inverse=True)
            lattice = self._lattice(header) if joint else None
            for i, kind in enumerate(kinds):
                loss = self._loss(header.law, lattice, kind, gaussian)
                for at in np.flatnonzero(label.ravel() == i):
                    whole[at] = _plus(whole[at], loss)
        return np.array([max(w.values()) if isinstance(w, dict) else w for w in whole])

    def _loss(self, law, lattice, moved, gaussian):
        if lattice is None:
            return concentrated(law, moved) if gaussian else pure(law, moved)
        return concentrated_on(law, lattice, moved) if gaussian else pure_on(law, lattice, moved)

    def _lattice(self, header) -> np.ndarray:
        """The lattice of joint noise: invariants that are sums of the measured groups, and groups that are always zero."""
        group = rows(self.cells, header.margin)
        sizes = group.sum(axis=1)
        over = self.sums @ group.T
        held = over[((over == 0) | (over == sizes)).all(axis=1)] // sizes
        return allowed(held, group[:, ~self.zeros].sum(axis=1) == 0)


def _plus(whole, loss):
    if isinstance(loss, dict):
        return {order: (whole[order] if whole else 0.0) + loss[order] for order in loss}
    return whole + loss
