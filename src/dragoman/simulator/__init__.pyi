from .command import main as main
from .exchange import Chunking as Chunking
from .exchange import DialectName as DialectName
from .exchange import Reply as Reply
from .exchange import Request as Request
from .faults import (
    FAULTS as FAULTS,
)
from .faults import (
    Crlf as Crlf,
)
from .faults import (
    Cut as Cut,
)
from .faults import (
    Delay as Delay,
)
from .faults import (
    Drip as Drip,
)
from .faults import (
    Duplicated as Duplicated,
)
from .faults import (
    Effect as Effect,
)
from .faults import (
    ErrorEvent as ErrorEvent,
)
from .faults import (
    Fault as Fault,
)
from .faults import (
    Gzip as Gzip,
)
from .faults import (
    KeepAlive as KeepAlive,
)
from .faults import (
    Malformed as Malformed,
)
from .faults import (
    MissingEnd as MissingEnd,
)
from .faults import (
    NoResponse as NoResponse,
)
from .faults import (
    Reordered as Reordered,
)
from .faults import (
    Silence as Silence,
)
from .faults import (
    Stall as Stall,
)
from .faults import (
    Status as Status,
)
from .faults import (
    UnknownEvent as UnknownEvent,
)
from .faults import (
    UnknownFields as UnknownFields,
)
from .faults import (
    WrongLength as WrongLength,
)
from .script import Script as Script
from .script import echo as echo
from .server import Simulator as Simulator
