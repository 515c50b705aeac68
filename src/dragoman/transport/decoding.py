"""Unpacking compressed bodies, piece by piece.

Owns: gzip and deflate with the standard library; brotli and zstd where a library for them is installed.
Must not know: where the bytes come from.

For transports whose HTTP library does not do it, or does not notice when the packed data ends too early.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Final, Protocol


class Unpacker(Protocol):
    """Unpacks one body."""

    def feed(self, data: bytes) -> bytes:
        """What these bytes unpack to, as far as they go. ValueError if they are damaged."""
        ...

    def finish(self) -> None:
        """The bytes have ended. EOFError if something is missing."""
        ...


class _Zlib:
    """gzip (also several members one after the other) and deflate (with the header of zlib, or without it)."""

    def __init__(self, wbits: int) -> None:
        self._wbits: int = wbits
        self._unpacking = zlib.decompressobj(wbits)
        self._fed: bool = False
        self._start: bytes = b""
        """The first bytes, as long as they do not tell whether they are a header."""

    def feed(self, data: bytes) -> bytes:
        unpacked: list[bytes] = []
        try:
            while data:
                if self._unpacking.eof:
                    self._unpacking = zlib.decompressobj(self._wbits)
                unpacked.append(self._unpack(data))
                self._fed = True
                data = self._unpacking.unused_data
        except zlib.error as error:
            raise ValueError(str(error)) from error
        return unpacked[0] if len(unpacked) == 1 else b"".join(unpacked)

    def _unpack(self, data: bytes) -> bytes:
        try:
            unpacked = self._unpacking.decompress(data)
        except zlib.error:
            if self._wbits != zlib.MAX_WBITS or len(self._start) >= 2:
                raise
            self._wbits = -zlib.MAX_WBITS
            self._unpacking = zlib.decompressobj(self._wbits)
            return self._unpacking.decompress(self._start + data)
        self._start = (self._start + data)[:2] if len(self._start) < 2 else self._start
        return unpacked

    def finish(self) -> None:
        if self._fed and not self._unpacking.eof:
            raise EOFError


class _Library:
    """What a library offers, brought into our form."""

    def __init__(self, unpack: Callable[[bytes], bytes], is_finished: Callable[[], bool]) -> None:
        self._unpack: Callable[[bytes], bytes] = unpack
        self._is_finished: Callable[[], bool] = is_finished
        self._fed: bool = False

    def feed(self, data: bytes) -> bytes:
        self._fed = True
        try:
            return self._unpack(data)
        except Exception as error:  # each library has one of its own
            raise ValueError(str(error)) from error

    def finish(self) -> None:
        if self._fed and not self._is_finished():
            raise EOFError


class _Chain:
    """Several encodings, one over the other."""

    def __init__(self, unpackers: list[Unpacker]) -> None:
        self._unpackers: list[Unpacker] = unpackers

    def feed(self, data: bytes) -> bytes:
        for each in self._unpackers:
            data = each.feed(data)
        return data

    def finish(self) -> None:
        for each in self._unpackers:
            each.finish()


def _brotli() -> Unpacker:
    unpacking = import_module("brotli").Decompressor()
    return _Library(unpacking.process, unpacking.is_finished)


def _zstd() -> Unpacker:
    try:
        library = import_module("compression.zstd")  # since Python 3.14
    except ImportError:
        library = import_module("backports.zstd")
    unpacking = library.ZstdDecompressor()
    return _Library(unpacking.decompress, lambda: unpacking.eof)


_MAKERS: Final[dict[str, Callable[[], Unpacker]]] = {
    "gzip": lambda: _Zlib(16 + zlib.MAX_WBITS),
    "x-gzip": lambda: _Zlib(16 + zlib.MAX_WBITS),
    "deflate": lambda: _Zlib(zlib.MAX_WBITS),
    "br": _brotli,
    "zstd": _zstd,
}


def accepted_encodings() -> str:
    """The encodings that can be unpacked here, for the header `accept-encoding`."""
    usable: list[str] = []
    for name in ("gzip", "deflate", "br", "zstd"):
        try:
            _MAKERS[name]()
        except ImportError:
            continue
        usable.append(name)
    return ", ".join(usable)


def unpacker(encoding: str) -> Unpacker | None:
    """What unpacks a body whose header `content-encoding` says this; None if there is nothing to unpack.

    An encoding that nobody asked for and nobody knows is left as it is: whoever reads the bytes will notice.
    """
    names = [name for part in encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    if not names or any(name not in _MAKERS for name in names):
        return None
    try:
        unpackers = [_MAKERS[name]() for name in reversed(names)]
    except ImportError:
        return None
    return unpackers[0] if len(unpackers) == 1 else _Chain(unpackers)
