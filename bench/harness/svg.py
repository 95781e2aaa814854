"""Draw a report as an SVG, by hand: bars for what is found, lines for how long it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH = 760
ROW = 22
LEFT = 130
COLOURS = ("#2f6f4f", "#b0b7bd", "#3b6ea5", "#c9822b")

Report = Mapping[str, Any]


def recall_plot(report: Report) -> str:
    """A group of bars for each folder, R@10 over RB1000, one row for each system."""
    parts: list[str] = []
    top = 40
    for name, folder in report["folders"].items():
        parts += list(_bars(f"{name}: R@10 and RB1000", folder["systems"], top))
        top += 2 * ROW + len(folder["systems"]) * 2 * ROW
    return _page("What is found", parts, top)


def speed_plot(report: Report) -> str:
    """Milliseconds of CPU by the number of items, both axes logarithmic."""
    sizes = sorted(int(size) for size in report["sizes"])
    lines = {
        arm: [report["sizes"][str(size)]["search"][arm]["cpu_p50"] for size in sizes]
        for arm in ("recall", "words", "vectors")
    }
    lines["recall, 1 % scope"] = [report["sizes"][str(size)]["small_scope"]["recall"]["cpu_p50"] for size in sizes]
    return _page("How long a search takes (ms of CPU, p50)", list(_lines(sizes, lines)), 420)


def _bars(title: str, systems: Report, top: float) -> Iterator[str]:
    yield _text(10, top + 14, title, bold=True)
    span = WIDTH - LEFT - 70
    for row, (name, found) in enumerate(systems.items()):
        y = top + ROW + row * 2 * ROW
        yield _text(LEFT - 8, y + ROW, name, anchor="end", bold=name == "engrain")
        for half, measure in enumerate(("r10", "rb1000")):
            value = found["all"][measure]
            shade = COLOURS[0] if name == "engrain" else COLOURS[1]
            opacity = 1.0 if half == 0 else 0.55
            y_bar = y + 4 + half * (ROW - 4)
            yield _box((LEFT, y_bar, max(1.0, value * span), ROW - 7), shade, opacity)
            yield _text(LEFT + value * span + 6, y_bar + 12, f"{value:.3f}", size=11)


def _lines(sizes: Sequence[int], lines: Mapping[str, Sequence[float]]) -> Iterator[str]:
    low = math.floor(math.log10(min(value for line in lines.values() for value in line)))
    high = math.ceil(math.log10(max(value for line in lines.values() for value in line)))
    high = max(high, low + 1)
    first, last = math.log10(sizes[0]), math.log10(sizes[-1])

    def across(size: float) -> float:
        share = 0.5 if last == first else (math.log10(size) - first) / (last - first)
        return 70 + share * (WIDTH - 240)

    def down(value: float) -> float:
        return 370 - (math.log10(value) - low) / (high - low) * 310

    for power in range(low, high + 1):
        y = f"{down(10**power):.1f}"
        yield f'<line x1="70" x2="{WIDTH - 170}" y1="{y}" y2="{y}" stroke="#e3e6e8"/>'
        yield _text(62, down(10**power) + 4, f"{10**power:g} ms", anchor="end", size=11)
    for size in sizes:
        yield _text(across(size), 392, f"{size:,}", anchor="middle", size=11)
    for (name, values), colour in zip(lines.items(), COLOURS, strict=False):
        points = " ".join(f"{across(size):.1f},{down(value):.1f}" for size, value in zip(sizes, values, strict=True))
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for size, value in zip(sizes, values, strict=True):
            yield f'<circle cx="{across(size):.1f}" cy="{down(value):.1f}" r="3" fill="{colour}"/>'
        yield _text(across(sizes[-1]) + 10, down(values[-1]) + 4, f"{name} {values[-1]:.2g}", size=11, colour=colour)


def _page(title: str, parts: Sequence[str], height: float) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}"'
    style = ' font-family="system-ui, sans-serif" role="img">'
    back = f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>'
    return "\n".join(
        [head + style, f"<title>{escape(title)}</title>", back, _text(10, 24, title, bold=True), *parts, "</svg>\n"]
    )


def _box(place: tuple[float, float, float, float], colour: str, opacity: float) -> str:
    x, y, width, height = place
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" fill="{colour}"'
        f' opacity="{opacity}"/>'
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 13, bold: bool = False, colour: str = "#22272b"
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{weight}>'
        f"{escape(text)}</text>"
    )
