"""What only shows in a process of its own: Ctrl-C, forks, the end of the interpreter, what an import loads."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest

from dragoman.errors import ConfigurationError
from dragoman.transport import AsyncioTransport, HttpRequest
from tests.processes import started
from tests.transport.server import WAIT, Exchange, Script, Server, half, silent

IMPORTS = """
import asyncio, os, sys
from dragoman._stepping import step
from dragoman.transport.protocol import HttpRequest
from dragoman.transport.{module} import {name} as Transport
url = sys.argv[1]
"""


async def ok(exchange: Exchange) -> None:
    await exchange.reply(b"ok")


def start(module: str, name: str, code: str, url: str) -> AbstractContextManager[subprocess.Popen[str]]:
    source = IMPORTS.format(module=module, name=name) + code
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return started([sys.executable, "-c", source, url], **pipes)


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=3 * WAIT)
    return process.returncode, out.strip(), err


PLAIN = ("socket_transport", "SocketTransport")


READER = """
async def main():
    async with Transport() as transport:
        response = await transport.open(HttpRequest(url=url))
        while await response.next():
            print("piece", flush=True)
try:
    step(main()) if Transport.blocking else asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("script", [silent, half])
@pytest.mark.parametrize("transport", [PLAIN, ("asyncio_transport", "AsyncioTransport")], ids=["plain", "async"])
def test_a_call_ends_when_the_user_presses_ctrl_c(transport: tuple[str, str], script: Script) -> None:
    """Before the head and in the middle of a stream, however long the server would have kept silent."""
    with Server({"*": script}) as server, start(*transport, READER, server.url) as process:
        server.wait_for_requests(1)
        if script is half:
            assert process.stdout is not None
            assert process.stdout.readline() == "piece\n"
        process.send_signal(signal.SIGINT)
        assert end(process) == (0, "interrupted", "")
        server.wait_for_open(0)


FORKING = """
import warnings
warnings.simplefilter("ignore")
transport = Transport()
read = lambda: step(step(transport.open(HttpRequest(url=url))).read()).decode()
print(read(), flush=True)
child = os.fork()
if not child:
    try:
        print("child", read(), flush=True)
    except Exception as error:
        print("child", type(error).__name__, error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(read())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_child_of_a_fork_gets_connections_of_its_own() -> None:
    with Server({"*": ok}) as server, start(*PLAIN, FORKING, server.url) as process:
        code, out, err = end(process)
        assert (code, out.split("\n"), err) == (0, ["ok", "child ok", "ok"], "")
        assert server.connections == 2


def test_a_new_event_loop_closes_what_the_one_before_left_open() -> None:
    """At once, not when somebody collects it."""
    transport = AsyncioTransport()

    async def use(url: str) -> bytes:
        return await (await transport.open(HttpRequest(url=url))).read()

    with Server({"*": ok}) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.disable()
        try:
            for _ in range(5):
                assert asyncio.run(use(server.url)) == b"ok"
            server.wait_for_open(1)
            with ThreadPoolExecutor(1) as thread:  # a loop that ran elsewhere
                assert thread.submit(asyncio.run, use(server.url)).result() == b"ok"
            assert asyncio.run(use(server.url)) == b"ok"
            server.wait_for_open(1)
            asyncio.run(transport.aclose())
            server.wait_for_open(0)
        finally:
            gc.enable()


def test_without_asyncio_the_async_transport_raises() -> None:
    """As under trio."""
    opening = AsyncioTransport().open(HttpRequest(url="http://127.0.0.1:9/"))
    with pytest.raises(ConfigurationError, match="no running asyncio event loop") as caught:
        opening.send(None)
    assert "trio" in caught.value.hint


def test_the_pytest_plugin_costs_nothing_until_it_is_used() -> None:
    def loaded(statement: str) -> set[str]:
        code = f"import sys\n{statement}\nprint(*sys.modules, sep='\\n')"
        done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    new = loaded("import pytest, dragoman.transport.pytest_plugin") - loaded("import pytest")
    assert {name for name in new if not name.startswith("dragoman") or "tape" in name or "protocol" in name} == set()
