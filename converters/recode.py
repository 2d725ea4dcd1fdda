"""Recode records in the worker processes.

In: a record and options. Out: the record as it is to be written. Promises: every image is decoded whole first, also if
its bytes pass through unchanged; a file that gives no image is rejected with a reason, never an exception; the same
bytes and options give the same result.

The codec is imported where it is used, because the parent process needs `Recoded` but not OpenCV.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastdata.codec.info import LONGEST_SIDES, most_bytes
from fastdata.converters import memory_limit
from fastdata.converters.options import ENCODINGS, RecodeOptions
from fastdata.converters.resizing import HEADROOM, resize_plan
from fastdata.errors import Cures, DecodeError, ResourceError, TooLargeError, UnsupportedError, as_resource_error
from fastdata.record import IMAGE_FIELDS, Record

if TYPE_CHECKING:
    from fastdata.codec.decode import Alpha
    from fastdata.codec.encode import Encoding
    from fastdata.codec.encoded import Part
    from fastdata.codec.icc import Conversion
    from fastdata.codec.sniff import ImageInfo
    from fastdata.formats.folder import ImageRef
    from fastdata.transforms.plan import Plan

RGB = NDArray[np.uint8]

# Formats in which `keep` also writes images that it must change; all others become png, which loses nothing.
_KEPT_FORMATS = frozenset(("jpg", "png", "webp"))
_LOSSY_FIELDS = frozenset(("jpg", "webp"))
# A machine that runs out of something ends the conversion: no file is rejected for it. Other failures of the system
# (a bad sector, a stale handle) may concern one file alone, so that file is rejected by name.
_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC))
_CURES = Cures(
    memory="fewer --workers need less, and a smaller --max-pixels rejects large images by name",
    files="raise the limit (`ulimit -n`), or use fewer --workers",
)


class Recoded(NamedTuple):
    """The result for one record.

    Attributes:
        record: the record as it is to be written; None if it was rejected.
        warnings: messages about a record that was kept.
        became_lossy: the source's format if a lossless image was encoded with loss, else "".
        engine: the resize engine; "" if the image was not resized.
        profile: the name of the ICC profile from which the image was converted to sRGB; "" if it was not.
        bytes_in: the size of its files.
        reason: why it was rejected, else "".
    """

    record: Record | None
    warnings: tuple[str, ...] = ()
    became_lossy: str = ""
    engine: str = ""
    profile: str = ""
    bytes_in: int = 0
    reason: str = ""

    @property
    def nbytes(self) -> int:
        """The bytes of all fields of the record."""
        return 0 if self.record is None else sum(len(blob) for blob in self.record.fields.values())


def file_recoder(root: str | bytes, options: RecodeOptions) -> Callable[[ImageRef], tuple[Recoded, int]]:
    """Make the function that a worker calls on each reference below `root`, a path in the system's bytes.

    The function returns the result and its size in bytes. It raises ResourceError where the
    machine runs out of a resource, since no file is at fault then. OpenCV runs one thread in this process from then on.
    """
    import cv2

    # Import these before the first record, because a machine that runs out of something could not load them later.
    import fastdata.fields.table
    import fastdata.formats.folder  # noqa: F401

    cv2.setNumThreads(1)  # the workers are the parallelism, and not every build reads OPENCV_FOR_THREADS_NUM
    root = os.fsdecode(root)

    def recode_files(ref: ImageRef) -> tuple[Recoded, int]:
        record, bytes_in = None, 0
        try:
            record, bytes_in = _read(root, ref, options)
            done = recode(record, options)._replace(bytes_in=bytes_in)
        except Exception as error:
            _check_resources(error, ref.path)
            if isinstance(error, DecodeError):
                done = Recoded(None, bytes_in=bytes_in, reason=str(error))
            elif isinstance(error, OSError):
                done = Recoded(None, bytes_in=bytes_in, reason=f"cannot be read: {error.strerror or error}")
            else:
                raise
        return done, done.nbytes

    return recode_files


def _read(root: str, ref: ImageRef, options: RecodeOptions) -> tuple[Record, int]:
    """The record of the files that a reference names, and their size.

    Raises:
        TooLargeError: a file has more bytes than any image of `max_pixels` takes.
        OSError: a file cannot be read.
    """
    from fastdata.codec.sniff import sniff
    from fastdata.formats.folder import read_file
    from fastdata.formats.names import local

    longest, size, fields = most_bytes(options.max_pixels), 0, dict[str, bytes]()
    for name, path in (("", ref.path), *ref.others.items()):
        full = os.path.join(root, local(path))
        if (length := os.stat(full).st_size) > longest:
            raise TooLargeError(f"its {length:,} bytes are more than an image of {options.max_pixels:,} pixels takes")
        data = read_file(full)
        size += len(data)
        kind = sniff(data)
        fields[name or (kind if kind in IMAGE_FIELDS else "jpg")] = data
    if ref.label >= 0:
        fields["cls"] = b"%d" % ref.label
    return Record(ref.key, fields, ref.path), size


def _check_resources(error: Exception, path: str) -> None:
    """Raise a ResourceError if the machine ran out of something; one that gives other advice is raised anew."""
    known = isinstance(error, ResourceError) and error.__cause__ is not None
    origin = (error.__cause__ if known else None) or error
    failed = as_resource_error(origin, path, _CURES)
    if failed is not None and (failed.errno is None or failed.errno in _EXHAUSTED):
        raise failed from (None if failed is origin else origin)


def recode(record: Record, options: RecodeOptions) -> Recoded:
    """Recode the image of a record, and apply the same plan to the fields that move with it.

    Raises:
        DecodeError: the image cannot be decoded, or is larger than allowed.
    """
    from fastdata.codec.sniff import probe

    data = record.fields[record.image_field]
    info = probe(data)
    plan = resize_plan(info.upright_size, options)
    refused = info.pixels > options.max_pixels  # it takes no memory, so it need not wait
    with memory_limit.current.hold(0 if refused else max(info.pixels, plan.size.height * plan.size.width)):
        return _recode(record, options, info, plan)


def _recode(record: Record, options: RecodeOptions, info: ImageInfo, plan: Plan) -> Recoded:
    from fastdata.codec.encode import encode
    from fastdata.codec.jpeg import with_end_marker
    from fastdata.transforms.plan import reduction

    data = record.fields[record.image_field]
    colors = _colors(data, options, info)
    whole = info.format != "jpg" or (colors.conversion is not None and colors.conversion.mode == "CMYK")
    scale = 1 if whole else reduction(plan, headroom=HEADROOM)
    part, notes, damaged = _decoded(data, options, info, scale, colors.conversion)
    notes += colors.notes
    if part.size != info.upright_size:  # the header stated another size than the data have
        plan = resize_plan(part.size, options)
    passes = not plan.changes and not damaged and colors.conversion is None and info.format in IMAGE_FIELDS
    if options.encode == "keep" and passes:
        kept = with_end_marker(data) if info.cut else data  # only the end marker is missing then
        return Recoded(_with_image(record, info.format, kept, None), notes)
    field = cast("Encoding", ENCODINGS[options.encode] or (info.format if info.format in _KEPT_FORMATS else "png"))
    rgb, engine = _resized(part, plan, options)
    _check_side(rgb, field, options)
    lossy = info.format if field in _LOSSY_FIELDS and info.lossless else ""
    profile, lost = colors.kept_in(field)
    blob = encode(rgb, field, quality=options.quality, optimize=options.optimize, profile=profile)
    profile_name = colors.conversion.name if colors.conversion is not None else ""
    return Recoded(_with_image(record, field, blob, plan), notes + lost, lossy, engine, profile_name)


def _with_image(record: Record, name: str, blob: bytes, plan: Plan | None) -> Record:
    """The record with another image; the image's plan is applied to the fields that move with it."""
    from fastdata.fields.table import field_of

    fields = {name: blob}
    for other, data in record.fields.items():
        if other == record.image_field:
            continue
        field = field_of(other)
        if plan is not None and field.moves:
            suffix, data = field.encode(field.make(data, plan))
            other = field.stem(other) + suffix
        fields[other] = data
    return replace(record, fields=fields)


