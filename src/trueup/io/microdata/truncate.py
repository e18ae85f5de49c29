"""The limit on the records that each unit of privacy contributes to a table.

Which records of a unit with too many are kept is decided by SHA-256 of a secret key, the unit, the record's cell and its
ordinal among the unit's records of that cell: the `records` smallest digests win. So the choice

- is a function of the unit's own records and the key, and no other unit that comes or goes changes it, which is what the
  sensitivity rests on (`trueup.privacy.contribution.Records`), for every key;
- favours no kind of record: the digests of a unit's records are as good as independent and uniform.

A record is its cell: records that count alike are alike. Whoever knows the key learns which records of a unit would be
dropped, so the key stays in `internal/`, as does how many were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import PrivacyError
from trueup.files.database import connect, quiet_duckdb
from trueup.files.values import plain_text
from trueup.model.reading import Reading
from trueup.model.spec import Spec


@dataclass
class Limit:
    """The largest number of records that each unit keeps, with the secret key that decides which ones.

    Attributes
    ----------
    column
        The column of the units' identifiers.
    records
        Largest number of records of one unit that are kept.
    key
        A secret in hexadecimal, drawn before the data are read.
    dropped
        Number of records that were dropped, known once the table is tabulated; confidential.
    units
        Number of units by number of records, known once the table is tabulated; confidential.
    apart
        Number of records of two tables that did not link and were left out, by reason; confidential.
    """

    column: str
    records: int
    key: str
    dropped: int = 0
    units: dict[int, int] = field(default_factory=dict)
    apart: dict[str, int] = field(default_factory=dict)

    def beyond(self, most: int) -> int:
        """Return the confidential number of records above the limit, at most `most` of each unit.

        Examples
        --------
        >>> limit = Limit("household", 2, "00", units={1: 4, 3: 2, 9: 1})
        >>> limit.beyond(1), limit.beyond(5), limit.beyond(100)
        (3, 7, 9)
        """
        return sum(n * min(max(many - self.records, 0), most) for many, n in self.units.items())

    @classmethod
    def of(cls, spec: Spec | Reading, key: Callable[[], bytes]) -> Limit | None:
        """Return the limit that a spec sets, with a fresh secret key, or None if the spec sets no limit."""
        column = spec.privacy.id if spec.table.join is None else spec.table.join.id
        if column is None or spec.privacy.contribution is None:
            return None
        return cls(column, spec.privacy.contribution.records, key().hex())


def refuse_unlimited(spec: Spec | Reading, limit: Limit | None) -> None:
    """Refuse to count records without the limit for each unit that the spec's privacy guarantee assumes."""
    if (spec.privacy.id is None) != (limit is None):
        raise PrivacyError(
            "records would be counted without the limit on each unit that the spec sets",
            needed=f"records of which each unit has at most that many, known by the column '{spec.privacy.id}'",
        )


def named_unit(value: object) -> str | None:
    """Return the identifier of a unit as text, or None if it is blank or missing.

    Examples
    --------
    >>> named_unit(7), named_unit(" "), named_unit("a b "), named_unit(7.0)
    ('7', None, 'a b', '7')
    """
    return plain_text(value) or None


def kept_sql(limit: Limit, named: str = "named", first: str = "") -> str:
    """Return SQL for the records that remain under the limit, from a table of `(unit, cell, count)`.

    `first` is an SQL ordering by cells; records that it puts first are kept before others.
    """
    digest = f"sha256('{limit.key}|' || cell || '|' || ordinal || '|' || unit)"
    return f"""
        WITH beyond AS (SELECT unit FROM {named} GROUP BY unit HAVING sum(count) > {limit.records}),
        each AS (SELECT unit, cell, unnest(range(count)) AS ordinal FROM {named} SEMI JOIN beyond USING (unit)),
        ranked AS (
            SELECT unit, cell, row_number() OVER (PARTITION BY unit ORDER BY {first}{digest}, cell, ordinal) AS rank FROM each
        )
        SELECT unit, cell, count FROM {named} ANTI JOIN beyond USING (unit)
        UNION ALL SELECT unit, cell, 1 AS count FROM ranked WHERE rank <= {limit.records}
    """


def units_held(connection: Any) -> dict[int, int]:
    """Return the confidential number of units by their number of records."""
    held = "SELECT CAST(sum(count) AS BIGINT) AS records FROM named GROUP BY unit"
    counted = f"SELECT records, count(*) FROM ({held}) GROUP BY records ORDER BY records"
    return dict(connection.execute(counted).fetchall())


def truncated(
    limit: Limit, unit: NDArray, cell: NDArray[np.int64], count: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the cells and counts of the records that remain under the limit for each unit.

    Examples
    --------
    >>> limit = Limit("household", 2, "00")
    >>> unit, cell = np.array(["a", "a", "b"], dtype=object), np.array([0, 1, 1])
    >>> cells, counts = truncated(limit, unit, cell, np.array([5, 5, 1]))
    >>> int(counts.sum()), limit.dropped
    (3, 8)
    """
    rows = {"unit": unit.astype(object), "cell": cell, "count": count}
    if not len(unit):
        return cell, count
    with connect() as connection, quiet_duckdb("the table of records"):
        connection.register("given", rows)
        grouped = "SELECT unit, cell, CAST(sum(count) AS BIGINT) AS count FROM given GROUP BY ALL"
        connection.execute(f"CREATE TEMP TABLE named AS {grouped}")
        query = f"SELECT cell, CAST(sum(count) AS BIGINT) AS count FROM ({kept_sql(limit)}) GROUP BY cell ORDER BY cell"
        kept = connection.execute(query).fetchnumpy()
        limit.units = units_held(connection)
    limit.dropped = int(count.sum() - kept["count"].sum())
    return kept["cell"], kept["count"]
