"""Plots as SVG, drawn by Vega-Lite when the page is written: the page has the picture and needs no plotting library.

Colours are variables of the page's style sheet, so that a plot follows light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.report.page.drawing import shortened
from trtnorm_cli.report.page.words import SUPERSCRIPTS, fit

_SVG = "http://www.w3.org/2000/svg"
_VEGA_LITE = "5.21"
_WIDTH = 430
_LONGEST_LABEL = 18
_LEAST, _MOST = 1e-300, 1e300
# So many powers of ten have a label at most.
_DECADES = 5
_INK, _MUTED, _LINE, _ACCENT, _LIMIT = "var(--ink)", "var(--muted)", "var(--line)", "var(--accent)", "var(--limit)"
_CONFIG = {
    "background": None,
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": _MUTED, "titleColor": _MUTED, "gridColor": _LINE, "domain": False, "ticks": False, "labelFontSize": 12,
        "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 150, "labelPadding": 6, "labelOverlap": True,
    },
    "aria": False,
}  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """A bar of a plot with its label, and the words for its value."""

    label: str
    value: float
    text: str


@dataclass(frozen=True)
class Dot:
    """A value in a row, and the limit that it has to keep, where there is one. ``series`` gives it its colour."""

    row: str
    value: float
    limit: float | None = None
    series: str = ""


@dataclass(frozen=True)
class Span:
    """A range from ``low`` to ``high`` with a point in it, and the legal values, as intervals."""

    row: str
    low: float
    point: float
    high: float
    legal: tuple[tuple[float, float], ...]


def bars(values: Sequence[Bar], unit: str) -> str:
    """Horizontal bars in the order given."""
    rows = [{"n": _numbered(i, bar.label), "v": bar.value, "t": bar.text} for i, bar in enumerate(values)]
    y = {"field": "n", "type": "nominal", "sort": None, "axis": _row_axis()}
    most = max((bar.value for bar in values), default=1.0) or 1.0
    x = {"field": "v", "type": "quantitative", "title": unit, "scale": {"domain": [0, most * 1.25]}, "axis": {"tickCount": 4}}
    layers = [
        {"mark": {"type": "bar", "color": _ACCENT, "cornerRadiusEnd": 2, "height": {"band": 0.7}}},
        {
            "mark": {"type": "text", "align": "left", "dx": 4, "color": _INK, "fontSize": 12},
            "encoding": {"text": {"field": "t"}},
        },
    ]
    return _svg(rows, {"height": {"step": 24}, "encoding": {"y": y, "x": x}, "layer": layers})


def dots(values: Sequence[Dot], title: str) -> str:
    """A row for each name, with its values as dots and its limit as a stroke, on a logarithmic axis."""
    number = {name: i for i, name in enumerate(dict.fromkeys(dot.row for dot in values))}
    known = [v for dot in values for v in (dot.value, dot.limit) if v and v > 0 and math.isfinite(v)]
    least = min(known, default=1e-9) / 2
    rows = [
        {
            "n": _numbered(number[dot.row], dot.row),
            "v": _drawable(dot.value, least),
            "l": _drawable(dot.limit, least) if dot.limit else None,
            "s": fit(dot.series),
        }
        for dot in values
    ]
    y = {"field": "n", "type": "nominal", "sort": None, "axis": _row_axis()}
    x = _logarithmic("v", title, [least, max(known, default=1.0) * 2])
    stroke = {"type": "tick", "color": _LIMIT, "thickness": 2, "size": 16}
    layers = [
        {"mark": stroke, "encoding": {"x": {**x, "field": "l"}}},
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {"x": x, "color": _colour([fit(dot.series) for dot in values])},
        },
    ]
    return _svg(rows, {"height": {"step": 26}, "encoding": {"y": y}, "layer": layers})


def strip(values: Sequence[Dot], title: str) -> str:
    """Each value over its limit, in the order given, on a logarithmic axis that ends at 1."""
    shares = [dot.value / dot.limit for dot in values if dot.limit]
    least = min([share for share in shares if share > 0], default=1e-3) / 2
    rows = [{"i": i + 1, "v": _drawable(share, least)} for i, share in enumerate(shares)]
    x_axis = {"format": "d", "tickMinStep": 1, "tickCount": min(6, len(rows)), "grid": False}
    x = {"field": "i", "type": "quantitative", "title": "change", "axis": x_axis, "scale": {"domain": [0, len(rows) + 1]}}
    y = _logarithmic("v", title, [least, 2])
    layers = [
        {"mark": {"type": "rule", "color": _LIMIT, "strokeWidth": 2}, "encoding": {"y": {"datum": 1}}},
        {"mark": {"type": "point", "filled": True, "color": _ACCENT, "size": 50, "opacity": 1}, "encoding": {"x": x, "y": y}},
    ]
    return _svg(rows, {"height": 150, "layer": layers})


def line(values: Sequence[tuple[int, float, str]], title: str, rows_title: str) -> str:
    """A line for each series over the numbers of the first entries, on a logarithmic axis."""
    least = min([v for _, v, _ in values if v > 0], default=1e-12) / 2
    rows = [{"i": i, "v": _drawable(v, least), "s": fit(series)} for i, v, series in values]
    x = {"field": "i", "type": "quantitative", "title": rows_title, "axis": {"grid": False, "tickCount": 6}}
    y = _logarithmic("v", title, [least, max((v for _, v, _ in values), default=1.0) * 2])
    encoding = {"x": x, "y": y, "color": _colour([fit(series) for _, _, series in values])}
    layers = [
        {"mark": {"type": "line", "strokeWidth": 1.5, "opacity": 0.7}},
        {"mark": {"type": "point", "filled": True, "size": 14}},
    ]
    return _svg(rows, {"height": 180, "encoding": encoding, "layer": layers})


def spans(values: Sequence[Span], title: str) -> str:
    """Ranges over what is legal: thin strokes are legal values, the bar reaches from min to max, the dot is opt."""
    rows = [{"n": _numbered(i, s.row), "a": s.low, "o": s.point, "b": s.high} for i, s in enumerate(values)]
    legal = [{"n": _numbered(i, s.row), "a": low, "b": high} for i, s in enumerate(values) for low, high in s.legal]
    ends = [v for s in values for v in (s.low, s.high, *(e for pair in s.legal for e in pair))]
    domain = [min(ends), max(ends)] if min(ends) < max(ends) else [min(ends) - 1, max(ends) + 1]
    y = {"field": "n", "type": "nominal", "sort": None, "axis": _row_axis()}
    x = {"type": "quantitative", "title": title, "scale": {"domain": domain, "nice": True, "zero": False}}
    x["axis"] = {"tickCount": 5, "format": "~d"}
    far = {"x": {**x, "field": "a"}, "x2": {"field": "b"}}
    layers = [
        {"data": {"values": legal}, "mark": {"type": "rule", "color": _LINE, "strokeWidth": 18}, "encoding": far},
        {"mark": {"type": "bar", "color": _ACCENT, "opacity": 0.85, "height": 7}, "encoding": far},
        {
            "mark": {"type": "point", "filled": True, "color": _INK, "size": 70, "opacity": 1},
            "encoding": {"x": {**x, "field": "o"}},
        },
    ]
    return _svg(rows, {"height": {"step": 34}, "encoding": {"y": y}, "layer": layers})


def _row_axis(**more: Any) -> dict[str, Any]:
    """The axis of rows. Each label has a number in front, which tells rows of one name apart and is not shown."""
    return {"title": None, "labelExpr": r"replace(datum.label, /^\d+ /, '')", "labelColor": _INK, "grid": False, **more}


def _colour(series: Sequence[str]) -> dict[str, Any]:
    """A colour for each series, and a legend where there are several."""
    names = list(dict.fromkeys(series))
    colours = {"domain": names, "range": [(_ACCENT, "var(--second)", _INK)[i % 3] for i in range(len(names))]}
    legend = {"orient": "top", "title": None, "labelColor": _INK, "labelFontSize": 12, "symbolOpacity": 1, "columnPadding": 36}
    return {"field": "s", "type": "nominal", "scale": colours, "legend": legend if len(names) > 1 else None}


def _numbered(number: int, label: str) -> str:
    return f"{number} {shortened(fit(label), _LONGEST_LABEL)}"


def _logarithmic(field: str, title: str, domain: Sequence[float]) -> dict[str, Any]:
    domain = [max(domain[0], _LEAST), min(domain[1], _MOST)]
    first, last = math.ceil(math.log10(domain[0])), math.floor(math.log10(domain[1]))
    step = max(1, math.ceil((last - first) / _DECADES))
    decades = {
        10.0**power: "1" if power == 0 else f"10{str(power).translate(SUPERSCRIPTS)}" for power in range(first, last + 1, step)
    }
    texts = "".join(f"abs(datum.value / {value!r} - 1) < 0.01 ? '{text}' : " for value, text in decades.items())
    axis = {"values": list(decades), "labelExpr": f"{texts}''", "labelOverlap": False}
    scale = {"type": "log", "domain": domain, "clamp": True, "nice": False}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _drawable(value: float, least: float) -> float:
    """``value`` for a logarithmic axis that begins at ``least``; what is not finite stands at its end."""
    return max(value, least) if math.isfinite(value) else _MOST


def _svg(rows: Sequence[dict[str, Any]], spec: dict[str, Any]) -> str:
    import vl_convert

    fit = {"type": "fit-x", "contains": "padding"}
    whole = {**spec, "width": _WIDTH, "config": _CONFIG, "data": {"values": rows}, "autosize": fit}
    return _slim(vl_convert.vegalite_to_svg(whole, vl_version=_VEGA_LITE))


def _slim(svg: str) -> str:
    """The picture as a part of the page: hidden from screen readers, which get a table, and in the page's own font."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
        for name in ("font-family", "aria-hidden", "aria-roledescription", "role", "pointer-events", "class"):
            element.attrib.pop(name, None)
    root.attrib.pop("version", None)
    root.set("class", "plot")
    root.set("aria-hidden", "true")
    root.set("focusable", "false")
    return ElementTree.tostring(root, encoding="unicode")
