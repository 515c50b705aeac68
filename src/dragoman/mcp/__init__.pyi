from .authorization import TokenFile as TokenFile, oauth as oauth
from .calls import (
    ask_client as ask_client,
    ask_user as ask_user,
    current_request as current_request,
    report_progress as report_progress,
)
from .catalogue import Offer as Offer, offers_of as offers_of
from .client import McpServers as McpServers, connect as connect
from .doors import (
    HttpDoor as HttpDoor,
    aserve_stdio as aserve_stdio,
    serve_http as serve_http,
    serve_stdio as serve_stdio,
)
from .remote_tools import ToolProblem as ToolProblem
from .server import McpServer as McpServer
from .settings import (
    HttpServer as HttpServer,
    LocalServer as LocalServer,
    Question as Question,
    ServerOptions as ServerOptions,
    StdioServer as StdioServer,
    ToolAbout as ToolAbout,
)
