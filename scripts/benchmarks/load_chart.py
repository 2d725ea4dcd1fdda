"""The chart of `scripts/bench load`: a bar for each side, and a line from its lowest to its highest repeat."""

from __future__ import annotations

from PIL import Image, ImageDraw, ImageFont

from fastdata.cli.measure import Spread

_WIDTH, _ROW, _EDGE, _NAMES, _FIGURES = 1000, 34, 24, 240, 90
_INK, _OURS, _FLOOR, _PEERS, _RANGE = "#222222", "#1f77b4", "#9ecae1", "#b0b0b0", "#444444"


def draw(path: str, title: str, rates: dict[str, Spread]) -> None:
    """Draw the rates, in their order, into a PNG."""
    image = Image.new("RGB", (_WIDTH, 2 * _EDGE + _ROW * (len(rates) + 1)), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(16)
    pen.text((_EDGE, _EDGE), title, _INK, font)
    full = max((spread.high for spread in rates.values()), default=1.0)
    scale = (_WIDTH - 2 * _EDGE - _NAMES - _FIGURES) / full
    left = _EDGE + _NAMES
    for row, (name, spread) in enumerate(rates.items(), start=1):
        top = _EDGE + row * _ROW
        middle = top + _ROW // 2 - 3
        pen.text((left - 10, middle), name, _INK, font, anchor="rm")
        pen.rectangle((left, top, left + spread.median * scale, top + _ROW - 8), _color(name))
        pen.line((left + spread.low * scale, middle, left + spread.high * scale, middle), _RANGE, 2)
        pen.text((left + spread.high * scale + 8, middle), f"{spread.median:,.0f}", _INK, font, anchor="lm")
    image.save(path)


def _color(name: str) -> str:
    if name.startswith("fastdata"):
        return _OURS
    return _FLOOR if name.startswith("floor") else _PEERS
