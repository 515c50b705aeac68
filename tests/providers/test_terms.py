"""What is worked out for the terms of a call is kept for calls on the same terms, and for no others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers import CODEC, Call, ModelOptions, profile_of
from dragoman.providers.codec import per_terms

PROFILE = profile_of("openai", "gpt-4o")
ASKED = Conversation().plus(Message.user("Hi"))
TOOL = ToolSpec("f")


def call(**terms: Any) -> Call:
    return Call(**{"model": "gpt-4o", "conversation": ASKED, "profile": PROFILE, "options": PLAIN, **terms})


PLAIN = ModelOptions()


def test_the_same_terms_are_worked_out_once() -> None:
    made: list[Call] = []

    @per_terms
    def count(terms: Call) -> int:
        made.append(terms)
        return len(made)

    assert [count(call()), count(call(conversation=ASKED.plus(Message.user("More"))))] == [1, 1]
    assert not made[0].conversation.messages  # nothing can depend on them
    others: list[dict[str, Any]] = [
        {"stream": True},
        {"model": "gpt-4.1"},
        {"tools": (TOOL,)},
        {"tools": (TOOL, TOOL)},
        {"options": ModelOptions(temperature=0.5)},
        {"profile": profile_of("openai", "o3")},
    ]
    assert [count(call(**terms)) for terms in others] == [2, 3, 4, 5, 6, 7]
    assert [count(call(**terms)) for terms in others] == [2, 3, 4, 5, 6, 7]
    assert count(call()) == 1


def test_many_terms_do_not_fill_the_memory() -> None:
    @per_terms
    def temperature(terms: Call) -> float | None:
        return terms.options.temperature

    for number in range(1000):
        assert temperature(call(options=ModelOptions(temperature=float(number)))) == number


def test_a_mapping_that_its_owner_changes_is_read_again() -> None:
    body, headers = {"a": 1}, {"x": "1"}
    options = ModelOptions(extra_body=body, extra_headers=headers)
    first = CODEC.encode(call(options=options)).request
    body["a"], headers["x"] = 2, "2"
    second = CODEC.encode(call(options=options)).request
    assert (json.loads(first.body)["a"], first.headers) == (1, {"x": "1"})
    assert (json.loads(second.body)["a"], second.headers) == (2, {"x": "2"})


def test_what_cannot_be_is_refused_every_time() -> None:
    options = ModelOptions(temperature=0.5)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="temperature"):
            CODEC.encode(call(options=options, profile=profile_of("openai", "o3"), model="o3"))


def test_members_of_the_callers_own_win_over_ours() -> None:
    ours = json.loads(CODEC.encode(call(tools=(TOOL,))).request.body)
    assert list(ours) == ["model", "messages", "tools"]
    theirs = {"messages": [], "model": "m", "tools": None, "more": 1}
    both = CODEC.encode(call(tools=(TOOL,), options=ModelOptions(extra_body=theirs))).request.body
    assert json.loads(both) == theirs
    assert json.loads(CODEC.encode(call()).request.body) == {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "Hi"}],
    }
