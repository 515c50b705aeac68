from .catalogue import Readable as Readable
from .catalogue import offers_of as offers_of
from .client import McpServers as McpServers
from .client import connect as connect
from .http import HttpDoor as HttpDoor
from .http import serve_http as serve_http
from .progress import report_progress as report_progress
from .remote_tools import ToolProblem as ToolProblem
from .server import McpServer as McpServer
from .server import current_request as current_request
from .settings import (
    ClientLimits as ClientLimits,
)
from .settings import (
    HttpServer as HttpServer,
)
from .settings import (
    LocalServer as LocalServer,
)
from .settings import (
    Pins as Pins,
)
from .settings import (
    ServerOptions as ServerOptions,
)
from .settings import (
    StdioServer as StdioServer,
)
from .settings import (
    ToolAbout as ToolAbout,
)
from .settings import (
    ToolChange as ToolChange,
)
from .stdio import aserve_stdio as aserve_stdio
from .stdio import serve_stdio as serve_stdio
