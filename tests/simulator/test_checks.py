"""Requests that a provider would refuse are refused, with the provider's error."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.simulator import Simulator
from tests.simulator.raw_client import DIALECTS, body_of, path_of, send

USER = {"role": "user", "content": "Hi"}


def chat_call(*ids: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": call, "type": "function", "function": function} for call in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def use(*ids: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": call, "name": "f", "input": {}} for call in ids],
    }


def result(*ids: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "r"} for call in ids]}


def model(*names: str) -> dict[str, Any]:
    return {"role": "model", "parts": [{"functionCall": {"name": name, "args": {}}} for name in names]}


def responses(*names: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"functionResponse": {"name": name, "response": {}}} for name in names]}


def tool(name: str, description: str = "") -> dict[str, Any]:
    function = {"type": "function", "name": name, "description": description, "parameters": {}}
    return {"type": "function", "function": function}


PARTS = {"role": "user", "parts": [{"text": "Hi"}]}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "r"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
BAD_TOOL = {"type": "function", "function": {"name": "not legal", "parameters": {}}}
LONG_TOOL = {"type": "function", "name": "f" * 65, "parameters": {}}

# (dialect, changes to a good body where None takes a member away, words of the refusal)
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("openai_chat", {"model": None}, "you must provide a model parameter"),
    ("openai_chat", {"tools": [tool(f"f{number}") for number in range(129)]}, "array with length 129 instead"),
    ("openai_chat", {"tools": [tool("f", "x" * 1_048_577)]}, "tools[0].function.description': string too long"),
    ("openai_responses", {"tools": [tool("f", "x" * 1_048_577)["function"]]}, "tools[0].description': string too long"),
    ("openai_chat", {"messages": None}, "Missing required parameter: 'messages'."),
    ("openai_chat", {"messages": []}, "Invalid 'messages': empty array."),
    ("openai_chat", {"messages": [USER, chat_call("c1", "c2"), USER]}, "result right behind them: c1, c2"),
    (
        "openai_chat",
        {"messages": [USER, {"role": "tool", "tool_call_id": "c1", "content": "r"}]},
        "no call of the reply before",
    ),
    ("openai_chat", {"tools": [BAD_TOOL]}, "Invalid 'tools[0].function.name': string does not match pattern."),
    ("openai_responses", {"model": None}, "Missing required parameter: 'model'."),
    ("openai_responses", {"input": None}, "must be provided"),
    ("openai_responses", {"input": [USER, CALL]}, "result right behind them: c1"),
    ("openai_responses", {"input": [USER, OUTPUT]}, "no call of the reply before"),
    ("openai_responses", {"input": [USER, REASONING, USER]}, "without its required following item"),
    ("openai_responses", {"input": [USER, REASONING]}, "Item 'rs_1' of type 'reasoning'"),
    ("openai_responses", {"tools": [LONG_TOOL]}, "maximum length 64, but got a string with length 65"),
    ("anthropic", {"model": None}, "model: Field required"),
    ("anthropic", {"max_tokens": None}, "max_tokens: Field required"),
    ("anthropic", {"messages": None}, "messages: Field required"),
    ("anthropic", {"messages": []}, "messages: at least one message is required"),
    ("anthropic", {"messages": [{"role": "assistant", "content": "x"}]}, 'first message must use the "user" role'),
    ("anthropic", {"messages": [{"role": "user", "content": ""}]}, "must have non-empty content"),
    (
        "anthropic",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]},
        "text content blocks must be non-empty",
    ),
    ("anthropic", {"messages": [USER, use("c1", "c2"), result("c2")]}, "result right behind them: c1"),
    ("anthropic", {"messages": [USER, result("c1")]}, "no call of the reply before"),
    ("anthropic", {"messages": [USER, use("c 1"), result("c 1")]}, "tool_use.id: String should match pattern"),
    (
        "anthropic",
        {"messages": [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "input": "x"}]}]},
        "tool_use.input: Input should be a valid dictionary",
    ),
    ("anthropic", {"tools": [{"name": "not legal"}]}, "tools.0.custom.name: String should match pattern"),
    ("anthropic", {"tools": [{"name": "f"}, {"name": "f"}]}, "Tool names must be unique."),
    ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 100}}, "greater than `thinking.budget_tokens`"),
    ("gemini", {"contents": []}, "contents is not specified"),
    ("gemini", {"contents": [{"role": "user", "parts": []}]}, "contents.parts must not be empty"),
    ("gemini", {"contents": [PARTS, model("f", "g"), responses("f")]}, "result right behind them: g"),
    ("gemini", {"contents": [PARTS, responses("f")]}, "no call of the reply before"),
    ("gemini", {"tools": [{"functionDeclarations": [{"name": "1st"}]}]}, "Invalid function name."),
]


def changed(dialect: str, changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (body_of(dialect) | changes).items() if value is not None}


@pytest.mark.parametrize(("dialect", "changes", "words"), REFUSED)
def test_bad_request_is_refused(simulator: Simulator, dialect: str, changes: dict[str, Any], words: str) -> None:
    answer = send(simulator, path_of(dialect, stream=False), changed(dialect, changes))
    assert answer.status == 400
    error = answer.json["error"]
    assert words in error["message"]
    kind = {"gemini": ("status", "INVALID_ARGUMENT")}.get(dialect, ("type", "invalid_request_error"))
    assert error[kind[0]] == kind[1]


GOOD: list[tuple[str, dict[str, Any]]] = [
    (
        "openai_chat",
        {
            "messages": [
                {"role": "developer", "content": "x"},
                USER,
                chat_call("c1", "c2"),
                {"role": "tool", "tool_call_id": "c2", "content": "r"},
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "r"}]},
                {"role": "assistant", "content": "x"},
                {"role": "user", "content": [{"type": "text", "text": "x"}]},
            ]
        },
    ),
    ("openai_responses", {"input": "Hi"}),
    ("openai_responses", {"input": [USER, REASONING, CALL, OUTPUT, REASONING, {"role": "assistant", "content": "x"}]}),
    ("openai_responses", {"input": [OUTPUT], "previous_response_id": "resp_1"}),
    ("openai_responses", {"input": [USER, REASONING, {"type": "web_search_call", "id": "ws_1"}]}),
    ("anthropic", {"messages": [USER, use("c1", "c2"), result("c2", "c1"), {"role": "assistant", "content": "x"}]}),
    ("anthropic", {"messages": [USER, use("c1", "c2"), result("c1"), result("c2")]}),  # one turn of two messages
    ("anthropic", {"messages": [USER, {"role": "system", "content": "x"}, USER], "system": [{"type": "text"}]}),
    ("gemini", {"contents": [{"parts": [{"text": "x"}]}]}),
    ("gemini", {"contents": [PARTS, model("f", "g"), responses("f", "g"), model("f"), responses("f")]}),
    ("gemini", {"contents": [PARTS, {"role": "model", "parts": [{"text": "x"}]}, PARTS]}),
]


@pytest.mark.parametrize(("dialect", "changes"), GOOD)
def test_good_request_is_accepted(simulator: Simulator, dialect: str, changes: dict[str, Any]) -> None:
    answer = send(simulator, path_of(dialect, stream=False), changed(dialect, changes))
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("dialect", DIALECTS)
def test_checks_can_be_switched_off(dialect: str) -> None:
    with Simulator(["Hello"], check=False) as simulator:
        assert send(simulator, path_of(dialect, stream=False), {}).status == 200


def test_query_and_headers_are_checked(simulator: Simulator) -> None:
    answer = send(simulator, path_of("gemini", stream=True, sse=False), body_of("gemini"))
    assert (answer.status, "alt=sse" in answer.json["error"]["message"]) == (400, True)
    answer = send(simulator, "/v1/messages", body_of("anthropic"), headers={"anthropic-version": None})
    assert answer.json["error"]["message"] == "anthropic-version: header is required"


def test_changed_gemini_signature_is_refused(simulator: Simulator) -> None:
    from dragoman.simulator.dialect import sign

    part = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": sign("f")}
    contents = [PARTS, {"role": "model", "parts": [part]}, responses("f")]
    assert send(simulator, path_of("gemini", stream=False), {"contents": contents}).status == 200
    part["thoughtSignature"] = sign("g")
    assert send(simulator, path_of("gemini", stream=False), {"contents": contents}).status == 400
    part["thoughtSignature"] = "c29tZWJvZHkgZWxzZSdz"  # a foreign one
    assert send(simulator, path_of("gemini", stream=False), {"contents": contents}).status == 200


def test_result_parts_other_than_text_stay_json(simulator: Simulator) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://host/a.png"}}
    block = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "r"}, image]}
    messages = [USER, use("c1"), {"role": "user", "content": [block]}]
    send(simulator, path_of("anthropic", stream=False), body_of("anthropic") | {"messages": messages})
    (heard,) = simulator.requests[-1].tool_results
    assert heard.content[0].text == "r"
    assert heard.content[1].value == image
    output = {**OUTPUT, "output": [{"type": "input_text", "text": "r"}, {"type": "input_image"}]}
    body = body_of("openai_responses") | {"input": [{"role": "developer", "content": "Be brief."}, USER, CALL, output]}
    send(simulator, path_of("openai_responses", stream=False), body)
    request = simulator.requests[-1]
    assert [part.text for part in request.tool_results[0].content] == ["r", '{"type":"input_image"}']
    assert request.system == "Be brief."


@pytest.mark.parametrize("dialect", ["anthropic", "openai_responses"])
def test_results_of_the_last_reply_are_seen_before_a_text_of_the_user(simulator: Simulator, dialect: str) -> None:
    block = {"type": "tool_result", "tool_use_id": "c1", "content": "r"}
    history = {
        "anthropic": {
            "messages": [USER, use("c1"), {"role": "user", "content": [block, {"type": "text", "text": "So?"}]}]
        },
        "openai_responses": {"input": [USER, CALL, OUTPUT, {"role": "user", "content": "So?"}]},
    }[dialect]
    assert send(simulator, path_of(dialect, stream=False), body_of(dialect) | history).status == 200
    request = simulator.requests[-1]
    assert (len(request.tool_results), request.last_user_text) == (1, "So?")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b"[" * 20_000, b'{"a":\x00}'])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_body_that_is_not_a_json_object_is_refused(simulator: Simulator, dialect: str, body: bytes) -> None:
    answer = send(simulator, path_of(dialect, stream=False), body)
    assert answer.status == 400
    assert "JSON object" in answer.json["error"]["message"]
    assert simulator.requests[-1].raw == body


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("value", [None, 1, "x", [], [1], [None], {}, {"a": 1}, [[]], [{"content": 3, "parts": 3}]])
def test_fields_of_any_shape_are_handled(simulator: Simulator, dialect: str, value: object) -> None:
    """A request of a wrong shape gets an answer of some kind, never a failure of the simulator itself."""
    for name in ("messages", "input", "contents", "tools", "system", "thinking", "model", "stream", "stream_options"):
        answer = send(simulator, path_of(dialect, stream=True), body_of(dialect, stream=True) | {name: value})
        assert answer.status in {200, 400}, (name, answer.body)
    assert not simulator.errors


# --- keys ------------------------------------------------------------------------------------------------------------

KEYS: dict[str, list[dict[str, str]]] = {
    "openai_chat": [{"authorization": "Bearer right"}],
    "openai_responses": [{"authorization": "bearer right"}],
    "anthropic": [{"x-api-key": "right"}, {"authorization": "Bearer right"}],
    "gemini": [{"x-goog-api-key": "right"}],
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_key_is_checked_and_never_printed(dialect: str) -> None:
    target, body = path_of(dialect, stream=False), body_of(dialect)
    with Simulator(api_key="right") as simulator:
        statuses = [send(simulator, target, body).status]
        for headers in KEYS[dialect]:
            wrong = {name: value.replace("right", "wrong") for name, value in headers.items()}
            refused = send(simulator, target, body, headers=wrong)
            assert "wrong" not in refused.body.decode()
            assert send(simulator, target, body, headers=headers).status == 200
        statuses.append(refused.status)
        assert "right" not in repr(simulator.requests)
        if dialect == "gemini":
            assert send(simulator, f"{target}?key=right", body).status == 200
    assert statuses == ([403, 400] if dialect == "gemini" else [401, 401])
    words = {"gemini": "API_KEY_INVALID", "anthropic": "authentication_error"}
    assert words.get(dialect, "invalid_api_key") in refused.body.decode()


# --- other endpoints -------------------------------------------------------------------------------------------------


def test_unknown_path_is_a_404(simulator: Simulator) -> None:
    answer = send(simulator, "/v2/nothing", {})
    assert (answer.status, answer.json["error"]["message"]) == (404, "Invalid URL (POST /v2/nothing)")
    assert simulator.requests[-1].dialect == "unknown"
    assert send(simulator, "/v1/chat/completions", method="DELETE").status == 404
