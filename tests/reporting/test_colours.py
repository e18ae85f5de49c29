"""Contrast of the style sheet's colours, in light and in dark (WCAG 2.2, AA)."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

STYLE = files("trueup.reporting").joinpath("templates/page.css").read_text(encoding="utf-8")
TEXT = {
    ("ink", "paper"),
    ("ink", "panel"),
    ("muted", "paper"),
    ("muted", "panel"),
    ("link", "paper"),
    ("link", "panel"),
    ("warn-ink", "warn"),
}
"""Text on its background: 4.5 to 1."""

SHAPES = {
    ("first", "paper"),
    ("second", "paper"),
    ("second", "panel"),
    ("third", "paper"),
    ("fourth", "paper"),
    ("fifth", "paper"),
    ("sixth", "paper"),
    ("muted", "paper"),
    ("edge", "paper"),
    ("link", "paper"),
    ("first", "faint"),
}
"""Marks of pictures and edges of controls beside each other: 3 to 1, but 1.5 for a bar upon a bar."""


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


LIGHT, DARK = (colours(block) for block in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL))


def luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.2)."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_black_on_white_has_the_known_contrast():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


def test_both_themes_have_the_same_colours():
    assert LIGHT.keys() == DARK.keys()
    assert len(LIGHT) >= 10


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back"), sorted(TEXT))
def test_text_has_enough_contrast(theme, front, back):
    assert contrast(theme[front], theme[back]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back"), sorted(SHAPES))
def test_shapes_have_enough_contrast(theme, front, back):
    assert contrast(theme[front], theme[back]) >= (1.5 if back == "faint" else 3)


def test_every_colour_in_use_is_declared_and_every_text_colour_is_tested():
    numbers = {"places"}  # set by templates
    assert set(re.findall(r"var\(--([\w-]+)\)", STYLE)) - numbers == LIGHT.keys()
    used = set(re.findall(r"(?<![\w-])color: var\(--([\w-]+)\)", STYLE))
    assert used <= {front for front, _ in TEXT}
