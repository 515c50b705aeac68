from .answerer import Script as Script, echo as echo
from .command import main as main
from .exchange import DialectName as DialectName, Reply as Reply, Request as Request
from .faults import (
    FAULTS as FAULTS,
    Cut as Cut,
    Drip as Drip,
    Duplicated as Duplicated,
    Effect as Effect,
    ErrorEvent as ErrorEvent,
    Fault as Fault,
    Form as Form,
    Malformed as Malformed,
    MissingEnd as MissingEnd,
    NoResponse as NoResponse,
    Reordered as Reordered,
    Stall as Stall,
    Status as Status,
    UnknownEvent as UnknownEvent,
    UnknownFields as UnknownFields,
    WrongLength as WrongLength,
)
from .server import Simulator as Simulator
