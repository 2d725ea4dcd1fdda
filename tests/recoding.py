"""Recoding as the tests call it: one file's bytes in, the image's field and bytes out, with what is said of them."""

from __future__ import annotations

from types import SimpleNamespace

from fastdata import Record
from fastdata.converters.options import RecodeOptions
from fastdata.converters.recode import recode as recode_record


def recode(data: bytes, options: RecodeOptions) -> SimpleNamespace:
    """What conversion makes of a file: what `Recoded` says, and `field` and `data` of the image."""
    done = recode_record(Record("x", {"jpg": data}), options)
    assert done.record is not None
    field = done.record.image_field
    return SimpleNamespace(**done._asdict(), field=field, data=done.record.fields[field])
