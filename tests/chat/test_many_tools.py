"""Many tools: the model finds what it needs, with every provider; what was found survives whatever happens."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import RunContext
from dragoman.chat import ChatClient
from dragoman.conversation import Conversation, Message, Opaque, Text, ToolCall, ToolSpec
from dragoman.engines import FallbackEngine, ScriptedEngine, engine
from dragoman.loop import DropToolResults, Orchestrator
from dragoman.providers import ModelOptions
from dragoman.simulator import Reply, Simulator
from dragoman.stores import SqliteStore
from dragoman.tools import FIND_TOOLS, AnyTool, ToolConfig
from tests.chat.killed_moment import LOOKING, MANY, TOOLS
from tests.chat.talking import ROOT, WAYS, Stage, Start
from tests.engines.talking import MODELS

SEARCHING = ToolCall("call_1", FIND_TOOLS, '{"query": "send a mail", "limit": 2}')
SENDING = ToolCall("call_2", "send_mail", "{}")
OURS = {"tool_search": 0}
"""A profile without a search of the provider's own."""


def told(calls: Any) -> list[list[str]]:
    return [[spec.name for spec in call.tools] for call in calls]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_a_tool_is_searched_found_and_called(model: str, way: str) -> None:
    script = [Reply(SEARCHING), Reply(SENDING), "Sent.", Reply(ToolCall("call_3", "count_page", "{}")), "One."]
    config = ToolConfig(search=5, always_offered=["count_file"])
    with Simulator(script) as simulator:
        stage = Stage(simulator, model, way)
        with stage.client(TOOLS, tool_config=config, profile=OURS) as talk:
            assert talk.chat("Send it.").text == "Sent."
            assert talk.chat("How many?").text == "One."  # a tool that it was not told of, but that is there
            first = ("count_file", FIND_TOOLS)
            later = (*first, "send_mail", "send_file")
            assert [request.tools for request in simulator.requests] == [first, *[later] * 4]
            done = [result.text for message in talk.client.history for result in message.tool_results]
            assert done[1:] == ["send_mail done", "count_page done"]
        assert simulator.wait_until_idle()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-4-5", "openai-responses:gpt-5.4"])
def test_a_provider_with_its_own_search_uses_it(model: str, way: str) -> None:
    """The simulator does not search: its model calls what the real one would have found."""
    config = ToolConfig(search=5, always_offered=["count_file"])
    with Simulator([Reply(SENDING), "Sent.", "Fine."]) as simulator:
        with Stage(simulator, model, way).client(TOOLS, tool_config=config, options=ModelOptions(cache=True)) as talk:
            assert talk.chat("Send it.").text == "Sent."
            assert talk.do("ask", "How are you?") == "Fine."
            assert talk.client.history[2].tool_results[0].text == "send_mail done"
        search = {"tool_search_tool_bm25_20251119", "tool_search"}
        for request in simulator.requests[:2]:
            tools: Any = request.body["tools"]
            assert len([each for each in tools if each.get("type") in search]) == 1
            assert len([each for each in tools if each.get("defer_loading")]) == len(TOOLS) - 1
            assert [each["name"] for each in tools if each.get("input_schema") and not each.get("defer_loading")] in (
                ["count_file"],
                [],  # OpenAI says `parameters`
            )
        assert b"find_tools" not in b"".join(request.raw for request in simulator.requests)
        assert simulator.wait_until_idle()


def test_too_many_tools_for_the_provider_use_our_search() -> None:
    many = [*TOOLS, *[each.renamed(f"{each.name}_{number}") for number in range(15) for each in TOOLS]]
    with Simulator(["Hi."]) as simulator:
        stage = Stage(simulator, "openai-responses:gpt-5.4", "plain-whole")
        with stage.client(many, tool_config=MANY) as talk:
            talk.chat("Hello")
        assert simulator.requests[0].tools == (FIND_TOOLS,)


def test_a_chain_searches_as_all_of_its_models_can() -> None:
    def chain(*models: str) -> FallbackEngine:
        return FallbackEngine([engine(each, key="k", base_url="http://127.0.0.1:1") for each in models])

    assert chain("anthropic:claude-opus-5", "openai-responses:gpt-5.4").profile.tool_search == 127
    assert chain("anthropic:claude-opus-5", "gemini:gemini-2.5-flash").profile.tool_search == 0


def test_a_question_offers_no_more_tools_than_a_turn() -> None:
    script = [Reply(SEARCHING), "Found.", "Fine."]
    with Simulator(script) as simulator:
        stage = Stage(simulator, "anthropic:claude-sonnet-4-5", "plain-whole")
        with stage.client(TOOLS, tool_config=MANY, profile=OURS) as talk:
            talk.chat("Find it.")
            assert talk.do("ask", "How are you?") == "Fine."
        assert simulator.requests[2].tools == (FIND_TOOLS, "send_mail", "send_file")


