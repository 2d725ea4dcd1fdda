"""Options: what `convert` was asked for, checked once and frozen.

In: the arguments of `fastdata.convert`. Out: `RecodeOptions` (what the workers need) inside `ConvertOptions`.
Promise: whoever holds one need not check it again; `manifest()` holds only what determines the bytes written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fastdata.codec.info import LONGEST_SIDES, MAX_PIXELS
from fastdata.converters.geometry import RESIZE_MODES
from fastdata.errors import OptionError

# What is asked for -> the record's field; None: decided file by file.
ENCODINGS: dict[str, str | None] = {
    "jpeg": "jpg", "png": "png", "webp": "webp", "bmp": "bmp", "raw": "npy", "keep": None,
}  # fmt: skip
ALPHA_RULES = ("white", "black", "drop")
# Those that `quality` and `optimize` are for; `keep` may write either.
_WITH_QUALITY = ("jpeg", "webp", "keep")
_WITH_TABLES = ("jpeg", "keep")
# Modes that give N x N whatever the size was, with or without `upscale`.
_FIXED_MODES = ("exact", "crop")
CLASS_ORDERS = ("plain", "natural")
ICC_RULES = ("convert", "keep")

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
          "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecodeOptions:
    """What turns one file's bytes into one record's picture."""

    resize: int | None = None
    resize_mode: str = "shorter"
    upscale: bool = False
    pad_color: tuple[int, int, int] = (0, 0, 0)
    encode: str = "jpeg"
    quality: int = 90
    optimize: bool = False
    alpha: str = "white"
    max_pixels: int = MAX_PIXELS
    keep_damaged: bool = False
    icc: str = "convert"

    def __post_init__(self) -> None:
        if self.resize is not None:
            _check_int("resize", self.resize, 1, LONGEST_SIDES["jpg"])
        _check_choice("resize_mode", self.resize_mode, RESIZE_MODES)
        _check_flag("upscale", self.upscale)
        _check_color(self.pad_color)
        _check_choice("encode", self.encode, tuple(ENCODINGS))
        _check_int("quality", self.quality, 1, 100)
        _check_flag("optimize", self.optimize)
        _check_choice("alpha", self.alpha, ALPHA_RULES)
        _check_int("max_pixels", self.max_pixels, 1, None)
        _check_flag("keep_damaged", self.keep_damaged)
        _check_choice("icc", self.icc, ICC_RULES)


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """Everything else that was asked for, besides the two places."""

    recode: RecodeOptions = field(default_factory=RecodeOptions)
    format: str | None = None
    class_order: str = "plain"
    shuffle: bool = False
    seed: int = 0
    shard_size: int = 256_000_000
    workers: int | None = None
    overwrite: bool = False
    report: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        _check_choice("class_order", self.class_order, CLASS_ORDERS)
        _check_flag("shuffle", self.shuffle)
        # The seed is hashed as an unsigned 64-bit number.
        _check_int("seed", self.seed, 0, 2**64 - 1)
        _check_int("shard_size", self.shard_size, 1, None)
        if self.workers is not None:
            _check_int("workers", self.workers, 1, None)
        _check_flag("overwrite", self.overwrite)
        _check_flag("quiet", self.quiet)

    def manifest(self, format_name: str) -> dict[str, Any]:
        """What determines the bytes that are written; no paths, no number of workers."""
        values: dict[str, Any] = asdict(self.recode)
        values["pad_color"] = list(self.recode.pad_color)
        if self.recode.icc == "convert":  # told where it was chosen, as in data sets from before there was a choice
            del values["icc"]
        values |= {"class_order": self.class_order, "shuffle": self.shuffle, "seed": self.seed}
        if format_name == "tar":
            values["shard_size"] = self.shard_size
        return values


def check_effects(options: ConvertOptions, given: Collection[str]) -> None:
    """Refuse what was given and could change nothing: whoever gives it expects something that would not come.

    Args:
        options: all of them.
        given: the names of those that were given, rather than left to their defaults.

    Raises:
        OptionError: names the option, and what it needs.
    """
    recode = options.recode
    for name in ("resize_mode", "upscale", "pad_color"):
        if name in given and recode.resize is None:
            raise OptionError(f"{_spelled(name)} has no effect without resize; add --resize N (resize=N), or drop it")
    if "pad_color" in given and recode.resize_mode != "pad":
        raise OptionError(
            f"{_spelled('pad_color')} has no effect with resize_mode {recode.resize_mode!r}, which adds no border; "
            "use --resize-mode pad, or drop it"
        )
    if "quality" in given and recode.encode not in _WITH_QUALITY:
        raise OptionError(f"quality has no effect with encode {recode.encode!r}; it is for {', '.join(_WITH_QUALITY)}")
    if "seed" in given and not options.shuffle:
        raise OptionError("seed has no effect without shuffle; add --shuffle (shuffle=True), or drop it")


def idle_options(options: ConvertOptions, given: Collection[str], format_name: str, dst: str) -> list[str]:
    """What there is to say of options that change nothing, where what comes is what was asked for all the same."""
    recode, words = options.recode, []
    if "upscale" in given and recode.resize_mode in _FIXED_MODES:
        words.append(f"upscale had no effect: resize_mode {recode.resize_mode!r} enlarges smaller images anyway")
    if "optimize" in given and recode.encode not in _WITH_TABLES:
        words.append(f"optimize had no effect with encode {recode.encode!r}: only JPEG has Huffman tables to choose")
    if "shard_size" in given and (idle := idle_shard_size(format_name, dst)):
        words.append(idle)
    return words


def idle_shard_size(format_name: str, dst: str) -> str:
    """Why a shard size that was given has no effect on this output, "" where it has one."""
    if format_name == "tar" and not dst.lower().endswith(".tar"):
        return ""
    what = "a single .tar file" if format_name == "tar" else f"{format_name}, which has no shards"
    return (
        f"{_spelled('shard_size')} has no effect on {what}; "
        "for shards name a folder as DST, with --format tar (format='tar'), or drop it"
    )


def parse_size(value: int | str, name: str = "shard_size") -> int:
    """A number of bytes: an int, or a text such as "256MB", "1.5 GB" or "64MiB".

    Raises:
        OptionError: it is neither, or not positive.
    """
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", value)
        if match is None or match[2].lower() not in _UNITS:
            raise OptionError(f'{_spelled(name)} must be a size such as "256MB", "1GB" or "64MiB", not {value!r:.80}')
        value = int(min(float(match[1]) * _UNITS[match[2].lower()], 2.0**64))
    _check_int(name, value, 1, 2**63 - 1)
    return value


def parse_color(value: Sequence[int] | str, name: str = "pad_color") -> tuple[int, int, int]:
    """Red, green and blue: three numbers, or a text such as "0,0,0".

    Raises:
        OptionError: anything but three numbers from 0 to 255.
    """
    parts: Sequence[Any] = value.split(",") if isinstance(value, str) else value
    try:
        red, green, blue = (int(part) for part in parts)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"{_spelled(name)} must be three numbers from 0 to 255 (red,green,blue), not {value!r}"
        ) from error
    _check_color((red, green, blue), name)
    return red, green, blue


def _spelled(name: str) -> str:
    """A parameter's name, and the option's where that is spelled in another way.

    >>> _spelled("quality"), _spelled("resize_mode")
    ('quality', 'resize_mode (--resize-mode)')
    """
    return f"{name} (--{name.replace('_', '-')})" if "_" in name else name


def _check_color(value: Sequence[int], name: str = "pad_color") -> None:
    if len(value) != 3 or not all(0 <= part <= 255 for part in value):
        raise OptionError(f"{_spelled(name)} must be three numbers from 0 to 255 (red,green,blue), not {value!r}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise OptionError(f"{_spelled(name)} must be one of {', '.join(choices)}; not {value!r}")


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise OptionError(f"{_spelled(name)} must be True or False, not {value!r}")


def _check_int(name: str, value: object, low: int, high: int | None) -> None:
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= low and (high is None or value <= high)
    if not fits:
        wanted = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise OptionError(f"{_spelled(name)} must be a whole number {wanted}, not {value!r}")
