"""Every text can be read on every ground that it stands on, in light and in dark (WCAG AA: 4.5 to 1)."""

from __future__ import annotations

import re
from pathlib import Path

from examples import for_each

import engrain.ui

CSS = (Path(engrain.ui.__file__).parent / "static" / "app.css").read_text()
COLOURS = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", CSS)
}
GROUNDS = ("bg", "surface", "surface-2")
KINDS = ("fact", "message", "relation", "summary", "episode", "procedure")
PAIRS = [
    *((text, ground) for text in ("ink", "ink-2", "ink-3", "accent") for ground in GROUNDS),
    *((kind, ground) for kind in KINDS for ground in GROUNDS),
    *((tone, ground) for tone in ("good", "warn", "bad") for ground in ("bg", "surface", f"{tone}-soft")),
    *(("ink", ground) for ground in ("accent-soft", "good-soft", "warn-soft", "bad-soft", "mark")),
    ("accent", "accent-soft"), ("ink-2", "accent-soft"), ("ink-2", "good-soft"), ("ink-3", "good-soft"),
    ("accent-ink", "accent"), ("bad-ink", "bad-solid"), ("bg", "ink"),
]  # fmt: skip
# Edges of fields, and what is drawn: 3 to 1.
SHAPES = [("line-strong", ground) for ground in GROUNDS]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_formula_is_the_published_one() -> None:
    assert round(contrast("#000000", "#ffffff"), 2) == 21.0
    assert round(contrast("#767676", "#ffffff"), 2) == 4.54


@for_each("text, ground", PAIRS)
def test_text_can_be_read(text: str, ground: str) -> None:
    for theme in (0, 1):
        assert contrast(COLOURS[text][theme], COLOURS[ground][theme]) >= 4.5, (text, ground, ("light", "dark")[theme])


@for_each("shape, ground", SHAPES)
def test_edges_can_be_seen(shape: str, ground: str) -> None:
    for theme in (0, 1):
        assert contrast(COLOURS[shape][theme], COLOURS[ground][theme]) >= 3, (shape, ground)


def test_every_colour_of_a_text_is_one_of_the_tested_variables() -> None:
    used = set(re.findall(r"(?<![-\w])color: var\(--([\w-]+)", CSS))
    assert used - {"kind", "line"} <= {text for text, _ in PAIRS}
    assert "chart-rest { color: var(--line); }" in CSS  # the one line: the later bars of the chart
    assert not re.findall(r"(?<![-\w])color: #", CSS)
