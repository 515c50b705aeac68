"""The memory that a client takes for a server: `python -m tests.mcp.client.measured URL-or-stdio CASES`.

Each case is tried in a process of its own, forked once everything is imported. Prints its peak, in bytes.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from pathlib import Path

from dragoman import ToolCall, ToolExecutor
from dragoman.errors import DragomanError
from dragoman.mcp import HttpServer, McpServers, ServerOptions, StdioServer, oauth
from tests.mcp import flood


def run(base: str, where: str, body: str) -> None:
    protocol = "auto" if where == "discover" else "legacy"
    options = ServerOptions(
        max_message_bytes=flood.MOST,
        call_timeout=5.0,  # a stream that breaks off is opened again and again
        max_restarts=0,
        protocol=protocol,
        prefix="",
    )
    if base == "stdio":
        command = ["-S", str(Path(flood.__file__)), "stdio", where, body]
        server: StdioServer | HttpServer = StdioServer(sys.executable, command, options=options)
    else:
        url = f"{base}/{where}/{body}/mcp"
        server = HttpServer(url, options=options, auth=_sign_in(url, where))
    try:
        with (
            McpServers({"it": server}, elicit=lambda _: {"name": "x"}) as servers,
            ToolExecutor(servers.tools) as executor,
        ):
            executor.execute(ToolCall("1", "echo", "{}"))
    except DragomanError:
        pass  # it could not be connected


def _sign_in(url: str, where: str) -> object:
    if where not in flood.SIGN_IN:
        return None
    return oauth(url, Path(tempfile.mkdtemp()) / "tokens.json", show=_agree, port=0)


def _agree(page: str) -> None:
    """What a browser does after its user has agreed."""
    from urllib.parse import parse_qs, urlsplit
    from urllib.request import urlopen

    given = parse_qs(urlsplit(page).query)
    with urlopen(f"{given['redirect_uri'][0]}?code=c&state={given['state'][0]}") as answer:
        answer.read()


def peak(base: str, where: str, body: str) -> int:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            run(base, where, body)
            status = Path("/proc/self/status").read_text()
            found = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
            os.write(writing, str(found * 1024).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        found = answer.read()
    os.waitpid(child, 0)
    return int(found)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for where in ("nothing", "challenge"):  # so that everything is loaded
        run(sys.argv[1], where, "-")
    for where, body in json.loads(sys.argv[2]):
        sys.stdout.write(json.dumps([where, body, peak(sys.argv[1], where, body)]) + "\n")
        sys.stdout.flush()
