"""Long lists of parameters, of which a part is tested in every run and all of them in the thorough one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(k: int, values: Iterable[Any]) -> list[Any]:
    """Every k-th parameter as it is; the others are thorough."""
    return [value if i % k == 0 else _thorough(value) for i, value in enumerate(values)]


def _thorough(value: Any) -> Any:
    held = (
        value if hasattr(value, "marks") else pytest.param(*(value if isinstance(value, tuple) else (value,)))
    )
    return pytest.param(*held.values, id=held.id, marks=(*held.marks, pytest.mark.thorough))
