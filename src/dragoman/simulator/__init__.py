"""A local server that speaks the dialects of all providers, for tests without a key and without the network.

It knows nothing of the rest of the library but its values, and any client can talk to it, the official ones included.
"""

from .exchange import Chunking, DialectName, Reply, Request
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
