"""Images for the tests, all of them drawn here: photo-like arrays, files of them in every kind, and odd files.

Nothing is read from disk. `ODD_IMAGES` maps a name to (file, upright RGB that decoding must give, None where it must be
refused); `tests/likeness.py` says how near is near enough.
"""

from __future__ import annotations

import functools
import io
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

RGB = NDArray[np.uint8]

# EXIF orientation -> how an upright array is stored under that tag.
STORED: Mapping[int, Callable[[RGB], RGB]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: a.transpose(1, 0, 2)[::-1],
    7: lambda a: a.transpose(1, 0, 2)[::-1, ::-1],
    8: lambda a: a.transpose(1, 0, 2)[:, ::-1],
}


def photo(width: int, height: int, seed: int = 0) -> RGB:
    """A photo-like RGB array: soft shapes, texture and some noise, so that encoded sizes are realistic."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(30, 226, (4, 5, 3), dtype=np.uint8)
    fine = rng.integers(0, 256, (max(height // 3, 2), max(width // 3, 2), 3), dtype=np.uint8)
    base = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).astype(np.float32)
    texture = cv2.resize(fine, (width, height), interpolation=cv2.INTER_LINEAR).astype(np.float32) - 128
    noise = rng.normal(0, 2, (height, width, 1)).astype(np.float32)
    return np.clip(base + texture * 0.15 + noise, 0, 255).astype(np.uint8)


def saved(rgb: NDArray[Any] | Image.Image, kind: str, **options: Any) -> bytes:
    """The file that Pillow writes of an array or image: `saved(rgb, "webp", lossless=True)`."""
    image = rgb if isinstance(rgb, Image.Image) else Image.fromarray(np.ascontiguousarray(rgb))
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def jpeg(rgb: NDArray[Any], quality: int = 90, **options: Any) -> bytes:
    """A JPEG (gray where the array is H x W); options are Pillow's: progressive, subsampling, exif, ..."""
    return saved(rgb, "jpeg", quality=quality, **options)


def png(rgb: NDArray[Any], **options: Any) -> bytes:
    """A PNG of a uint8 array: gray, RGB or RGBA by its shape."""
    return saved(rgb, "png", **options)


def webp(rgb: NDArray[Any], **options: Any) -> bytes:
    """A lossless WebP, unless `lossless=False` is given."""
    return saved(rgb, "webp", **{"lossless": True, **options})


def bmp(rgb: NDArray[Any]) -> bytes:
    """A BMP with 24 bits a pixel."""
    return saved(rgb, "bmp")


def npy(array: NDArray[Any]) -> bytes:
    """The file that numpy itself saves."""
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def exif(orientation: int, **tags: Any) -> bytes:
    """An EXIF block (with its `Exif\\0\\0` head) that holds an orientation."""
    block = Image.Exif()
    block[0x0112] = orientation
    for name, value in tags.items():
        block[int(name.removeprefix("t"), 16)] = value
    return block.tobytes()


def turned(rgb: RGB, orientation: int, kind: str = "jpeg", **options: Any) -> bytes:
    """A file whose pixels lie under an orientation tag, so that the upright image is `rgb`."""
    return saved(np.ascontiguousarray(STORED[orientation](rgb)), kind, exif=exif(orientation), **options)


def chunk(name: bytes, data: bytes) -> bytes:
    """One PNG chunk."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def raw_png(rows: bytes, width: int, height: int, bits: int, color: int, *chunks: bytes) -> bytes:
    """A PNG from filtered rows, with extra chunks before the data: for kinds that no library writes."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def png16(array: NDArray[np.uint16], *chunks: bytes) -> bytes:
    """A 16-bit PNG: gray, gray + alpha, RGB or RGBA by the array's channels."""
    height, width = array.shape[:2]
    channels = 1 if array.ndim == 2 else array.shape[2]
    rows = array.astype(">u2").reshape(height, -1)
    body = b"".join(b"\0" + row.tobytes() for row in rows)
    return raw_png(body, width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], *chunks)


def png_bomb(width: int, height: int) -> bytes:
    """A small, valid PNG that claims width x height pixels (1 bit, all zero)."""
    packer = zlib.compressobj(9)
    row = b"\0" + bytes((width + 7) // 8)
    body = b"".join(packer.compress(row) for _ in range(min(height, 64))) + packer.flush()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def without_segment(data: bytes, marker: int) -> bytes:
    """A JPEG without its header segments of one kind (0xEE: the Adobe marker)."""
    at, out = 2, bytearray(data[:2])
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] != marker:
            out += data[at:end]
        at = end
    return bytes(out) + data[at:]


