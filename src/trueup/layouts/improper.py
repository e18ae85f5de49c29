"""The refusal of counts that nothing bounds."""

from __future__ import annotations

from trueup.errors import SpecError


def improper(label: str, most: float) -> SpecError:
    """Return the error that nothing bounds a count; `most` is the largest number that bounds or measures another.

    Examples
    --------
    >>> print(improper("b", 1234))  # doctest: +ELLIPSIS
    the posterior is improper: nothing bounds 'b'. Needed: ...prior = { name = "bounded", upper = 100000 }, with ...
    """
    upper = 10 ** (len(str(int(max(most, 100)))) + 1)
    return SpecError(
        f"the posterior is improper: nothing bounds '{label}'",
        needed="a measurement of it or of a sum that holds it, a bound, or a proper prior",
        remedy='where a code hides it, say what the code means, such as "1-4"; or write two lines at the end of the spec, '
        f'[infer] and prior = {{ name = "bounded", upper = {upper} }}, with a number that no count exceeds',
    )
