from .catalogue import Readable as Readable, offers_of as offers_of
from .client import McpServers as McpServers, connect as connect
from .http import HttpDoor as HttpDoor, serve_http as serve_http
from .progress import report_progress as report_progress
from .remote_tools import ToolProblem as ToolProblem
from .server import McpServer as McpServer, current_request as current_request
from .settings import (
    ClientLimits as ClientLimits,
    HttpServer as HttpServer,
    LocalServer as LocalServer,
    Pins as Pins,
    ServerOptions as ServerOptions,
    StdioServer as StdioServer,
    ToolAbout as ToolAbout,
    ToolChange as ToolChange,
)
from .stdio import aserve_stdio as aserve_stdio, serve_stdio as serve_stdio