def test_a_reference_to_a_tool_that_is_gone_is_left_out() -> None:
    """As Anthropic refuses it: a search of its own that found a tool which is not offered any more."""

    def opaque(text: str) -> Opaque:
        return Opaque("anthropic", msgspec.Raw(text.encode()))

    found = Message.assistant(
        Text("I look."),
        opaque('{"type":"server_tool_use","id":"srvtoolu_1","name":"tool_search_tool_bm25","input":{"query":"mail"}}'),
        opaque(
            '{"type":"tool_search_tool_result","tool_use_id":"srvtoolu_1","content":{"type":'
            '"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"send_mail"}]}}'
        ),
        Text("There it is."),
    )
    talk = Conversation().plus(Message.user("Find it."), found, Message.user("And now?"))
    offered: list[AnyTool] = list(TOOLS)
    with Simulator(["Yes.", "No.", "No."]) as simulator:
        stage = Stage(simulator, "anthropic:claude-sonnet-4-5", "plain-whole")
        with stage.client(lambda _: offered, tool_config=MANY, conversation=talk) as client:
            client.chat("Is it there?")
            offered = [each for each in TOOLS if each.name != "send_mail"]
            client.chat("And now?")
            losses = client.client.engine.losses(client.client.conversation)
            result = client.chat("Once more?")
    first, second, _ = [str(request.body["messages"]) for request in simulator.requests]
    assert "tool_reference" in first
    assert "tool_reference" not in second
    assert "There it is." in second
    assert "srvtoolu_1" not in second
    assert losses == ()  # which tools there will be, nobody knows
    assert {loss.why for loss in result.replies[0].losses} == {"it found a tool that is no longer offered"}


# --- whatever happens ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["in the search", "after the search"])
def test_found_tools_survive_a_kill(tmp_path: Path, where: str) -> None:
    path = tmp_path / "talks.db"
    command = [sys.executable, "-m", "tests.chat.killed_moment", str(path), where]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    model = ScriptedEngine([Message.assistant(SENDING), "Sent."])

    def tools(_run: RunContext[Any]) -> list[AnyTool]:
        return TOOLS

    with SqliteStore(path) as store, ChatClient(model, tools, tool_config=MANY, store=store) as client:
        client.restore(store.list().items[0].id)
        assert client.uncertain == ()  # a search may be repeated
        assert client.chat().text == "Sent."
    assert told(model.calls) == [[FIND_TOOLS, "send_mail"]] * 2


def test_forks_and_other_models_offer_the_same(start: Start) -> None:
    talk = start([LOOKING, "Found.", "Fine."], TOOLS, tool_config=MANY)
    talk.chat("Find it.")
    fork = talk.do("fork")
    (talk.runner.run(fork.chat("And?")) if hasattr(talk, "runner") else fork.chat("And?"))
    assert told(talk.client.engine.calls)[-1] == [FIND_TOOLS, "send_mail"]
    other = ScriptedEngine(["Hi."], name="other:model")
    with Orchestrator(other, TOOLS, MANY) as loop:
        loop.run(talk.client.conversation.plus(Message.user("Hello")))
    assert told(other.calls) == [[FIND_TOOLS, "send_mail"]]


def test_found_tools_survive_dropped_results() -> None:
    talk = Conversation().plus(Message.user("Find it."), LOOKING)
    with ChatClient(ScriptedEngine(["Found."]), TOOLS, tool_config=MANY, conversation=talk) as client:
        client.chat()
        drop = DropToolResults(above=0.0, keep=0)
        model = ScriptedEngine(["Hi."])
        model.profile = model.profile.with_changes(context_window=10)
        with Orchestrator(model, TOOLS, MANY, context=[drop]) as loop:
            loop.run(client.conversation.plus(Message.user("Hello")))
        assert told(model.calls) == [[FIND_TOOLS, "send_mail"]]


def test_shared_stateless_clients_keep_searches_apart(start: Start) -> None:
    talk = start([LOOKING, "Found.", "Hi."], TOOLS, tool_config=MANY, stateless=True)
    talk.chat("Find it.")
    talk.chat("Hello")
    assert told(talk.client.engine.calls) == [[FIND_TOOLS], [FIND_TOOLS, "send_mail"], [FIND_TOOLS]]


def test_a_turn_without_search_offers_all_tools(start: Start) -> None:
    talk = start(["Hi."], TOOLS)
    talk.chat("Hello")
    offered: tuple[ToolSpec, ...] = talk.client.engine.calls[0].tools
    assert offered == tuple(each.spec for each in TOOLS)
    assert not any(spec.deferred for spec in offered)
