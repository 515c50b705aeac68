"""JSON that is taken apart but not read through, so that what a codec does not understand is kept as it came.

The parts are `Raw`: slices that hold on to the bytes they came from, so copy the ones that are kept.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

ABSENT: Final = Raw(b"")
"""Stands for a member that is not there."""

read_members = msgspec.json.Decoder(dict[str, Raw]).decode
"""The members of a JSON object."""

read_elements = msgspec.json.Decoder(list[Raw]).decode
"""The elements of a JSON array."""

_read_text = msgspec.json.Decoder(str | None).decode
_read_number = msgspec.json.Decoder(int | None).decode


def read_text(raw: Raw | None) -> str | None:
    """A string; None where it is absent or null."""
    return None if raw is None else _read_text(raw)


def read_number(raw: Raw | None) -> int | None:
    """A whole number; None where it is absent or null."""
    return None if raw is None else _read_number(raw)
