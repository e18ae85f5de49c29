"""Names of attributes, as their values tell them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trueup.io.published.drafting.seen import YEAR

_SEX = re.compile(
    r"f|m|w|(fe)?males?|(wo)?m[ae]n|girls?|boys?|weiblich|männlich|männer|frauen|mann|frau|hommes?|femmes?|masculin|féminin|"
    r"garçons|filles|hombres?|mujeres?|masch[io]|femmin[ae]|homens|mulheres|mannen|vrouwen|män|kvinnor|mænd|kvinder|menn|kvinner",
    re.IGNORECASE,
)
_AGE = re.compile(
    r"[\d+–—<≥-]+|under|below|over|aged?|to|and|or|years?|older|more|very|jahre|bis|unter|über|adults?|children|young|old|middle|"
    r"ans|et|plus|de|à|anos|ou|mais|menos|años|y|más|anni|e|jaar|en|ouder|år|och|og|äldre",
    re.IGNORECASE,
)
OF_WHICH = re.compile(
    r"(davon|darunter|of which|including|of whom|dont|di cui|de los cuales|waarvan|waaronder|herav|heraf|därav)\W+"
)
"""Words before the name of a part of the count beside it."""


def name_of(values: Sequence[str]) -> str:
    """Return the name of an attribute that has such values; 'category' if they do not tell it.

    Examples
    --------
    >>> name_of(["Men", "Women"]), name_of(["davon männlich", "davon weiblich"]), name_of(["0-17", "18+"]), name_of(["a", "b"])
    ('sex', 'sex', 'age', 'category')
    >>> name_of(["2023", "2024"]), name_of(["2022-2023", "2023-2024"])
    ('year', 'period')
    """
    bare = [re.sub(r"\s*\(.*\)$|\W+$", "", OF_WHICH.sub("", value.casefold())) or value for value in values]
    if all(_SEX.fullmatch(value) for value in bare):
        return "sex"
    if all(map(YEAR.search, values)):
        return "year" if all(map(YEAR.fullmatch, values)) else "period"
    words = [word for value in values for word in OF_WHICH.sub("", value.casefold()).split()]
    return "age" if all(map(_AGE.fullmatch, words)) else "category"
