from __future__ import annotations

import contextlib
import gzip
import sys
import types
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.transport.decoding import accepted_encodings, unpacker

TEXT = b"The quick brown fox jumps over the lazy dog. " * 50
RAW = zlib.compressobj(wbits=-15)
PACKED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT),
    "GZIP": gzip.compress(TEXT),
    "gzip, identity": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    " deflate ": RAW.compress(TEXT) + RAW.flush(),
    "gzip, deflate": zlib.compress(gzip.compress(TEXT)),
}
MEMBERS = gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])


def unpack(encoding: str, data: bytes, size: int) -> bytes:
    unpacking = unpacker(encoding)
    assert unpacking is not None
    body = b"".join(unpacking.feed(data[start : start + size]) for start in range(0, len(data), size))
    unpacking.finish()
    return body


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("encoding", list(PACKED))
def test_unpacking(encoding: str, size: int) -> None:
    assert unpack(encoding, PACKED[encoding], size) == TEXT


@pytest.mark.parametrize("size", [1, 10_000])
def test_several_members(size: int) -> None:
    assert unpack("gzip", MEMBERS, size) == TEXT


@pytest.mark.parametrize("encoding", ["", "identity", "Identity", "unknown", "gzip, unknown", ","])
def test_nothing_to_unpack(encoding: str) -> None:
    assert unpacker(encoding) is None


def test_no_body_at_all_is_no_error() -> None:
    for encoding in ("gzip", "deflate"):
        unpacking = unpacker(encoding)
        assert unpacking is not None
        unpacking.finish()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "gzip, deflate"])
def test_an_early_end_is_noticed_wherever_it_comes(encoding: str) -> None:
    packed = PACKED[encoding]
    for end in range(1, len(packed)):
        with pytest.raises((EOFError, ValueError)):
            unpack(encoding, packed[:end], 10_000)


@given(st.binary(min_size=1, max_size=200), st.sampled_from(["gzip", "deflate", "gzip, deflate"]))
def test_any_bytes(data: bytes, encoding: str) -> None:
    with contextlib.suppress(ValueError, EOFError):
        unpack(encoding, data, 10)


def test_what_is_asked_for() -> None:
    asked = accepted_encodings().split(", ")
    assert asked[:2] == ["gzip", "deflate"]
    assert all(unpacker(encoding) is not None for encoding in asked)


class Stub:
    """What the libraries for brotli and zstd offer."""

    def __init__(self) -> None:
        self.eof = False

    def decompress(self, data: bytes) -> bytes:
        if b"?" in data:
            message = "damaged"
            raise RuntimeError(message)
        self.eof = data.endswith(b".")
        return data.lower()

    process = decompress

    def is_finished(self) -> bool:
        return self.eof


@pytest.mark.parametrize(("encoding", "module"), [("br", "brotli"), ("zstd", "backports.zstd")])
def test_libraries_that_may_be_there(encoding: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType(module)
    library.Decompressor = library.ZstdDecompressor = Stub  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "backports", types.ModuleType("backports"))
    monkeypatch.setitem(sys.modules, "compression.zstd", None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, module, library)
    assert encoding in accepted_encodings()
    assert unpack(encoding, b"HELLO.", 3) == b"hello."
    with pytest.raises(EOFError):
        unpack(encoding, b"HELLO", 3)
    with pytest.raises(ValueError, match="damaged"):
        unpack(encoding, b"HELLO?", 3)
    monkeypatch.setitem(sys.modules, module, None)  # type: ignore[arg-type]
    assert encoding not in accepted_encodings()
    assert unpacker(encoding) is None
