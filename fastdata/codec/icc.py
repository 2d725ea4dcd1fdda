"""ICC: the colour profile of a file, and the conversion of its colours to sRGB.

`conversion` makes a `Conversion` that turns pixels into sRGB as Pillow's ImageCms does (perceptual intent, 8 bits), or
None if the profile is sRGB. That is decided by what a profile does, never by its name: many profiles are sRGB without
being equal, and some that are named so are not. `attached` embeds a profile in a file that `encode` made.
"""

from __future__ import annotations

import functools
import io
import zlib
from dataclasses import dataclass
from struct import pack
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastdata.codec.blend import by_bands
from fastdata.codec.quiet import pillow

if TYPE_CHECKING:
    from PIL import Image

    from fastdata.codec.info import Data, ImageInfo

# Bytes that every file with a profile contains; other files are not parsed.
_CARRIERS = {"png": b"iCCP", "webp": b"ICCP", "tif": b"acsp", "avif": b"acsp", "jp2": b"acsp", "jpg": b"ICC_PROFILE\0"}
_JPEG_NAME = _CARRIERS["jpg"]
CARRYING = ("jpg", "png", "webp")
"""The kinds of file that `attached` embeds a profile in."""

_JPEG_PART = 65_519  # bytes of a profile that fit into one segment
# The colour space of a profile -> Pillow's mode of the pixels that it applies to.
_SPACES = {"GRAY": "L", "RGB ": "RGB", "CMYK": "CMYK"}
_MODES = {"gray": "L", "gray-inverted": "L", "cmyk": "CMYK"}
# sRGB's own profiles differ from one another by a level; the nearest other space, gray of gamma 2.2, by 6.
_SAME = 2


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of a profile's colours to sRGB.

    Attributes:
        name: the description in the profile.
        mode: Pillow's mode of the pixels that it takes: L, RGB or CMYK.
        transform: the `ImageCmsTransform`.
    """

    name: str
    mode: str
    transform: Any

    def image(self, image: Image.Image) -> Image.Image:
        """Convert an image of this mode to sRGB."""
        from PIL import ImageCms

        converted = ImageCms.applyTransform(image, self.transform)
        assert converted is not None
        return converted

    def pixels(self, rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Convert H x W x 3 pixels, RGB or gray in three equal channels, to sRGB."""
        from PIL import Image

        def rows(band: slice) -> NDArray[np.uint8]:
            part = rgb[band] if self.mode == "RGB" else rgb[band, :, 0]
            return np.asarray(self.image(Image.fromarray(np.ascontiguousarray(part))))

        return by_bands((rgb.shape[0], rgb.shape[1]), rows)


def embedded(data: Data, info: ImageInfo) -> bytes | None:
    """The profile of a file, None if it has none."""
    carrier = _CARRIERS.get(info.format)
    if carrier is None or carrier not in bytes(data):
        return None
    return _in_jpeg(data) if info.format == "jpg" else _by_pillow(data)


def _in_jpeg(data: Data) -> bytes | None:
    """Join the APP2 segments, which are numbered from 1."""
    at, parts = 2, dict[int, bytes]()
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        body = bytes(data[at + 4 : at + 2 + length]) if data[at + 1] == 0xE2 else b""
        if body.startswith(_JPEG_NAME):
            parts[body[12]] = body[14:]
        at += 2 + max(length, 2)
    return b"".join(parts[number] for number in sorted(parts)) or None


def _by_pillow(data: Data) -> bytes | None:
    from PIL import Image

    try:
        with pillow(lenient=True), Image.open(io.BytesIO(data)) as image:
            profile = image.info.get("icc_profile")
    except MemoryError:
        raise
    except Exception:  # decoding reports whatever is wrong
        return None
    return profile if isinstance(profile, bytes) and profile else None


def mode_of(info: ImageInfo) -> str:
    """Pillow's mode of the pixels that a profile must apply to."""
    return _MODES.get(info.mode, "RGB")


@functools.lru_cache(maxsize=64)
def conversion(profile: bytes, mode: str) -> Conversion | str | None:
    """The conversion of pixels of a mode to sRGB; None if they are sRGB already; a message if the profile is ignored.

    Cached by the bytes of the profile: many images share one, and building a conversion takes a millisecond.
    """
    from PIL import ImageCms

    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        space = source.profile.xcolor_space
        if _SPACES.get(space) != mode:
            return f"its ICC profile is for {space.strip() or 'unknown'} colours, not for {mode}: ignored"
        name = ImageCms.getProfileDescription(source).strip()
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
        found = Conversion(name, mode, transform)
        return None if mode != "CMYK" and _changes_nothing(found) else found
    except MemoryError:
        raise
    except Exception as error:  # whatever little CMS makes of damaged bytes
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        return f"its ICC profile cannot be read ({reason}): ignored"


def _changes_nothing(found: Conversion) -> bool:
    steps = np.arange(0, 256, 15 if found.mode == "RGB" else 1, dtype=np.uint8)
    if found.mode == "RGB":
        colors = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(len(steps), -1, 3)
    else:
        colors = np.repeat(steps[None, :, None], 3, axis=2)
    return int(np.abs(found.pixels(colors).astype(np.int16) - colors).max()) <= _SAME


def attached(blob: bytes, format: str, profile: bytes) -> bytes:
    """Embed an RGB profile in a file that `encode` made (JPEG, PNG or WebP)."""
    if format == "jpg":
        at = 4 + int.from_bytes(blob[4:6], "big")  # behind JFIF's segment, which comes first
        count = -(-len(profile) // _JPEG_PART)
        parts = [profile[number * _JPEG_PART : (number + 1) * _JPEG_PART] for number in range(count)]
        segments = b"".join(
            pack(">2sH", b"\xff\xe2", len(part) + 16) + _JPEG_NAME + bytes((number, count)) + part
            for number, part in enumerate(parts, 1)
        )
        return blob[:at] + segments + blob[at:]
    if format == "png":
        body = b"iCCPICC profile\0\0" + zlib.compress(profile)
        return blob[:33] + pack(">I", len(body) - 4) + body + pack(">I", zlib.crc32(body)) + blob[33:]
    width, height = (int.from_bytes(blob[at : at + 2], "little") & 0x3FFF for at in (26, 28))  # of its VP8 frame
    canvas = bytes((0x20, 0, 0, 0)) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    chunks = _riff(b"VP8X", canvas) + _riff(b"ICCP", profile) + blob[12:]
    return pack("<4sI4s", b"RIFF", len(chunks) + 4, b"WEBP") + chunks


def _riff(name: bytes, body: bytes) -> bytes:
    return pack("<4sI", name, len(body)) + body + bytes(len(body) & 1)