class _Colors(NamedTuple):
    """How an image's colour profile is treated.

    Attributes:
        conversion: from the profile to sRGB; None if the values stay as they are.
        notes: why the profile is ignored.
        kept: the profile, if it stays with the image.
        space: the colour space of the pixels that the profile describes.
    """

    conversion: Conversion | None = None
    notes: tuple[str, ...] = ()
    kept: bytes | None = None
    space: str = ""

    def kept_in(self, field: str) -> tuple[bytes | None, tuple[str, ...]]:
        """The profile, if a field can hold it with RGB pixels, else None and a message about that."""
        from fastdata.codec.icc import CARRYING

        if self.kept is None or (self.space == "RGB" and field in CARRYING):
            return self.kept, ()
        return None, (f"its ICC profile, for {self.space}, cannot be kept in {field}; the values did not change",)


def _colors(data: bytes, options: RecodeOptions, info: ImageInfo) -> _Colors:
    from fastdata.codec import icc

    profile = icc.embedded(data, info)
    if profile is None:
        return _Colors()
    if options.icc == "keep":
        return _Colors(kept=profile, space=profile[16:20].decode("latin-1").strip())  # the header's colour space
    conversion = icc.conversion(profile, icc.mode_of(info))
    return _Colors(notes=(conversion,)) if isinstance(conversion, str) else _Colors(conversion)


