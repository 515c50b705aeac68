"""The spans of whole turns, in both colours: names, kinds, parents, attributes, events and links."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from opentelemetry.trace import get_tracer

from dragoman import agent_tool, tool
from dragoman.conversation import Message, ToolCall
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.simulator import Reply, Simulator, Status
from dragoman.transport import RetryPolicy
from tests.chat.talking import ROOT, WAYS
from tests.otel.programs import delete, store_in
from tests.otel.recording import read, recording, tree


def expected(text: str, *, streamed: bool = False) -> str:
    """The expected tree. Text between two `~` is only there for streamed replies."""
    return re.sub(r"~(.*?)~", r"\1" if streamed else "", dedent(text).strip(), flags=re.DOTALL)


def run_program(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "tests.otel.programs", *map(str, words)], cwd=ROOT, check=True, timeout=120)


TWO_TOOLS = """
    invoke_agent (internal)
      dragoman.run: ending=done, steps=2
      gen_ai.conversation: id=…
      gen_ai.operation: name=invoke_agent
      gen_ai.provider: name=openai
      gen_ai.request: model=gpt-4o
      gen_ai.usage: cache_read.input_tokens=0, input_tokens=…, output_tokens=…, reasoning.output_tokens=0
        dragoman.save (internal)
          gen_ai.conversation: id=…
        chat gpt-4o (client)
          gen_ai.conversation: id=…
          gen_ai.operation: name=chat
          gen_ai.provider: name=openai
          gen_ai.request: model=gpt-4o~, stream=True~
          gen_ai.response: finish_reasons=tool_call, id=…, model=gpt-4o~, time_to_first_chunk=…~
          gen_ai.usage: cache_read.input_tokens=0, input_tokens=…, output_tokens=…, reasoning.output_tokens=0
          operation: cost=…
          server: address=127.0.0.1, port=…
          * dragoman.attempt: duration=…, number=1, outcome=ok, request_id=…, waited=…, status_code=200
        execute_tool weather (internal)
          gen_ai.conversation: id=…
          gen_ai.operation: name=execute_tool
          gen_ai.tool: call.id=call_Lyon, description=The weather., name=weather, type=function
            look up Lyon (internal)
        execute_tool weather (internal)
          gen_ai.conversation: id=…
          gen_ai.operation: name=execute_tool
          gen_ai.tool: call.id=call_Oslo, description=The weather., name=weather, type=function
            look up Oslo (internal)
        chat gpt-4o (client)
          gen_ai.conversation: id=…
          gen_ai.operation: name=chat
          gen_ai.provider: name=openai
          gen_ai.request: model=gpt-4o~, stream=True~
          gen_ai.response: finish_reasons=stop, id=…, model=gpt-4o~, time_to_first_chunk=…~
          gen_ai.usage: cache_read.input_tokens=0, input_tokens=…, output_tokens=…, reasoning.output_tokens=0
          operation: cost=…
          server: address=127.0.0.1, port=…
          * dragoman.attempt: duration=…, number=1, outcome=status 429, request_id=…, waited=…, status_code=429
          * dragoman.attempt: duration=…, number=2, outcome=ok, request_id=…, waited=…, status_code=200
        dragoman.save (internal)
          gen_ai.conversation: id=…
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_async", [False, True], ids=["plain tool", "async tool"])
def test_parallel_tools_and_a_retry(way: str, is_async: bool, tmp_path: Path) -> None:
    """What a tool traces itself is a child of its call, in whatever thread or task it runs."""
    kind, streamed = WAYS[way]
    calls = [ToolCall(f"call_{city}", "weather", f'{{"city": "{city}"}}') for city in ("Lyon", "Oslo")]
    with recording() as recorder, Simulator([Reply(*calls), Status(429), Reply("Sunny.")]) as simulator:
        tracer = get_tracer("the program", tracer_provider=recorder.tracers)

        def look_up(city: str) -> str:
            """The weather."""
            with tracer.start_as_current_span(f"look up {city}"):
                return "Sunny."

        async def alook_up(city: str) -> str:
            """The weather."""
            return look_up(city)

        options: dict[str, Any] = {
            "base_url": simulator.base_url("openai"),
            "key": "test-key",
            "retry": RetryPolicy(first_wait=0.01),
            "store": store_in(way, tmp_path),
        }
        tools = [tool(alook_up if is_async else look_up, name="weather")]
        talk = kind("openai:gpt-4o", tools, streamed=streamed, **options)
        talk.chat("The weather in Lyon and Oslo?")
        talk.close()
    assert recorder.tree == expected(TWO_TOOLS, streamed=streamed)
    assert {span.trace for span in recorder.spans} == {recorder.spans[0].trace}


