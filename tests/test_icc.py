"""Colour profiles: conversion turns what is not sRGB into sRGB as Pillow does, or leaves it; readers pass them over."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms

import fastdata
from fastdata.codec import icc
from fastdata.codec.cropindex import load
from fastdata.codec.decode import decode
from fastdata.codec.sniff import probe
from fastdata.converters.options import RecodeOptions
from fastdata.errors import OptionError
from tests import images, profiles
from tests.command import run
from tests.recoding import recode

RGB = images.photo(96, 72, 5)
ADOBE = profiles.rgb("a wide space", profiles.ADOBE, 2.2)
LIKE_SRGB = profiles.rgb("some camera", profiles.SRGB, None)
CALLED_SRGB = profiles.rgb("sRGB IEC61966-2.1", profiles.ADOBE, 1.8)
PRESS, DARK = profiles.cmyk("a press"), profiles.gray("dot gain", 1.6)


def saved(kind: str, profile: bytes = ADOBE, mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    lossless = {"webp": {"lossless": True}, "avif": {"quality": 95}, "jpeg": {"quality": 95}}.get(kind, {})
    Image.fromarray(RGB).convert(mode).save(out, kind, icc_profile=profile, **lossless, **options)
    return out.getvalue()


def by_pillow(data: bytes) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(data)) as image:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(image.info["icc_profile"]))
        done = ImageCms.profileToProfile(image, profile, ImageCms.createProfile("sRGB"), outputMode="RGB")
        assert done is not None
        return np.asarray(done)


def converted(data: bytes, **options: Any) -> SimpleNamespace:
    return recode(data, RecodeOptions(**{"encode": "png", **options}))


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "tiff", "avif"])
@pytest.mark.parametrize("profile", [ADOBE, CALLED_SRGB])
def test_rgb_becomes_srgb_as_by_pillow(kind: str, profile: bytes) -> None:
    data = saved(kind, profile)
    done = converted(data)
    gap = np.abs(decode(done.data).astype(int) - by_pillow(data))
    assert gap.max() <= (0 if kind != "avif" else 6)
    assert np.abs(decode(data).astype(int) - by_pillow(data)).max() > 10  # readers pass it over
    assert (done.profile, done.warnings) == (icc_name(profile), ())


def icc_name(profile: bytes) -> str:
    return "a wide space" if profile is ADOBE else "sRGB IEC61966-2.1"


@pytest.mark.parametrize("kind", ["jpeg", "png", "tiff"])
def test_gray_by_a_gray_profile(kind: str) -> None:
    data = saved(kind, DARK, "L")
    np.testing.assert_array_equal(decode(converted(data).data), by_pillow(data))


@pytest.mark.parametrize("kind", ["jpeg", "tiff"])
def test_cmyk_by_its_inks(kind: str) -> None:
    data = saved(kind, PRESS, "CMYK")
    expected = by_pillow(data)
    np.testing.assert_array_equal(decode(converted(data).data), expected)
    assert np.abs(decode(data).astype(int) - expected).max() > 10
    small = converted(data, resize=12)
    assert decode(small.data).shape == (12, 16, 3)
    turned = saved(kind, PRESS, "CMYK", exif=images.exif(6)) if kind == "jpeg" else data
    assert decode(converted(turned).data).shape == ((96, 72, 3) if kind == "jpeg" else (72, 96, 3))


@pytest.mark.parametrize("encode", ["jpeg", "png", "keep"])
@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_what_is_srgb_stays_as_it_is_whatever_it_is_called(kind: str, encode: str) -> None:
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for profile in (LIKE_SRGB, srgb):
        data = saved(kind, profile)
        done = converted(data, encode=encode)
        assert done.profile == ""
        assert done.data == (data if encode == "keep" else converted(saved(kind, b""), encode=encode).data)


@pytest.mark.parametrize(
    ("profile", "mode", "words"),
    [
        (ADOBE, "L", "is for RGB colours, not for L"), (DARK, "RGB", "is for GRAY colours, not for RGB"),
        (PRESS, "RGB", "is for CMYK colours"), (b"no profile at all" * 20, "RGB", "cannot be read"),
        (ADOBE[:200], "RGB", "cannot be read"),
    ],
)  # fmt: skip
def test_a_profile_that_does_not_fit_is_passed_over_with_a_warning(profile: bytes, mode: str, words: str) -> None:
    data = saved("jpeg", profile, mode)
    done = converted(data)
    np.testing.assert_array_equal(decode(done.data), decode(data))
    assert len(done.warnings) == 1
    assert words in done.warnings[0]
    assert "ignored" in done.warnings[0]


def test_transparency_and_turns() -> None:
    rgba = np.dstack([RGB, images.alpha_ramp(96, 72)])
    data = images.saved(rgba, "png", icc_profile=ADOBE)
    opaque = converted(saved("png"))
    got = decode(converted(data).data)
    solid = rgba[..., 3] == 255
    np.testing.assert_array_equal(got[solid], decode(opaque.data)[solid])
    turned = images.turned(RGB, 6, "png", icc_profile=ADOBE)
    np.testing.assert_array_equal(decode(converted(turned).data), decode(opaque.data))


def test_keep_writes_what_it_must_change_in_srgb() -> None:
    data = saved("png")
    done = converted(data, encode="keep")
    assert (done.field, done.data != data) == ("png", True)
    np.testing.assert_array_equal(decode(done.data), by_pillow(data))
    assert "icc_profile" not in Image.open(io.BytesIO(done.data)).info
    assert converted(data, encode="keep", icc="keep").data == data


@pytest.mark.parametrize("encode", ["jpeg", "png", "webp"])
def test_a_profile_that_is_kept_is_there_for_others(encode: str) -> None:
    large = ADOBE + bytes(150_000)  # more than one segment of a JPEG holds
    for profile in (ADOBE, large):
        data = saved("png", profile)
        done = converted(data, encode=encode, icc="keep")
        assert done.warnings == ()
        with Image.open(io.BytesIO(done.data)) as image:
            assert image.info["icc_profile"] == profile
            assert image.size == (96, 72)
            image.load()
        bare = converted(images.png(RGB), encode=encode)
        np.testing.assert_array_equal(decode(done.data), decode(bare.data))
        assert icc.embedded(done.data, probe(done.data)) == profile
        if encode == "jpeg":
            found = load(done.data)
            assert found is not None
            assert done.data[2:4] == b"\xff\xe9"


def test_a_profile_that_cannot_be_kept_is_told() -> None:
    done = converted(saved("png"), encode="bmp", icc="keep")
    np.testing.assert_array_equal(decode(done.data), RGB)
    assert done.warnings == ("its ICC profile, for RGB, cannot be kept in bmp; the values did not change",)
    assert (
        "for CMYK, cannot be kept in jpg"
        in converted(saved("jpeg", PRESS, "CMYK"), encode="jpeg", icc="keep").warnings[0]
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "src" / "a"
    place.mkdir(parents=True)
    for number, profile in enumerate((ADOBE, ADOBE, CALLED_SRGB, LIKE_SRGB, b"")):
        (place / f"{number}.png").write_bytes(saved("png", profile))
    return tmp_path / "src"


def test_a_conversion_tells_how_many(folder: Path, tmp_path: Path) -> None:
    made = {}
    for workers in (1, 3):
        target = tmp_path / f"{workers}.lmdb"
        report = fastdata.convert(folder, target, encode="png", workers=workers)
        made[workers] = sorted((path.name, path.read_bytes()) for path in target.iterdir())
        assert [(note.path, note.reason) for note in report.warnings] == [
            (
                ".",
                "3 images were turned into sRGB by their colour profiles (2 a wide space, 1 sRGB IEC61966-2.1); "
                "--icc keep leaves the numbers",
            )
        ]
        assert "icc" not in report.options
    assert made[1] == made[3]
    kept = fastdata.convert(folder, tmp_path / "kept.lmdb", encode="png", icc="keep")
    assert (kept.warnings, kept.options["icc"]) == ([], "keep")
    with pytest.raises(OptionError, match="icc must be 'convert' or 'keep', not 'drop'"):
        fastdata.convert(folder, tmp_path / "no.lmdb", icc="drop")


def test_the_command_and_info(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "kept.lmdb"
    assert run("convert", folder, target, "--encode", "png", "--icc", "keep", "--quiet") == (0, "", "")
    code, out, _ = run("info", target, "--json")
    assert code == 0
    assert json.loads(out)["profiles"] == {"looked_at": 5, "not_srgb": 3}
    assert "colour profiles" in run("info", target)[1]
    plain = tmp_path / "plain.lmdb"
    assert run("convert", folder, plain, "--quiet")[0] == 0
    assert json.loads(run("info", plain, "--json")[1])["profiles"] == {"looked_at": 5, "not_srgb": 0}