def _decoded(
    data: bytes, options: RecodeOptions, info: ImageInfo, scale: int, conversion: Conversion | None
) -> tuple[Part, tuple[str, ...], bool]:
    """The image, warnings about it, and whether it is damaged, which is an error unless damaged images are kept."""
    from fastdata.codec.decode import Rules
    from fastdata.codec.encoded import WholeImage

    rules = Rules(cast("Alpha", options.alpha), options.max_pixels)
    notes: list[str] = []
    try:
        part = WholeImage(data, rules, info).decode(None, scale, notes=notes, colors=conversion)
    except (TooLargeError, UnsupportedError):
        raise
    except DecodeError as error:
        if not options.keep_damaged:
            raise
        lenient = WholeImage(data, replace(rules, keep_damaged=True), info)
        return lenient.decode(None, scale, colors=conversion), (f"damaged, kept: {error}",), True
    return part, tuple(notes), False


def _resized(part: Part, plan: Plan, options: RecodeOptions) -> tuple[RGB, str]:
    """The planned image, and the engine that resized it ("" if none did)."""
    from fastdata.transforms.engines import best_engine
    from fastdata.transforms.render import carry_out
    from fastdata.transforms.resample import ResampleRules

    if not plan.changes:
        return part.pixels, ""
    resampling = ResampleRules(best_engine(torch=False), options.max_pixels)
    return carry_out(plan, part, None, resampling), resampling.resizer(plan)


def _check_side(rgb: RGB, field: str, options: RecodeOptions) -> None:
    """Refuse an image that the format cannot hold, and name the options that would avoid it."""
    side = max(rgb.shape[:2])
    if side <= LONGEST_SIDES.get(field, side):
        return
    others = [name for name, kind in ENCODINGS.items() if kind and side <= LONGEST_SIDES.get(kind, side)]
    cures = [f"--encode {'|'.join(others)}"]
    if options.resize is None:
        cures.append("--resize")
    elif options.resize_mode == "shorter":
        cures.append("--resize-mode longer, crop or pad")
    else:
        cures.append(f"--resize of {LONGEST_SIDES[field]:,} at most")
    raise TooLargeError(
        f"{rgb.shape[1]} x {rgb.shape[0]} does not fit into {field}, whose longest side is {LONGEST_SIDES[field]:,}; "
        f"use {', or '.join(cures)}"
    )
