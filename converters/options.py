"""Options: the arguments of `convert`, checked once and frozen.

In: the arguments of `fastdata.convert`. Out: `RecodeOptions` (what the workers need) inside `ConvertOptions`.
Promise: their values need no further check; `manifest()` holds only what determines the bytes written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Any

from fastdata.checks import byte_count, choice, color, flag, integer
from fastdata.codec.info import LONGEST_SIDES, MAX_PIXELS
from fastdata.errors import OptionError
from fastdata.formats import DEFAULT_SHARD_SIZE, FORMATS, sharded

# Value of `encode` -> the record's field; None: decided for each file.
ENCODINGS: dict[str, str | None] = {
    "jpeg": "jpg", "png": "png", "webp": "webp", "bmp": "bmp", "raw": "npy", "keep": None,
}  # fmt: skip
RESIZE_MODES = ("shorter", "longer", "exact", "crop", "pad")
ALPHA_RULES = ("white", "black", "drop")
# The encodings that use `quality` and `optimize`; `keep` may write JPEG and WebP.
_WITH_QUALITY = ("jpeg", "webp", "keep")
_WITH_TABLES = ("jpeg", "keep")
# Modes that always give N x N, with or without `upscale`.
_FIXED_MODES = ("exact", "crop")
CLASS_ORDERS = ("plain", "natural")
ICC_RULES = ("convert", "keep")


@dataclass(frozen=True, slots=True)
class RecodeOptions:
    """How one file's bytes become one record's image."""

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
            _check(self, "resize", integer, 1, LONGEST_SIDES["jpg"])
        _check(self, "resize_mode", choice, RESIZE_MODES)
        _check(self, "upscale", flag)
        _check(self, "pad_color", color)
        _check(self, "encode", choice, tuple(ENCODINGS))
        _check(self, "quality", integer, 1, 100)
        _check(self, "optimize", flag)
        _check(self, "alpha", choice, ALPHA_RULES)
        _check(self, "max_pixels", integer, 1)
        _check(self, "keep_damaged", flag)
        _check(self, "icc", choice, ICC_RULES)


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """All options of a conversion but the two paths."""

    recode: RecodeOptions = field(default_factory=RecodeOptions)
    format: str | None = None
    class_order: str = "plain"
    shuffle: bool = False
    seed: int = 0
    shard_size: int = DEFAULT_SHARD_SIZE
    workers: int | None = None
    overwrite: bool = False
    report: str | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        _check(self, "class_order", choice, CLASS_ORDERS)
        _check(self, "shuffle", flag)
        # The seed is hashed as an unsigned 64-bit number.
        _check(self, "seed", integer, 0, 2**64 - 1)
        _check(self, "shard_size", byte_count)
        if self.workers is not None:
            _check(self, "workers", integer, 1)
        _check(self, "overwrite", flag)
        _check(self, "progress", flag)

    def manifest(self, format_name: str) -> dict[str, Any]:
        """The options that determine the bytes written, for the manifest: no paths, no number of workers."""
        values: dict[str, Any] = asdict(self.recode)
        values["pad_color"] = list(self.recode.pad_color)
        if self.recode.icc == "convert":  # the default is not stated, as in data sets from before there was a choice
            del values["icc"]
        values |= {"class_order": self.class_order, "shuffle": self.shuffle, "seed": self.seed}
        if FORMATS[format_name].sharded:
            values["shard_size"] = self.shard_size
        return values


def check_effects(options: ConvertOptions, given: Collection[str]) -> None:
    """Refuse options that were given and could have no effect, because their effect is expected.

    Args:
        options: all options.
        given: the names of the options that were given rather than left to their defaults.

    Raises:
        OptionError: it names the option and what that needs.
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
    """Warnings about options that have no effect, if the output is what was asked for all the same."""
    recode, warnings = options.recode, list[str]()
    if "upscale" in given and recode.resize_mode in _FIXED_MODES:
        warnings.append(f"upscale had no effect: resize_mode {recode.resize_mode!r} enlarges smaller images anyway")
    if "optimize" in given and recode.encode not in _WITH_TABLES:
        warnings.append(f"optimize had no effect with encode {recode.encode!r}: only JPEG has Huffman tables to choose")
    if "shard_size" in given and (idle := idle_shard_size(format_name, dst)):
        warnings.append(idle)
    return warnings


def idle_shard_size(format_name: str, dst: str) -> str:
    """Why a shard size has no effect on this output; "" if it has one."""
    entry = FORMATS[format_name]
    if entry.sharded and not entry.has_suffix(dst):
        return ""
    what = f"a single {entry.suffixes[0]} file" if entry.sharded else f"{format_name}, which has no shards"
    asked = " or ".join(f"--format {name} (format={name!r})" for name in sharded())
    return (
        f"{_spelled('shard_size')} has no effect on {what}; for shards name a folder as DST, with {asked}, or drop it"
    )


def _spelled(name: str) -> str:
    """A parameter's name, with that of the command's option if it is spelled differently.

    >>> _spelled("quality"), _spelled("resize_mode")
    ('quality', 'resize_mode (--resize-mode)')
    """
    return f"{name} (--{name.replace('_', '-')})" if "_" in name else name


def _check(options: Any, name: str, check: Callable[..., Any], *bounds: Any) -> None:
    """Check an option of a frozen value, and replace it with the checked value."""
    object.__setattr__(options, name, check(_spelled(name), getattr(options, name), *bounds))
