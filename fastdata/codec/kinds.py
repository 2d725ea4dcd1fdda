"""The kinds of image files, by their first bytes and by their suffixes.

The name of a kind is also the record field that holds such a file. The content decides how a file is decoded; its
suffix only decides whether it counts as an image if the content is of no known kind (an empty `.jpg` is rejected, an
empty `.txt` is ignored).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from types import MappingProxyType

# Kinds that are decoded, with every suffix in use.
_READ: dict[str, tuple[str, ...]] = {
    "jpg": (".jpg", ".jpeg", ".jpe", ".jfif", ".jif", ".jfi", ".pjpeg", ".pjp", ".mpo"),
    "png": (".png", ".apng"),
    "webp": (".webp",),
    "bmp": (".bmp", ".dib"),
    "gif": (".gif",),
    "tif": (".tif", ".tiff"),
    "avif": (".avif", ".avifs"),
    "jp2": (".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx"),
    "ppm": (".ppm", ".pnm"),
    "pgm": (".pgm",),
    "pbm": (".pbm",),
    "ico": (".ico",),
}

# Kinds that are known but not decoded: what they are, what to do instead, and their suffixes.
_CONVERT = "convert it to PNG or JPEG first"
_CAMERAS = (
    ".dng", ".crw", ".cr2", ".cr3", ".nef", ".nrw", ".arw", ".sr2", ".srf", ".orf", ".raf", ".rw2", ".rwl", ".pef",
    ".srw", ".3fr", ".fff", ".iiq", ".dcr", ".kdc", ".mef", ".mos", ".mrw", ".erf", ".x3f", ".gpr",
)  # fmt: skip
_RARE = (
    ".im", ".msp", ".dcx", ".pict", ".pct", ".pcd", ".palm", ".wbmp", ".xwd", ".viff", ".xv", ".fpx", ".blp", ".vtf",
    ".pxr", ".otb", ".cut", ".mtv", ".fax", ".g3", ".djvu",
)  # fmt: skip
_REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "heic": (f"HEIC/HEIF, whose decoder neither OpenCV nor Pillow carries; {_CONVERT}", (".heic", ".heif", ".hif")),
    "jxl": (f"JPEG XL, which neither OpenCV nor Pillow reads; {_CONVERT}", (".jxl",)),
    "jxr": (f"JPEG XR, which is not read; {_CONVERT}", (".jxr", ".wdp", ".hdp")),
    "jls": (f"JPEG-LS, which is not read; {_CONVERT}", (".jls",)),
    "psd": (f"a Photoshop document; flatten it and {_CONVERT}", (".psd", ".psb")),
    "xcf": (f"a GIMP document; flatten it and {_CONVERT}", (".xcf",)),
    "svg": ("an SVG drawing, which has no pixels; render it to PNG first", (".svg", ".svgz")),
    "tga": (f"a Targa image, which is not read; {_CONVERT}", (".tga", ".icb", ".vda", ".vst")),
    "pam": (f"a PAM image, which is not read; {_CONVERT}", (".pam",)),
    "pfm": (f"a PFM image of floats; scale it to 8 or 16 bits and {_CONVERT}", (".pfm",)),
    "exr": (f"OpenEXR, whose floats have no fixed white; tone-map it and {_CONVERT}", (".exr",)),
    "hdr": (f"Radiance HDR, whose floats have no fixed white; tone-map it and {_CONVERT}", (".hdr",)),
    "raw": (
        f"a camera raw file, which must be developed; {_CONVERT}",
        _CAMERAS,
    ),
    "dicom": (f"a DICOM file; {_CONVERT}", (".dcm", ".dicom")),
    "dds": (f"a DirectDraw texture; {_CONVERT}", (".dds",)),
    "bpg": (f"BPG, which is not read; {_CONVERT}", (".bpg",)),
    "flif": (f"FLIF, which is not read; {_CONVERT}", (".flif",)),
    "qoi": (f"QOI, which is not read; {_CONVERT}", (".qoi",)),
    "icns": (f"an Apple icon file; {_CONVERT}", (".icns",)),
    "cur": (f"a Windows cursor; {_CONVERT}", (".cur",)),
    "pcx": (f"PCX, which is not read; {_CONVERT}", (".pcx",)),
    "sun": (f"a Sun raster, which is not read; {_CONVERT}", (".ras", ".sr")),
    "sgi": (f"an SGI image, which is not read; {_CONVERT}", (".sgi", ".rgb", ".rgba", ".bw")),
    "xbm": (f"an X bitmap, which is not read; {_CONVERT}", (".xbm",)),
    "xpm": (f"an X pixmap, which is not read; {_CONVERT}", (".xpm",)),
    "eps": ("an EPS drawing, which has no pixels; render it to PNG first", (".eps", ".epsf", ".epsi")),
    "wmf": ("a Windows metafile, which has no pixels; render it to PNG first", (".wmf", ".emf")),
    "mng": (f"MNG or JNG, which is not read; {_CONVERT}", (".mng", ".jng")),
    "fits": (f"FITS, whose numbers have no fixed white; scale it to 8 or 16 bits and {_CONVERT}", (".fits", ".fts")),
    "dpx": (f"a film scan (DPX, Cineon), which is not read; {_CONVERT}", (".dpx", ".cin")),
    "iff": (f"an Amiga image, which is not read; {_CONVERT}", (".iff", ".ilbm", ".lbm")),
    "fli": (f"a FLIC animation, which is not read; {_CONVERT}", (".fli", ".flc")),
    "jbig": (f"JBIG, which is not read; {_CONVERT}", (".jbig", ".jbg", ".jb2", ".jbig2")),
    "rare": (f"a rare kind of image, which is not read; {_CONVERT}", _RARE),
}

READABLE: frozenset[str] = frozenset(_READ) | {"npy"}
"""Kinds that `decode` turns into RGB."""

UNSUPPORTED: Mapping[str, str] = MappingProxyType({name: message for name, (message, _) in _REFUSED.items()})
"""Kind -> what it is and the next step, for kinds that are recognised and refused."""

IMAGE_SUFFIXES: Mapping[str, str] = MappingProxyType(
    {suffix: name for name, suffixes in _READ.items() for suffix in suffixes}
    | {suffix: name for name, (_, suffixes) in _REFUSED.items() for suffix in suffixes}
)
"""Lower-case suffix, dot included -> kind. Refused kinds are here too, so that such files are reported, not ignored."""

# Bytes that `sniff` looks at; enough for SVG's prologue. More make a difference for Targa only.
SNIFF_BYTES = 512

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"\x93NUMPY", "npy"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jp2"),
    (b"\xff\x4f\xff\x51", "jp2"),
    (b"\xff\x0a", "jxl"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "jxl"),
    (b"8BPS\0\x01", "psd"),
    (b"8BPS\0\x02", "psd"),
    (b"gimp xcf", "xcf"),
    (b"II\xbc\x01", "jxr"),
    (b"IIU\0", "raw"),
    (b"IIRO", "raw"),
    (b"IIRS", "raw"),
    (b"FUJIFILMCCD-RAW", "raw"),
    (b"II*\0", "tif"),
    (b"MM\0*", "tif"),
    (b"II+\0\x08\0\0\0", "tif"),
    (b"MM\0+\0\x08\0\0", "tif"),
    (b"v/1\x01", "exr"),
    (b"#?RADIANCE", "hdr"),
    (b"#?RGBE", "hdr"),
    (b"DDS |", "dds"),
    (b"BPG\xfb", "bpg"),
    (b"FLIF", "flif"),
    (b"qoif", "qoi"),
    (b"icns", "icns"),
    (b"Y\xa6j\x95", "sun"),
    (b"\x01\xda\x00\x01", "sgi"),
    (b"\x01\xda\x01\x01", "sgi"),
    (b"/* XPM */", "xpm"),
    (b"\xc5\xd0\xd3\xc6", "eps"),
    (b"\xd7\xcd\xc6\x9a\0\0", "wmf"),
    (b"\x8aMNG\r\n\x1a\n", "mng"),
    (b"\x8bJNG\r\n\x1a\n", "mng"),
    (b"SIMPLE  =", "fits"),
    (b"SDPX\0", "dpx"),
    (b"XPDS\0", "dpx"),
    (b"\x80\x2a\x5f\xd7", "dpx"),
)
_FIRST_BYTES = frozenset(magic[0] for magic, _ in _MAGIC)

_NETPBM = re.compile(rb"P([1-6])(?:\s+|\s*#[^\n]*\n\s*)(?:#|\d)")
_NETPBM_KIND = {b"1": "pbm", b"2": "pgm", b"3": "ppm", b"4": "pbm", b"5": "pgm", b"6": "ppm"}
_PFM = re.compile(rb"P[Ff]\s+\d+\s+\d+\s+-?\d")
_SVG = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--.{,400}?-->\s*|<!DOCTYPE[^>]*>\s*)*<svg[\s/>]", re.DOTALL
)
_EPS = re.compile(rb"%!PS-Adobe-\d\.\d EPSF")
_BMP_HEADERS = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs", b"mif1", b"msf1"})


def sniff(data: bytes | bytearray | memoryview) -> str | None:
    """The kind of image that begins with these bytes, None if it is unknown.

    Names are those of record fields (`jpg`, `png`, `tif`, ...); those in `UNSUPPORTED` are recognised and not decoded.
    Only the signature is checked, not that the file is whole or can be decoded.
    """
    head = bytes(data[:SNIFF_BYTES])
    if not head:
        return None
    if head[0] in _FIRST_BYTES:
        for magic, name in _MAGIC:
            if head.startswith(magic):
                return _jpeg_or_raw(head, name)
    return _structured(head) or _textual(head) or _targa(data)


def _jpeg_or_raw(head: bytes, name: str) -> str:
    if name == "jpg" and head[3:4] == b"\xf7":  # a JPEG-LS frame comes first in the files that have one
        return "jls"
    return "raw" if name == "tif" and head[8:10] == b"CR" else name


def _structured(head: bytes) -> str | None:
    """Kinds whose signature is more than a fixed start."""
    if head[:4] == b"RIFF":
        return "webp" if head[8:12] == b"WEBP" else None
    if head[4:8] == b"ftyp":
        return _iso_brand(head)
    if head[:2] == b"BM" and len(head) >= 18:
        return "bmp" if struct.unpack_from("<I", head, 14)[0] in _BMP_HEADERS else None
    if head[:2] == b"\0\0" and head[2:4] in (b"\x01\0", b"\x02\0") and len(head) >= 22:
        count, size = struct.unpack_from("<H", head, 4)[0], struct.unpack_from("<I", head, 14)[0]
        plausible = 0 < count <= 256 and head[9] == 0 and size >= 12
        return {1: "ico", 2: "cur"}[head[2]] if plausible else None
    if head[128:132] == b"DICM":
        return "dicom"
    return None


def _iso_brand(head: bytes) -> str | None:
    size = struct.unpack_from(">I", head)[0]
    brands = {head[8:12]} | {head[at : at + 4] for at in range(16, min(size, len(head)), 4)}
    if brands & {b"avif", b"avis"}:
        return "avif"
    if brands & _HEIF_BRANDS:
        return "heic"
    return "raw" if b"crx " in brands else None


def _textual(head: bytes) -> str | None:
    if head[:1] == b"P":
        if match := _NETPBM.match(head):
            return _NETPBM_KIND[match[1]]
        if head[:3] in (b"P7\n", b"P7\r"):
            return "pam"
        return "pfm" if _PFM.match(head) else None
    if head[:1] == b"%" and _EPS.match(head):  # other PostScript is a document
        return "eps"
    return "svg" if _SVG.match(head) else None


def _targa(data: bytes | bytearray | memoryview) -> str | None:
    """Targa has its signature at the end, so it is recognised only if the whole file was passed."""
    return "tga" if bytes(data[-18:]) == b"TRUEVISION-XFILE.\0" else None
