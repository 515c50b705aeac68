from .addresses import (
    host_of as host_of,
)
from .addresses import (
    is_loopback as is_loopback,
)
from .addresses import (
    join as join,
)
from .addresses import (
    port_of as port_of,
)
from .addresses import (
    validate_base_url as validate_base_url,
)
from .asyncio_transport import AsyncioTransport as AsyncioTransport
from .errors import MalformedReplyError as MalformedReplyError
from .http1 import ReplyReader as ReplyReader
from .http1 import Unpacker as Unpacker
from .http1 import request_head as request_head
from .http1 import unpacker as unpacker
from .protocol import (
    MAX_BODY_BYTES as MAX_BODY_BYTES,
)
from .protocol import (
    USER_AGENT as USER_AGENT,
)
from .protocol import (
    HttpRequest as HttpRequest,
)
from .protocol import (
    PoolLimits as PoolLimits,
)
from .protocol import (
    Response as Response,
)
from .protocol import (
    Timeouts as Timeouts,
)
from .protocol import (
    Transport as Transport,
)
from .protocol import (
    keys_in as keys_in,
)
from .retry import (
    Attempt as Attempt,
)
from .retry import (
    AttemptRecord as AttemptRecord,
)
from .retry import (
    GiveUp as GiveUp,
)
from .retry import (
    RateLimits as RateLimits,
)
from .retry import (
    RetryPolicy as RetryPolicy,
)
from .retry import (
    decide as decide,
)
from .retry import (
    rate_limits_of as rate_limits_of,
)
from .retry import (
    request_id_of as request_id_of,
)
from .retry import (
    retry_after_of as retry_after_of,
)
from .routes import Routes as Routes
from .socket_transport import SocketTransport as SocketTransport
from .tape import Tape as Tape
