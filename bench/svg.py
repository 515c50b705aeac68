"""Plots as SVG, drawn by hand: bars and lines on a logarithmic scale, readable on light and on dark ground.

Owns: geometry and colours. Must not know: what the figures mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

__all__ = ["Bar", "Panel", "bars", "lines"]

WIDTH = 760
NAME, VALUE = 130, 90
ROW = 20
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 } .faint { fill: #59636e } .grid { stroke: #d1d9e0; stroke-width: 1 }
.ours { fill: #d9480f; stroke: #d9480f } .floor { fill: #9aa4b0; stroke: #9aa4b0 }
.peer { fill: #6f95c4; stroke: #6f95c4 }
rect { stroke: none !important } .line { fill: none !important; stroke-width: 1.6 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .faint { fill: #9198a1 } .grid { stroke: #3d444d }
  .ours { fill: #ff8a50; stroke: #ff8a50 } .floor { fill: #7d8590; stroke: #7d8590 }
  .peer { fill: #5b83b5; stroke: #5b83b5 }
}
"""


class Bar(NamedTuple):
    name: str
    value: float
    label: str
    kind: str
    """`ours`, `floor` or `peer`."""


class Panel(NamedTuple):
    title: str
    bars: Sequence[Bar]


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _document(height: float, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>", ""])


def bars(title: str, panels: Sequence[Panel]) -> str:
    """Panels of horizontal bars, one below the other, all on one logarithmic scale."""
    values = [bar.value for panel in panels for bar in panel.bars if bar.value > 0]
    if not values:
        return _document(30, title, [_text(0, 18, f"{title}: nothing was measured", "title")])
    low, high = math.log10(min(values)) - 0.3, math.log10(max(values))
    span = WIDTH - NAME - VALUE
    parts, y = [_text(0, 16, title, "title")], 26.0
    for panel in panels:
        y += 18
        parts.append(_text(0, y - 4, panel.title, "faint"))
        for bar in panel.bars:
            length = max(2.0, (math.log10(bar.value) - low) / max(high - low, 1e-9) * span) if bar.value > 0 else 0.0
            parts += [
                _text(NAME - 8, y + 14, bar.name, "", "end"),
                f'<rect x="{NAME}" y="{y + 4:.1f}" width="{length:.1f}" height="{ROW - 7}" rx="2" class="{bar.kind}"/>',
                _text(NAME + length + 6, y + 14, bar.label, "faint"),
            ]
            y += ROW
    parts.append(_text(NAME, y + 16, "logarithmic scale; shorter is better", "faint"))
    return _document(y + 26, title, parts)


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], kinds: Mapping[str, str], unit: str) -> str:
    """Lines through points, both scales logarithmic; the name stands at the end of its line."""
    points = [point for found in series.values() for point in found]
    if not points:
        return _document(30, title, [_text(0, 18, f"{title}: nothing was measured", "title")])
    left, top, width, height = 70, 34, WIDTH - 70 - 150, 320
    xs = [math.log10(x) for x, _ in points]
    ys = [math.log10(y) for _, y in points]
    x0, x1, y0, y1 = min(xs), max(*xs, min(xs) + 1e-9), math.floor(min(ys)), math.ceil(max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + (math.log10(x) - x0) / (x1 - x0) * width,
            top + height - (math.log10(y) - y0) / max(y1 - y0, 1) * height,
        )

    parts = [_text(0, 16, title, "title")]
    for power in range(y0, y1 + 1):
        _, y = place(10**x0, 10.0**power)
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(_text(left - 8, y + 4, f"{10.0**power:g} {unit}", "faint", "end"))
    parts += [
        _text(place(x, 10.0**y0)[0], top + height + 18, f"{x:,.0f}", "faint", "middle")
        for x in sorted({x for x, _ in points})
    ]
    taken: list[float] = []
    for name, found in sorted(series.items(), key=lambda each: each[1][-1][1]):
        kind = kinds.get(name, "peer")
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in found))
        parts.append(f'<polyline points="{path}" class="line {kind}"/>')
        y = place(*found[-1])[1] + 4
        while any(abs(y - other) < 13 for other in taken):
            y -= 13
        taken.append(y)
        parts.append(_text(left + width + 8, y, name))
    return _document(top + height + 34, title, parts)
