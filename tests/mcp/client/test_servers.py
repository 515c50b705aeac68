"""Our client with servers of the official SDK and with our own, over every way there is, in both colours."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from dragoman import Media, ToolCall, ToolExecutor, ToolRegistry, errors, execute_tool, tool
from dragoman._serving import WebServer
from dragoman.mcp import (
    HttpDoor,
    HttpServer,
    LocalServer,
    McpServer,
    McpServers,
    ServerOptions,
    StdioServer,
    connect,
)
from dragoman.mcp.calls import LISTENER
from dragoman.mcp.settings import AnyServer, identity_of
from dragoman.toolkit import PermissionChecker
from dragoman.tools import ToolRun
from tests.mcp.client.colours import HOSTILE, Call, Colour, free_port, hostile, running, until
from tests.mcp.client.official import PIXEL, official
from tests.processes import children, started

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = ServerOptions(prefix="", call_timeout=30.0)


@contextmanager
def local() -> Iterator[LocalServer]:
    yield LocalServer(official(), OPTIONS)


@contextmanager
def stdio() -> Iterator[StdioServer]:
    yield StdioServer(sys.executable, ["-m", "tests.mcp.client.official"], cwd=str(ROOT), options=OPTIONS)


@contextmanager
def http() -> Iterator[HttpServer]:
    with WebServer(official().streamable_http_app(), lifespan="on") as web:
        yield HttpServer(f"{web.url}/mcp", options=OPTIONS)


Way = Callable[[], AbstractContextManager[object]]


@pytest.fixture(params=[local, stdio, http], ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


def test_a_server_of_the_official_sdk_is_used(colour: Colour, way: Way) -> None:
    def body(servers: McpServers, call: Call) -> None:
        before = servers.tools.by_name
        assert {"add", "picture", "fail", "steps", "wait", "environment", "grow"} == set(before)
        assert before["add"].description == "Add two numbers."
        assert call("add", a=1, b=2).value == {"total": 3}
        assert call("add", a="x").error_type == "validation"  # found out here, before anything is sent
        (picture,) = call("picture").content
        assert isinstance(picture, Media)
        assert picture.data == PIXEL
        failed = call("fail")
        assert failed.error_type == "execution"
        assert "fail" in failed.text
        heard: list[float] = []
        token = LISTENER.set(lambda done, total, message: heard.append(done))
        try:
            assert call("steps").text == "done"
        finally:
            LISTENER.reset(token)
        if colour.__name__ == "plain":  # on the loop the body runs in a thread whose variables the call does not see
            until(lambda: heard == [1, 2, 3], "progress is heard")
        run = ToolRun()
        with ToolExecutor(servers.tools) as executor:
            timer = threading.Timer(0.3, run.cancel)
            timer.start()
            assert executor.execute(ToolCall("1", "wait", "{}"), run).error_type == "cancelled"
            timer.join()
        assert call("grow").text == "grown"
        if way is not local:  # within a process the SDK has no notices in this era
            until(lambda: "grown" in servers.tools, "the new tool is there")
            assert servers.tools.by_name["add"] is before["add"]  # what has not changed stays the same object
            assert call("grown").text == "new"

    with way() as server:
        colour(McpServers({"sdk": server}), body)


# --- our own server, through our own client ---


@tool
def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
def test_our_own_server_with_a_token(colour: Colour, protocol: str) -> None:
    token = "a-token-of-some-length"
    options = ServerOptions(prefix="", protocol=protocol)  # type: ignore[arg-type]
    registry = ToolRegistry([greet])

    def body(servers: McpServers, call: Call) -> None:
        assert call("greet", name="you").text == "hello you"
        registry.register(greet.renamed("greet_again"))
        until(lambda: "greet_again" in servers.tools, "the new tool is there")

    with McpServer(registry, watch_seconds=0.05) as server, HttpDoor(server, token=token) as door:
        colour(McpServers({"ours": HttpServer(door.url, {"Authorization": f"Bearer {token}"}, options)}), body)


def test_a_server_can_serve_the_tools_of_another(colour: Colour) -> None:
    def body(servers: McpServers, call: Call) -> None:
        with McpServer(servers.tools) as outer, HttpDoor(outer) as door, connect(door.url) as again:
            assert again.tools.get("add").function.about.output_schema is not None
            assert execute_tool(again.tools, "add", {"a": 1, "b": 2}) is not None
            with ToolExecutor(again.tools) as executor:
                assert executor.execute(ToolCall("1", "add", '{"a":1,"b":2}')).value == {"total": 3}
                assert executor.execute(ToolCall("1", "fail", "{}")).is_error

    colour(McpServers({"sdk": LocalServer(official(), OPTIONS)}), body)


def test_a_lost_session_is_reconnected(colour: Colour) -> None:
    """As after a restart behind the same address."""
    port = free_port()
    options = ServerOptions(prefix="", protocol="legacy", max_restarts=20)
    with McpServer([greet]) as server:
        first = HttpDoor(server, port=port)
        first.__enter__()

        def body(servers: McpServers, call: Call) -> None:
            assert not call("greet", name="you").is_error
            first.__exit__()
            with HttpDoor(server, port=port):
                until(lambda: not call("greet", name="you").is_error, "it is there again")
                assert servers.status["ours"].restarts >= 1

        colour(McpServers({"ours": HttpServer(first.url, options=options)}), body)


# --- several servers ---


def test_names_have_prefixes_and_filters(colour: Colour) -> None:
    servers = McpServers(
        {
            "one": LocalServer(official(), ServerOptions(include=("add", "p*"))),
            "two.x": LocalServer(official(), ServerOptions(exclude=("wait", "grow", "steps"))),
            "three": LocalServer(official(), ServerOptions(prefix="", include=("add",))),
        }
    )

    def body(servers: McpServers, call: Call) -> None:
        two = ["two_x_add", "two_x_picture", "two_x_fail", "two_x_environment"]
        assert list(servers.tools.by_name) == ["one_add", "one_picture", *two, "add"]
        assert list(servers["one"].by_name) == ["one_add", "one_picture"]
        assert servers.tools.get("one_add").spec.tags == ("mcp", "mcp:one")
        assert call("two_x_add", a=1, b=1).value == {"total": 2}
        assert len(servers) == 3
        assert list(servers) == ["one", "two.x", "three"]
        with pytest.raises(errors.ConfigurationError, match="'four'"):
            servers["four"]

    colour(servers, body)


def test_a_server_cannot_replace_a_tool_of_another(colour: Colour) -> None:
    first = LocalServer(McpServer([greet]), ServerOptions(prefix=""))
    second = LocalServer(McpServer([greet.renamed("greet")]), ServerOptions(prefix=""))

    def body(servers: McpServers, call: Call) -> None:
        assert len(servers.tools) == 1
        assert servers.tools.get("greet").spec.tags == ("mcp", "mcp:first")
        (problem,) = servers.problems
        assert (problem.server, problem.tool) == ("second", "greet")
        assert isinstance(problem.error, errors.ToolConflictError)

    colour(McpServers({"first": first, "second": second}), body)


@pytest.mark.parametrize(("one", "other"), [(("a", "b_c"), ("a_b", "c")), (("a.b", "c"), ("a b", "c"))])
def test_what_a_person_allowed_holds_for_that_server_alone(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Their tools have the same joined name, description and parameters."""
    tools = []
    for server, name in (one, other):
        with McpServers({server: LocalServer(McpServer([greet.renamed(name)]))}) as servers:
            tools += list(servers.tools)
    assert tools[0].spec.parameters == tools[1].spec.parameters
    name = tools[0].name
    assert name == tools[1].name
    asked = ToolCall("1", name, '{"name": "x"}')
    for chosen in (0, -1):
        checker = PermissionChecker()
        checker.remember(checker.suggest(asked, tools[0])[chosen])
        assert checker.judge(asked, tools[0]).action == "allow"
        assert checker.judge(asked, tools[1]).action == "ask"


