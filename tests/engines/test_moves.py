"""A conversation moved between all ordered pairs of dialects, after tool calls, thinking and media."""

from __future__ import annotations

import pytest
from msgspec import Raw

from dragoman.conversation import (
    Conversation,
    Media,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    conversation_from_json,
    conversation_to_json,
)
from dragoman.engines import engine
from dragoman.errors import LossyConversionError
from dragoman.simulator import Reply, Simulator
from tests.engines.talking import MODELS, plain_stream, plain_whole

WEATHER = ToolSpec(
    "weather", "Say how the weather is.", Raw(b'{"type":"object","properties":{"city":{"type":"string"}}}')
)
PICTURE = Media.from_bytes(b"\x89PNG\r\n\x1a\n", "image/png")

pairs = [(here, there) for here in MODELS.values() for there in MODELS.values() if here != there]
every_pair = pytest.mark.parametrize(("here", "there"), pairs, ids=lambda model: model.partition(":")[0])


def _after_a_while(model: str) -> Conversation:
    """A conversation with this model in which everything occurs that a provider keeps to itself."""
    asked = Conversation("Be brief.").plus(Message.user("What is the weather here?", PICTURE))
    script = [
        Reply(
            Thinking("That looks like Paris.", ""), "Let me look.", ToolCall("call_1", "weather", '{"city":"Paris"}')
        ),
        Reply("It is sunny."),
    ]
    with Simulator(script) as simulator:
        first = plain_stream(simulator, model, asked, tools=[WEATHER])
        assert first.error is None
        assert first.reply is not None
        [call] = first.reply.message.tool_calls
        results = Message.tool([ToolResult(call.id, call.name, (Text("sunny"), PICTURE))])
        talk = asked.plus(first.reply.message, results)
        second = plain_whole(simulator, model, talk, tools=[WEATHER])
        assert second.error is None
        assert second.reply is not None
        assert simulator.errors == ()
    reader = next(block.provider for block in first.reply.message.blocks if isinstance(block, Thinking))
    opaque = Opaque(reader, Raw(b'{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}'))
    last = Message.assistant(Text("It is sunny."), opaque)
    return talk.plus(second.reply.message, Message.user("And tomorrow?"), last, Message.user("Thanks."))


@every_pair
def test_a_moved_conversation_is_accepted_and_the_losses_are_named_or_refused(here: str, there: str) -> None:
    talk = _after_a_while(here)
    assert talk.is_valid
    with Simulator(["You are welcome."]) as simulator:
        options = {"base_url": simulator.base_url(there.partition(":")[0]), "key": "k"}
        with engine(there, strict=True, **options) as careful, pytest.raises(LossyConversionError) as caught:
            careful.run_inference(talk, tools=[WEATHER])
        assert caught.value.losses
        assert simulator.requests == ()
        with engine(there, **options) as talker:
            losses = talker.losses(talk)
            moved = talker.run_inference(talk, tools=[WEATHER])
        assert simulator.errors == ()
    assert moved.text == "You are welcome."
    assert moved.is_valid
    # Another provider's thoughts are never rendered as text. Claude's own are signed alike wherever it is.
    at_home = "claude" in here and "claude" in there
    assert {"opaque"} | ({"thinking"} if not at_home else set()) <= {loss.what for loss in losses}
    for loss in losses:
        assert loss.why
        assert talk.messages[loss.message].blocks[loss.block]
    asked = simulator.requests[-1]
    assert ("That looks like Paris." in str(asked.body)) is at_home
    assert "sunny" in str(asked.body)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_nothing_is_lost_at_home_also_after_storing(model: str) -> None:
    talk = conversation_from_json(conversation_to_json(_after_a_while(model)))
    without_opaque = Conversation(talk.system, talk.messages[:4])
    with engine(model, base_url="http://127.0.0.1:9/v1", key="k") as talker:
        kept = [loss for loss in talker.losses(without_opaque) if loss.what == "thinking"]
    assert kept == []
