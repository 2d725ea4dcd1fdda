"""ICC profiles, made from their numbers: no file of anybody's is needed."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping

Matrix = tuple[tuple[float, float, float], ...]

# Colorants in D50 (red, green, blue), as the profiles of these spaces state them.
SRGB: Matrix = ((0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141))
ADOBE: Matrix = ((0.6097, 0.3111, 0.0195), (0.2053, 0.6257, 0.0609), (0.1492, 0.0632, 0.7446))
WHITE = (0.9642, 1.0, 0.8249)


def _fixed(*values: float) -> bytes:
    return struct.pack(f">{len(values)}i", *(round(value * 65536) for value in values))


def _xyz(values: tuple[float, ...]) -> bytes:
    return b"XYZ \0\0\0\0" + _fixed(*values)


def _curve(gamma: float | None) -> bytes:
    """A power, or sRGB's own curve for None."""
    if gamma is not None:
        return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256)) + b"\0\0"
    linear = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in (n / 1023 for n in range(1024)))
    return b"curv\0\0\0\0" + struct.pack(">I1024H", 1024, *(round(y * 65535) for y in linear))


def _profile(kind: bytes, space: bytes, pcs: bytes, name: str, tags: Mapping[bytes, bytes]) -> bytes:
    text = name.encode("ascii") + b"\0"
    words = b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + bytes(78)
    tags = {b"desc": words, b"cprt": b"text\0\0\0\0none\0", b"wtpt": _xyz(WHITE), **tags}
    at, table, body = 132 + 12 * len(tags), struct.pack(">I", len(tags)), b""
    for tag, value in tags.items():
        table += struct.pack(">4sII", tag, at + len(body), len(value))
        body += value + bytes(-len(value) % 4)
    head = struct.pack(
        ">I4sI4s4s4s12s4s4sI4s4sQI12s48s", at + len(body), b"", 0x02400000, kind, space, pcs, bytes(12), b"acsp",
        b"", 0, b"", b"", 0, 0, _fixed(*WHITE), b"",
    )  # fmt: skip
    return head + table + body


def rgb(name: str, colorants: Matrix, gamma: float | None) -> bytes:
    """A matrix profile."""
    names = (b"rXYZ", b"gXYZ", b"bXYZ")
    tags = {tag: _xyz(values) for tag, values in zip(names, colorants, strict=True)}
    tags |= {tag: _curve(gamma) for tag in (b"rTRC", b"gTRC", b"bTRC")}
    return _profile(b"mntr", b"RGB ", b"XYZ ", name, tags)


def gray(name: str, gamma: float | None) -> bytes:
    return _profile(b"mntr", b"GRAY", b"XYZ ", name, {b"kTRC": _curve(gamma)})


def cmyk(name: str) -> bytes:
    """A press whose inks are far from the simple formula: a table of Lab colours of all mixtures of full inks."""
    corners = bytearray()
    for c, m, y, k in itertools.product((0, 1), repeat=4):
        light = 250 - 60 * c - 70 * m - 15 * y - 90 * k
        corners += bytes((light, 128 - 30 * c + 60 * m, 128 - 40 * c + 70 * y - 10 * k))
    straight = bytes(range(256))
    table = b"mft1\0\0\0\0" + bytes((4, 3, 2, 0)) + _fixed(1, 0, 0, 0, 1, 0, 0, 0, 1)
    return _profile(b"prtr", b"CMYK", b"Lab ", name, {b"A2B0": table + straight * 4 + bytes(corners) + straight * 3})
