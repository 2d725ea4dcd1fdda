"""Recode: what becomes of one file's bytes, by encoding, resize mode and kind of source."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from fastdata.codec.decode import decode
from fastdata.codec.sniff import probe, sniff
from fastdata.converters.options import ENCODINGS, ConvertOptions, RecodeOptions
from fastdata.converters.recode import file_recoder
from fastdata.errors import DecodeError, OptionError, TooLargeError
from fastdata.formats.folder import ImageRef
from tests import images
from tests.recoding import recode

RGB = images.photo(120, 80, 3)
READABLE = sorted(name for name, (_, want) in images.odd_images().items() if want is not None)
REFUSED = sorted(name for name, (_, want) in images.odd_images().items() if want is None)


def options(**given: Any) -> RecodeOptions:
    return RecodeOptions(**given)


@pytest.mark.parametrize("name", READABLE)
def test_keep_passes_every_readable_kind_through(name: str) -> None:
    data, _ = images.odd_images()[name]
    done = recode(data, options(encode="keep"))
    assert done.data is data
    assert done.field == sniff(data)
    assert done.became_lossy == ""


@pytest.mark.parametrize("name", READABLE)
def test_raw_holds_the_upright_image(name: str) -> None:
    data, _ = images.odd_images()[name]
    done = recode(data, options(encode="raw"))
    assert done.field == "npy"
    pixels = np.load(io.BytesIO(done.data))
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, decode(data))


@pytest.mark.parametrize("name", READABLE)
def test_jpeg_is_always_a_new_upright_jpeg(name: str) -> None:
    data, want = images.odd_images()[name]
    assert want is not None
    done = recode(data, options(encode="jpeg", quality=95))
    assert done.field == "jpg" == sniff(done.data)
    assert done.data != data
    assert probe(done.data).orientation == 1
    assert Image.open(io.BytesIO(done.data)).getexif().get(0x0112) is None
    assert np.abs(decode(done.data).astype(int) - want).mean() < 12


def test_optimised_huffman_tables_make_smaller_files_of_the_same_pixels() -> None:
    data = images.png(images.photo(200, 160))
    plain, small = (recode(data, options(encode="jpeg", optimize=on)).data for on in (False, True))
    assert len(small) < len(plain)
    np.testing.assert_array_equal(decode(small), decode(plain))


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("encode", ["jpeg", "keep"])
def test_refused_files_are_refused_with_a_reason_in_one_line(name: str, encode: str) -> None:
    with pytest.raises(DecodeError) as caught:
        recode(images.odd_images()[name][0], options(encode=encode))
    assert str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "field"),
    [("jpg", "jpg"), ("png", "png"), ("webp", "webp"), ("bmp", "png"), ("tif", "png"), ("gif", "png"), ("avif", "png")],
)
def test_what_keep_must_change_stays_in_its_format_or_becomes_png(source: str, field: str) -> None:
    data, _ = images.odd_images()[f"plain.{source}"]
    done = recode(data, options(encode="keep", resize=20))
    assert done.field == field == sniff(done.data)
    assert min(decode(done.data).shape[:2]) == 20


@pytest.mark.parametrize("encode", ["png", "webp", "bmp"])
def test_other_encodings(encode: str) -> None:
    done = recode(images.png(RGB), options(encode=encode))
    assert done.field == encode == sniff(done.data)
    if encode != "webp":
        np.testing.assert_array_equal(decode(done.data), RGB)


@pytest.mark.parametrize(
    ("data", "encode", "kind"),
    [
        (images.png(RGB), "jpeg", "png"),
        (images.bmp(RGB), "webp", "bmp"),
        (images.webp(RGB), "jpeg", "webp"),
        (images.webp(RGB, lossless=False), "jpeg", ""),
        (images.jpeg(RGB), "jpeg", ""),
        (images.png(RGB), "png", ""),
        (images.png(RGB), "raw", ""),
    ],
)
def test_lossless_sources_that_become_lossy_are_told(data: bytes, encode: str, kind: str) -> None:
    assert recode(data, options(encode=encode)).became_lossy == kind


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
@pytest.mark.parametrize("mode", ["shorter", "crop", "pad"])
def test_turned_images_are_resized_upright(turn: int, kind: str, mode: str) -> None:
    lossless: dict[str, Any] = {"webp": {"lossless": True}, "jpeg": {"quality": 98, "subsampling": 0}}.get(kind, {})
    data = images.turned(RGB, turn, kind, **lossless)
    done = decode(recode(data, options(encode="png", resize=40, resize_mode=mode)).data)
    want = decode(recode(images.png(RGB), options(encode="png", resize=40, resize_mode=mode)).data)
    assert done.shape == want.shape == {"shorter": (40, 60, 3), "crop": (40, 40, 3), "pad": (40, 40, 3)}[mode]
    assert np.abs(done.astype(int) - want).mean() < 3


@pytest.mark.parametrize("turn", range(1, 9))
def test_passed_through_bytes_keep_their_tag_and_are_turned_once(turn: int) -> None:
    data = images.turned(RGB, turn, "png")
    done = recode(data, options(encode="keep"))
    assert done.data is data
    np.testing.assert_array_equal(decode(done.data), RGB)


def test_shrinking_is_pillows_antialiased_bilinear_within_two_levels() -> None:
    image = images.photo(640, 427, 4)
    done = decode(recode(images.png(image), options(encode="png", resize=256)).data)
    want = np.asarray(Image.fromarray(image).resize((383, 256), Image.Resampling.BILINEAR))
    assert np.abs(done.astype(int) - want).max() <= 2


def test_pad_and_crop_place_the_image_in_the_centre() -> None:
    padded = decode(
        recode(images.png(RGB), options(encode="png", resize=200, resize_mode="pad", pad_color=(1, 2, 3))).data
    )
    assert padded.shape == (200, 200, 3)
    np.testing.assert_array_equal(padded[60:140, 40:160], RGB)
    assert (padded[0, 0] == (1, 2, 3)).all()
    assert (padded[199, 199] == (1, 2, 3)).all()
    cropped = decode(recode(images.png(RGB), options(encode="png", resize=80, resize_mode="crop")).data)
    np.testing.assert_array_equal(cropped, RGB[:, 20:100])


@pytest.mark.parametrize("scale", [2, 4, 8])
@pytest.mark.parametrize("turn", range(1, 9))
def test_large_jpegs_are_decoded_small_with_a_small_error(
    scale: int, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    width, height = 100 * scale * 2 + 1, 60 * scale * 2 + 1  # rounded up by the decoder, in both directions
    data = images.turned(images.photo(width, height, 6), turn, quality=95)
    used: list[int] = []
    from fastdata.codec import encoded as module

    real = module.decode

    def watched(blob: bytes, **rules: Any) -> Any:
        used.append(rules["reduce"])
        return real(blob, **rules)

    monkeypatch.setattr(module, "decode", watched)
    done = recode(data, options(encode="raw", resize=60))
    assert used == [scale]
    got = np.load(io.BytesIO(done.data)).astype(int)
    want = np.asarray(Image.fromarray(real(data)).resize(got.shape[1::-1], Image.Resampling.BILINEAR)).astype(int)
    assert min(got.shape[:2]) == 60
    assert np.abs(got - want).mean() < 1.0
    assert np.abs(got - want).max() < 16


def test_a_resize_that_explodes_is_refused() -> None:
    thin = images.png(np.zeros((3000, 1, 3), np.uint8))
    with pytest.raises(TooLargeError, match="would become 2000 x 6000000"):
        recode(thin, options(resize=2000, resize_mode="shorter", upscale=True))
    long = images.png(np.zeros((20_000, 2, 3), np.uint8))
    with pytest.raises(TooLargeError, match="does not fit into webp"):
        recode(long, options(encode="webp"))


@pytest.mark.parametrize(
    ("chosen", "cure"),
    [
        ({"encode": "webp"}, "--encode jpeg|png|bmp|raw, or --resize"),
        ({"encode": "webp", "resize": 2, "upscale": True}, "raw, or --resize-mode longer, crop or pad"),
        ({"encode": "webp", "resize": 17_000, "resize_mode": "longer"}, "raw, or --resize of 16,383 at most"),
    ],
)
def test_what_would_do_fits_the_options_that_were_given(chosen: dict[str, Any], cure: str) -> None:
    long = images.png(np.zeros((20_000, 2, 3), np.uint8))
    with pytest.raises(TooLargeError) as caught:
        recode(long, options(**chosen))
    assert str(caught.value).endswith(cure)


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("encode", ["jpeg", "keep"])
def test_keep_damaged_keeps_what_is_there_as_a_whole_file(kind: str, encode: str) -> None:
    whole = {
        "jpg": images.jpeg(RGB),
        "png": images.png(RGB),
        "webp": images.webp(RGB),
        "tif": images.saved(RGB, "tiff"),
    }
    cut = whole[kind][: int(len(whole[kind]) * 0.7)]
    try:
        done = recode(cut, options(encode=encode, keep_damaged=True))
    except DecodeError:
        assert kind in ("webp", "tif")  # there is nothing to be had from them
        return
    assert any("damaged, kept" in message for message in done.warnings)
    assert decode(done.data).shape == RGB.shape


def test_the_same_input_gives_the_same_bytes() -> None:
    data = images.jpeg(images.photo(300, 200, 8))
    for encode in ENCODINGS:
        rule = options(encode=encode, resize=64)
        assert recode(data, rule).data == recode(data, rule).data


def test_files_that_vanish_or_are_too_long_are_reasons(tmp_path: Path) -> None:
    threads = cv2.getNumThreads()
    try:
        call = file_recoder(str(tmp_path), options(max_pixels=1))
        done, size = call(ImageRef("gone", "gone.jpg", -1))
        assert (done.record, done.reason, size) == (None, "cannot be read: No such file or directory", 0)
        with open(tmp_path / "long.png", "wb") as file:
            file.truncate(1 << 30)
        assert "more than an image of 1 pixels takes" in call(ImageRef("long", "long.png", -1))[0].reason
        (tmp_path / "big.png").write_bytes(images.png(RGB))
        done, _ = call(ImageRef("big", "big.png", -1))
        assert "120 x 80" in done.reason
        assert done.bytes_in == len(images.png(RGB))
    finally:
        cv2.setNumThreads(threads)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("resize", 0), ("resize", -5), ("resize", 2.5), ("resize", True), ("resize", 10**6), ("resize_mode", "area"),
        ("upscale", 1), ("pad_color", (0, 0, 256)), ("encode", "jpg"), ("quality", 0), ("quality", 101),
        ("alpha", "red"), ("max_pixels", 0), ("keep_damaged", "yes"),
    ],
)  # fmt: skip
def test_wrong_options_name_what_came_and_what_would_do(name: str, value: object) -> None:
    with pytest.raises(OptionError) as caught:
        RecodeOptions(**{name: value})  # type: ignore[arg-type]
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", ["shuffle", "overwrite", "progress"])
def test_flags_are_true_or_false(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} must be True or False, not 'yes'"):
        ConvertOptions(**{name: "yes"})  # type: ignore[arg-type]


def test_sizes_and_colours_as_text() -> None:
    assert ConvertOptions(shard_size="1.5 GB").shard_size == 1_500_000_000  # type: ignore[arg-type]
    assert RecodeOptions(pad_color="1, 2,3") == RecodeOptions(pad_color=(1, 2, 3))  # type: ignore[arg-type]


def test_the_manifest_has_only_what_determines_the_bytes() -> None:
    values = ConvertOptions(workers=7, overwrite=True, report="/tmp/r.json", progress=True).manifest("lmdb")
    assert not {"workers", "overwrite", "report", "progress", "shard_size"} & set(values)
    assert ConvertOptions().manifest("tar")["shard_size"] == 256_000_000
