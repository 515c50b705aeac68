"""What can go wrong between a provider and its client, as values.

fault.py      what a fault is
refusals.py   faults that stand in the place of a reply
delivery.py   faults of the way that a good reply takes
events.py     faults in what a reply says
table.py      FAULTS, every fault under a name

Faults combine: Reply("Hello", faults=[Delay(0.1), UnknownFields(), Cut(after=200)]). Those that change events do so in
the given order.
"""

from .delivery import Cut, Delay, Drip, Gzip, Stall, WrongLength
from .events import (
    Crlf,
    Duplicated,
    ErrorEvent,
    KeepAlive,
    Malformed,
    MissingEnd,
    Reordered,
    UnknownEvent,
    UnknownFields,
)
from .fault import Effect, Fault
from .refusals import NoResponse, Silence, Status
from .table import FAULTS, AnyFault

__all__ = [
    "FAULTS",
    "AnyFault",
    "Crlf",
    "Cut",
    "Delay",
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
    "Silence",
    "Stall",
    "Status",
    "UnknownEvent",
    "UnknownFields",
    "WrongLength",
]
