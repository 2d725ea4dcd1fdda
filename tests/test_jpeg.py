"""The JPEG decoders: simplejpeg, where it is installed, gives OpenCV's very pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from fastdata.codec import jpeg
from fastdata.codec.opencv import imdecode
from fastdata.size import Size
from tests import images, needs
from tests.test_cropindex import made


@pytest.mark.parametrize("name", [name for name in images.odd_images() if name.endswith("jpg")])
@pytest.mark.parametrize("scale", [1, 2, 4, 8])
def test_both_decoders_give_the_same_pixels(name: str, scale: int) -> None:
    needs.package("simplejpeg")
    fast = jpeg._simplejpeg()
    assert fast is not None
    data = images.odd_images()[name][0]
    other = imdecode(data, jpeg.FLAGS[scale])[0]
    try:
        size = Size(*Image.open(io.BytesIO(data)).size[::-1])
        got = fast(data, scale, size, None)
    except (ValueError, OSError):
        return  # it refuses, and OpenCV is asked
    np.testing.assert_array_equal(got, other)


def test_a_decoder_that_needs_no_size_is_used_for_the_smallest_images() -> None:
    data = made(7, 5)
    for scale in (1, 2, 4, 8):
        got = jpeg.pixels(data, scale, Size(5, 7))
        np.testing.assert_array_equal(got, imdecode(data, jpeg.FLAGS[scale])[0])


def test_scratch_memory_is_used_where_it_is_large_enough() -> None:
    needs.package("simplejpeg")
    data, scratch = made(100, 80), np.zeros(100 * 80 * 3, np.uint8)
    for scale in (1, 2, 4):
        got = jpeg.pixels(data, scale, Size(80, 100), scratch)
        assert got is not None
        assert np.shares_memory(got, scratch)
        np.testing.assert_array_equal(got, imdecode(data, jpeg.FLAGS[scale])[0])
    small = jpeg.pixels(data, 1, Size(80, 100), np.zeros(99, np.uint8))
    np.testing.assert_array_equal(small, imdecode(data, jpeg.FLAGS[1])[0])