SAME: list[AnyServer] = [
    StdioServer("/bin/one"),
    StdioServer("/bin/one", ["-x"]),
    StdioServer("/bin/one", cwd="/tmp"),
    HttpServer("https://one.dev/mcp"),
    HttpServer("https://two.dev/mcp"),
    LocalServer(None),
]


def test_a_server_is_known_by_its_name_and_where_it_is() -> None:
    assert len({identity_of(name, server) for name in ("a", "b") for server in SAME}) == 2 * len(SAME)
    secret = StdioServer("/bin/one", env={"KEY": "s3cret"}, options=ServerOptions(call_timeout=1))
    assert identity_of("a", secret) == identity_of("a", SAME[0])


def test_a_name_stays_with_the_server_that_had_it(colour: Colour, tmp_path: Path) -> None:
    """A rule may name it, so another server's tool does not take the place of one that is gone."""
    second = LocalServer(McpServer([greet.renamed("c")]))
    command = ["-S", str(HOSTILE), "remove", str(tmp_path / "state")]

    def body(servers: McpServers, call: Call) -> None:
        assert servers.tools.get("a_b_c").spec.tags == ("mcp", "mcp:a")
        assert call("a_flip").text == "flipped"
        until(lambda: list(servers["a"].by_name) == ["a_flip"], "the tool is gone")
        assert list(servers.tools.by_name) == ["a_flip"]
        (problem,) = servers.problems
        assert (problem.server, problem.tool) == ("a_b", "a_b_c")

    colour(McpServers({"a": StdioServer(sys.executable, command), "a_b": second}), body)