def cmyk_jpeg(rgb: RGB, *, ycck: bool = False, adobe: bool = True) -> bytes:
    """A four-colour JPEG of an image, as print programs write them."""
    inks = np.dstack([255 - rgb, np.full(rgb.shape[:2], 40, np.uint8)])
    inks[..., :3] = np.clip((inks[..., :3].astype(int) * 255 - 40 * 255) // (255 - 40), 0, 255)
    if ycck:  # Pillow stores inverted samples; inverted once more here, those of the file are the inks as YCC
        ycc = np.asarray(Image.fromarray(inks[..., :3]).convert("YCbCr"))
        inks = np.dstack([255 - ycc, inks[..., 3]])
    data = saved(Image.fromarray(inks, "CMYK"), "jpeg", quality=95, subsampling=0)
    if ycck:
        at = data.index(b"Adobe")
        data = data[: at + 11] + b"\x02" + data[at + 12 :]
    return data if adobe else without_segment(data, 0xEE)


def ramp16() -> NDArray[np.uint16]:
    """4,096 levels of gray in 64 x 64 pixels."""
    return np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)


def laid_out(rgb: RGB, layout: str) -> RGB:
    """The array in a memory layout that is not plain: with steps, in Fortran order, or with its sides swapped."""
    return {"steps": rgb[::2, ::-1], "fortran": np.asfortranarray(rgb), "turned": rgb.transpose(1, 0, 2)}[layout]


def over(rgb: NDArray[Any], alpha: NDArray[Any], background: int = 255) -> RGB:
    """An image laid over a plain background; alpha from 0 to 255."""
    weight = alpha.astype(np.float64)[..., None] / 255
    return np.asarray(np.rint(rgb * weight + background * (1 - weight)), np.uint8)


def alpha_ramp(width: int, height: int) -> NDArray[np.uint8]:
    """Alpha from 0 to 255 along the width."""
    return np.broadcast_to(np.linspace(0, 255, width).astype(np.uint8), (height, width)).copy()


def _gray(rgb: RGB) -> NDArray[np.uint8]:
    return np.asarray(Image.fromarray(rgb).convert("L"))


def _three(gray: NDArray[np.uint8]) -> RGB:
    return np.ascontiguousarray(np.repeat(gray[..., None], 3, axis=2))


def _orientations(rgb: RGB) -> dict[str, tuple[bytes, RGB | None]]:
    table: dict[str, tuple[bytes, RGB | None]] = {}
    for turn in range(1, 9):
        table[f"turn-{turn}.jpg"] = (turned(rgb, turn, quality=95, subsampling=0), rgb)
        table[f"turn-{turn}.png"] = (turned(rgb, turn, "png"), rgb)
        table[f"turn-{turn}.webp"] = (turned(rgb, turn, "webp", lossless=True), rgb)
        table[f"turn-{turn}.tif"] = (turned(rgb, turn, "tiff"), rgb)
        table[f"turn-{turn}.avif"] = (turned(rgb, turn, "avif", quality=95), rgb)
    return table


def _deep(rgb: RGB) -> dict[str, tuple[bytes, RGB | None]]:
    gray, alpha = _gray(rgb), alpha_ramp(rgb.shape[1], rgb.shape[0])
    wide = {"gray": gray.astype(np.uint16) * 257, "rgb": rgb.astype(np.uint16) * 257}
    both = np.dstack([rgb, alpha]).astype(np.uint16) * 257
    size = f"{rgb.shape[1]} {rgb.shape[0]}".encode()
    big_endian = Image.frombytes("I;16B", gray.shape[::-1], wide["gray"].astype(">u2").tobytes())
    return {
        "gray16.png": (png16(wide["gray"]), _three(gray)),
        "rgb16.png": (png16(wide["rgb"]), rgb),
        "rgba16.png": (png16(both), over(rgb, alpha)),
        "graya16.png": (png16(np.dstack([wide["gray"], both[..., 3]])), over(_three(gray), alpha)),
        "gray16.tif": (saved(Image.fromarray(wide["gray"]), "tiff"), _three(gray)),
        "gray16-be.tif": (saved(big_endian, "tiff"), _three(gray)),
        "rgb16.tif": (cv2.imencode(".tif", wide["rgb"][..., ::-1])[1].tobytes(), rgb),
        "gray16.pgm": (b"P5 " + size + b" 65535\n" + wide["gray"].astype(">u2").tobytes(), _three(gray)),
        "rgb16.ppm": (b"P6 " + size + b" 65535\n" + wide["rgb"].astype(">u2").tobytes(), rgb),
    }  # fmt: skip


def _alpha(rgb: RGB) -> dict[str, tuple[bytes, RGB | None]]:
    gray, alpha = _gray(rgb), alpha_ramp(rgb.shape[1], rgb.shape[0])
    rgba, laid = np.dstack([rgb, alpha]), over(rgb, alpha)
    palette = Image.fromarray(rgb).quantize(16)
    colors = np.asarray(palette.getpalette()[: 16 * 3], np.uint8).reshape(-1, 3)  # type: ignore[index]
    ids = np.asarray(palette)
    hidden = colors.copy()
    hidden[3] = 255  # where index 3 is see-through, white shows
    key = rgb.reshape(-1, 3)[0]
    keyed = np.where((rgb == key).all(2, keepdims=True), np.uint8(255), rgb)
    width, height = rgb.shape[1], rgb.shape[0]
    rows = b"".join(b"\0" + row.tobytes() for row in rgb)
    return {
        "rgba.png": (png(rgba), laid),
        "graya.png": (saved(Image.fromarray(np.dstack([gray, alpha]), "LA"), "png"), over(_three(gray), alpha)),
        "palette-trns.png": (saved(palette, "png", transparency=3), hidden[ids]),
        "rgb-trns.png": (raw_png(rows, width, height, 8, 2, chunk(b"tRNS", struct.pack(">HHH", *key.tolist()))), keyed),
        "rgba.webp": (webp(rgba, exact=True), laid),
        "rgba.tif": (saved(rgba, "tiff"), laid),
        "rgba.avif": (saved(rgba, "avif", quality=95), laid),
        "transparent.gif": (saved(palette, "gif", transparency=3), hidden[ids]),
    }


