"""Damaged files: refused or filled up, without a word, and without an exception that nobody expects."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import warnings

import cv2
import numpy as np
import pytest
from PIL import Image, ImageFile

from fastdata.codec import jpeg
from fastdata.codec.decode import decode
from fastdata.errors import CutError, DecodeError
from tests import images, likeness

ODD = images.odd_images()
GOOD = {name: (data, rgb) for name, (data, rgb) in ODD.items() if rgb is not None}
BAD = sorted(name for name, (_, rgb) in ODD.items() if rgb is None)


@pytest.mark.parametrize("kind", ["jpg", "png", "bmp", "tif", "gif", "ppm"])
def test_cut_files_are_filled_up_on_demand(kind: str) -> None:
    notes: list[str] = []
    got = decode(ODD[f"cut.{kind}"][0], keep_damaged=True, notes=notes)
    assert got.shape == (36, 48, 3)
    assert len(notes) == 1
    assert "data end" in notes[0]
    # A BMP begins with its last row.
    there = slice(-8, None) if kind == "bmp" else slice(8)
    if kind != "gif":  # its rows are interlaced
        np.testing.assert_allclose(got[there].mean((0, 1)), images.photo(48, 36, 11)[there].mean((0, 1)), atol=12)


@pytest.mark.parametrize("kind", ["webp", "avif"])
def test_what_cannot_be_saved_is_refused(kind: str) -> None:
    with pytest.raises(DecodeError, match="cannot be decoded"):
        decode(ODD[f"cut.{kind}"][0], keep_damaged=True)


def test_a_cut_npy_is_filled_up() -> None:
    rgb = images.photo(20, 10)
    data = images.npy(rgb)[:-100]
    with pytest.raises(CutError):
        decode(data)
    got = decode(data, keep_damaged=True)
    np.testing.assert_array_equal(got[:7], rgb[:7])
    assert (got[-1, -10:] == 0).all()


@pytest.mark.parametrize("place", [0.05, 0.3, 0.99])
def test_progressive_jpegs_are_filled_up_too(place: float) -> None:
    data = GOOD["progressive.jpg"][0]
    start = data.index(b"\xff\xda") + 12
    cut = data[: start + int((len(data) - start - 4) * place)]
    assert decode(cut, keep_damaged=True).shape == (36, 48, 3)


def test_a_png_with_a_wrong_checksum() -> None:
    data = bytearray(GOOD["plain.png"][0])
    data[data.index(b"IDAT") + 200] ^= 1
    with pytest.raises(DecodeError, match="checksum of its chunk IDAT"):
        decode(bytes(data))


def test_a_wrong_checksum_beside_the_pixels_costs_nothing() -> None:
    data = bytearray(images.turned(images.photo(48, 36, 11), 3, "png"))
    data[data.index(b"eXIf") + 20] ^= 1
    assert decode(bytes(data)).shape == (36, 48, 3)


def test_the_fallback_is_told() -> None:
    data = GOOD["plain.jpg"][0]
    notes: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jpeg, "decode_logged", lambda *_: (None, ""))
        got = decode(data, notes=notes)
    assert likeness.distance(got, decode(data)) <= 2
    assert notes == ["OpenCV could not decode it, Pillow did; it may be damaged"]


@pytest.mark.parametrize("name", sorted(GOOD))
def test_damaged_files_raise_nothing_but_decode_errors(name: str) -> None:
    """Bytes changed, removed and cut, decoded with warnings as errors."""
    dice = random.Random(name)
    for round_ in range(24):
        data = bytearray(GOOD[name][0])
        if round_ % 3 == 0:
            del data[dice.randrange(len(data)) :]
        elif round_ % 3 == 1:
            for _ in range(3):
                data[dice.randrange(len(data))] = dice.randrange(256)
        else:
            at = dice.randrange(len(data))
            del data[at : at + dice.randrange(1, 30)]
        for keep in (False, True):
            try:
                got = decode(bytes(data), keep_damaged=keep, max_pixels=1 << 20)
            except DecodeError as error:
                likeness.assert_one_line(error)
            else:
                assert got.shape[2:] == (3,)
                assert got.flags.c_contiguous
                assert got.flags.writeable


# Quiet


def test_nothing_is_printed_and_no_setting_is_left(capfd: pytest.CaptureFixture[str]) -> None:
    level = cv2.utils.logging.getLogLevel()
    kept = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters)
    for name in BAD:
        with pytest.raises(DecodeError):
            decode(ODD[name][0])
    for kind in ("bmp", "ppm", "gif", "png", "tif"):
        decode(ODD[f"cut.{kind}"][0], keep_damaged=True)
    broken = bytearray(GOOD["plain.avif"][0])
    broken[-60:-20] = bytes(40)
    with pytest.raises(DecodeError):
        decode(bytes(broken))
    assert cv2.utils.logging.getLogLevel() == level
    assert (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters)) == kept
    assert capfd.readouterr() == ("", "")


def test_many_threads_decode_at_once() -> None:
    names = ["plain.jpg", "plain.gif", "rgba.png", "turn-6.tif", "cut.png"]
    wanted = {name: decode(ODD[name][0], keep_damaged=True) for name in names}
    level, failed = cv2.utils.logging.getLogLevel(), []

    def work(seed: int) -> None:
        for step in range(30):
            name = names[(seed + step) % len(names)]
            if not np.array_equal(decode(ODD[name][0], keep_damaged=True), wanted[name]):
                failed.append(name)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert cv2.utils.logging.getLogLevel() == level
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_is_forked_within_a_decode_can_decode() -> None:
    # In its own process: forking beside threads is what is tried here, and what Python warns of.
    code = """
import os, sys, threading
from fastdata.codec import quiet
from fastdata.codec.decode import decode
from tests import images, likeness
data = images.odd_images()["plain.gif"][0]
inside, leave = threading.Event(), threading.Event()
def hold():
    with quiet.pillow(lenient=False), quiet.silence:
        inside.set()
        leave.wait()
thread = threading.Thread(target=hold)
thread.start()
inside.wait()
pid = os.fork()
if pid == 0:
    os._exit(0 if decode(data).shape == (36, 48, 3) else 1)
status = os.waitpid(pid, 0)[1]
leave.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)
