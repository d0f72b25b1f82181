"""Draw curves as small panels with logarithmic axes: plain SVG, no scripts, no fonts of its own."""

import html
import math
from collections.abc import Iterator, Sequence
from typing import Final

from tests.growth.curve import Curve, Series

COLUMNS: Final = 3
WIDTH, HEIGHT = 280, 190
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 34, 34
INK, FAINT, LINE, GUIDE, MISSED = "#24292f", "#d0d7de", "#0969da", "#8c959f", "#cf222e"


def picture(series: Series) -> str:
    """Return the panels of a series."""
    rows = math.ceil(len(series.curves) / COLUMNS)
    width, height = min(COLUMNS, len(series.curves)) * WIDTH, rows * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' font-family="sans-serif" font-size="10" role="img" aria-label="{html.escape(series.title)}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for place, curve in enumerate(series.curves):
        x, y = place % COLUMNS * WIDTH, place // COLUMNS * HEIGHT
        parts += [f'<g transform="translate({x},{y})">', *_panel(curve, series.size), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(curve: Curve, size: str) -> Iterator[str]:
    xs = [math.log10(point.size) for point in curve.points]
    ys = [math.log10(max(point.least, 1e-6)) for point in curve.points]
    low, high = _range(ys, xs[-1] - xs[0])
    colour = LINE if curve.is_met else MISSED

    def at(x: float, y: float) -> tuple[float, float]:
        right = LEFT + (x - xs[0]) / (xs[-1] - xs[0]) * (WIDTH - LEFT - RIGHT)
        return right, HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    yield _text(8, 14, curve.what, weight="bold")
    yield _text(8, 26, f"{curve.unit}; {exponents(curve)}", fill=colour)
    for x in _decades(xs[0], xs[-1]):
        (left, bottom), (_, top) = at(x, low), at(x, high)
        yield f'<path d="M{left:.1f} {bottom:.1f}V{top:.1f}" stroke="{FAINT}"/>'
        yield _text(left, bottom + 12, number(10**x), anchor="middle")
    for y in _decades(low, high):
        (left, bottom), (right, _) = at(xs[0], y), at(xs[-1], y)
        yield f'<path d="M{left:.1f} {bottom:.1f}H{right:.1f}" stroke="{FAINT}"/>'
        yield _text(left - 5, bottom + 3, number(10**y), anchor="end")
    yield _text(WIDTH - RIGHT, HEIGHT - 8, size, anchor="end")
    begin, end = at(xs[0], ys[-1] - curve.goal * (xs[-1] - xs[0])), at(xs[-1], ys[-1])
    if begin[1] <= HEIGHT - BOTTOM:  # the allowed slope, through the last point
        yield _line([begin, end], GUIDE, 'stroke-dasharray="3 3"')
    yield _line([at(x, y) for x, y in zip(xs, ys, strict=True)], colour, 'stroke-width="1.6"')
    for point, x in zip(curve.points, xs, strict=True):
        for value in point.values:
            right, bottom = at(x, min(math.log10(max(value, 1e-6)), high))
            shade = "1" if value == point.least else "0.35"
            yield f'<circle cx="{right:.1f}" cy="{bottom:.1f}" r="2.4" fill="{colour}" opacity="{shade}"/>'


def exponents(curve: Curve) -> str:
    """Return both exponents in words."""
    return f"exponent {curve.exponent:.2f}, at the end {curve.last_exponent:.2f}"


def _range(ys: Sequence[float], decades: float) -> tuple[float, float]:
    """Return the bounds of the upright axis: at least as many decades as make a slope of 1 look like one."""
    low, high = min(ys), max(ys)
    missing = max(0.0, min(decades, 2.0) - (high - low))
    return math.floor(2 * (low - missing / 2)) / 2, math.ceil(2 * (high + missing / 2)) / 2


def _decades(low: float, high: float) -> Iterator[float]:
    yield from range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)


def number(value: float) -> str:
    """Return a number with three digits at most, and k, M or G."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", fill: str = INK, weight: str = "") -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{bold}>{html.escape(text)}</text>'
    )


def _line(points: Sequence[tuple[float, float]], colour: str, more: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" {more}/>'
