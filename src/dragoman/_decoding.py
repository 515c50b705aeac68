"""Decoding JSON into types, in any number of threads.

msgspec inspects a type when it is first used, and a Struct has the result before it is complete. Python code runs
meanwhile, so another thread may decode with what is not there yet, which ends the process. So types are inspected here
and nowhere else, one at a time, and completely before anything is decoded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar, overload

import msgspec

T = TypeVar("T")
Hook: TypeAlias = Callable[[type, Any], Any]

_INSPECTING: Final = threading.RLock()
# A child that is forked meanwhile would have a type that nobody completes.
os.register_at_fork(before=_INSPECTING.acquire, after_in_parent=_INSPECTING.release, after_in_child=_INSPECTING.release)


@overload
def decoder_of(kind: type[T], dec_hook: Hook | None = None) -> msgspec.json.Decoder[T]: ...
@overload
def decoder_of(kind: object, dec_hook: Hook | None = None) -> msgspec.json.Decoder[Any]: ...
def decoder_of(kind: Any, dec_hook: Hook | None = None) -> msgspec.json.Decoder[Any]:
    """msgspec's decoder for this type."""
    with _INSPECTING:
        return msgspec.json.Decoder(kind, dec_hook=dec_hook)


@overload
def decode_as(data: bytes | str | msgspec.Raw, kind: type[T]) -> T: ...
@overload
def decode_as(data: bytes | str | msgspec.Raw, kind: object) -> Any: ...
def decode_as(data: bytes | str | msgspec.Raw, kind: Any) -> Any:
    """Decode JSON into a type of ours, whose decoder is kept."""
    return _kept(kind).decode(data)


def convert_to(
    value: object,
    kind: type[T],
    *,
    strict: bool = True,
    from_attributes: bool = False,
    dec_hook: Hook | None = None,
    str_keys: bool = False,
) -> T:
    """Convert a value that was decoded already, as `msgspec.convert` does."""
    with _INSPECTING:
        msgspec.msgpack.Decoder(kind)
    return msgspec.convert(
        value, kind, strict=strict, from_attributes=from_attributes, dec_hook=dec_hook, str_keys=str_keys
    )


@cache
def _kept(kind: Any) -> msgspec.json.Decoder[Any]:
    return decoder_of(kind)
