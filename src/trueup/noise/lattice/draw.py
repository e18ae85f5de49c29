"""Choice of the sampler of noise on a lattice, without fallbacks: what is chosen is what draws."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from trueup.errors import SpecError
from trueup.kernel.lattice.structure import Lattice, Piece
from trueup.noise.lattice.choice import BoundSampler, Choice
from trueup.noise.lattice.double import klein_walk, whole_noise
from trueup.noise.lattice.in_basis import in_basis
from trueup.noise.lattice.integer import composition, free, integer_table

FEW_TRIES = 8
"""Tries of free cells up to which no basis is looked for."""
MAX_SECONDS = 60.0
"""Expected seconds for one vector beyond which a sampler is refused, unless the caller allows more."""


def choose_sampler(
    law,
    lattice: Lattice,
    *,
    weights: Sequence[Fraction] | None = None,
    sampler: str = "auto",
    slowest: float = MAX_SECONDS,
) -> BoundSampler:
    """Choose the sampler of each piece of a lattice for a law.

    Parameters
    ----------
    law
        `LatticeLaplace`, `LatticeGaussian` or `LatticeL2Laplace`.
    lattice
        Where the noise lives.
    weights
        Precision of each cell relative to the law's: cell i has `epsilon * weights[i]`, or
        `sigma2 / weights[i]`. All 1 if None.
    sampler
        `auto`, or the name of the one to use.
    slowest
        Expected seconds for one vector beyond which a sampler is refused.
    """
    if not law.factors:
        if sampler not in ("auto", "mixture"):
            raise SpecError(f"sampler '{sampler}' for the L2 norm", needed="'mixture', the only one")
        bound = whole_noise(law, lattice, weights)
        if not (choice := bound.pieces[0][1]).seconds <= slowest:
            raise SpecError(
                f"noise '{law.name}' on this lattice takes more than {slowest:g} s: {choice.sentence()}",
                needed="a smaller epsilon, fewer cells, or more time",
                remedy="use 'lattice-laplace'",
            )
        return bound
    factors = [law.of_cell(Fraction(1))] * lattice.n if weights is None else _weighed(law, lattice.n, weights)
    return BoundSampler(
        lattice, tuple(_choose_piece(law, piece, factors, sampler, slowest) for piece in lattice.pieces)
    )


def _weighed(law, n: int, weights: Sequence[Fraction]) -> list[Fraction]:
    scales = [Fraction(weight) for weight in weights]
    if len(scales) != n or min(scales) <= 0:
        raise SpecError("weights do not fit the lattice", needed=f"{n} positive rational numbers")
    return [law.of_cell(scale) for scale in scales]


def _choose_piece(law, piece: Piece, all_factors: Sequence[Fraction], sampler: str, slowest: float):
    cells = piece.cells.ravel()
    factors = tuple(all_factors[cell] for cell in cells.tolist())
    options = []
    for name, build in _options(law, piece, factors):
        if sampler in ("auto", name):
            options.append(build())
            if options[-1].seconds <= slowest and not options[-1].beyond:
                return cells, options[-1]
    raise _too_slow(piece, options, sampler, slowest)


def _too_slow(piece: Piece, options: list[Choice], sampler: str, slowest: float) -> SpecError:
    shape = " x ".join(map(str, piece.cells.shape))
    costs = "; ".join(option.sentence() for option in options) or f"none is called '{sampler}'"
    return SpecError(
        f"no exact sampler draws a piece of kind '{piece.kind}' with {shape} cells within {slowest:g} s: {costs}",
        needed="a smaller piece, more time, or another law",
        remedy="use 'lattice-gaussian', or plain noise and keep the invariants by reconciliation",
    )


def _options(law, piece: Piece, factors: tuple[Fraction, ...]):
    """Yield `(sampler, build)` for a piece, the best first; none is built before it is needed."""
    alike, only = len(set(factors)) == 1, factors[0]
    laplace = law.factor[1] == 1
    if laplace and alike and piece.kind == "sum":
        yield "composition", lambda: composition(len(factors), only)
    if laplace and alike and piece.kind in ("table", "grid"):
        yield (
            ("composition" if min(piece.cells.shape) == 2 == piece.cells.ndim else "rows"),
            lambda: integer_table(piece, only),
        )
    by_cells = free(piece, factors, "laplace" if laplace else "gaussian")
    if laplace and alike and piece.kind == "general" and by_cells.tries > FEW_TRIES:
        by_basis = in_basis(piece, only)
        if by_basis is not None and by_basis.seconds < by_cells.seconds:
            yield "basis", lambda: by_basis
    yield "free", lambda: by_cells
    if not laplace and alike and piece.kind != "free":
        yield ("path" if piece.kind == "sum" else "klein"), lambda: klein_walk(piece, float(only) ** 0.5)
