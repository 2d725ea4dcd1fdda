"""convert: turn a folder of photos into one data set.

In: a folder and options. Out: a data set and a report. Scan -> worker processes (read, decode, resize, encode) ->
writer, all in one order. Promises: source files are only read; the same source and options give the same bytes for any
number of workers; the destination changes in one step at the end, or not at all; whatever ends the run, no worker stays
and the requested report is written.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fastdata.codec.info import MAX_PIXELS
from fastdata.converters.options import (
    ConvertOptions,
    RecodeOptions,
    check_effects,
    idle_options,
)
from fastdata.converters.paths import check_apart, source_of, target_of
from fastdata.converters.pool import CHUNK, Pool
from fastdata.converters.report import ConvertReport, Note, notes_of_all, write_report
from fastdata.converters.staging import check_name, check_target
from fastdata.cpus import default_workers
from fastdata.errors import ConvertError
from fastdata.progress import progress_bar

if TYPE_CHECKING:
    from fastdata.converters.recode import Recoded
    from fastdata.formats.folder import ImageRef
    from fastdata.record import Record

# The function that the workers call on each reference.
_RECODER = "fastdata.converters.recode:file_recoder"
# Processes that are started before the number of files is known, so that they get ready during the scan.
_EARLY_WORKERS = 4
# If there are few files, each worker gets its share in at least this many lists, so that all end at about one time.
_LISTS_PER_WORKER = 4
# Reasons listed in an error; the report has all.
_SHOWN = 5


def convert(  # as many parameters as the command has options: torch-shaped, frozen at once
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    format: str | None = None,
    resize: int | None = None,
    resize_mode: str | None = None,
    upscale: bool = False,
    pad_color: Sequence[int] | str | None = None,
    encode: str = "jpeg",
    quality: int | None = None,
    optimize: bool = False,
    alpha: str = "white",
    max_pixels: int = MAX_PIXELS,
    keep_damaged: bool = False,
    icc: str = "convert",
    class_order: str = "plain",
    shuffle: bool = False,
    seed: int | None = None,
    shard_size: int | str | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    report: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> ConvertReport:
    """Convert a folder of images into one data set.

    Args:
        src: a folder of class folders (names, numbers and order as in torchvision's ImageFolder), or a flat folder of
            images (label -1, no classes). It is never changed.
        dst: the data set; its suffix names the format: `.lmdb`, `.h5`, `.hdf5`, `.tar`. Not inside `src`.
        format: "lmdb", "hdf5" or "tar", if the suffix does not name it; "tar" with a folder's name gives shards.
        resize: N, the side in pixels; None keeps every size.
        resize_mode: "shorter" (default) or "longer" side N (smaller images stay unless `upscale`); "exact": N x N,
            ignoring the aspect; "crop": shorter side N, then the centre N x N; "pad": longer side N at most, centred on
            N x N. Needs `resize`, as do the next two.
        upscale: also enlarge smaller images (shorter, longer, pad).
        pad_color: red, green, blue around a padded image; default black. Only with "pad".
        encode: "jpeg", "png", "webp", "bmp", "raw" (a `.npy` field), or "keep": bytes pass through where nothing
            changes, and what changes is written in its own format if that is JPEG, PNG or WebP, else as PNG.
        quality: 1 to 100, default 90; only where JPEG or WebP may be written.
        optimize: Huffman tables made for each JPEG: about 3 % smaller, and encoding takes 2.5 times as long. Only where
            JPEG may be written.
        alpha: "white" or "black": the background of transparent images; "drop": keep the colours, ignore transparency.
        max_pixels: larger images are rejected before they take memory.
        keep_damaged: keep images whose data end early, with a warning, instead of rejecting them.
        icc: "convert": images whose colour profile is not sRGB are converted to sRGB, as by Pillow's ImageCms; "keep":
            the values stay, and JPEG, PNG and WebP keep the profile, which readers ignore.
        class_order: "plain" numbers classes in string order (1, 10, 2), "natural" as people count (1, 2, 10).
        shuffle: write the records in a random order, a function of `seed`: for tars that are streamed in training.
        seed: the random seed of `shuffle`, without which it is refused; default 0.
        shard_size: the maximum size of a tar shard in bytes, a number or a text; default "256MB". For other outputs the
            report warns that it has no effect.
        workers: processes; default: the cores that this process may use, shared with the other local ranks
            (LOCAL_WORLD_SIZE). The output does not depend on it.
        overwrite: replace `dst`; the old data set stays until the new one is complete.
        report: a JSON file for the report, also written when the conversion fails. Not inside `src` or `dst`.
        progress: show on stderr how far the conversion is.

    Returns:
        What happened to every file, also if some were rejected. Its `error` is "" unless the report file, and only
        that, could not be written.

    Raises:
        OptionError: an option cannot be used or could have no effect. Nothing is done, and no report is written.
        OutputExistsError: `dst` exists, and not `overwrite`.
        ConvertError: nothing could be written: nothing usable in `src`, disk full, a worker died.
    """
    recode = RecodeOptions(
        resize, upscale=upscale, encode=encode, optimize=optimize, alpha=alpha, max_pixels=max_pixels,
        keep_damaged=keep_damaged, icc=icc,
        **_given(resize_mode=resize_mode, quality=quality, pad_color=pad_color),
    )  # fmt: skip
    options = ConvertOptions(
        recode, format, class_order, shuffle, workers=workers, overwrite=overwrite,
        report=None if report is None else target_of("report", report), progress=progress,
        **_given(seed=seed, shard_size=shard_size),
    )  # fmt: skip
    given = _given(
        resize_mode=resize_mode, upscale=upscale or None, pad_color=pad_color, quality=quality,
        optimize=optimize or None, seed=seed, shard_size=shard_size,
    )  # fmt: skip
    check_effects(options, given)
    return _Conversion(source_of(src), target_of("DST", dst), options, given).run()


def _given(**options: Any) -> dict[str, Any]:
    """The options that were given; the others keep the defaults of the value that they become part of."""
    return {name: value for name, value in options.items() if value is not None}


class _Conversion:
    """One run: source, destination and options, and the report that grows meanwhile."""

    def __init__(self, src: str, dst: str, options: ConvertOptions, given: Collection[str]) -> None:
        from fastdata.formats import format_of

        self._src, self._dst, self._options = src, dst, options
        kind = format_of(dst, options.format)
        check_apart(src, dst, options.report)
        self._report = ConvertReport(
            format=kind, workers=options.workers or default_workers(), options=options.manifest(kind)
        )
        self._report.warnings += [Note(".", message) for message in idle_options(options, given, kind, dst)]
        self._became_lossy: Counter[str] = Counter()
        self._profiles: Counter[str] = Counter()
        self._engines: set[str] = set()
        self._labels: set[int] = set()

    def run(self) -> ConvertReport:
        """Convert, and write the report whatever happens."""
        report, path = self._report, self._options.report
        begin = time.monotonic()
        try:
            self._convert_with_advice()
        except BaseException as error:
            report.kept = report.bytes_in = report.bytes_out = 0
            message = str(error)  # the signal's name, if one ended the command
            ended = f"ended by {message if message.isidentifier() else type(error).__name__}"
            report.error = message if isinstance(error, Exception) else ended
            report.seconds = time.monotonic() - begin
            if path is not None:
                with contextlib.suppress(OSError):  # the error being raised matters more
                    write_report(report, path)
            raise
        report.seconds = time.monotonic() - begin
        if path is not None:
            try:
                write_report(report, path)
            except OSError as error:  # the conversion itself has not failed
                reason = error.strerror or error
                report.error = f"the report {path} could not be written ({reason}); {self._dst} is whole"
        return report

    def _convert_with_advice(self) -> None:
        try:
            self._convert()
        except ConvertError:  # OutputExistsError is an OSError, too
            raise
        except OSError as error:  # the machine ran out of descriptors or processes
            raise ConvertError(
                f"{self._src}: the conversion failed ({error.strerror or error}), so nothing was written; "
                f"fewer workers than {self._report.workers} need less"
            ) from error

    def _convert(self) -> None:
        from fastdata.converters.sources.folder import check_folder, find_images, shuffled

        options, report = self._options, self._report
        check_folder(self._src)
        check_name(self._dst)  # before the work begins; the writer checks again
        check_target(self._dst, overwrite=options.overwrite)
        arguments = (os.fsencode(self._src), options.recode)
        with Pool(report.workers, _RECODER, arguments, max_pixels=options.recode.max_pixels) as pool:
            pool.start(_EARLY_WORKERS)
            found = find_images(self._src, natural=options.class_order == "natural")
            report.classes = list(found.classes)
            report.rejected += _notes(found.rejected)
            report.ignored += _notes(found.ignored)
            report.warnings += _notes(found.warnings)
            if not found.entries:
                raise self._nothing("no images were found")
            entries = shuffled(found.entries, options.seed) if options.shuffle else found.entries
            chunk = max(1, min(CHUNK, len(entries) // (report.workers * _LISTS_PER_WORKER)))
            pool.start(-(-len(entries) // chunk))
            report.workers = pool.size
            self._write(entries, pool, chunk)

    def _write(self, entries: Sequence[ImageRef], pool: Pool, chunk: int) -> None:
        from fastdata.converters.writers import create

        options, report = self._options, self._report
        with (
            create(
                self._dst, format=report.format, classes=report.classes, options=report.options,
                shard_size=options.shard_size, overwrite=options.overwrite,
            ) as writer,
            progress_bar(len(entries), "convert", shown=options.progress) as bar,
        ):  # fmt: skip
            for entry, answer in zip(entries, pool.map(entries, chunk=chunk), strict=True):
                record = self._kept(entry.path, answer.value, answer.log)
                if record is not None:
                    self._labels.add(entry.label)
                    writer.write(record)
                bar.advance()
            if report.kept == 0:
                raise self._nothing("no image could be used")
        report.bytes_out = writer.bytes_out
        report.engine = ", ".join(sorted(self._engines))
        for label in sorted({entry.label for entry in entries} - self._labels - {-1}):
            report.warnings.append(Note(report.classes[label], "all images of this class were rejected"))
        report.warnings += notes_of_all(self._became_lossy, self._profiles)

    def _kept(self, path: str, done: Recoded, log: str) -> Record | None:
        """Add one record to the report and return it; None if it was rejected. `log`: what decoders wrote meanwhile."""
        report = self._report
        if done.record is None:
            logged = f" ({log})" if log else ""
            report.rejected.append(Note(path, done.reason + logged))
            return None
        report.kept += 1
        report.bytes_in += done.bytes_in
        if done.engine:
            self._engines.add(done.engine)
        for name, counter in ((done.became_lossy, self._became_lossy), (done.profile, self._profiles)):
            counter.update([name] if name else [])
        report.warnings += [Note(path, message) for message in done.warnings]
        if log:
            report.warnings.append(Note(path, f"the decoder says: {log}"))
        return done.record

    def _nothing(self, what: str) -> ConvertError:
        rejected = self._report.rejected
        message = f"{self._src}: {what}, so nothing was written"
        if rejected:
            named = "; ".join(f"{note.path}: {note.reason}" for note in rejected[:_SHOWN])
            more = f"; and {len(rejected) - _SHOWN:,} more" if len(rejected) > _SHOWN else ""
            message += f". Rejected: {named}{more}"
        elif self._report.ignored:
            message += f" (files there that are not images: {len(self._report.ignored):,})"
        return ConvertError(message)


def _notes(found: Iterable[tuple[str, str]]) -> list[Note]:
    return [Note(path, reason) for path, reason in found]
