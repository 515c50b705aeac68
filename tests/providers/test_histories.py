"""A history that grew turn by turn is sent as one that was never sent before, in every dialect."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from dragoman.conversation import Conversation, Message, ToolCall, ToolResult
from dragoman.errors import ConfigurationError
from dragoman.providers import PROVIDERS, Call, Encoded, ModelOptions, codec_of, profile_of
from tests.strategies import conversations

MODELS = [
    ("openai", "gpt-4o"),
    ("mistral", "mistral-large"),  # a word of the model between results and the user
    ("openrouter", "anthropic/claude"),  # marks for the cache
    ("deepseek", "deepseek-chat"),
    ("openai-responses", "gpt-5"),
    ("anthropic", "claude-sonnet-4-5"),
    ("gemini", "gemini-2.5-flash"),
    ("gemini", "gemini-3-pro-preview"),
]
OPTIONS = [ModelOptions(max_tokens=100), ModelOptions(max_tokens=100, cache=True)]


def encoded(conversation: Conversation, model: tuple[str, str], options: ModelOptions) -> Encoded | str:
    provider, name = model
    call = Call(model=name, conversation=conversation, profile=_PROFILES[model], options=options)
    try:
        return codec_of(PROVIDERS[provider].dialect).encode(call)
    except ConfigurationError as error:
        return str(error)


_PROFILES = {model: profile_of(*model) for model in MODELS}


def unknown(conversation: Conversation) -> Conversation:
    """An equal one, of which and of whose messages nothing is known."""
    messages = tuple([msgspec.structs.replace(message) for message in conversation.messages])
    return msgspec.structs.replace(conversation, messages=messages)


@settings(max_examples=200)
@given(
    conversations,
    st.lists(st.integers(0, 20), max_size=4),
    st.sampled_from(MODELS),
    st.lists(st.sampled_from(OPTIONS), min_size=1, max_size=5),
)
def test_a_history_that_grew(
    whole: Conversation, places: list[int], model: tuple[str, str], options: list[ModelOptions]
) -> None:
    whole = whole.repaired().conversation
    grown, at = whole.up_to(0), 0
    stops = sorted({min(place, len(whole.messages)) for place in places} | {len(whole.messages)})
    for turn, place in enumerate(stops):
        grown, at = grown.plus(*whole.messages[at:place]), place
        asked = options[turn % len(options)]
        assert encoded(grown, model, asked) == encoded(unknown(grown), model, asked)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model[0])
@pytest.mark.parametrize("options", OPTIONS, ids=["", "cache"])
def test_branches_and_changes(model: tuple[str, str], options: ModelOptions) -> None:
    calls = Message.assistant("Let me look.", ToolCall("1", "f", "{}"), ToolCall("2", "f", "{}"))
    results = Message.tool([ToolResult("1", "f"), ToolResult("2", "f")])
    stem = Conversation("Be brief.").plus(Message.user("a"), calls, results, Message.assistant("b"), Message.user("c"))
    encoded(stem, model, options)
    branches = [
        stem.plus(Message.assistant("d"), Message.user("e")),
        stem.plus(Message.assistant("f"), Message.user("g")),
        stem.up_to(1),
        stem.up_to(3),
        stem.with_system(None),
        stem.with_system("Be long."),
        stem.with_metadata({"x": 1}),
        stem,
    ]
    for branch in branches:
        assert encoded(branch, model, options) == encoded(unknown(branch), model, options)
