"""The frames of a stream: in any pieces, with both checksums, as Amazon's own library reads them."""

from __future__ import annotations

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given, strategies as st

from dragoman.errors import OverloadedError, ProtocolError, RateLimitError
from dragoman.providers.bedrock.framing import EXCEPTION, BinaryEvents
from tests.providers.bedrock.wire import STARTED, delta, ended, frame, stop
from tests.providers.calls import call_of, decoder_of
from tests.providers.feeding import attempt, cut_at

# A header of each other type, which we pass over: two booleans, byte, short, int, long, bytes, timestamp, uuid.
OTHERS = b"\x01a\x00\x01b\x01\x01c\x02\x05\x01d\x03\x00\x05\x01e\x04\x00\x00\x00\x05\x01f\x05" + bytes(8)
OTHERS += b"\x01g\x06\x00\x02ab\x01h\x08" + bytes(8) + b"\x01i\x09" + bytes(16)

payloads = st.binary(max_size=60)


@given(
    st.lists(st.tuples(st.sampled_from(["messageStart", "x" * 200]), payloads), max_size=5),
    st.lists(st.integers(0, 2000)),
)
def test_frames_are_those_that_botocore_reads(said: list[tuple[str, bytes]], places: list[int]) -> None:
    data = b"".join([frame(name, payload, extra=OTHERS) for name, payload in said])
    theirs = EventStreamBuffer()
    theirs.add_data(data)
    expected = [(one.headers[":event-type"].encode(), one.payload) for one in theirs]
    frames = BinaryEvents()
    assert [event for piece in cut_at(data, places) for event in frames.feed(piece)] == expected
    assert list(frames.finish()) == []


def test_a_flipped_bit_is_detected() -> None:
    data = STARTED + delta(0, text="Hello") + stop(0) + ended()
    complete, error = attempt(decoder_of(call_of("bedrock:m", stream=True)), data)
    assert error is None
    for place in range(len(data)):
        spoilt = data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]
        message, error = attempt(decoder_of(call_of("bedrock:m", stream=True)), spoilt)
        assert isinstance(error, ProtocolError), place
        assert error.provider == "bedrock"
        assert complete.text.startswith(message.text)


def test_errors_in_the_stream() -> None:
    begun = STARTED + delta(0, text="Well")
    for kind, expected in (("throttlingException", RateLimitError), ("serviceUnavailableException", OverloadedError)):
        refused = frame(kind, {"message": "Slow down."}, kind="exception")
        message, error = attempt(decoder_of(call_of("bedrock:m", stream=True)), begun + refused)
        assert type(error) is expected
        assert ("Slow down" in str(error), message.text, message.interrupted) == (True, "Well", True)
    # An error of the connection has no payload: its code and text are headers.
    text = b"\x0e:error-message\x07\x00\x04Gone"
    code = b"\x0b:error-code\x07\x00\x15internalServerFailure"
    [(name, payload)] = BinaryEvents().feed(frame("", b"", kind="error", extra=code + text))
    assert (name, payload) == (f"{EXCEPTION}internalServerFailure".encode(), b'{"message":"Gone"}')


@pytest.mark.parametrize("extra", [b"\x05ab", b"\x01a\x07\xff\xff", b"\x01a\x0c"])
def test_malformed_headers_are_refused(extra: bytes) -> None:
    with pytest.raises(ProtocolError, match="headers of a frame"):
        list(BinaryEvents().feed(frame("x", b"{}", extra=extra)))