PAUSE = """
    invoke_agent (internal)
      dragoman.run: ending=await_approval, steps=1
      gen_ai.conversation: id=…
      gen_ai.operation: name=invoke_agent
      gen_ai.provider: name=scripted
      gen_ai.request: model=model
        dragoman.save (internal)
          gen_ai.conversation: id=…
        chat model (client)
          gen_ai.conversation: id=…
          gen_ai.operation: name=chat
          gen_ai.provider: name=scripted
          gen_ai.request: model=model~, stream=True~
          gen_ai.response: finish_reasons=tool_call, model=model~, time_to_first_chunk=…~
        dragoman.save (internal)
          gen_ai.conversation: id=…
    invoke_agent (internal) → invoke_agent
      dragoman.run: ending=done, steps=1
      gen_ai.conversation: id=…
      gen_ai.operation: name=invoke_agent
      gen_ai.provider: name=scripted
      gen_ai.request: model=model
        execute_tool delete (internal)
          gen_ai.conversation: id=…
          gen_ai.operation: name=execute_tool
          gen_ai.tool: call.id=call_1, description=Delete a file., name=delete, type=function
        chat model (client)
          gen_ai.conversation: id=…
          gen_ai.operation: name=chat
          gen_ai.provider: name=scripted
          gen_ai.request: model=model~, stream=True~
          gen_ai.response: finish_reasons=stop, model=model~, time_to_first_chunk=…~
        dragoman.save (internal)
          gen_ai.conversation: id=…
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain-whole", "async-stream"])
def test_turn_continued_in_another_process_is_linked(way: str, tmp_path: Path) -> None:
    kind, streamed = WAYS[way]
    asked = Message.assistant(ToolCall("call_1", "delete", '{"path": "a"}'))
    model = (AsyncScriptedEngine if way.startswith("async") else ScriptedEngine)([asked])
    with recording() as recorder:
        talk = kind(model, [delete], streamed=streamed, store=store_in(way, tmp_path / "store"))
        assert talk.chat("Delete a.").pending
        talk.close()
    run_program("go_on", tmp_path / "spans", way, tmp_path / "store", talk.client.id)
    first, second = recorder.spans, read(tmp_path / "spans")
    assert tree([*first, *second]) == expected(PAUSE, streamed=streamed)
    assert len({span.trace for span in [*first, *second]}) == 2
    assert {span.attributes.get("gen_ai.conversation.id") for span in [*first, *second]} == {talk.client.id}


MCP_CALL = """
    execute_tool shout (internal)
      gen_ai.operation: name=execute_tool
      gen_ai.tool: call.id=call_1, description=Say it aloud., name=shout, type=function
        MCP send tools/call shout (client)
          jsonrpc.request: id=…
          mcp.method: name=tools/call
            tools/call shout (server)
              gen_ai.operation: name=execute_tool
              gen_ai.tool: name=shout
              jsonrpc.request: id=…
              mcp.method: name=tools/call
              mcp.protocol: version=2026-07-28
                execute_tool shout (internal)
                  gen_ai.operation: name=execute_tool
                  gen_ai.tool: call.id=…, description=Say it aloud., name=shout, type=function
