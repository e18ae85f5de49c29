"""The whole spec as one document, as it stands in its file."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from trueup.model.linear import parse_sum
from trueup.model.names import (
    COUNTED_UNIT,
    refuse_alike,
    refuse_repeats,
    refuse_taken_columns,
    refuse_unknown_name,
)
from trueup.model.prior import refuse_unread_priors
from trueup.model.spec_queries import AboutPart, ConstraintsPart, LeftOutPart, Query
from trueup.model.spec_table import (
    AttributePart,
    Level,
    Parents,
    Privacy,
    SpecPart,
    TablePart,
    refuse_misplaced_columns,
)
from trueup.noise import law_named


class SpecDocument(SpecPart):
    """All parts of a spec; `refuse_disagreement` checks that they fit together."""

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
        """Return, for each level, the columns of the geography file with public numbers of its places: limits and shares."""
        held = [(b.level, column) for b in self.constraints.bounds for column in b.columns]
        held += [(self.levels[-1].name, column) for column in self.prior_columns]
        return tuple(
            tuple(dict.fromkeys(column for at, column in held if at == level.name)) for level in self.levels
        )

    @property
    def fractional_columns(self) -> frozenset[str]:
        """Return the columns that may hold fractions, because only the prior reads them."""
        return frozenset(self.prior_columns) - {
            column for b in self.constraints.bounds for column in b.columns
        }

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


def refuse_disagreement(spec: SpecDocument) -> None:
    """Refuse a spec whose parts do not fit together, such as by a name that is declared twice or not at all.

    Raises
    ------
    ValueError
        With the first fault.
    """
    refuse_repeats("level", [level.name for level in spec.levels])
    views = [name for a in spec.attributes for name in (a.name, *(r.name for r in a.recodes))]
    refuse_repeats("attribute", views)
    refuse_repeats("query", [q.name for q in spec.queries])
    refuse_alike("level", [level.name for level in spec.levels])
    refuse_alike("attribute", views)
    refuse_misplaced_columns(spec.levels, parents=spec.parents is not None)
    if spec.parents and (read := [x.name for x in spec.levels if x.column or x.prefix or x.label]):
        raise ValueError(
            f"level '{read[0]}' names columns, but `parents` already says where each place lies: leave the columns out"
        )
    columns = [level.column for level in spec.levels if level.column]
    for name in spec.table.place or ():
        refuse_unknown_name(name, columns, "column of a level", "`place` in [table]")
    if spec.parents and spec.table.keys == "public":
        raise ValueError(
            "`parents` names places above the finest ones, which a table of counts does not hold: give a list of "
            "places (--geography FILE)"
        )
    _limits_have_a_file(spec)
    _columns_are_free(spec)
    for where, margin in _margins_of_spec(spec):
        refuse_unknown_name(margin[0], [level.name for level in spec.levels], "level", where)
        _refuse_misnamed(spec, margin[1], where)
    _conditions_are_known(spec)
    _units_hold_records(spec)
    _tables_are_two(spec)
    _cells_cover(spec)
    if spec.reconcile and "method" not in spec.reconcile:
        name = next(iter(spec.reconcile))
        raise ValueError(f"[reconcile] gives the parameter '{name}' without a method: name the method")
    refuse_unread_priors(spec.reconcile, spec.infer)


def _limits_have_a_file(spec: SpecDocument) -> None:
    columns = [column for level in spec.limit_columns for column in level]
    if columns and (spec.table.keys == "public" or len(spec.levels) == 1):
        prior = columns[0] in spec.prior_columns
        reader = "a prior takes its shares" if prior else "a bound takes its limits"
        raise ValueError(
            f"{reader} from the column '{columns[0]}' of the public list of places: write keys = \"confidential\" under "
            "[table], and give that list by --geography FILE"
        )


def _columns_are_free(spec: SpecDocument) -> None:
    """Refuse a column name that serves two of keys, attributes and counts."""
    keys = ["id"] if spec.parents else [level.key for level in spec.levels]
    refuse_taken_columns(spec.levels, spec.attributes, keys)
    held = {spec.table.count, *(name for cell in spec.table.cells for name in parse_sum(cell.count))}
    read = [*(x.column for x in spec.levels), *(x.label for x in spec.levels)]
    read += [a.column or a.name for a in spec.table.in_rows(spec.attributes)]
    if both := [name for name in read if name is not None and name in held]:
        raise ValueError(
            f"column '{both[0]}' holds counts, so it cannot hold keys or attribute values: name another column"
        )


def _margins_of_spec(spec: SpecDocument):
    for query in spec.queries:
        yield from ((f"query '{query.name}'", (level, query.attributes)) for level in query.budgets)
    for part in (*spec.constraints.invariants, *spec.constraints.bounds):
        yield "a constraint", (part.level, part.attributes)
    for rule in spec.constraints.linear:
        yield f"'{rule.rule}'", (rule.level or spec.levels[-1].name, ())


def _refuse_misnamed(spec: SpecDocument, names: Collection[str], where: str) -> None:
    """Refuse margins and conditions that name an unknown attribute, or one attribute twice."""
    for name in names:
        refuse_unknown_name(name, [view for a in spec.attributes for view in a.views], "attribute", where)
    for attribute in spec.attributes:
        if len(same := [name for name in attribute.views if name in names]) > 1:
            raise ValueError(
                f"{where} names '{same[0]}' and '{same[1]}', but may name '{attribute.name}' or a recode of it only once: "
                + attribute.crossed(same[0], same[1])
            )


def _conditions_are_known(spec: SpecDocument) -> None:
    conditions = (*spec.constraints.zeros, *(b.where for b in spec.constraints.bounds))
    for condition in conditions:
        _refuse_misnamed(spec, condition, "a condition")
    among = _conditions_of_invariants(spec)
    for cell in spec.table.cells:
        for name in cell.where:
            refuse_unknown_name(name, [a.name for a in spec.attributes], "attribute", "[[table.cell]]")
    domains = {name: values for a in spec.attributes for name, values in a.views.items()}
    every = (*conditions, *among, *(c.where for c in spec.table.cells))
    for name, value in (pair for condition in every for pair in condition.items()):
        refuse_unknown_name(value, list(domains[name]), f"value of '{name}'", "a condition")


def _conditions_of_invariants(spec: SpecDocument) -> list[dict[str, str]]:
    """Return the attribute conditions of invariants, after checks of the names."""
    levels, found = [level.name for level in spec.levels], []
    for condition in (each for part in spec.constraints.invariants for each in part.where):
        found.append({name: value for name, value in condition.items() if name not in levels})
        _refuse_misnamed(spec, found[-1], "an invariant's condition")
    return found


def _units_hold_records(spec: SpecDocument) -> None:
    privacy = spec.privacy
    if spec.left_out is not None and (privacy.id is None or spec.table.join is not None):
        raise ValueError(
            "[left_out] counts the records that a limit leaves out, but [privacy] sets no limit: name the column of "
            "the unit as `id` of one table of records"
        )
    if privacy.contribution is None:
        return
    if spec.table.kind != "records":
        raise ValueError(
            "[privacy] gives `id`, which limits the records of each unit, but the table holds counts: leave out `id`"
        )
    if both := [q.name for q in spec.queries if q.contribution is not None]:
        raise ValueError(
            f"query '{both[0]}' states a contribution, but it already follows from the one under [privacy]: leave it out"
        )
    read = [*(x.column for x in spec.levels), *(a.column or a.name for a in spec.attributes)]
    if privacy.id is not None and privacy.id in [*read, spec.parents and spec.parents.id]:
        raise ValueError(
            f"column '{privacy.id}' identifies units, so it cannot hold keys or attribute values: name another column"
        )
    if privacy.id is not None and spec.constraints.invariants:
        raise ValueError(
            "[privacy] id leaves some records out, so that an invariant would publish the wrong number: leave out the "
            f"invariants, or make a table with one row for each {privacy.unit} and leave out `id` and `contribution`"
        )


def _tables_are_two(spec: SpecDocument) -> None:
    """Refuse the keys for two linked tables in a spec of one table."""
    join = spec.table.join
    if join is None:
        for name, attribute in ((a.name, a) for a in spec.attributes):
            if attribute.of is not None or attribute.persons is not None:
                raise ValueError(
                    f"attribute '{name}' belongs to a second table, but there is no [table.join]: add it, or leave out "
                    "`of`"
                )
        for query in spec.queries:
            if query.counts or query.cumulative or query.where:
                raise ValueError(
                    f"query '{query.name}' says which table it counts, but there is no [table.join]: leave out `counts`"
                )
        return
    if spec.parents is not None:
        raise ValueError(
            "a spec of two linked tables gives `parents`: leave it out, and name the columns of places in [[level]]"
        )
    if spec.privacy.unit != join.counts:
        raise ValueError(
            f"two linked tables protect one {join.counts} with all its {spec.table.counts}s: write unit = "
            f'"{join.counts}"'
        )
    for query in spec.queries:
        if query.where.get(COUNTED_UNIT) not in (spec.table.counts, join.counts):
            raise ValueError(
                f"query '{query.name}' does not say which of two tables it counts: write counts = "
                f'"{spec.table.counts}" or counts = "{join.counts}" in it'
            )
        if law_named(query.noise).joint:
            raise ValueError(
                f"query '{query.name}' has noise on a lattice, which is not available for two linked tables: choose "
                "another noise"
            )


def _cells_cover(spec: SpecDocument) -> None:
    if not spec.table.cells:
        return
    stated = spec.table.in_rows(spec.attributes)
    across = [a for a in spec.attributes if a not in stated]
    listed = [tuple(c.where.get(a.name, "") for a in across) for c in spec.table.cells]
    refuse_repeats("combination in [[table.cell]]", [", ".join(c) for c in listed])
    wanted = 1
    for attribute in across:
        wanted *= len(attribute.values)
    if any("" in c for c in listed) or len(listed) != wanted:
        raise ValueError(
            f"[[table.cell]] lists {len(listed)} of {wanted} combinations of attribute values; needed: a column for "
            "each combination"
        )
