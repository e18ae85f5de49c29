"""The record of `assess`: effects of a spec's choices, each figure with its Monte Carlo error.

Every figure is a function of the true counts, so the record is confidential unless its truth is public.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.digits import ThreeLines
from trueup.errors import PrivacyError, SpecError, did_you_mean, load_extra
from trueup.files.source import as_frame
from trueup.model.cells import Cells, Margin
from trueup.model.problem import Problem
from trueup.model.spec import Spec

Columns = dict[str, NDArray]
FIELDS = (
    "level", "by", "unit", "units", "method", "budget", "statistic", "about", "value", "mc_error", "replicates"
)  # fmt: skip
"""Columns of the long table."""
KEYS = ("level", "by", "unit", "method", "budget", "statistic", "about")
"""Those that tell its rows apart."""
COMPARATOR = "comparator"
"""The verb of what others do, without a formal guarantee."""


@dataclass(frozen=True)
class Assessed:
    """A method that was assessed.

    Attributes
    ----------
    label
        Its name, with the parameters that tell it from others of that name.
    description
        Name and all parameters.
    title
        One line on the problem that the method solves.
    verb
        `reconcile` or `infer`; `comparator` for what others do without a formal guarantee.
    nonnegative
        True if the method keeps counts from falling below zero, so that counts near zero must come out too high.
    """

    label: str
    description: Mapping[str, Any]
    title: str
    verb: str
    nonnegative: bool


@dataclass(frozen=True)
class Budget:
    """A budget at which methods were assessed, which is the spec's budget times `scale`."""

    label: str
    scale: Fraction
    currency: str
    amount: Fraction


@dataclass(frozen=True, repr=False)
class Flag:
    """A claim that the replicates contradict.

    Attributes
    ----------
    what
        `bias` or `coverage`.
    method, budget, level, by, unit, about
        Where, as in the long table.
    value, mc_error
        The figure that was found, and its Monte Carlo error.
    limit
        The value that would have been accepted.
    sentence
        The flag in plain words.
    """

    what: str
    method: str
    budget: str
    level: str
    by: str
    unit: str
    about: str
    value: float
    mc_error: float
    limit: float
    sentence: str

    def __repr__(self) -> str:
        return f"Flag({self.what!r}, {self.method!r}, {self.level!r})"


Figures = Mapping[tuple[str, str], tuple[NDArray, NDArray]]
"""Values and Monte Carlo errors `(groups,)` of a statistic and what it is about."""


