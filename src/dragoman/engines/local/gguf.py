"""What a model's file says about itself.

Owns: telling a GGUF file from another, and the few entries of its head that matter here.
Must not know: how a model is run. Only the entries that are asked for are read: the head also holds the vocabulary,
which is large.
"""

from __future__ import annotations

import mmap
import re
import struct
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman.errors import LocalModelError

__all__ = ["ModelFile", "read_gguf"]

_MAGIC: Final = b"GGUF"
_HEAD: Final = 256 << 20
"""How far entries are looked for: the vocabularies of the largest models end before this."""
_STRING: Final = 8
_UINT32: Final = 4
_CONTEXT: Final = re.compile(rb"[a-z0-9_.-]+\.context_length" + re.escape(struct.pack("<I", _UINT32)), re.DOTALL)
_TEMPLATE: Final = b"tokenizer.chat_template" + struct.pack("<I", _STRING)
_MOST_TEMPLATE: Final = 1 << 20


class ModelFile(Struct, frozen=True, kw_only=True):
    """A GGUF file."""

    path: Path
    context_length: int | None
    """Tokens that the model was trained for."""
    chat_template: str | None


def read_gguf(path: Path) -> ModelFile:
    """What the file says. Raises LocalModelError if it is not there, or no model that can be run."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            if start[:4] != _MAGIC:
                raise _wrong(path, "it is no GGUF file")
            if len(start) < 8 or not 2 <= struct.unpack("<I", start[4:8])[0] <= 99:
                raise _wrong(path, "its version of GGUF is not known")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return ModelFile(path=path, context_length=_context(data), chat_template=_template(data))
    except IsADirectoryError:
        raise _wrong(path, "it is a directory") from None
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from error


def _context(data: mmap.mmap) -> int | None:
    found = _CONTEXT.search(data, 0, min(len(data), _HEAD))
    if found is None or found.end() + 4 > len(data):
        return None
    return int(struct.unpack("<I", data[found.end() : found.end() + 4])[0])


def _template(data: mmap.mmap) -> str | None:
    at = data.find(_TEMPLATE, 0, _HEAD)
    if at < 0:
        return None
    at += len(_TEMPLATE)
    length = struct.unpack("<Q", data[at : at + 8])[0] if at + 8 <= len(data) else 0
    if not 0 < length <= _MOST_TEMPLATE or at + 8 + length > len(data):
        return None
    return data[at + 8 : at + 8 + length].decode(errors="replace")


def _wrong(path: Path, why: str) -> LocalModelError:
    hint = "Give the path of a GGUF file of a chat model, or `local:` for the default model."
    return LocalModelError(f"The model {path} cannot be used: {why}.", reason="wrong_file", hint=hint)
