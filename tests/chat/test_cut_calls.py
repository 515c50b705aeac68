"""Replies that were cut off, on every dialect: none of their calls runs, and the model hears why."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from dragoman.chat import ChatClient, agent_tool
from dragoman.conversation import (
    Block,
    Conversation,
    Message,
    RunEnded,
    StopReason,
    Text,
    ToolCall,
    ToolFinished,
    ToolResult,
    Usage,
)
from dragoman.engines import ScriptedEngine
from dragoman.errors import ConfigurationError, InvalidAnswerError
from dragoman.loop import Done, NoAnswer, extract_tool_calls
from dragoman.simulator import Reply, Simulator
from dragoman.stores import MemoryStore, MessageAdded, Snapshot, ToolCallBegun, ToolCallDone
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


def cut_conversation() -> Conversation:
    """As an earlier version kept it, or a program that ended right after the reply."""
    call = ToolCall("1", "purge", WHOLE)
    reply = Message(role="assistant", blocks=(call,), stop_reason=StopReason.MAX_TOKENS, usage=Usage(output=1024))
    return Conversation().plus(Message.user("Purge."), reply)


def test_the_calls_of_a_cut_reply_are_not_pending_for_anybody() -> None:
    cut = cut_conversation()
    assert (cut.pending_tool_calls, extract_tool_calls(cut), cut.is_valid) == ((), (), False)
    (refused,) = cut.repaired().conversation.messages[2].tool_results
    assert (refused.is_error, refused.error_type) == (True, "cancelled")
    assert "it reached the limit of tokens for a reply (max_tokens), after 1,024 tokens" in refused.text


@pytest.mark.parametrize("prompt", [None, "What now?"])
@pytest.mark.parametrize("how", ["given", "restored", "restored and added to", "resumed"])
def test_a_conversation_that_ends_with_a_cut_reply_is_continued_without_running_it(
    how: str, prompt: str | None
) -> None:
    ran, cut, store = Ran(), cut_conversation(), MemoryStore()
    snapshot = Snapshot.first(cut, provider="scripted", model="model")
    if how == "resumed":  # the reply is in the journal
        snapshot = Snapshot.first(cut.up_to(1), provider="scripted", model="model")
    store.save(snapshot)
    if how == "resumed":
        store.record(snapshot.id, [MessageAdded(cut.messages[1])], after=0)
    given: Any = {"conversation": cut} if how == "given" else {"store": store}
    engine = ScriptedEngine(["Fine."])
    with ChatClient(engine, [ran.tools["purge"]], **given) as client:
        if how != "given":
            client.restore(snapshot if how == "restored and added to" else snapshot.id)
        if how == "restored and added to":
            client.add("Wait.")
        assert (client.pending, str(client.chat(prompt))) == ((), "Fine.")
        assert client.conversation.is_valid
        assert client.history[2].tool_results[0].is_error
    assert ran.calls == []
    assert engine.calls[0].conversation.is_valid


def test_what_was_run_of_a_cut_reply_is_not_said_to_be_not_run() -> None:
    """An earlier version ran such calls, and the journal knows."""
    calls = [ToolCall(id, "purge", WHOLE) for id in "123"]
    reply = Message(role="assistant", blocks=tuple(calls), stop_reason=StopReason.MAX_TOKENS)
    begun = Snapshot.first(Conversation().plus(Message.user("Purge.")), provider="scripted", model="model")
    done = ToolCallDone(ToolResult("2", "purge", (Text("purged"),)))
    store = MemoryStore()
    store.save(begun)
    store.record(begun.id, [MessageAdded(reply), *map(ToolCallBegun, calls[:2]), done], after=0)
    ran = Ran()
    with ChatClient(ScriptedEngine(["Fine."]), [ran.tools["purge"]], store=store) as client:
        client.restore(begun.id)
        assert (client.pending, client.conversation.is_valid, str(client.chat())) == ((), True, "Fine.")
        first, second, third = [result.text for result in client.history[2].tool_results]
    assert "nobody knows whether it did its work" in first
    assert second == "purged"
    assert "was not run" in third
    assert ran.calls == []


# --- what callers of the model are told ------------------------------------------------------------------------------


def reply(*blocks: Block, stop: StopReason) -> Message:
    return Message(role="assistant", blocks=blocks, stop_reason=stop)


@pytest.mark.parametrize(
    ("said", "told", "failed"),
    [
        ([""] * 2, "did not answer. The model gave no answer: its reply was empty", True),
        (
            [reply(ToolCall("1", "purge", ""), stop=StopReason.MAX_TOKENS)] * 2,
            "did not answer. The model gave no",
            True,
        ),
        ([reply(stop=StopReason.REFUSAL)], "did not answer. The answer is not complete: the model declined", True),
        ([reply(Text("Half"), stop=StopReason.MAX_TOKENS)], "Half\n\n[The answer is not complete: it reached", False),
        (["Whole."], "Whole.", False),
    ],
)
def test_a_model_hears_of_an_agent_that_did_not_answer(said: list[Any], told: str, failed: bool) -> None:
    clerk = agent_tool("clerk", "Knows.", model=ScriptedEngine(said), tools=[Ran().tools["purge"]])
    engine = ScriptedEngine([Message.assistant(ToolCall("1", "clerk", '{"prompt": "Well?"}')), "I see."])
    with ChatClient(engine, [clerk]) as client:
        assert str(client.chat("Ask the clerk.")) == "I see."
        (result,) = client.history[2].tool_results
    assert (told in result.text, result.is_error) == (True, failed), result.text


def test_a_typed_question_has_its_one_second_question_and_no_more() -> None:
    with ChatClient(ScriptedEngine(["", "7", "never"])) as client:
        assert client.ask("How many?", int) == 7
    engine = ScriptedEngine(["", "", "never"])
    with ChatClient(engine) as client, pytest.raises(InvalidAnswerError):
        client.ask("How many?", int)
    assert len(engine.calls) == 2
    cut = [reply(ToolCall("1", "purge", WHOLE), stop=StopReason.MAX_TOKENS)] * 2
    with ChatClient(ScriptedEngine(cut), [Ran().tools["purge"]]) as client:
        result = client.chat("How many?", answer=int)
        assert isinstance(result.ending, NoAnswer)
        with pytest.raises(ConfigurationError, match="no answer"):
            _ = result.answer


def test_an_empty_text_is_no_answer_to_a_question_either() -> None:
    """A plain text has no form that an empty one would miss, so it is asked again as in any turn."""
    with ChatClient(ScriptedEngine(["", "Seven."])) as client:
        assert client.ask("How many?") == "Seven."
    engine = ScriptedEngine(["", "", "never"])
    with ChatClient(engine) as client:
        with pytest.raises(InvalidAnswerError, match="twice in a row"):
            client.ask("How many?")
        assert (len(engine.calls), client.history[1:]) == (2, ())
    with ChatClient(ScriptedEngine(["", "", "never"])) as client:
        result = client.chat("How many?", answer=str)
        assert isinstance(result.ending, NoAnswer)
        with pytest.raises(ConfigurationError, match="no answer"):
            _ = result.answer


@pytest.mark.parametrize("answer", [str, int])
def test_a_message_added_to_a_question_does_not_make_it_endless(answer: type) -> None:
    """It is for the next turn, so it is no reason to ask this one again."""

    def silent(_: object) -> str:
        if len(engine.calls) == 1:
            client.add("By the way.")
        return ""

    engine = ScriptedEngine([silent] * 9)
    with ChatClient(engine) as client:
        with pytest.raises(InvalidAnswerError):
            client.ask("How many?", answer)
        assert len(engine.calls) == 2
        assert [message.text for message in client.history] == ["How many?", "By the way."]
