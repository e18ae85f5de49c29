"""Entries of a spec for published tables: the contents of a file, its form, and the law of its values."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from trueup.model.published_codes import FORMS, INSTEAD, read_meaning
from trueup.model.published_rule import PublishingRule, read_rule
from trueup.model.spec_table import Name, SpecPart

NO_ROW = "no row"
"""The code of a value that has no row, where those are hidden."""


class PublishedCell(SpecPart):
    """A column of a wide table, with the counts of one combination of attribute values."""

    count: Name = Field(description="a column")
    where: dict[str, str] = Field(default_factory=dict)
    variance: Name | None = Field(None, description="the column of its variances, as of a long table")


class PublishedTable(SpecPart):
    """One published table: its margins, columns, codes, and the law of its values."""

    name: Name
    level: str = Field(
        description="the finest level of its rows; rows of levels above are told by their keys"
    )
    attributes: tuple[str, ...] = Field((), description="whose values stand in rows: a column each")
    count: Name | None = Field(None, description="the column of values of a long table")
    cells: tuple[PublishedCell, ...] = Field(
        (), alias="cell", description="the columns of a wide table; one without all attributes is a total"
    )
    total: str | dict[str, str] | None = Field(
        None,
        description="what stands in the column of an attribute, or of places, that is summed out, beside blanks; for all "
        "columns, or by column",
    )
    law: dict[str, Any] | tuple[dict[str, Any], ...] = Field(
        description="name and parameters; or laws one after the other, of which 'suppressed' hides true counts before the "
        "other, or published values after it"
    )
    variance: Name | None = Field(
        None, description="the column of variances of a law that is named alone; 0 where the value is exact"
    )
    error: Literal["variance", "standard error", "margin 90", "margin 95"] = Field(
        "variance",
        description="what columns of variances hold: or a standard error, or half an interval of 90 or 95 % of a normal law",
    )
    codes: dict[str, str] = Field(
        default_factory=dict, description=f"what stands in the place of a value, and what it says: {FORMS}"
    )
    unlisted: Literal["refused", "zero", "unknown", "hidden"] = Field(
        "refused",
        description="what it says where a place or value has no row; 'hidden' is whatever the law hides, such as values below "
        "a threshold",
    )
    key: str | None = Field(
        None,
        description="tables with the same key show a cell with the same perturbation; cell keys share one unless told",
    )
    file: Name | None = Field(
        None, description="the file's name, which several may share; by default the files are in this order"
    )
    columns: dict[str, Name] = Field(
        default_factory=dict,
        description="what this file calls a column of places or of an attribute, by the spec's own name",
    )
    only: dict[str, str | tuple[str, ...]] = Field(
        default_factory=dict,
        description="rows that are read: those in which a column says this, such as one year of several",
    )
    constant: dict[str, str] = Field(
        default_factory=dict,
        description="a column of places or of an attribute that the file lacks, and what it would say in every row, such as "
        "the region of a sheet",
    )
    sheet: Name | None = Field(None, description="of a workbook; by default the first")
    thousands: Literal[",", ".", " ", "'"] | None = Field(
        None, description="what groups thousands, if not told by itself"
    )
    decimal: Literal[".", ","] | None = Field(None, description="the decimal sign, if not told by itself")
    unit: int = Field(
        1, ge=1, le=10**9, description="counts that 1 stands for, such as 1000 where values are in thousands"
    )
    skip: int | None = Field(
        None, ge=0, le=1000, description="rows before the header, if not told by the columns' names"
    )
    header: int = Field(
        1,
        ge=0,
        le=5,
        description="rows of the header at least; with 0 columns are named 'column 1', 'column 2', ...",
    )
    below: int | None = Field(
        None,
        ge=0,
        le=1000,
        description="rows below the table, blank ones too, that are none of it, if not told by themselves",
    )
    headings: bool = Field(
        False, description="rows without any value are headings of those below, and are left out"
    )
    fill: bool = Field(False, description="a blank key or value of an attribute repeats the one above")
    ragged: bool = Field(
        False, description="a place without parts, or without the place above, stands for itself there"
    )

    @property
    def rule(self) -> PublishingRule:
        """Return the rule that made the values, including the hidden ones."""
        return read_rule(self.law, self.name, by_variance=self.by_row)

    def reads_rows_of(self, other: PublishedTable) -> bool:
        """Return True if both entries describe the same rows of one file, at equal or different levels."""
        if self.file is None or (self.file, self.sheet) != (other.file, other.sheet):
            return False
        laws = {"name", "level", "law", "codes", "unlisted", "key"}
        return self.model_dump(exclude=laws) == other.model_dump(exclude=laws)

    @property
    def by_row(self) -> bool:
        """Return True if a column states the variance of each value."""
        return self.variance is not None or any(cell.variance for cell in self.cells)

    def columns_by_attributes(self) -> list[list[PublishedCell]]:
        """Return the columns of values in groups, one for each set of attributes that the columns name."""
        found: dict[frozenset[str], list[PublishedCell]] = {}
        for cell in self.cells or (PublishedCell(count=str(self.count), variance=self.variance),):
            found.setdefault(frozenset(cell.where), []).append(cell)
        return list(found.values())

    def total_of(self, column: str) -> tuple[str, ...]:
        """Return the labels that mark totals in the column of an attribute that a table sums out."""
        label = self.total.get(column) if isinstance(self.total, dict) else self.total
        return ("",) if label is None else ("", label.strip())

    @model_validator(mode="after")
    def _can_be_read(self):
        if bool(self.count) == bool(self.cells):
            raise ValueError(f"table '{self.name}' needs either `count` or [[published.cell]]")
        if both := [name for cell in self.cells for name in cell.where if name in self.attributes]:
            raise ValueError(
                f"table '{self.name}' uses '{both[0]}' both in its cells and as a column: leave out one"
            )
        if self.cells and self.variance:
            raise ValueError(
                f"table '{self.name}' has several columns of values, and one column of variances: write `variance` in "
                "each cell"
            )
        if len({cell.variance is None for cell in self.cells}) > 1:
            raise ValueError(
                f"table '{self.name}' has a column of variances for some of its cells only: give one for each cell, or "
                "none"
            )
        if self.thousands is not None and self.thousands == self.decimal:
            raise ValueError(
                f"table '{self.name}' uses '{self.decimal}' both between thousands and as the decimal sign: correct one "
                "of them"
            )
        columns = [cell.count for cell in self.cells]
        if twice := [column for column in columns if columns.count(column) > 1]:
            raise ValueError(
                f"table '{self.name}' reads two cells from the column '{twice[0]}': give each cell its own column"
            )
        noisy = self.rule.noisy
        no_row = {NO_ROW: "hidden"} if self.unlisted == "hidden" else {}
        for code, meaning in (self.codes | no_row).items():
            self._refuse_code(code, meaning, noisy=noisy)
        return self

    def _refuse_code(self, code: str, meaning: str, *, noisy: bool) -> None:
        where = f"table '{self.name}'"
        if (read := read_meaning(meaning)) is None:
            raise ValueError(f"{where}: code '{code}' says '{meaning}', which cannot be read: write {FORMS}")
        negative = code.strip().startswith(("-", "−")) and not noisy
        if _NUMBER.fullmatch(code) and not negative and not INSTEAD.fullmatch(code.strip()):
            raise ValueError(
                f"{where}: the code '{code}' is a number, which is read as a count: leave it out"
            )
        if code == NO_ROW and not (self.rule.hidden or self.rule.concealed):
            raise ValueError(
                f'{where}: unlisted = "hidden", and its law hides nothing: list what it hides, such as law = [{{ ... }}, '
                '{ name = "suppressed", threshold = 20 }] for published numbers below 20'
            )
        if read.of == "hidden" and not (self.rule.hidden or self.rule.concealed):
            raise ValueError(
                f"{where}: code '{code}' is what the law hides, and its law hides nothing: write the range, such as '1-4'"
            )
        if read.of == "published" and self.by_row:
            raise ValueError(
                f"{where}: code '{code}' describes the published number, but its variance is in a column that has no "
                "number for it: describe the true count instead"
            )
        if read.of == "published" and np.isinf(read.high):
            raise ValueError(
                f"{where}: code '{code}' says '{meaning}', which has no upper end: write a range"
            )


_NUMBER = re.compile(r"\s*[-−]?\d[\d.,\s'’]*\s*")
