"""Where a JPEG ends: without its end marker alone it is whole, without some coded data it is cut, whatever follows."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fastdata
from fastdata.codec import jpeg
from fastdata.codec.decode import decode
from fastdata.codec.headers.jpeg import MOST_SCANS
from fastdata.codec.sniff import probe
from fastdata.converters.options import RecodeOptions
from fastdata.errors import CutError, DecodeError, TooLargeError
from tests import images
from tests.recoding import recode
from tests.test_cropindex import made

RGB = images.photo(160, 120, 5)
WHOLE = {
    "baseline": images.saved(RGB, "jpeg", quality=90),
    "progressive": images.saved(RGB, "jpeg", quality=90, progressive=True),
    "gray": images.saved(RGB[..., 0], "jpeg"),
    "restart": made(160, 120),
}
MARKER = "the JPEG lacks its end marker, and nothing else"
EOI = b"\xff\xd9"


@pytest.fixture(params=["as it is", "opencv alone"], autouse=True)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both decoders tell the same of an end."""
    if request.param == "opencv alone":
        monkeypatch.setattr(jpeg, "_simplejpeg", lambda: None)


@pytest.mark.parametrize("missing", [1, 2])
@pytest.mark.parametrize("kind", WHOLE)
def test_without_its_end_marker_it_is_whole(kind: str, missing: int) -> None:
    data, notes = WHOLE[kind][:-missing], list[str]()
    np.testing.assert_array_equal(decode(data, notes=notes), decode(WHOLE[kind]))
    assert notes == [MARKER]
    done = recode(data, RecodeOptions(encode="keep"))
    assert (done.field, done.data, done.warnings) == ("jpg", WHOLE[kind], (MARKER,))


@pytest.mark.parametrize("end", [b"", EOI, EOI + b"trailing", b"\xff"])
@pytest.mark.parametrize("place", [0.6, 0.9, -3, -8])
@pytest.mark.parametrize("kind", WHOLE)
def test_a_scan_that_ends_early_is_damage(kind: str, place: float, end: bytes) -> None:
    whole = WHOLE[kind]
    data = whole[: place if place < 0 else int(len(whole) * place)].rstrip(b"\xff") + end
    with pytest.raises(CutError, match=r"end marker|fewer coded data"):
        decode(data)
    with pytest.raises(CutError):
        recode(data, RecodeOptions(encode="keep"))
    notes = list[str]()
    assert decode(data, keep_damaged=True, notes=notes).shape == RGB.shape
    assert any("the rest is filled up" in note for note in notes)
    done = recode(data, RecodeOptions(encode="keep", keep_damaged=True))
    assert "damaged, kept" in done.warnings[0]
    assert decode(done.data).shape == RGB.shape


def test_wrong_bytes_within_the_scan_are_a_note() -> None:
    data, notes = bytearray(WHOLE["baseline"]), list[str]()
    data[-2:-2] = bytes(9)  # libjpeg has read four of them ahead
    np.testing.assert_array_equal(decode(bytes(data), notes=notes), decode(WHOLE["baseline"]))
    assert notes == ["the decoder says: Corrupt JPEG data: 5 extraneous bytes before marker 0xd9"]


@pytest.mark.parametrize("workers", [0, 1])
def test_readers_hold_to_it_too(tmp_path: Path, workers: int) -> None:
    path = str(tmp_path / "a.lmdb")
    with fastdata.create(path) as writer:
        writer.write(fastdata.Record("whole", {"jpg": WHOLE["baseline"][:-2]}))
        writer.write(fastdata.Record("cut", {"jpg": WHOLE["baseline"][:3000] + EOI}))
    dataset = fastdata.ImageDataset(path)
    np.testing.assert_array_equal(dataset[0][0], decode(WHOLE["baseline"]))
    with pytest.raises(CutError, match=r"a\.lmdb: record 'cut': .*fewer coded data"):
        dataset[1]
    with fastdata.DataLoader(path, 1, num_workers=workers) as loader:
        batches = iter(loader)
        np.testing.assert_array_equal(next(batches)[0][0].permute(1, 2, 0), decode(WHOLE["baseline"]))
        with pytest.raises(CutError, match=r"'cut': .*fewer coded data"):
            next(batches)