def test_a_failed_server_raises_unless_optional(colour: Colour) -> None:
    entries = {"good": LocalServer(official(), OPTIONS), "bad": StdioServer("/no/such/program")}
    with pytest.raises(errors.McpConnectionError, match="'/no/such/program' cannot be started") as caught:
        colour(McpServers(entries), lambda *_: None)
    assert caught.value.server == "bad"

    def body(servers: McpServers, call: Call) -> None:
        assert call("add", a=1, b=1).value == {"total": 2}
        assert servers.status["good"].state == "ready"
        assert servers.status["bad"].state == "failed"

    colour(McpServers(entries, optional=True), body)


def test_the_shared_json_format(colour: Colour, tmp_path: Path) -> None:
    document = {
        "mcpServers": {
            "mine": {
                "command": "${PYTHON}",
                "args": ["-S", str(HOSTILE), "environment"],
                "env": {"NAMED": "${SECRET}"},
                "dragoman": {"prefix": "my_"},
            },
            "off": {"command": "/no/such/program", "disabled": True},
        }
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(document))
    environ = {"PYTHON": sys.executable, "SECRET": "s3cret", "API_KEY": "hidden", "HOME": "/home/me", "PATH": "/bin"}
    environ |= {"SHELL": "() { :; }; echo bad", "LD_PRELOAD": "evil.so"}

    def body(servers: McpServers, call: Call) -> None:
        seen = json.loads(call("my_ok").text)
        assert seen.items() >= {"NAMED": "s3cret", "HOME": "/home/me", "PATH": "/bin"}.items()
        assert not {"API_KEY", "SECRET", "PYTHON", "SHELL", "LD_PRELOAD"} & set(seen)

    colour(McpServers.from_json(file, environ=environ), body)
    with pytest.raises(errors.ConfigurationError, match="cannot be read"):
        McpServers.from_json(tmp_path / "none.json")


# --- answers over HTTP that are too large, or not what they say ---


def answering(body: bytes, kind: str = "application/json", **headers: str) -> Callable[..., Awaitable[None]]:
    async def app(_scope: object, _receive: object, send: Callable[..., object]) -> None:
        sent = [(b"content-type", kind.encode()), *[(k.encode(), v.encode()) for k, v in headers.items()]]
        await send({"type": "http.response.start", "status": 200, "headers": sent})  # type: ignore[misc]
        for _ in range(50):
            await send({"type": "http.response.body", "body": body, "more_body": True})  # type: ignore[misc]
        await send({"type": "http.response.body", "body": b""})  # type: ignore[misc]

    return app


@pytest.mark.parametrize(
    "app",
    [
        answering(b"x" * 100_000),
        answering(b"data: " + b"x" * 100_000, "text/event-stream"),
        answering(b"<html>", "text/html"),
        answering(b"\x1f\x8b", **{"content-encoding": "gzip"}),
        answering(b"", "application/json"),
        answering(b"[[[["),
    ],
    ids=["large", "large-event", "html", "compressed", "empty", "no-json"],
)
def test_unusable_http_responses_are_errors(colour: Colour, app: Callable[..., Awaitable[None]]) -> None:
    options = ServerOptions(connect_timeout=20.0, max_message_bytes=1_000_000)
    with WebServer(app) as web, pytest.raises(errors.McpError):
        colour(McpServers({"odd": HttpServer(f"{web.url}/mcp", options=options)}), lambda *_: None)


