"""convert: a folder of photos flows in, one data set and a report flow out.

scan -> worker processes (read, decode, resize, encode) -> writer, all in one order. Promises: source files are only
read; the same source and options give the same bytes for any number of workers; the destination changes in one step at
the end, or not at all; whatever ends the run, no worker stays and the report that was asked for is written.
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

# What the workers call on each reference.
_RECODER = "fastdata.converters.recode:file_recoder"
# Processes that are started before anybody knows how many files there are, so that they get ready during the scan.
_EARLY_WORKERS = 4
# With few files each worker gets its share in at least this many lists, so that all end at about the same time.
_LISTS_PER_WORKER = 4
# Reasons that an error lists; the report has all.
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
        dst: the data set; its ending names the format: `.lmdb`, `.h5`, `.hdf5`, `.tar`. Not inside `src`.
        format: "lmdb", "hdf5" or "tar", where the ending does not tell; "tar" and a folder's name give shards.
        resize: N, the side asked for in pixels; None leaves every size as it is.
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
        alpha: "white" or "black": what transparent pictures are laid on; "drop": the colours under the transparency.
        max_pixels: larger pictures are rejected before they take memory.
        keep_damaged: keep pictures whose data end early, with a warning, instead of rejecting them.
        icc: "convert": images whose colour profile is not sRGB become sRGB, as by Pillow's ImageCms; "keep": numbers as
            they are, and JPEG, PNG and WebP keep the profile, which readers pass over.
        class_order: "plain" numbers classes in string order (1, 10, 2), "natural" as people count (1, 2, 10).
        shuffle: write the records in a random order, a function of `seed`: right for tars that training streams.
        seed: of `shuffle`, which it needs; default 0.
        shard_size: bytes after which a new tar shard is begun, a number or a text; default "256MB". For other outputs
            the report warns that it has no effect.
        workers: processes; default: the cores that this process may use, shared with the other local ranks
            (LOCAL_WORLD_SIZE). The output does not depend on it.
        overwrite: replace `dst`; the old data set stays until the new one is whole.
        report: a JSON file for the report, also written when the conversion fails. Not inside `src` or `dst`.
        progress: show on stderr how far the conversion is.

    Returns:
        What became of every file; also when some were rejected. Its `error` is "" unless the report file, and only
        that, could not be written.

    Raises:
        OptionError: an option that cannot be used, or that could have no effect. Nothing was begun, and no report is
            written.
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
    """Those that were given; the others keep the defaults of the value that they become part of."""
    return {name: value for name, value in options.items() if value is not None}


class _Conversion:
    """One run: where from, where to, how; and the report that grows on the way."""

    def __init__(self, src: str, dst: str, options: ConvertOptions, given: Collection[str]) -> None:
        from fastdata.formats import format_of

        self._src, self._dst, self._options = src, dst, options
        kind = format_of(dst, options.format)
        check_apart(src, dst, options.report)
        self._report = ConvertReport(
            format=kind, workers=options.workers or default_workers(), options=options.manifest(kind)
        )
        self._report.warnings += [Note(".", words) for words in idle_options(options, given, kind, dst)]
        self._became_lossy: Counter[str] = Counter()
        self._profiles: Counter[str] = Counter()
        self._engines: set[str] = set()
        self._labels: set[int] = set()

    def run(self) -> ConvertReport:
        """Convert, and write the report whatever happens."""
        report, place = self._report, self._options.report
        begin = time.monotonic()
        try:
            self._convert_in_words()
        except BaseException as error:
            report.kept = report.bytes_in = report.bytes_out = 0
            said = str(error)  # the signal's name, where the command was ended by one
            ended = f"ended by {said if said.isidentifier() else type(error).__name__}"
            report.error = said if isinstance(error, Exception) else ended
            report.seconds = time.monotonic() - begin
            if place is not None:
                with contextlib.suppress(OSError):  # the error that is under way matters more
                    write_report(report, place)
            raise
        report.seconds = time.monotonic() - begin
        if place is not None:
            try:
                write_report(report, place)
            except OSError as error:  # no reason to call the conversion failed
                words = f"the report {place} could not be written ({error.strerror or error}); {self._dst} is whole"
                report.error = words
        return report

    def _convert_in_words(self) -> None:
        try:
            self._convert()
        except ConvertError:  # one of its kinds is an OSError, too
            raise
        except OSError as error:  # what the machine has run out of: descriptors, processes
            raise ConvertError(
                f"{self._src}: the conversion failed ({error.strerror or error}), so nothing was written; "
                f"fewer workers than {self._report.workers} need less"
            ) from error

    def _convert(self) -> None:
        from fastdata.converters.sources.folder import check_folder, find_images, shuffled

        options, report = self._options, self._report
        check_folder(self._src)
        check_name(self._dst)  # before the work; the writer checks again
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
        """Note what became of one record. `log`: what decoders wrote meanwhile."""
        report = self._report
        if done.record is None:
            said = f" ({log})" if log else ""
            report.rejected.append(Note(path, done.reason + said))
            return None
        report.kept += 1
        report.bytes_in += done.bytes_in
        if done.engine:
            self._engines.add(done.engine)
        for name, counter in ((done.became_lossy, self._became_lossy), (done.profile, self._profiles)):
            counter.update([name] if name else [])
        report.warnings += [Note(path, words) for words in done.warnings]
        if log:
            report.warnings.append(Note(path, f"the decoder says: {log}"))
        return done.record

    def _nothing(self, what: str) -> ConvertError:
        rejected = self._report.rejected
        words = f"{self._src}: {what}, so nothing was written"
        if rejected:
            named = "; ".join(f"{note.path}: {note.reason}" for note in rejected[:_SHOWN])
            more = f"; and {len(rejected) - _SHOWN:,} more" if len(rejected) > _SHOWN else ""
            words += f". Rejected: {named}{more}"
        elif self._report.ignored:
            words += f" (files there that are no images: {len(self._report.ignored):,})"
        return ConvertError(words)


def _notes(found: Iterable[tuple[str, str]]) -> list[Note]:
    return [Note(path, reason) for path, reason in found]
