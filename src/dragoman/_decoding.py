"""Decoding JSON, as deep as every Python can, and into types, in any number of threads.

msgspec inspects a type when it is first used, and a Struct has the result before it is complete. Python code runs
meanwhile, so another thread may decode with what is not there yet, which ends the process. So types are inspected here
and nowhere else, one at a time, and completely before anything is decoded.

How deep a Python can go differs: some count calls, some count bytes of the stack, and who calls has used up a part. So
text is measured before it is decoded, by the limits here; no other limit depends on RecursionError.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, overload

import msgspec

T = TypeVar("T")
Hook: TypeAlias = Callable[[type, Any], Any]

DEEPEST: Final = 200
"""How many arrays and objects a value may have inside each other: arguments, results, answers, members of others."""
DEEPEST_SCHEMA: Final = DEEPEST // 2
"""Schemas are walked by recursion, with several calls for each level."""
DEEPEST_TEXT: Final = DEEPEST + 50
"""A whole text has a reply, a conversation or a snapshot around the value."""


# --- how deep --------------------------------------------------------------------------------------------------------


class TooDeepError(msgspec.DecodeError, ValueError):
    """A text has more values inside each other than every Python can decode, and work with."""

    def __init__(self, most: int) -> None:
        super().__init__(f"it is nested too deeply: more than {most} arrays and objects are inside each other")


_STEPS: Final = bytes.maketrans(b"[{]}", bytes([2, 2, 0, 0]))
_NOT_SIGNS: Final = bytes(set(range(256)) - set(b'[{]}"'))


def check_depth(text: bytes | str | msgspec.Raw, most: int = DEEPEST) -> None:
    """Raise TooDeepError for JSON that is nested more than `most` deep. It need not be complete or valid."""
    if len(text) <= most:
        return
    data = text.encode(errors="replace") if isinstance(text, str) else bytes(text)
    if data.count(b"[") + data.count(b"{") <= most:
        return
    # Without what is escaped, and then without texts.
    signs = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_SIGNS)
    brackets = b"".join(signs.split(b'"')[::2])
    if max(accumulate([step - 1 for step in brackets.translate(_STEPS)]), default=0) > most:
        raise TooDeepError(most)


def deeper_than(limit: int, value: object) -> bool:
    """Whether arrays and objects in a decoded value are nested more than `limit` deep; without recursion."""
    level: list[object] = [value]
    for _ in range(limit + 1):
        inner, ends = list[object](), True
        for each in level:
            if isinstance(each, dict):
                inner += cast("dict[object, object]", each).values()
            elif isinstance(each, list):
                inner += cast("list[object]", each)
            else:
                continue
            ends = False
        if ends:
            return False
        level = inner
    return True


# --- plain values -----------------------------------------------------------------------------------------------------


def decode(text: bytes | str | msgspec.Raw, most: int = DEEPEST) -> object:
    """The value of a JSON text. Raises TooDeepError, or msgspec.DecodeError or UnicodeError for what is no JSON."""
    check_depth(text, most)
    return msgspec.json.decode(text)


# --- types ------------------------------------------------------------------------------------------------------------

_INSPECTING: Final = threading.RLock()
# A child that is forked meanwhile would have a type that nobody completes.
os.register_at_fork(before=_INSPECTING.acquire, after_in_parent=_INSPECTING.release, after_in_child=_INSPECTING.release)


class Decoder(Generic[T]):
    """msgspec's decoder for a type."""

    __slots__ = ("_decode",)

    def __init__(self, inner: msgspec.json.Decoder[T]) -> None:
        self._decode: Callable[[bytes | str | msgspec.Raw], T] = inner.decode

    def decode(self, data: bytes | str | msgspec.Raw) -> T:
        """The value. Raises TooDeepError, msgspec's errors, and UnicodeError."""
        # A Raw is a part of a text that was measured as a whole.
        if len(data) > DEEPEST_TEXT and not isinstance(data, msgspec.Raw):
            check_depth(data, DEEPEST_TEXT)
        return self._decode(data)


@overload
def decoder_of(kind: type[T], dec_hook: Hook | None = None) -> Decoder[T]: ...
@overload
def decoder_of(kind: object, dec_hook: Hook | None = None) -> Decoder[Any]: ...
def decoder_of(kind: Any, dec_hook: Hook | None = None) -> Decoder[Any]:
    """The decoder for this type."""
    return Decoder(measured_decoder_of(kind, dec_hook))


@overload
def measured_decoder_of(kind: type[T], dec_hook: Hook | None = None) -> msgspec.json.Decoder[T]: ...
@overload
def measured_decoder_of(kind: object, dec_hook: Hook | None = None) -> msgspec.json.Decoder[Any]: ...
def measured_decoder_of(kind: Any, dec_hook: Hook | None = None) -> msgspec.json.Decoder[Any]:
    """The decoder for this type, for texts whose depth was measured before."""
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
def _kept(kind: Any) -> Decoder[Any]:
    return decoder_of(kind)
