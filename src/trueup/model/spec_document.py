"""The parts of a spec together, as they stand in its file."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trueup.model.spec_queries import AboutPart, ConstraintsPart, LeftOutPart, Query
from trueup.model.spec_table import AttributePart, Level, Parents, Privacy, SpecPart, TablePart


class SpecDocument(SpecPart):
    """All parts of a spec; `spec_rules` checks that they agree."""

    format: Literal[2] = Field(description="version of this format")
    title: str
    table: TablePart
    privacy: Privacy
    levels: tuple[Level, ...] = Field(alias="level", min_length=1)
    parents: Parents | None = None
    attributes: tuple[AttributePart, ...] = Field((), alias="attribute")
    queries: tuple[Query, ...] = Field(alias="query", min_length=1)
    left_out: LeftOutPart | None = Field(
        None, description="measure how many records a limit leaves out, at a budget of its own"
    )
    constraints: ConstraintsPart = Field(default_factory=ConstraintsPart)
    about: AboutPart = Field(default_factory=AboutPart)
    reconcile: dict[str, Any] = Field(default_factory=dict, description="method and its parameters")
    infer: dict[str, Any] = Field(
        default_factory=dict, description="method, prior, and ratios of the posterior"
    )

    @property
    def limit_columns(self) -> tuple[tuple[str, ...], ...]:
        """Return for each level the columns of the geography file that hold public numbers of its places: limits, shares."""
        held = [(b.level, column) for b in self.constraints.bounds for column in b.columns]
        held += [(self.levels[-1].name, column) for column in self.prior_columns]
        return tuple(
            tuple(dict.fromkeys(column for at, column in held if at == level.name)) for level in self.levels
        )

    @property
    def prior_columns(self) -> tuple[str, ...]:
        """Return the columns that the prior of `infer` reads."""
        prior = self.infer.get("prior")
        if not isinstance(prior, dict) or prior.get("name") != "hierarchical":
            return ()
        covariates = prior.get("covariates", ())
        named = [
            prior.get("shares", "uniform"),
            *(covariates if isinstance(covariates, list | tuple) else ()),
        ]
        return tuple(dict.fromkeys(x for x in named if isinstance(x, str) and x != "uniform"))
