"""S1: the rows about the tool-calling engine that no other test shows."""

from __future__ import annotations

import logging
import threading

import pytest

import dragoman
from dragoman import (
    Conversation,
    Message,
    Orchestrator,
    ScriptedEngine,
    ToolCall,
    ToolCallDelta,
    ToolConfig,
    ToolExecutor,
    ToolRegistry,
    errors,
    tool,
)
from dragoman.conversation import ToolExample
from dragoman.engines import HttpEngine
from dragoman.simulator import Reply, Simulator
from dragoman.tools import ToolErrorHandling

ASKED = Conversation().plus(Message.user("Add."))


@tool(examples=[ToolExample({"a": 1, "b": 2}, 3, "a small sum")], tags=["maths"], version="1.2")
def add(a: int, b: int = 2) -> int:
    """The sum of two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool
def fail() -> None:
    """Never works."""
    message = "broken"
    raise RuntimeError(message)


def _call(name: str = "add", arguments: str = '{"a": 1}') -> ToolCall:
    return ToolCall("c1", name, arguments)


def test_tool_definition_has_name_description_schema_function_examples_tags_version() -> None:
    spec = add.spec
    assert (spec.name, spec.tags, spec.version) == ("add", ("maths",), "1.2")
    assert spec.description.startswith("The sum")
    assert spec.schema["required"] == ["a"]
    assert spec.examples[0].output == 3
    assert add.function(1, 2) == 3


def test_tool_func_is_compiled_once_and_caches_its_types() -> None:
    assert add.arguments is add.arguments
    assert add.arguments.decode('{"a": 1}') == add.arguments.decode('{"a": 1}')


def test_new_tool_from_a_plain_function() -> None:
    def double(x: int) -> int:
        """Twice."""
        return 2 * x

    assert ToolExecutor([tool(double)]).execute(_call("double", '{"x": 4}')).value == 8


def test_tool_registry_register_get_list_unregister_clone_merge_thread_safe() -> None:
    registry = ToolRegistry([add])
    copy = registry.clone()
    copy.register(fail)
    assert [each.name for each in registry.list()] == ["add"]
    assert [each.name for each in registry.merge(ToolRegistry([fail])).list()] == ["add", "fail"]
    copy.unregister("add")
    with pytest.raises(errors.ToolNotFoundError):
        copy.get("add")
    shared = ToolRegistry()

    def fill(number: int) -> None:
        for index in range(20):
            shared.register(add.renamed(f"t{number}_{index}"))

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shared) == 160


def test_engine_run_inference_and_run_inference_stream() -> None:
    engine = ScriptedEngine(["Three.", "Three."])
    assert engine.run_inference(ASKED).text == "Three."
    with engine.stream(ASKED) as stream:
        assert list(stream)
    assert stream.message.text == "Three."


def test_engine_supported_tool_features_and_prepare_tools_for_request() -> None:
    with dragoman.engine("anthropic:claude-sonnet-4-5", key="k") as engine:
        assert isinstance(engine, HttpEngine)
        assert engine.features.supports_parallel_calls
        assert "input_schema" in str(engine.prepare_tools([add.spec]))


def test_stream_chunk_partial_tool_call_arguments_arrive_while_streaming() -> None:
    script = [Reply(_call(arguments='{"a": 1, "b": 41}'))]
    with (
        Simulator(script) as simulator,
        dragoman.engine("openai:gpt-4o", key="k", base_url=simulator.base_url("openai")) as engine,
        engine.stream(ASKED, tools=[add.spec]) as stream,
    ):
        pieces = [event.arguments for event in stream if isinstance(event, ToolCallDelta)]
    assert len(pieces) > 1
    assert "".join(pieces) == '{"a": 1, "b": 41}'


def test_inference_orchestrator_run_and_stream() -> None:
    for streamed in (False, True):
        with Orchestrator(ScriptedEngine([Message.assistant(_call()), "Three."]), ToolRegistry([add])) as loop:
            if streamed:
                with loop.stream(ASKED) as stream:
                    list(stream)
                assert stream.result.text == "Three."
            else:
                assert loop.run(ASKED).text == "Three."


def test_tool_config_execution_timeout_is_really_applied() -> None:
    forever = threading.Event()

    @tool
    def slow() -> None:
        """Waits."""
        forever.wait(30)

    with ToolExecutor([slow], ToolConfig(execution_timeout=0.05)) as executor:
        assert executor.execute(_call("slow", "{}")).error_type == "timeout"
        forever.set()


def test_tool_config_max_parallel_tools() -> None:
    most, now, lock = 0, 0, threading.Lock()
    gate = threading.Event()

    @tool
    def busy() -> None:
        """Counts how many run at once."""
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        gate.wait(0.05)
        with lock:
            now -= 1

    with ToolExecutor([busy], ToolConfig(max_parallel_tools=2)) as executor:
        executor.execute_all([ToolCall(str(number), "busy", "{}") for number in range(6)])
    assert most == 2


def test_retry_config_max_retries_backoff_base_backoff_factor() -> None:
    tries: list[int] = []

    @tool
    def flaky() -> str:
        """Works the third time."""
        tries.append(1)
        if len(tries) < 3:
            message = "not yet"
            raise RuntimeError(message)
        return "done"

    retry = dragoman.RetryConfig(max_retries=3, backoff_base=0.0, backoff_factor=2.0)
    config = ToolConfig(tool_error_handling=ToolErrorHandling.RETRY, retry=retry)
    with ToolExecutor([flaky], config) as executor:
        result = executor.execute(_call("flaky", "{}"))
    assert (result.text, result.retries) == ("done", 2)


def test_tool_error_handling_continue_abort_retry() -> None:
    script = [Message.assistant(_call("fail", "{}")), "I see."]
    with Orchestrator(ScriptedEngine(script), [fail]) as loop:
        assert loop.run(ASKED).text == "I see."
    abort = ToolConfig(tool_error_handling=ToolErrorHandling.ABORT)
    with pytest.raises(errors.ToolAbortedError), Orchestrator(ScriptedEngine(script), [fail], abort) as loop:
        loop.run(ASKED)
    none = dragoman.RetryConfig(max_retries=2, backoff_base=0.0)
    retry = ToolConfig(tool_error_handling=ToolErrorHandling.RETRY, retry=none)
    with Orchestrator(ScriptedEngine(script), [fail], retry) as loop:
        assert loop.run(ASKED).conversation.messages[2].tool_results[0].retries == 2


def test_tool_adapter_validate_definition_and_provider_limits() -> None:
    report = dragoman.check([add.renamed("no good name!").spec], "openai:gpt-4o")
    assert report
    from dragoman.providers import profile_of

    assert profile_of("openai", "gpt-4o").tool_limits.max_tools == 128
    assert profile_of("anthropic", "claude-sonnet-4-5").tool_limits.max_name_length == 128
    assert profile_of("gemini", "gemini-2.5-flash").tool_limits.max_tools == 512


def test_tool_result_has_id_result_error_duration_retries() -> None:
    with ToolExecutor([add]) as executor:
        result = executor.execute(_call())
    assert (result.call_id, result.value, result.is_error, result.retries) == ("c1", 3, False, 0)
    assert result.duration is not None


def test_engine_factory_with_options_tool_registry_and_tool_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with Orchestrator("openai:gpt-4o", ToolRegistry([add]), ToolConfig(max_iterations=5)) as loop:
        assert loop.settings.limits.steps == 5
        assert loop.engine.name == "openai:gpt-4o"


def test_per_provider_tool_filtering() -> None:
    registry = ToolRegistry([add, fail])
    assert [each.name for each in registry.tagged("maths")] == ["add"]
    assert [each.name for each in registry.filtered(["fail"])] == ["fail"]


def test_logging_and_tool_call_metrics(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    with (
        caplog.at_level(logging.INFO, "dragoman.tools"),
        ToolExecutor([add], on_result=lambda call, result: seen.append(f"{call.name} {result.value}")) as executor,
    ):
        executor.execute(_call())
    assert seen == ["add 3"]
    assert "tool=add" in caplog.text
