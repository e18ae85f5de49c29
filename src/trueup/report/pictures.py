"""Pictures: Vega-Lite drawn to SVG when the report is made, so that the page needs no library.

The page's style sheet owns the colours (`var(--...)`), so light, dark and print need no redrawing;
text keeps its size because each picture is drawn for a wide and for a narrow screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from trueup.report.blocks import Figure

WIDE, NARROW = 720, 320
_FONT = "Arial, Liberation Sans, sans-serif"
_CONFIG = {
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 13,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "labelColor": "var(--ink)",
        "titleColor": "var(--muted)",
        "domainColor": "var(--rule)",
        "tickColor": "var(--rule)",
        "gridColor": "var(--rule)",
        "titlePadding": 10,
    },
    "axisY": {"labelPadding": 8, "ticks": False, "domain": False},
    "legend": {
        "labelFontSize": 13,
        "symbolSize": 110,
        "labelColor": "var(--ink)",
        "orient": "top",
        "title": None,
        "direction": "vertical",
        "labelLimit": 0,
        "offset": 6,
    },
}

Rows = Sequence[Mapping[str, Any]]


def bars(rows: Rows, axis: str, message: str, caption: str) -> Figure:
    """Draw a bar for each row: `name`, `value`, and `text` at its end."""
    room = 1.4 * max(row["value"] for row in rows)  # for the texts at the ends of the bars
    base = {"y": _name_axis(), "x": _value_axis("value", axis, domain=[0, room])}
    bar = {"mark": {"type": "bar", "color": "var(--first)", "height": 18}, "encoding": base}
    text = {
        "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 13, "color": "var(--ink)"},
        "encoding": {**base, "text": {"field": "text"}},
    }
    return _figure(rows, [bar, text], message, caption)


def before_after(rows: Rows, names: tuple[str, str], axis: str, message: str, caption: str) -> Figure:
    """Draw two points for each row, joined: `name`, `before` and `after` (either may be None)."""
    folded = [
        {"name": row["name"], "which": which, "value": row[key]}
        for row in rows
        for which, key in zip(names, ("before", "after"))
        if row[key] is not None
    ]
    y, x = _name_axis(), _value_axis("value", axis)
    line = {
        "mark": {"type": "line", "color": "var(--muted)", "strokeWidth": 2},
        "encoding": {"y": y, "x": x, "detail": {"field": "name"}},
    }
    kind = {"field": "which", "type": "nominal", "sort": None}
    point = {
        "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
        "encoding": {
            "y": y,
            "x": x,
            "color": {**kind, "scale": {"domain": names, "range": ["var(--second)", "var(--first)"]}},
            "shape": {**kind, "scale": {"domain": names, "range": ["diamond", "circle"]}},
        },
    }
    return _figure(folded, [line, point], message, caption)


def strips(rows: Rows, axis: str, message: str, caption: str) -> Figure:
    """Draw a distribution for each row: `name` and the quantiles `q05`, `q25`, `q50`, `q75`, `q95`."""
    y = _name_axis()
    outer = {
        "mark": {"type": "bar", "color": "var(--faint)", "height": 10},
        "encoding": {"y": y, "x": _value_axis("q05", axis, zero=False), "x2": {"field": "q95"}},
    }
    inner = {
        "mark": {"type": "bar", "color": "var(--first)", "height": 18},
        "encoding": {"y": y, "x": _value_axis("q25", axis, zero=False), "x2": {"field": "q75"}},
    }
    middle = {
        "mark": {"type": "tick", "color": "var(--ink)", "thickness": 3, "size": 26},
        "encoding": {"y": y, "x": _value_axis("q50", axis, zero=False)},
    }
    return _figure(rows, [outer, inner, middle], message, caption)


def _name_axis() -> dict[str, Any]:
    return {"field": "name", "type": "nominal", "sort": None, "axis": {"title": None}}


def _value_axis(field: str, title: str, **scale: Any) -> dict[str, Any]:
    return {"field": field, "type": "quantitative", "scale": scale, "axis": {"title": title, "tickCount": 5}}


def _figure(rows: Rows, layers: list[dict], message: str, caption: str) -> Figure:
    return Figure(message, _draw(rows, layers, WIDE), _draw(rows, layers, NARROW), caption)


def _draw(rows: Rows, layers: list[dict], width: int) -> Markup:
    import vl_convert

    limit = width // 3
    spec = {
        "width": width,
        "height": {"step": 36},
        "autosize": {"type": "fit-x", "contains": "padding"},
        "background": "transparent",
        "padding": 2,
        "data": {"values": list(rows)},
        "layer": layers,
        "config": {**_CONFIG, "axisY": {**_CONFIG["axisY"], "labelLimit": limit}},
    }
    return Markup(vl_convert.vegalite_to_svg(spec))  # Vega escapes the texts that it draws
