"""Replies that were cut off, on every dialect: none of their calls runs, and the model hears why."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from dragoman.chat import ChatClient
from dragoman.conversation import RunEnded, StopReason, ToolCall, ToolFinished
from dragoman.loop import Done, NoAnswer
from dragoman.simulator import Reply, Simulator
from dragoman.tools import AnyTool, tool

MODELS: Final = {
    "openai": "openai:gpt-4o",
    "openai-responses": "openai-responses:gpt-5.4",
    "anthropic": "anthropic:claude-sonnet-4-5",
    "gemini": "gemini:gemini-2.5-flash",
    "bedrock": "bedrock:eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
}
SENDS_OBJECTS: Final = {("anthropic", False), ("bedrock", False), ("gemini", False), ("gemini", True)}
"""Where arguments are an object, which the provider completes if the model wrote only a part of it."""
WHOLE: Final = '{"scope": "logs", "dry_run": true}'
CANNOT_SAY: Final = {("bedrock", StopReason.REFUSAL)}
CUTS: Final = (StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL, StopReason.CONTENT_FILTER, StopReason.REFUSAL)


class Ran:
    """Two tools, and the calls that ran."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bool]] = []

        @tool
        def purge(scope: str = "everything", dry_run: bool = False) -> str:
            """Delete old records of a scope."""
            self.calls.append((scope, dry_run))
            return "purged"

        @tool
        def purge_exactly(scope: str, dry_run: bool) -> str:
            """Delete old records of exactly this scope."""
            self.calls.append((scope, dry_run))
            return "purged"

        self.tools: dict[str, AnyTool] = {"purge": purge, "purge_exactly": purge_exactly}


def as_sent(written: str, dialect: str, *, streamed: bool) -> str:
    """The arguments as the provider sends them, if the model wrote only this."""
    if (dialect, streamed) not in SENDS_OBJECTS:
        return written
    for end in ("", '"', '": ""', ": null", "null"):
        try:
            return json.dumps(json.loads(f"{written}{end}}}" if written != WHOLE else written))
        except ValueError:
            continue
    return "{}"


def take_turn(client: ChatClient[Any], *, streamed: bool) -> Any:
    if not streamed:
        return client.chat("Purge the logs, as a dry run.")
    before = len(client.history)
    with client.stream_chat("Purge the logs, as a dry run.") as stream:
        events = list(stream)
    told = [event.result for event in events if isinstance(event, ToolFinished)]
    new = client.history[before:]
    assert told == [result for message in new for result in message.tool_results], "watchers see the end of each call"
    assert isinstance(events[-1], RunEnded)
    assert events[-1].stop_reason is stream.result.stop_reason
    return stream.result


def client_of(simulator: Simulator, dialect: str, tools: Any) -> ChatClient[Any]:
    place: dict[str, Any] = {"base_url": simulator.base_url(dialect)}
    return ChatClient(MODELS[dialect], tools, key="k", **place)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", ["purge", "purge_exactly"])
@pytest.mark.parametrize("dialect", MODELS)
def test_no_call_of_a_cut_reply_runs_wherever_it_was_cut(dialect: str, name: str, streamed: bool) -> None:
    ran = Ran()
    cuts = [as_sent(WHOLE[:length], dialect, streamed=streamed) for length in range(len(WHOLE) + 1)]
    script: list[Any] = []
    for number, written in enumerate(cuts):
        script += [Reply(ToolCall(f"c{number}", name, written), stop_reason=StopReason.MAX_TOKENS), "Understood."]
    with Simulator(script) as simulator, client_of(simulator, dialect, [ran.tools[name]]) as client:
        for written in cuts:
            asked, before = len(simulator.requests), len(client.history)
            result = take_turn(client, streamed=streamed)
            assert ran.calls == [], written
            assert (str(result), result.stop_reason) == ("Understood.", StopReason.END)
            assert len(simulator.requests) - asked == 2, written
            said = client.history[before + 1 : -1]  # a call without an end is left out, any other has its result
            assert [message.role for message in said] in ([], ["assistant", "tool"]), written
            for refused in [refused for message in said for refused in message.tool_results]:
                assert refused.is_error
                assert "max_tokens" in refused.text
            assert client.conversation.is_valid


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("dialect", MODELS)
def test_the_second_cut_in_a_row_ends_the_turn(dialect: str, streamed: bool, caplog: pytest.LogCaptureFixture) -> None:
    ran = Ran()
    cut = [Reply(ToolCall(f"c{n}", "purge", WHOLE), stop_reason=StopReason.MAX_TOKENS) for n in range(2)]
    with Simulator([*cut, "Good."]) as simulator, client_of(simulator, dialect, [ran.tools["purge"]]) as client:
        result = take_turn(client, streamed=streamed)
        assert isinstance(result.ending, NoAnswer)
        assert (result.stop_reason, str(result), ran.calls) == (StopReason.MAX_TOKENS, "", [])
        assert "no_answer (max_tokens)" in repr(result)
        assert "Raise max_tokens" in caplog.text
        assert result.spent.model_calls == 2
        assert client.conversation.is_valid
        if dialect != "openai-responses":  # which sends calls that are cut off without an end, so they are left out
            # Whoever continues has the conversation alone, and decides alike, without another request.
            assert len(client.history) == 5
            assert isinstance(client.chat().ending, NoAnswer)
            assert len(simulator.requests) == 2
        assert str(client.chat("Go on.")) == "Good."


@pytest.mark.parametrize("reason", CUTS)
@pytest.mark.parametrize("dialect", MODELS)
def test_a_whole_call_before_the_cut_does_not_run_either(dialect: str, reason: StopReason) -> None:
    ran = Ran()
    words = ["I will not."] if reason is StopReason.REFUSAL else []  # OpenAI's refusals are texts
    cut = Reply(*words, ToolCall("1", "purge", WHOLE), ToolCall("2", "purge", WHOLE), stop_reason=reason)
    with Simulator([cut, "Good.", "Good."]) as simulator, client_of(simulator, dialect, [ran.tools["purge"]]) as client:
        result = take_turn(client, streamed=False)
        told = result.replies[0].message
        assert told.cut_off or (dialect, reason) in CANNOT_SAY
        if told.cut_off:
            assert ran.calls == []
            assert client.conversation.is_valid
            again = told.stop_reason is StopReason.MAX_TOKENS
            assert len(simulator.requests) == (2 if again else 1), "what would be cut again is not asked again"
            assert again or isinstance(result.ending, NoAnswer if told.tool_calls else Done)
            assert str(client.chat("Go on.")) == "Good."


def test_a_conversation_that_ends_with_a_cut_reply_is_continued_without_running_it() -> None:
    ran = Ran()
    reply = Reply(ToolCall("1", "purge", WHOLE), stop_reason=StopReason.MAX_TOKENS)
    with Simulator([reply, "Good."]) as simulator, client_of(simulator, "anthropic", [ran.tools["purge"]]) as client:
        client.chat("Purge.")
        cut = client.conversation.up_to(2)
        assert (cut.pending_tool_calls, cut.is_valid) == ((), False)
        assert "max_tokens" in cut.repaired().conversation.messages[2].tool_results[0].text
    with (
        Simulator(["Fine."]) as simulator,
        ChatClient(
            MODELS["anthropic"],
            [ran.tools["purge"]],
            key="k",
            base_url=simulator.base_url("anthropic"),
            conversation=cut,
        ) as client,
    ):
        client.add("Wait.")
        assert str(client.chat("What now?")) == "Fine."
        assert client.conversation.is_valid
    assert ran.calls == []
