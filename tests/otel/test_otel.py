"""Spans of failing turns, metrics, content, and switching tracing on and off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from dragoman import ChatClient, MemoryStore, Orchestrator, tool
from dragoman.conversation import Conversation, Media, Message, Thinking, ToolCall, Usage
from dragoman.engines import AsyncScriptedEngine, RateLimiter, ScriptedEngine, engine
from dragoman.errors import (
    ConfigurationError,
    InvalidRequestError,
    RateLimitError,
    StoreUnavailableError,
)
from dragoman.otel import instrument, uninstrument
from dragoman.otel.names import PROVIDERS as NAMES
from dragoman.providers import PROVIDERS
from dragoman.simulator import Reply, Simulator, Status
from dragoman.stores import Snapshot
from dragoman.tools import Allow, Deny, RetryConfig, ToolConfig
from dragoman.transport import RetryPolicy
from tests.chat.talking import WAYS
from tests.otel.recording import Recorded, Recorder, recording

ASKED = Conversation().plus(Message.user("Hello"))


def only(recorder: Recorder, name: str) -> Recorded:
    (found,) = [span for span in recorder.spans if span.name == name]
    return found


def scripted(way: str, *replies: Any, **options: Any) -> Any:
    return (AsyncScriptedEngine if way.startswith("async") else ScriptedEngine)(replies, **options)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_error_ends_the_call_and_the_turn(way: str) -> None:
    kind, streamed = WAYS[way]
    with recording() as recorder:
        talk = kind(scripted(way, InvalidRequestError("It says: secret.")), streamed=streamed)
        with pytest.raises(InvalidRequestError):
            talk.chat("Hello")
        talk.close()
    for name in ("chat model", "invoke_agent"):
        span = only(recorder, name)
        assert (span.status, span.attributes["error.type"]) == ("ERROR", "InvalidRequestError")
    assert "secret" not in str(recorder.exporter.get_finished_spans()[0].to_json())  # it may repeat content


def test_failed_tool_calls_have_an_error_type() -> None:
    def broken() -> str:
        raise ValueError("the user's data")

    calls = [ToolCall("1", "broken"), ToolCall("2", "missing"), ToolCall("3", "forbidden"), ToolCall("4", "picky")]
    tools = [tool(broken), tool(_forbidden, name="forbidden"), tool(_picky, name="picky")]
    with recording() as recorder:
        model = ScriptedEngine([Message.assistant(*calls), "So be it."])
        with ChatClient(model, tools, permission=_refuse) as client:
            client.chat("Do it.")
    told = {
        span.attributes["gen_ai.tool.name"]: span for span in recorder.spans if "gen_ai.tool.name" in span.attributes
    }
    kinds = {name: (span.status, span.attributes["error.type"]) for name, span in told.items()}
    assert kinds == {
        "broken": ("ERROR", "execution"),
        "missing": ("ERROR", "not_found"),
        "forbidden": ("ERROR", "denied"),
        "picky": ("ERROR", "validation"),
    }
    root = only(recorder, "invoke_agent")
    assert root.status == "UNSET"
    assert {span.parent for span in told.values()} == {root.id}
    assert "the user's data" not in str([span.to_json() for span in recorder.exporter.get_finished_spans()])


def _forbidden() -> str:
    raise AssertionError


def _picky(number: int) -> str:
    return str(number)


def _refuse(call: ToolCall, _tool: object, _context: object) -> Allow | Deny:
    return Deny("no") if call.name == "forbidden" else Allow()


def test_attempts_of_a_tool_are_one_span() -> None:
    tries: list[int] = []

    @tool(retries=2)
    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError
        return "There."

    with recording() as recorder:
        model = ScriptedEngine([Message.assistant(ToolCall("1", "flaky")), "Done."])
        with ChatClient(model, [flaky], tool_config=ToolConfig(retry=RetryConfig(backoff_base=0.0))) as client:
            client.chat("Go.")
    assert only(recorder, "execute_tool flaky").attributes["dragoman.tool.retries"] == 2


@pytest.mark.parametrize("way", ["plain-stream", "async-stream"])
def test_abandoned_stream_ends_its_spans(way: str) -> None:
    kind, _ = WAYS[way]
    with recording() as recorder:
        tracer = recorder.tracers.get_tracer("the program")
        talk = kind(scripted(way, "One two three four.", piece=3), streamed=True)

        def stop(_event: object) -> None:
            tracer.start_span("the reader's").end()
            talk.client.cancel()

        result = talk.chat("Count.", callback=stop)
        talk.close()
    assert result.conversation.messages[-1].interrupted
    run, call = only(recorder, "invoke_agent"), only(recorder, "chat model")
    assert (run.attributes["dragoman.run.ending"], call.parent) == ("cancelled", run.id)
    assert call.attributes["gen_ai.response.finish_reasons"] == ("interrupted",)
    assert {span.parent for span in recorder.spans if span.name == "the reader's"} == {None}


def test_orchestrator_and_engine_are_traced() -> None:
    with recording() as recorder:
        with Orchestrator(ScriptedEngine(["Hello.", "Again."])) as orchestrator:
            orchestrator.run(ASKED)
            with orchestrator.stream(ASKED) as stream:
                assert list(stream)
        ScriptedEngine(["Hello."]).reply(ASKED)
        with ScriptedEngine(["Hello."]).stream(ASKED) as reply:
            next(iter(reply))
    runs = [span for span in recorder.spans if span.name == "invoke_agent"]
    assert [span.attributes["dragoman.run.ending"] for span in runs] == ["done", "done"]
    calls = [span.parent for span in recorder.spans if span.name == "chat model"]
    assert calls == [runs[0].id, runs[1].id, None, None]


def test_turn_fails_if_it_cannot_be_saved() -> None:
    class Full(MemoryStore):
        def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
            if len(snapshot.conversation.messages) > 1:
                raise StoreUnavailableError("The disk is full.")
            super().save(snapshot, after=after)

    with (
        recording() as recorder,
        ChatClient(ScriptedEngine(["Hello."]), store=Full()) as client,
        pytest.raises(StoreUnavailableError),
    ):
        client.chat("Hi")
    failed = [(span.name, span.attributes["error.type"]) for span in recorder.spans if span.status == "ERROR"]
    assert failed == [("dragoman.save", "StoreUnavailableError"), ("invoke_agent", "StoreUnavailableError")]


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_metrics() -> None:
    @tool
    def weather() -> str:
        """The weather."""
        return "Sunny."

    script = [Reply(ToolCall("1", "weather"), usage=Usage(10, 5)), Status(429), Reply("Sunny.", usage=Usage(20, 7))]
    with recording() as recorder, Simulator(script) as simulator:
        options: dict[str, Any] = {"base_url": simulator.base_url("openai"), "key": "test-key"}
        with ChatClient(
            "openai:gpt-4o", [weather], store=MemoryStore(), retry=RetryPolicy(first_wait=0.01), **options
        ) as c:
            c.stream_chat("The weather?", lambda _: None)
        points = recorder.points
    model = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o",
        "server.address": "127.0.0.1",
        "server.port": simulator.port,
    }
    seen = {
        name: [(attributes, point.count) for attributes, point in found]
        for name, found in points.items()
        if name != "dragoman.client.retries"
    }
    assert seen == {
        "gen_ai.client.token.usage": [
            ({**model, "gen_ai.token.type": "input"}, 2),
            ({**model, "gen_ai.token.type": "output"}, 2),
        ],
        "gen_ai.client.operation.duration": [(model, 2)],
        "gen_ai.client.operation.time_to_first_chunk": [(model, 2)],
        "gen_ai.invoke_agent.duration": [({"gen_ai.request.model": "gpt-4o"}, 1)],
        "gen_ai.execute_tool.duration": [({"gen_ai.tool.name": "weather", "gen_ai.tool.type": "function"}, 1)],
        "dragoman.client.wait": [(model, 1)],
        "dragoman.store.save.duration": [({}, 2)],
    }
    ((attributes, retries),) = points["dragoman.client.retries"]
    assert (attributes, retries.value) == (model, 1)
    assert [point.sum for _, point in points["gen_ai.client.token.usage"]] == [30, 12]
    assert points["gen_ai.client.operation.duration"][0][1].explicit_bounds[:2] == (0.01, 0.02)


def test_time_in_the_limiter_queue_is_recorded() -> None:
    busy = Status(429, headers={"retry-after-ms": "50"})
    with recording() as recorder, Simulator([busy, "Hello."]) as simulator:
        options: dict[str, Any] = {"base_url": simulator.base_url("openai"), "key": "queue-of-otel"}
        limited = engine(
            "openai:gpt-4o", limiter=RateLimiter(concurrency=9), retry=RetryPolicy(max_attempts=1), **options
        )
        with limited:
            with pytest.raises(RateLimitError):
                limited.reply(ASKED)
            queued = limited.reply(ASKED).attempts[0].queued
        measured = [point.sum for _, point in recorder.points["dragoman.client.queue"]]
    ((_, told),) = recorder.spans[-1].events
    assert told["dragoman.attempt.queued"] == queued
    assert sum(measured) >= queued > 0


def test_skipped_models_and_losses_are_recorded() -> None:
    thought = ASKED.plus(Message.assistant(Thinking("Hm.", "anthropic"), "Ho."), Message.user("And?"))
    with recording() as recorder, Simulator(["Yes."]) as simulator:
        strict = engine("gemini:gemini-2.5-flash", key="k", strict=True)
        second = engine("openai:gpt-4o", key="k", base_url=simulator.base_url("openai"))
        with strict, second, Orchestrator(engine([strict, second])) as orchestrator:
            orchestrator.run(thought)
    assert only(recorder, "invoke_agent").attributes["dragoman.run.passed_over"] == ("gemini:gemini-2.5-flash",)
    assert only(recorder, "chat gpt-4o").attributes["dragoman.losses"] == ("thinking",)


def test_clouds_are_named_by_the_conventions() -> None:
    names = {"amazon": "aws.bedrock", "azure": "azure.ai.openai", "google": "gcp.vertex_ai"}
    clouds = {name: names[provider.cloud] for name, provider in PROVIDERS.items() if provider.cloud is not None}
    assert len(clouds) > 5
    assert clouds == {name: NAMES.get(name) for name in clouds}


# --- content ----------------------------------------------------------------------------------------------------------

KEY = "sk-test-0123456789abcdef"


def _talk_about_keys(recorder_options: dict[str, Any]) -> Recorder:
    @tool
    def env() -> str:
        """The environment."""
        return f"OPENAI_API_KEY={KEY}"

    with (
        Simulator([Reply(ToolCall("1", "env", "{}")), Reply("A" * 3_000)]) as simulator,
        recording(**recorder_options) as recorder,
    ):
        options: dict[str, Any] = {"base_url": simulator.base_url("openai"), "key": KEY, "system": "Be brief."}
        with ChatClient("openai:gpt-4o", [env], **options) as client:
            client.chat([f"Is {KEY} in the environment?", Media.from_bytes(b"\x89PNG", "image/png")])
    return recorder


def test_content_is_recorded_only_if_enabled_cut_and_without_keys() -> None:
    quiet = str([span.to_json() for span in _talk_about_keys({}).exporter.get_finished_spans()])
    assert "environment?" not in quiet
    assert "Be brief" not in quiet
    recorder = _talk_about_keys({"content": True, "content_limit": 1_000})
    assert KEY not in str([span.to_json() for span in recorder.exporter.get_finished_spans()])
    first, second = [span.attributes for span in recorder.spans if span.name == "chat gpt-4o"]
    assert json.loads(first["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(first["gen_ai.input.messages"]) == [
        {
            "role": "user",
            "parts": [
                {"type": "text", "content": "Is [key] in the environment?"},
                {"type": "media", "modality": "image", "mime_type": "image/png", "size": 4},
            ],
        }
    ]
    assert json.loads(first["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "1", "name": "env", "arguments": {}}],
            "finish_reason": "tool_call",
        }
    ]
    (definition,) = json.loads(first["gen_ai.tool.definitions"])
    assert (definition["name"], definition["description"]) == ("env", "The environment.")
    (answer,) = json.loads(second["gen_ai.output.messages"])
    assert answer["parts"][0]["content"] == "A" * 1_000 + "…"
    assert only(recorder, "execute_tool env").attributes["gen_ai.tool.call.result"] == "OPENAI_API_KEY=[key]"
    run = only(recorder, "invoke_agent").attributes
    assert json.loads(run["gen_ai.input.messages"]) == json.loads(first["gen_ai.input.messages"])
    assert run["gen_ai.output.messages"] == second["gen_ai.output.messages"]


@pytest.mark.parametrize("stream", [False, True])
def test_generated_key_is_not_recorded(stream: bool) -> None:
    with (
        Simulator([Reply(f"It is {KEY}.")]) as simulator,
        recording(content=True) as recorder,
        engine("openai:gpt-4o", key=lambda: KEY, base_url=simulator.base_url("openai")) as one,
    ):
        if stream:
            with one.stream(ASKED) as events:
                list(events)
        else:
            one.reply(ASKED)
    (answer,) = json.loads(only(recorder, "chat gpt-4o").attributes["gen_ai.output.messages"])
    assert answer["parts"][0]["content"] == "It is [key]."


def test_failing_observer_does_not_break_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object) -> object:
        raise ValueError("broken")

    monkeypatch.setattr("dragoman.otel.content.Content.take_key", broken)
    with recording(content=True) as recorder, ChatClient(ScriptedEngine(["Hello."])) as client:
        assert client.chat("Hello").text == "Hello."
    assert [span.name for span in recorder.spans] == ["invoke_agent"]


def test_newest_messages_of_a_long_history_are_recorded() -> None:
    said = [Message.user(f"{number}: {'x' * 400}") for number in range(10)]
    history = Conversation().plus(*[each for user in said for each in (user, Message.assistant("Hm."))][:-1])
    with recording(content=True, content_limit=1_000) as recorder:
        ScriptedEngine(["Yes."]).reply(history)
    told = only(recorder, "chat model").attributes
    messages = json.loads(told["gen_ai.input.messages"])
    assert messages[-1]["parts"][0]["content"].startswith("9: ")
    assert len(messages) + told["dragoman.content.left_out"] == len(history.messages)
    assert len(told["gen_ai.input.messages"]) < 1_500


# --- the switch -------------------------------------------------------------------------------------------------------


def test_uninstrument_finishes_started_spans() -> None:
    with recording() as recorder:
        with ScriptedEngine(["Hello."]).stream(ASKED) as stream:
            next(iter(stream))
            uninstrument()
        ScriptedEngine(["Hello."]).reply(ASKED)
    assert len(recorder.spans) == 1


def test_second_instrument_replaces_the_first() -> None:
    with recording() as first, recording() as second:
        ScriptedEngine(["Hello."]).reply(ASKED)
    assert (len(first.spans), len(second.spans)) == (0, 1)


def test_content_limit_of_zero_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="content_limit"):
        instrument(content=True, content_limit=0)


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    return done.stdout.strip()


def test_opentelemetry_is_loaded_lazily() -> None:
    code = "import sys, dragoman.otel; dragoman.otel.instrument; print('opentelemetry' in sys.modules, end=' '); "
    assert _python(code + "dragoman.otel.instrument(); print('opentelemetry' in sys.modules)") == "False True"


def test_without_the_package_the_error_names_the_extra() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
from dragoman.errors import ConfigurationError
from dragoman.otel import instrument
try:
    instrument()
except ConfigurationError as error:
    print(error)
"""
    assert "pip install 'dragoman[otel]'" in _python(code)
