"""Programs of their own that are traced: `python -m tests.otel.programs NAME FILE …` writes their spans to the file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from opentelemetry.trace import set_tracer_provider

from dragoman import FileStore, ScriptedEngine, ToolExecutor, approve, tool
from dragoman.conversation import ToolCall
from dragoman.engines import AsyncScriptedEngine
from dragoman.mcp import McpServers, ServerOptions, StdioServer, serve_stdio
from dragoman.stores import AsyncStore
from tests.chat.talking import WAYS
from tests.otel.recording import recording


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def store_in(way: str, directory: Path) -> FileStore | AsyncStore:
    """A store for a client of this colour."""
    return AsyncStore(FileStore(directory)) if way.startswith("async") else FileStore(directory)


def go_on(way: str, directory: str, id: str) -> None:
    """Approve what a conversation waits for, and go on with it."""
    kind, streamed = WAYS[way]
    engine = (AsyncScriptedEngine if way.startswith("async") else ScriptedEngine)(["It is gone."])
    talk = kind(engine, [delete], streamed=streamed, store=store_in(way, Path(directory)))
    talk.do("restore", id)
    assert talk.chat(None, *[approve(each.call) for each in talk.client.pending]).text == "It is gone."
    talk.close()


@tool
def shout(text: str) -> str:
    """Say it aloud."""
    return text.upper()


def serve() -> None:
    """Serve a tool over standard input and output."""
    serve_stdio([shout])


def use_server(way: str, file: str) -> None:
    """Call the tool of a server that is another process."""
    words = ["-m", "tests.otel.programs", "serve", file]
    servers = McpServers({"loud": StdioServer(sys.executable, words, options=ServerOptions(prefix=""))})
    call = ToolCall("call_1", "shout", '{"text": "hello"}')
    if way == "plain":
        with servers, ToolExecutor(servers.tools) as executor:
            assert executor.execute(call).text == "HELLO"
        return

    async def main() -> None:
        async with servers, ToolExecutor(servers.tools) as executor:
            assert (await executor.aexecute(call)).text == "HELLO"

    asyncio.run(main())


def main(name: str, file: str, *arguments: str) -> None:
    with recording() as recorder:
        set_tracer_provider(recorder.tracers)  # the MCP SDK tells its spans to the one of the whole program
        try:
            {"go_on": go_on, "serve": serve, "use_server": use_server}[name](*arguments)
        finally:
            recorder.write(Path(file))


if __name__ == "__main__":
    main(*sys.argv[1:])