def test_a_gain_map_behind_the_image_is_none_of_it() -> None:
    """As phones write HDR: the map is a second JPEG, named by MPF and in the XMP of the first."""
    base = images.saved(RGB, "jpeg", quality=95)
    gain = images.saved(RGB[::4, ::4, 0], "jpeg")
    xmp = b"http://ns.adobe.com/xap/1.0/\0<rdf:Description hdrgm:Version='1.0' Container:Directory=''/>"
    mpf = b"MPF\0MM\0*\0\0\0\x08\0\x01\xb0\x01\0\x04\0\0\0\x01" + struct.pack(">I", 2) + bytes(4)
    parts = b"".join(
        b"\xff" + bytes((kind,)) + struct.pack(">H", len(body) + 2) + body for kind, body in ((0xE1, xmp), (0xE2, mpf))
    )
    data = base[:2] + parts + base[2:] + gain
    np.testing.assert_array_equal(decode(data), decode(base))
    assert probe(data).upright_size == (120, 160)
    cut = data[: len(base) // 2] + gain  # the map's end marker is not the image's
    with pytest.raises(DecodeError):
        decode(cut)


def with_scans(kind: str, count: int) -> bytes:
    """A JPEG whose last scan comes `count` times more."""
    data = images.saved(RGB, "jpeg", progressive=True) if kind == "progressive" else _separate()
    scan, end = data.rindex(b"\xff\xda"), data.rindex(EOI)
    return data[:end] + data[scan:end] * count + EOI


def _separate() -> bytes:
    """A baseline JPEG of two colours whose scans are one a colour; libjpeg reads all that come."""
    gray = images.saved(np.zeros((8, 8), np.uint8), "jpeg")
    frame, scan = gray.index(b"\xff\xc0"), gray.index(b"\xff\xda")
    tables, coded = gray[:frame] + gray[frame + 2 + 11 : scan], gray[scan + 10 : -2]
    head = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, 8, 8, 3) + bytes((1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0))
    scans = b"".join(b"\xff\xda\0\x08\1" + bytes((number, 0)) + b"\0\x3f\0" + coded for number in (1, 2, 3))
    return tables + head + scans + EOI


@pytest.mark.parametrize("kind", ["progressive", "baseline"])
def test_more_scans_than_anybody_makes_are_refused(kind: str, tmp_path: Path) -> None:
    assert decode(with_scans(kind, 0)).size
    probe(with_scans(kind, MOST_SCANS - 20))
    data = with_scans(kind, MOST_SCANS)
    calls: list[Any] = [probe, decode, lambda data: recode(data, RecodeOptions(encode="keep", keep_damaged=True))]
    for call in calls:
        with pytest.raises(TooLargeError, match="more than 200 scans"):
            call(data)
    path = str(tmp_path / "a.lmdb")
    with fastdata.create(path) as writer:
        writer.write(fastdata.Record("bomb", {"jpg": data}))
    with pytest.raises(TooLargeError, match=r"'bomb': .*scans"):
        fastdata.ImageDataset(path)[0]
    with pytest.raises(TooLargeError, match=r"'bomb': .*scans"):
        next(iter(fastdata.DataLoader(path, 1, num_workers=0, transform=fastdata.CenterCrop(8))))


def test_what_follows_the_end_has_no_scans() -> None:
    """A motion photo's video may hold any bytes."""
    data = WHOLE["progressive"] + b"\xff\xda\0\x08" * 1000
    np.testing.assert_array_equal(decode(data), decode(WHOLE["progressive"]))
    out = io.BytesIO()
    Image.fromarray(RGB).save(out, "jpeg", progressive=True, comment=b"\xff\xda" * 300)
    assert probe(out.getvalue()).cut == ""