"""


@pytest.mark.slow
@pytest.mark.parametrize("colour", ["plain", "async"])
def test_mcp_tool_call_is_one_trace_over_both_processes(colour: str, tmp_path: Path) -> None:
    """The spans in the middle are those of the official SDK, which also carries the context over."""
    run_program("use_server", tmp_path / "client", colour, tmp_path / "server")
    spans = [*read(tmp_path / "client"), *read(tmp_path / "server")]
    (trace,) = {span.trace for span in spans if span.name.startswith("execute_tool")}
    told = tree([span for span in spans if span.trace == trace])
    assert told == expected(MCP_CALL)


FALLBACK = """
    invoke_agent (internal)
      dragoman.run: ending=done, steps=1
      gen_ai.operation: name=invoke_agent
      gen_ai.provider: name=openai
      gen_ai.request: model=gpt-4o
      gen_ai.usage: cache_read.input_tokens=0, input_tokens=…, output_tokens=…, reasoning.output_tokens=0
        chat gpt-4o (client) failed
          error: type=OverloadedError
          gen_ai.operation: name=chat
          gen_ai.provider: name=openai
          gen_ai.request: model=gpt-4o~, stream=True~~
          gen_ai.response: time_to_first_chunk=…~
          server: address=127.0.0.1, port=…
          * dragoman.attempt: duration=…, number=1, outcome=status 503, request_id=…, waited=…, status_code=503
          * dragoman.attempt: duration=…, number=2, outcome=2 of 2, request_id=…, waited=…, status_code=503
        chat gpt-4o-mini (client)
          gen_ai.operation: name=chat
          gen_ai.provider: name=openai
          gen_ai.request: model=gpt-4o-mini~, stream=True~
          gen_ai.response: finish_reasons=stop, id=…, model=gpt-4o-mini~, time_to_first_chunk=…~
          gen_ai.usage: cache_read.input_tokens=0, input_tokens=…, output_tokens=…, reasoning.output_tokens=0
          operation: cost=…
          server: address=127.0.0.1, port=…
          * dragoman.attempt: duration=…, number=1, outcome=ok, request_id=…, waited=…, status_code=200
"""


@pytest.mark.parametrize("way", WAYS)
def test_each_model_of_a_chain_has_its_own_span(way: str) -> None:
    kind, streamed = WAYS[way]
    given: dict[str, Any] = {"key": "test-key", "retry": RetryPolicy(max_attempts=2, first_wait=0.01)}
    with recording() as recorder, Simulator([Status(503), Status(503), Reply("Hello.")]) as simulator:
        models = ["openai:gpt-4o", "openai:gpt-4o-mini"]
        talk = kind(models, (), streamed=streamed, base_url=simulator.base_url("openai"), **given)
        assert talk.chat("Hello").text == "Hello."
        talk.close()
    told = recorder.tree.replace("status 503; 2 of 2 attempts made", "2 of 2")
    assert told == expected(FALLBACK, streamed=streamed)


@pytest.mark.parametrize("way", WAYS)
def test_turn_of_an_agent_is_a_child_of_its_call(way: str) -> None:
    kind, streamed = WAYS[way]
    asking = Message.assistant(ToolCall("c1", "clerk", '{"prompt": "x"}'))
    calling = Message.assistant(ToolCall("c2", "helper", "{}"))

    @tool
    def helper() -> str:
        """Help."""
        return "ok"

    engine = ScriptedEngine if way.startswith("plain") else AsyncScriptedEngine
    agent = agent_tool("clerk", "Does things.", engine([calling, "Done."], name="scripted:inner"), [helper])
    with recording() as recorder:
        talk = kind(engine([asking, "Fine."], name="scripted:outer"), [agent], streamed=streamed)
        talk.chat("Go.")
        talk.close()
    names = [line.strip() for line in recorder.tree.splitlines() if line.endswith(")") and "=" not in line]
    depths = [(len(line) - len(line.lstrip())) // 4 for line in recorder.tree.splitlines() if line.strip() in names]
    assert [(depth, name.partition(" (")[0]) for depth, name in zip(depths, names, strict=True)] == [
        (0, "invoke_agent"),
        (1, "chat outer"),
        (1, "execute_tool clerk"),
        (2, "invoke_agent"),
        (3, "chat inner"),
        (3, "execute_tool helper"),
        (3, "chat inner"),
        (1, "chat outer"),
    ]