@pytest.mark.parametrize(("listens", "what"), [(False, "cannot be used"), (True, "within 0.5 seconds")])
def test_a_url_without_a_server_or_an_answer_is_an_error(colour: Colour, listens: bool, what: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp?key=s3cret"
        server = HttpServer(url, options=ServerOptions(connect_timeout=0.5 if listens else 30))
        with pytest.raises(errors.McpConnectionError, match=what) as caught:
            colour(McpServers({"odd": server}), lambda *_: None)
        assert "s3cret" not in str(caught.value)


# --- opening and closing ---


def test_outside_of_the_block_there_is_no_empty_set_of_tools() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    server = LocalServer(McpServer([add]))
    servers = McpServers({"one": server})
    with pytest.raises(errors.ConfigurationError, match="not open") as caught:
        _ = servers.tools
    assert "with McpServers(...) as servers:" in caught.value.hint
    with servers:
        assert len(servers.tools) == 1
    with pytest.raises(errors.ConfigurationError, match="not open"):
        _ = servers.tools

    async def main() -> None:
        later = McpServers({"one": server})
        with pytest.raises(errors.ConfigurationError, match="not open"):
            _ = later.tools
        async with later:
            assert len(later.tools) == 1
        with pytest.raises(errors.ConfigurationError, match="not open"):
            _ = later.tools

    asyncio.run(main())


def test_closing_ends_running_calls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    servers = hostile("hang-call", tmp_path / "state")
    results: list[str] = []
    with servers, ToolExecutor(servers.tools) as executor:
        kept = servers.tools.get("ok")
        thread = threading.Thread(target=lambda: results.append(executor.execute(ToolCall("1", "ok", "{}")).text))
        thread.start()
        until((tmp_path / "state").exists, "the call is under way")
        servers.close()
        thread.join(30)
    assert len(results) == 1
    servers.close()
    assert servers.status["bad"].state == "closed"
    with ToolExecutor([kept]) as executor:
        for _ in range(2):
            assert "closed" in executor.execute(ToolCall("1", "ok", "{}")).text
    assert caplog.text.count("A tool was called after its MCP servers were closed. Keep them open") == 1
    with pytest.raises(errors.ConfigurationError, match="before"):
        servers.__enter__()


def test_a_cancelled_task_closes_what_it_opened() -> None:
    async def main() -> None:
        before = children()

        async def work() -> None:
            async with hostile("ok"):
                begun.set()
                await asyncio.sleep(3600)

        begun = asyncio.Event()
        task = asyncio.create_task(work())
        await begun.wait()
        assert children() > before
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert children() <= before
        opening = asyncio.create_task(hostile("hang-start").__aenter__())
        await asyncio.sleep(0.2)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert children() <= before

    asyncio.run(main())


def test_dropped_servers_are_killed() -> None:
    servers = hostile("ok", "forgotten-marker")
    servers.__enter__()
    assert running("forgotten-marker")
    del servers
    gc.collect()
    until(lambda: not running("forgotten-marker"), "it was killed", 10)


SCRIPT = """
import sys, time
from tests.mcp.client.colours import hostile
servers = hostile(sys.argv[1], sys.argv[2])
mode = sys.argv[3]
if mode == "with":
    with servers:
        print("ready", flush=True)
        time.sleep(3600)
else:
    servers.__enter__()
    print("ready", flush=True)
    if mode == "exit":
        sys.exit(0)
"""


@pytest.mark.parametrize(("misbehaviour", "mode"), [("ok", "with"), ("stubborn", "exit"), ("hang-start", "with")])
def test_nothing_outlives_the_program(tmp_path: Path, misbehaviour: str, mode: str) -> None:
    marker = f"marker-{misbehaviour}-{tmp_path.name}"
    command = [sys.executable, "-c", SCRIPT, misbehaviour, marker, mode]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started(command, cwd=ROOT, **pipes) as process:
        assert process.stdout is not None
        if misbehaviour == "hang-start":
            until(lambda: len(running(marker)) == 2, "the server was started", 60)
        else:
            assert process.stdout.readline() == "ready\n"
        if mode == "with":
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    if mode == "with":
        assert "KeyboardInterrupt" in err
    until(lambda: not running(marker), "nothing is left", 10)


def test_the_sync_form_works_within_a_running_loop() -> None:
    async def main() -> str:
        with hostile("ok") as servers:  # as in a notebook
            return execute_tool(servers.tools, "ok", {"text": "x"})

    assert asyncio.run(main()) == 'ok {"text": "x"}'


def test_secrets_are_removed_from_the_last_output(colour: Colour) -> None:
    code = "import os, sys; print('my key is', os.environ['KEY'], file=sys.stderr); sys.exit(1)"
    server = StdioServer(sys.executable, ["-c", code], env={"KEY": "s3cret-value"})
    with pytest.raises(errors.McpConnectionError, match="my key is …") as caught:
        colour(McpServers({"bad": server}), lambda *_: None)
    assert "s3cret" not in str(caught.value)
