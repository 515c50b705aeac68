"""Record, replay and redact: exchanges with a server on a tape, around any transport in either colour.

scan.py        what must never be on a tape: anything that looks like a key
exchange.py    one exchange as a line of JSON; which requests count as the same
tape.py        the file and its modes: record, replay, auto
wrapping.py    transports that record, and transports that replay

from dragoman.transport.tape import Tape

tape = Tape("tests/tapes/weather.jsonl")
transport = tape.transport(SocketTransport)
"""

from __future__ import annotations

from .exchange import Exchange
from .scan import SecretFoundError
from .tape import Mode, NotOnTapeError, Tape

__all__ = ["Exchange", "Mode", "NotOnTapeError", "SecretFoundError", "Tape"]
