"""Log probabilities, safety ratings and further answers: compared with the SDKs, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw
from openai.types.chat import ChatCompletion

from dragoman.conversation import Message, Native, StopReason, Text, ToolCall
from dragoman.errors import ConfigurationError
from dragoman.providers import SafetyRating, TokenLogprob, choices_of, logprobs_of, safety_of
from dragoman.providers.wire import Growing
from tests.providers.bedrock.wire import read_by_amazon
from tests.providers.calls import body_of, call_of, decoder_of, encoded
from tests.providers.feeding import message_of
from tests.providers.gemini.case import as_events, chunk, streamed, whole
from tests.providers.oracles import gemini_responses, openai_response
from tests.providers.recorded import Exchange, parametrized
from tests.providers.test_recorded import decoded
from tests.strategies import json_values

# --- the options ------------------------------------------------------------------------------------------------------


def test_options_on_the_wire() -> None:
    chat = body_of("openai:gpt-4o", logprobs=3, choices=2)
    assert (chat["logprobs"], chat["top_logprobs"], chat["n"]) == (True, 3, 2)
    assert "top_logprobs" not in body_of("openai:gpt-4o", logprobs=0)
    responses = body_of("openai-responses:gpt-4o", logprobs=3, extra_body={"include": ["x"]})
    assert (responses["top_logprobs"], responses["include"]) == (3, ["message.output_text.logprobs", "x"])
    assert body_of("openai-responses:gpt-5.1", logprobs=0)["include"] == [
        "message.output_text.logprobs",
        "reasoning.encrypted_content",
    ]
    gemini = body_of("gemini:gemini-2.5-flash", logprobs=3, choices=2)["generationConfig"]
    assert gemini == {"candidateCount": 2, "responseLogprobs": True, "logprobs": 3}


@pytest.mark.parametrize("wrong", [{"logprobs": -1}, {"logprobs": True}, {"choices": 0}, {"choices": "2"}])
def test_invalid_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="does not fit"):
        encoded("openai:gpt-4o", **wrong)


# --- recorded replies, against the SDKs -------------------------------------------------------------------------------


@parametrized("responses", '"logprob":')
def test_logprobs_of_responses(exchange: Exchange) -> None:
    messages = [item for item in openai_response(exchange).output if item.type == "message"]
    parts = [part for message in messages for part in message.content]
    said = [
        (one.token, one.logprob, [(o.token, o.logprob) for o in one.top_logprobs]) for p in parts for one in p.logprobs
    ]
    found = logprobs_of(decoded("responses", exchange))
    assert said
    assert [(one.token, one.logprob, [(o.token, o.logprob) for o in one.alternatives]) for one in found] == said


@parametrized("gemini", "logprobsResult")
def test_logprobs_of_gemini(exchange: Exchange) -> None:
    [response] = gemini_responses(exchange)
    result = response.candidates[0].logprobs_result
    tops = [top.candidates for top in result.top_candidates or [] if top.candidates]
    others = tops or [[]] * len(result.chosen_candidates)
    said = [
        TokenLogprob(one.token, one.log_probability, tuple(TokenLogprob(o.token, o.log_probability) for o in top))
        for one, top in zip(result.chosen_candidates, others, strict=True)
    ]
    assert list(logprobs_of(decoded("gemini", exchange))) == said


@parametrized("gemini", "safetyRatings")
def test_safety_of_gemini(exchange: Exchange) -> None:
    [response] = gemini_responses(exchange)
    said = [
        SafetyRating(one.category.value, "answer", one.probability.value, one.probability_score, one.blocked is True)
        for one in response.candidates[0].safety_ratings
    ]
    assert list(safety_of(decoded("gemini", exchange))) == said
    assert any(one.blocked for one in said)


def _azure(source: Any, results: dict[str, dict[str, Any]]) -> list[SafetyRating]:
    return [
        SafetyRating(name, source, one.get("severity"), None, one["filtered"])
        for name, one in results.items()
        if "filtered" in one
    ]


@parametrized("chat", "content_filter_results")
def test_safety_of_azure(exchange: Exchange) -> None:
    completion: Any = ChatCompletion.construct(**json.loads(exchange.body))
    said = _azure("prompt", completion.prompt_filter_results[0]["content_filter_results"])
    said += _azure("answer", completion.choices[0].content_filter_results)
    assert list(safety_of(decoded("chat", exchange))) == said


@parametrized("responses", "content_filter_results")
def test_safety_of_azure_responses(exchange: Exchange) -> None:
    response = openai_response(exchange)
    sides = {"prompt": "prompt", "completion": "answer"}
    said = [
        one
        for each in response.content_filters
        for one in _azure(sides[each["source_type"]], each["content_filter_results"])
    ]
    found = safety_of(decoded("responses", exchange))
    assert said
    assert {(one.source, one.category): one for one in found} == {(one.source, one.category): one for one in said}


@parametrized("bedrock", '"trace"')
def test_safety_of_a_guardrail_that_found_nothing(exchange: Exchange) -> None:
    message = decoded("bedrock", exchange)
    assert "inputAssessment" in read_by_amazon(exchange.data, streamed=False)["trace"]["guardrail"]
    assert safety_of(message) == ()


# --- whole and as a stream --------------------------------------------------------------------------------------------


def test_safety_of_a_guardrail_with_findings() -> None:
    assessment = {
        "topicPolicy": {"topics": [{"name": "Investing", "type": "DENY", "action": "BLOCKED"}]},
        "contentPolicy": {"filters": [{"type": "HATE", "confidence": "LOW", "action": "NONE", "detected": True}]},
        "wordPolicy": {"customWords": [{"match": "darn", "action": "BLOCKED"}], "managedWordLists": []},
        "sensitiveInformationPolicy": {"piiEntities": [{"type": "EMAIL", "match": "a@b", "action": "ANONYMIZED"}]},
        "contextualGroundingPolicy": {"filters": [{"type": "GROUNDING", "threshold": 0.5, "score": 0.1}]},
    }
    trace = {"guardrail": {"inputAssessment": {"g": assessment}, "outputAssessments": {"g": [assessment]}}}
    body = {
        "output": {"message": {"role": "assistant", "content": [{"text": "No."}]}},
        "stopReason": "guardrail_intervened",
        "trace": trace,
    }
    assert read_by_amazon(json.dumps(body).encode(), streamed=False)["trace"] == trace
    found = safety_of(message_of(decoder_of(call_of("bedrock:amazon.nova-lite-v1:0")), [json.dumps(body).encode()]))
    assert [one.source for one in found] == ["prompt"] * 5 + ["answer"] * 5
    assert [(one.category, one.level, one.score, one.blocked) for one in found[:5]] == [
        ("Investing", None, None, True),
        ("HATE", "LOW", None, False),
        ("darn", None, None, True),
        ("EMAIL", None, None, False),
        ("GROUNDING", None, 0.1, False),
    ]


def test_the_last_ratings_of_a_stream_count() -> None:
    def rated(level: str) -> dict[str, Any]:
        return {"safetyRatings": [{"category": "HATE", "probability": level, "probabilityScore": 0.25}]}

    feedback = {"promptFeedback": {"safetyRatings": [{"category": "HATE", "probability": "LOW", "blocked": False}]}}
    parts = ({**chunk("a", **rated("LOW")), **feedback}, chunk("b", finish="STOP", **rated("HIGH")))
    assert safety_of(streamed(*parts)) == (
        SafetyRating("HATE", "prompt", "LOW"),
        SafetyRating("HATE", "answer", "HIGH", 0.25),
    )


def test_repeated_tokens_are_kept() -> None:
    """A chunk that says the same as the one before repeats nothing: the model said it twice."""

    def likely(*tokens: str) -> dict[str, Any]:
        one = [{"token": token, "logProbability": -1} for token in tokens]
        return {"logprobsResult": {"chosenCandidates": one, "topCandidates": [{"candidates": [each]} for each in one]}}

    message = streamed(
        chunk("ha", **likely("ha")), chunk("ha", **likely("ha")), chunk("!", finish="STOP", **likely("!"))
    )
    assert [one.token for one in logprobs_of(message)] == ["ha", "ha", "!"]
    assert logprobs_of(message) == logprobs_of(whole(chunk("haha!", finish="STOP", **likely("ha", "ha", "!"))))


CHAT = {"id": "r1", "model": "gpt-4o", "created": 1}


def chat(*choices: dict[str, Any]) -> Message:
    return message_of(decoder_of(call_of("openai:gpt-4o"), NAMES), [json.dumps({**CHAT, "choices": choices}).encode()])


def chat_stream(*chunks: list[dict[str, Any]]) -> Message:
    lines = [json.dumps({**CHAT, "choices": choices}) for choices in chunks]
    data = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
    return message_of(decoder_of(call_of("openai:gpt-4o", stream=True), NAMES), [data])


NAMES = {"files_read": "files.read"}


def test_all_choices_of_a_chat() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "files_read", "arguments": "{}"}}
    message = chat(
        {"index": 0, "message": {"content": "One"}, "finish_reason": "stop"},
        {"index": 2, "message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"},
        {"index": 1, "message": {"content": "Two"}, "finish_reason": "length"},
    )
    first, second, third = choices_of(message)
    assert first is message
    assert (second.text, second.stop_reason, second.model, second.id) == ("Two", StopReason.MAX_TOKENS, "gpt-4o", "r1")
    assert third.blocks == (ToolCall("c1", "files.read", "{}"),)
    in_pieces = chat_stream(
        [{"index": 0, "delta": {"content": "On"}}, {"index": 1, "delta": {"content": "T"}}],
        [{"index": 1, "delta": {"content": "w"}}, {"index": 2, "delta": {"tool_calls": [{"index": 0, **call}]}}],
        [{"index": 1, "delta": {"content": "o"}, "finish_reason": "length"}],
        [{"index": 0, "delta": {"content": "e"}, "finish_reason": "stop"}],
        [{"index": 2, "delta": {}, "finish_reason": "tool_calls"}],
    )
    assert [(each.blocks, each.stop_reason) for each in choices_of(in_pieces)] == [
        (each.blocks, each.stop_reason) for each in (first, second, third)
    ]


def test_all_candidates_of_gemini() -> None:
    def both(*texts: str, **more: Any) -> dict[str, Any]:
        candidates = [
            {"index": place, "content": {"parts": [{"text": text}]}, **more} for place, text in enumerate(texts)
        ]
        return {**chunk(), "candidates": candidates}

    at_once = whole(both("haha", "hoho", finishReason="STOP"))
    message = streamed(both("ha", "ho"), both("ha", "ho"), both("", "", finishReason="STOP"))
    for each in (at_once, message):
        first, second = choices_of(each)
        assert (first, second.blocks, second.stop_reason) == (each, (Text("hoho"),), StopReason.END)
        assert (second.model, second.id, second.usage) == (each.model, each.id, None)
    # One that broke off is there as far as it came.
    cut = message_of(
        decoder_of(call_of("gemini:g", stream=True)), [as_events(both("a", "x"), both("b", "y"), chunk(finish="STOP"))]
    )
    assert [(each.text, each.interrupted) for each in choices_of(cut)] == [("ab", False), ("xy", True)]


def test_a_reply_without_details() -> None:
    message = chat({"index": 0, "message": {"content": "One"}, "finish_reason": "stop"})
    assert (logprobs_of(message), safety_of(message), choices_of(message)) == ((), (), (message,))
    by_hand = Message.assistant("Hi")
    assert (logprobs_of(by_hand), safety_of(by_hand), choices_of(by_hand)) == ((), (), (by_hand,))


# --- any shape --------------------------------------------------------------------------------------------------------

NAMED = (
    "choice logprobs content token logprob top_logprobs logprobsResult chosenCandidates topCandidates candidates "
    "logProbability safetyRatings promptFeedback category probability blocked trace guardrail inputAssessment "
    "outputAssessments topicPolicy topics contentPolicy filters name action choices index message delta "
    "finish_reason parts tool_names prompt_filter_results content_filter_results content_filters filtered "
    "severity"
)
shapes = st.recursive(
    json_values | st.sampled_from([1, -0.5, "BLOCKED", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMED.split()), inner, max_size=6),
    max_leaves=15,
)


@given(
    dialect=st.sampled_from(["openai_chat:openai", "openai_responses", "gemini", "bedrock", "anthropic", "else"]),
    fields=st.dictionaries(st.sampled_from(NAMED.split()), shapes, max_size=5),
)
def test_malformed_details_are_ignored(dialect: str, fields: dict[str, Any]) -> None:
    native = Native(dialect, {name: Raw(json.dumps(value).encode()) for name, value in fields.items()})
    message = Message(role="assistant", blocks=(Text("Hi", native),), native=native, provider="openai", model="m")
    assert all(isinstance(one.logprob, float) for one in logprobs_of(message))
    assert all(one.category for one in safety_of(message))
    assert choices_of(message)[0] is message


@given(value=shapes)
def test_malformed_details_do_not_break_a_reply(value: Any) -> None:
    beside = {"logprobsResult": value, "safetyRatings": value}
    message = whole({**chunk("Hi", finish="STOP", **beside), "promptFeedback": {"safetyRatings": value}})
    assert message.text == "Hi"
    logprobs_of(message)
    safety_of(message)


def test_numbers_out_of_range_are_skipped() -> None:
    tokens = [{"token": "a", "logprob": 10**400}, {"token": "b", "logprob": -1}]
    choice = {"index": 0, "message": {"content": "ab"}, "logprobs": {"content": tokens}, "finish_reason": "stop"}
    message = message_of(decoder_of(call_of("openai:gpt-4o")), [json.dumps({"id": "i", "choices": [choice]}).encode()])
    assert logprobs_of(message) == (TokenLogprob("b", -1.0),)


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (['"ha"', '"ha"', '"!"'], '"haha!"'),
        (['"a"', '"b"', '"ab"'], '"abab"'),
        (['"same"', '"same"'], '"same"'),
        (['[{"t":"x","index":0},{"d":"E","index":0}]'], '[{"t":"x","index":0},{"d":"E","index":0}]'),
    ],
)
def test_unknown_members_are_merged_from_their_pieces(pieces: list[str], whole: str) -> None:
    growing = Growing(deltas=True)
    for piece in pieces:
        growing.add(Raw(piece.encode()))
    assert bytes(growing.whole()).decode() == whole
