"""A local server that speaks the dialects of all providers, for tests without a key and without the network.

    reply.py, request.py, script.py   what is said, what was asked, and which reply comes next
    faults/                           what can go wrong
    dialects/                         the four dialects, from the server's side
    answering.py, plan.py, sending.py from a request to the bytes, pauses and breaks of its answer
    server.py, connection.py, http1.py, routing.py
    command.py, script_file.py        python -m dragoman.simulator
    pytest_plugin.py                  the fixture `simulator`

It knows nothing of the rest of the library but its values, and any client can talk to it, the official ones included.
"""

from .faults import (
    FAULTS,
    Crlf,
    Cut,
    Delay,
    Drip,
    Duplicated,
    Effect,
    ErrorEvent,
    Fault,
    Gzip,
    KeepAlive,
    Malformed,
    MissingEnd,
    NoResponse,
    Reordered,
    Silence,
    Stall,
    Status,
    UnknownEvent,
    UnknownFields,
    WrongLength,
)
from .reply import Chunking, Reply
from .request import DialectName, Request
from .script import Script, echo
from .server import Simulator

__all__ = [
    "FAULTS",
    "Chunking",
    "Crlf",
    "Cut",
    "Delay",
    "DialectName",
    "Drip",
    "Duplicated",
    "Effect",
    "ErrorEvent",
    "Fault",
    "Gzip",
    "KeepAlive",
    "Malformed",
    "MissingEnd",
    "NoResponse",
    "Reordered",
    "Reply",
    "Request",
    "Script",
    "Silence",
    "Simulator",
    "Stall",
    "Status",
    "UnknownEvent",
    "UnknownFields",
    "WrongLength",
    "echo",
]