@dataclass(frozen=True, eq=False, repr=False)
class Assessment(ThreeLines):
    """Bias, variance, coverage and fairness of methods and budgets, from simulated replicates.

    Attributes
    ----------
    title
        The spec's title.
    cells
        The finest cells; None where the record was read back and single counts stay in their files.
    public
        True if the truth is declared public. If not, the record is confidential.
    truth
        Words for the counts that stood in for the true ones.
    methods, budgets
        The methods and budgets that were compared.
    levels
        The tables that were assessed, coarse to fine.
    intervals
        The probability that each interval rule claims.
    replicates, asked
        Numbers of replicates made and asked for; they differ after an interruption.
    seed
        It gives the same replicates again.
    summary
        The long table: one row per figure of a level, a size class or another class; see `FIELDS`.
    figures
        By method, budget and table: every statistic of every single count.
    flags
        Claims that the replicates contradict.
    stats
        Notes on anything that was cut, kept or left out.
    spec
        The spec that was assessed.
    """

    title: str
    cells: Cells | None
    public: bool
    truth: str
    methods: tuple[Assessed, ...]
    budgets: tuple[Budget, ...]
    levels: tuple[Margin, ...]
    intervals: Mapping[str, float]
    replicates: int
    asked: int
    seed: int
    summary: Columns
    figures: Mapping[tuple[str, str, Margin], Figures] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)

    spec: Spec | None = field(default=None, kw_only=True)

    def _lines(self) -> tuple[str, str, str]:
        return (
            f"Assessment: {self.title}",
            f"methods: {', '.join(each.label for each in self.methods)}; {len(self.budgets)} budgets, "
            f"{self.replicates:,} replicates",
            "public truth" if self.public else "confidential: every figure is a function of the true counts",
        )

    @cached_property
    def problem(self) -> Problem | None:
        """Return the assessed problem, or None if the record was read back."""
        return None if self.spec is None or self.cells is None else Problem(self.spec, self.cells)

    @property
    def interrupted(self) -> bool:
        """Return True if fewer replicates were made than requested."""
        return self.replicates < self.asked

    def shown_budgets(self, methods: Iterable[object], budgets: Iterable[object]) -> list[str]:
        """Return the budget of each method as text; comparison methods are marked as without guarantee."""
        others = {method.label for method in self.methods if method.verb == COMPARATOR}
        return [
            "no guarantee" if str(method) in others else str(budget)
            for method, budget in zip(methods, budgets, strict=True)
        ]

    def rows(self, **wanted: str) -> Columns:
        """Return the rows of the long table whose columns have the given values.

        Raises
        ------
        SpecError
            If a column is unknown.
        """
        if unknown := set(wanted) - set(FIELDS):
            raise SpecError(f"there is no column '{min(unknown)}'", needed=f"one of: {', '.join(FIELDS)}")
        held = np.ones(len(self.summary["value"]), dtype=bool)
        for name, value in wanted.items():
            held &= self.summary[name] == value
        return {name: column[held] for name, column in self.summary.items()}

    def _known_rows(self, wanted: Mapping[str, str]) -> Columns:
        """Return the rows with the wanted values; refuse values that do not occur."""
        for name, value in wanted.items():
            known = sorted(set(self.summary[name].tolist())) if name in KEYS else [value]
            if value not in known:
                raise SpecError(
                    f"no row has the {name} '{value}'",
                    needed=f"one of: {', '.join(map(str, known))}",
                    remedy=did_you_mean(value, map(str, known)),
                )
        return self.rows(**wanted)

    def table(self, level: str | None = None, *, backend: str | None = None, **wanted: str) -> Any:
        """Return rows of the long table as a dataframe: those of a table by its name, or all; see `rows`.

        It holds functions of the true counts: it is confidential unless the truth is public.

        Raises
        ------
        SpecError
            If a column is unknown, or no row has a value that is wanted.

        Examples
        --------
        `assessment.table("county", statistic="bias", by="level")`
        """
        return as_frame(self._known_rows(wanted | ({} if level is None else {"level": level})), backend)

    def to_xarray(self, level: str | None = None, **wanted: str) -> Any:
        """Return rows of the long table as an `xarray.Dataset`, with a dimension for each column that varies.

        It holds functions of the true counts, and needs the extra `posterior`.
        """
        xarray = load_extra("xarray", "posterior")
        rows = self._known_rows(wanted | ({} if level is None else {"level": level}))
        found = {name: np.unique(rows[name], return_inverse=True) for name in KEYS}
        same = {name: str(values[0]) for name, (values, _) in found.items() if len(values) == 1}
        dims = [name for name, (values, _) in found.items() if len(values) > 1]
        grids = {name: np.full([len(found[d][0]) for d in dims], np.nan) for name in ("value", "mc_error")}
        for name, grid in grids.items():
            grid[tuple(found[d][1] for d in dims)] = rows[name]
        held = {name: (dims, grid) for name, grid in grids.items()}
        return xarray.Dataset(held, {d: found[d][0] for d in dims}, same | {"title": self.title})

    def figure(self, statistic: str, level: str, **wanted: str) -> tuple[float, float]:
        """Return one figure of the long table and its Monte Carlo error; by default that of a whole level.

        Raises
        ------
        SpecError
            If not exactly one row is meant.
        """
        found = self._known_rows({"by": "level", **wanted, "statistic": statistic, "level": level})
        if len(found["value"]) != 1:
            raise SpecError(
                f"{len(found['value'])} figures '{statistic}' of '{level}' meet the conditions",
                needed="conditions that one figure meets, such as on method, budget, about or unit",
            )
        return float(found["value"][0]), float(found["mc_error"][0])


def refuse_confidential(public: bool) -> None:
    """Refuse to publish figures that depend on confidential counts."""
    if not public:
        raise PrivacyError(
            "the assessment was computed from confidential counts, and no noise protects it",
            needed="an assessment whose true counts were declared public",
            remedy="keep it internal, or assess public counts, an earlier release or a synthetic table instead",
        )
