from .addresses import (
    host_of as host_of,
    is_loopback as is_loopback,
    join as join,
    origin_of as origin_of,
    port_of as port_of,
    validate_base_url as validate_base_url,
)
from .asyncio_transport import AsyncioTransport as AsyncioTransport
from .errors import MalformedReplyError as MalformedReplyError
from .http1 import ReplyReader as ReplyReader, request_head as request_head, unpacker as unpacker
from .protocol import (
    MAX_BODY_BYTES as MAX_BODY_BYTES,
    USER_AGENT as USER_AGENT,
    HttpRequest as HttpRequest,
    PoolLimits as PoolLimits,
    Response as Response,
    Timeouts as Timeouts,
    Transport as Transport,
    form_with_file as form_with_file,
    keys_in as keys_in,
)
from .public import is_public as is_public, reached_address as reached_address
from .retry import (
    AttemptRecord as AttemptRecord,
    GiveUp as GiveUp,
    RateLimits as RateLimits,
    RetryPolicy as RetryPolicy,
    decide as decide,
    rate_limits_of as rate_limits_of,
    retry_after_of as retry_after_of,
)
from .routes import Routes as Routes
from .socket_transport import (
    SocketTransport as SocketTransport,
    SocketWire as SocketWire,
    connect as connect,
    find_addresses as find_addresses,
)
from .tape import Tape as Tape
