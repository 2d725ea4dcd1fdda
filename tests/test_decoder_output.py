"""What decoders write to descriptor 2 is captured and reported with its file, and nothing else is held back."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest
from PIL import Image

from fastdata.codec import jpeg
from fastdata.codec.decode import decode
from fastdata.codec.decoder_log import logged
from fastdata.errors import DecodeError
from fastdata.processes import capture
from tests import images

RGB = images.photo(160, 120, 5)
LINE = b"libpng warning: told\n"


def say(text: bytes) -> None:
    os.write(2, text)


def noisy_png() -> bytes:
    """Its pixels are all right; libpng finds fault with transparency in an image that has an alpha channel."""
    rgba = images.png(np.dstack([RGB, RGB[..., :1]]))
    return rgba[:33] + images.chunk(b"tRNS", bytes(6)) + rgba[33:]


def noisy_jpeg() -> bytes:
    data = bytearray(images.saved(RGB, "jpeg"))
    data[-2:-2] = bytes(9)
    return bytes(data)


def noisy_cmyk() -> bytes:
    out = io.BytesIO()
    Image.fromarray(RGB).convert("CMYK").save(out, "jpeg")
    return out.getvalue()[:-2] + bytes(9) + b"\xff\xd9"


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("data", "words"),
    [(noisy_jpeg(), "extraneous bytes"), (noisy_cmyk(), "extraneous bytes"), (noisy_png(), "invalid with alpha")],
)
def test_it_is_a_note(
    data: bytes, words: str, fast: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fast:
        monkeypatch.setattr(jpeg, "_simplejpeg", lambda: None)
    notes = list[str]()
    assert decode(data, notes=notes).shape == RGB.shape
    assert len(notes) == 1
    assert notes[0].startswith("the decoder says: ")
    assert words in notes[0]
    assert decode(data).shape == RGB.shape  # nobody wants to know
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits"])
def test_it_is_a_part_of_the_reason(compression: str, capfd: pytest.CaptureFixture[str]) -> None:
    data = bytearray(images.saved(RGB, "tiff", compression=compression))
    reasons = set()
    for start in range(8, len(data) - 400, len(data) // 20):
        damaged = bytearray(data)
        damaged[start : start + 300] = bytes(range(200, 50, -1)) * 2
        try:
            decode(bytes(damaged))
        except DecodeError as error:
            reasons.add(str(error))
    assert capfd.readouterr() == ("", "")
    assert all("\n" not in reason and len(reason) < 700 for reason in reasons)
    assert compression == "packbits" or any(":" in reason.partition("(")[2] for reason in reasons)


def test_libpng_that_gives_up_is_quoted(capfd: pytest.CaptureFixture[str]) -> None:
    rows = b"".join(b"\7" + row.tobytes() for row in RGB)  # no such filter
    with pytest.raises(DecodeError, match="bad adaptive filter value"):
        decode(images.raw_png(rows, 160, 120, 8, 2))
    broken = zlib.compress(b"".join(b"\0" + row.tobytes() for row in RGB))[:-4] + bytes(4)
    whole = images.raw_png(b"", 160, 120, 8, 2)
    with pytest.raises(DecodeError, match="incorrect data check"):
        decode(whole[:33] + images.chunk(b"IDAT", broken) + whole[-12:])
    assert capfd.readouterr() == ("", "")


def test_what_the_program_writes_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    _, said = logged(lambda: say(b"mine\n" + LINE + b"\rbar 3/4"))
    assert said == "libpng warning: told"
    assert capfd.readouterr() == ("", "mine\n\rbar 3/4")
    with pytest.raises(KeyboardInterrupt):
        logged(interrupted)
    say(b"after\n")
    assert capfd.readouterr() == ("", "before\nafter\n")


def interrupted() -> None:
    say(b"before\n" + LINE)
    raise KeyboardInterrupt


def test_long_and_repeated_messages_are_bounded() -> None:
    _, said = logged(lambda: say(LINE * 5000))
    assert said == "libpng warning: told"
    _, said = logged(lambda: say(b"".join(b"libpng error: %d\n" % number for number in range(9999))))
    assert len(said) == 300
    assert said.endswith("...")


def test_threads_do_not_get_each_others_lines(capfd: pytest.CaptureFixture[str]) -> None:
    both, spoken = threading.Barrier(2), threading.Event()
    calls = {"talks": 0, "quiet": 0}
    heard = {}

    def talks() -> None:
        calls["talks"] += 1
        if calls["talks"] == 1:
            both.wait(30)
        say(LINE + b"the program\n")
        spoken.set()

    def quiet() -> None:
        calls["quiet"] += 1
        if calls["quiet"] == 1:
            both.wait(30)
        spoken.wait(30)

    threads = [
        threading.Thread(target=lambda name=name, call=call: heard.update({name: logged(call)[1]}))
        for name, call in (("talks", talks), ("quiet", quiet))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert heard == {"talks": "libpng warning: told", "quiet": ""}
    assert set(capfd.readouterr().err.splitlines()) == {"the program"}


def test_many_threads_and_files(capfd: pytest.CaptureFixture[str]) -> None:
    files = {"jpeg": noisy_jpeg(), "cmyk": noisy_cmyk(), "png": noisy_png(), "good": images.png(RGB)}
    wanted = {}
    for name, data in files.items():
        wanted[name] = list[str]()
        decode(data, notes=wanted[name])
    assert [name for name, notes in wanted.items() if not notes] == ["good"]
    wrong = []

    def work(seed: int) -> None:
        for step in range(40):
            name = sorted(files)[(seed + step) % 4]
            notes = list[str]()
            decode(files[name], notes=notes)
            if notes != wanted[name]:
                wrong.append((name, notes))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert capfd.readouterr() == ("", "")


def test_without_descriptors_to_spare_it_decodes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(capture, "anonymous_file", refuse)
    assert logged(lambda: 7) == (7, "")
    np.testing.assert_array_equal(decode(images.png(RGB)), RGB)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "os.close(2); assert logged(lambda: os.write(2, LINE))[1]; print(os.path.exists('/dev/fd/2'))",
            "",
        ),
        ("logged(lambda: fork(b'child')); os.write(2, b'parent')", "childparent"),
        ("logged(lambda: 1); fork(b'child'); os.write(2, b'parent')", "childparent"),
        ("capture._enter(); print('traceback', file=sys.stderr)", "traceback\n"),  # torn away by an interrupt
    ],
)
def test_odd_processes(code: str, said: str) -> None:
    setup = f"""
import os, sys
from fastdata.codec.decoder_log import logged, _capture as capture
LINE = {LINE!r}
def fork(words):
    pid = os.fork()
    if pid == 0:
        os.write(2, words)
        os._exit(0 if logged(lambda: os.write(2, LINE))[1] else 1)
    assert os.waitpid(pid, 0)[1] == 0
"""
    done = subprocess.run([sys.executable, "-c", setup + code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, said)
    assert done.stdout in ("", "False\n")