def _plain(rgb: RGB) -> dict[str, tuple[bytes, RGB | None]]:
    gray = _gray(rgb)
    palette = Image.fromarray(rgb).quantize(32)
    flat = np.asarray(palette.convert("RGB"))
    one = Image.fromarray(rgb).convert("1")
    bits = _three(np.asarray(one).astype(np.uint8) * 255)
    second = Image.fromarray(255 - rgb)
    more: dict[str, Any] = {"save_all": True, "append_images": [second]}
    return {
        "plain.jpg": (jpeg(rgb), rgb), "gray.jpg": (jpeg(gray), _three(gray)),
        "progressive.jpg": (jpeg(rgb, progressive=True), rgb),
        "restart.jpg": (jpeg(rgb, restart_marker_blocks=2), rgb),
        "trailing.jpg": (jpeg(rgb) + b"\0motion photo or other rubbish" * 40, rgb),
        "cmyk.jpg": (cmyk_jpeg(rgb), rgb), "ycck.jpg": (cmyk_jpeg(rgb, ycck=True), rgb),
        "cmyk-bare.jpg": (cmyk_jpeg(rgb, adobe=False), rgb),
        "plain.png": (png(rgb), rgb), "gray.png": (png(gray), _three(gray)),
        "palette.png": (saved(palette, "png"), flat), "bit.png": (saved(one, "png"), bits),
        "animated.png": (saved(rgb, "png", **more), rgb),
        "plain.webp": (webp(rgb), rgb), "lossy.webp": (webp(rgb, lossless=False, quality=95), rgb),
        "animated.webp": (webp(rgb, **more), rgb),
        "plain.bmp": (bmp(rgb), rgb), "palette.bmp": (saved(palette, "bmp"), flat),
        "bit.bmp": (saved(one, "bmp"), bits),
        "plain.gif": (saved(palette, "gif"), flat),
        "animated.gif": (saved(palette, "gif", save_all=True, append_images=[second.quantize(32)]), flat),
        "plain.tif": (saved(rgb, "tiff"), rgb), "lzw.tif": (saved(rgb, "tiff", compression="tiff_lzw"), rgb),
        "bit.tif": (saved(one, "tiff"), bits), "palette.tif": (saved(palette, "tiff"), flat),
        "pages.tif": (saved(rgb, "tiff", **more), rgb),
        "plain.avif": (saved(rgb, "avif", quality=95), rgb),
        "sequence.avif": (saved(rgb, "avif", quality=95, **more), rgb),
        "plain.jp2": (saved(rgb, "jpeg2000"), rgb), "plain.ppm": (saved(rgb, "ppm"), rgb),
        "plain.pgm": (saved(gray, "ppm"), _three(gray)), "plain.pbm": (saved(one, "ppm"), bits),
    }  # fmt: skip


def _refused(rgb: RGB) -> dict[str, tuple[bytes, RGB | None]]:
    rng = np.random.default_rng(5)
    table: dict[str, tuple[bytes, RGB | None]] = {
        "empty.jpg": (b"", None),
        "text.jpg": (b"<html>404 not found</html>", None),
        "random.jpg": (rng.bytes(3000), None),
        "photo.heic": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + rng.bytes(500), None),
        "photo.jxl": (b"\xff\x0a" + rng.bytes(500), None),
        "bomb.png": (png_bomb(40_000, 40_000), None),
    }
    whole = {
        "jpg": jpeg(rgb), "png": png(rgb), "webp": webp(rgb), "bmp": bmp(rgb), "tif": saved(rgb, "tiff"),
        "gif": saved(Image.fromarray(rgb).quantize(32), "gif"), "avif": saved(rgb, "avif"), "ppm": saved(rgb, "ppm"),
    }  # fmt: skip
    return table | {f"cut.{kind}": (data[: int(len(data) * 0.6)], None) for kind, data in whole.items()}


@functools.cache
def odd_images() -> dict[str, tuple[bytes, RGB | None]]:
    """The table behind `ODD_IMAGES`, drawn once a process."""
    rgb = photo(48, 36, 11)
    return _plain(rgb) | _deep(rgb) | _alpha(rgb) | _orientations(rgb) | _refused(rgb)


def __getattr__(name: str) -> Any:
    """`ODD_IMAGES` is drawn when it is first asked for, so that importing this module stays quick."""
    if name == "ODD_IMAGES":
        return odd_images()
    raise AttributeError(name)
