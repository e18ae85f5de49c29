"""The record of `measure`: noisy counts with the laws of their noise."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Cells
from trueup.model.constraints import Bound
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.spec import Spec


@dataclass(frozen=True, eq=False)
class Measurements:
    """Noisy counts, drawn once; everything after them is post-processing.

    Attributes
    ----------
    cells
        The public cells they speak of.
    headers
        One header per measured margin.
    values
        The measured integers of each header, in the order of its groups.
    guarantee
        What is protected, at what cost.
    bounds
        Public limits on margins that were published with the values, for every group.
    simulation
        True if the noise came from a seeded generator; such a record is never released.
    spec
        The spec that it was measured by, where that is known; verbs that take the record need no other.
    """

    cells: Cells
    headers: tuple[Measured, ...]
    values: tuple[NDArray[np.int64], ...]
    guarantee: Guarantee
    bounds: tuple[Bound, ...] = field(default=(), kw_only=True)
    simulation: bool = field(default=False, kw_only=True)
    spec: Spec | None = field(default=None, kw_only=True)

    @cached_property
    def flat(self) -> NDArray[np.int64]:
        """All `q` measured values in one vector."""
        return np.concatenate(self.values) if self.values else np.zeros(0, dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the public content: laws, margins and values. Seeds post-processing."""
        whole = hashlib.sha256()
        for header, values in zip(self.headers, self.values):
            law = ", ".join(f"{k}={v}" for k, v in sorted(header.law.parameters().items()))
            whole.update(f"{header.query}|{header.margin}|{header.law.name}|{law}\n".encode())
            if header.groups is not None:
                whole.update(np.ascontiguousarray(header.groups, dtype="<i8").tobytes())
            whole.update(np.ascontiguousarray(values, dtype="<i8").tobytes())
        for bound in self.bounds:
            whole.update(f"{bound.margin}|{bound.lower}|{bound.upper}|{bound.where}\n".encode())
        return whole.hexdigest()

    def by(self, spec: Spec | None) -> Spec:
        """Return the given spec, or else the record's own.

        Raises
        ------
        SpecError
            If there is neither.
        """
        if (known := spec or self.spec) is None:
            raise SpecError("the measurements do not know their spec", remedy="give it: spec=...")
        return known

    def rng(self) -> np.random.Generator:
        """Return the generator of post-processing, seeded from the public digest."""
        return np.random.default_rng(int(self.digest, 16))
