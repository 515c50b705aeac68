"""What a request in the responses dialect says, and what the API would refuse in it.

Owns: reading `input`; the rules that clients break most often.
Must not know: replies. A rule that is not here is not checked: a request may pass that the API would refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import Json, ResultPart, Text, ToolResult
from dragoman.simulator.dialects.dialect import Refusal
from dragoman.simulator.dialects.openai_shared import tool_name_problem
from dragoman.simulator.json_access import JsonObject, items, members, string
from dragoman.simulator.request import Heard

__all__ = ["check", "hear"]

_ROLES: Final = ("assistant", "system", "developer", "user")
_TEXT_PARTS: Final = ("input_text", "output_text", "text")
_OF_THE_MODEL: Final = ("function_call", "reasoning")


def hear(body: JsonObject) -> Heard:
    """The request in the terms of all dialects."""
    names: dict[str, str] = {}
    results: list[ToolResult] = []
    system = [string(body.get("instructions"))]
    texts: list[str] = []
    turns, answering = 0, False
    for item in _input(body):
        replied = _is_reply(item)
        if replied:
            turns += not answering  # neighbouring items are one reply
            results = []
        answering = replied
        if item.get("type") == "function_call":
            names[string(item.get("call_id"))] = string(item.get("name"))
        elif item.get("type") == "function_call_output":
            results.append(_result(item, names))
        elif item.get("role") in {"system", "developer"}:
            system.append(_text(item.get("content")))
        elif item.get("role") == "user":
            texts.append(_text(item.get("content")))
    return Heard(
        system="\n".join(text for text in system if text),
        user_texts=tuple(text for text in texts if text),
        tool_results=tuple(results),
        tools=tuple(string(members(tool).get("name")) for tool in items(body.get("tools"))),
        turns=turns,
    )


def _input(body: JsonObject) -> list[JsonObject]:
    given = body.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return [members(item) for item in items(given)]


def _is_reply(item: JsonObject) -> bool:
    return item.get("type") in _OF_THE_MODEL or item.get("role") == "assistant"


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = [members(part) for part in items(content)]
    return "".join(string(part.get("text")) for part in parts if part.get("type") in _TEXT_PARTS)


def _result(item: JsonObject, names: Mapping[str, str]) -> ToolResult:
    call_id = string(item.get("call_id"))
    output = item.get("output")
    parts: list[ResultPart] = [Text(output)] if isinstance(output, str) else []
    for part in items(output):
        plain = members(part).get("type") in _TEXT_PARTS
        parts.append(Text(string(members(part).get("text"))) if plain else Json(Raw(msgspec.json.encode(part))))
    return ToolResult(call_id, names.get(call_id, ""), tuple(parts))


# --- what the API would refuse ---------------------------------------------------------------------------------------


def check(body: JsonObject, _headers: Mapping[str, str]) -> Refusal | None:
    """The first thing that the API would refuse."""
    return next(_problems(body), None)


def _problems(body: JsonObject) -> Iterator[Refusal]:
    if not string(body.get("model")):
        yield Refusal(400, "Missing required parameter: 'model'.", "missing_required_parameter", "model")
    continued = any(body.get(name) for name in ("previous_response_id", "conversation", "prompt"))
    if not body.get("input") and not continued:
        one_of = '"input" or "previous_response_id" or "prompt" or "conversation"'
        yield Refusal(400, f"One of {one_of} must be provided.", "missing_required_parameter", "input")
    entries = _input(body)
    for index, item in enumerate(entries):
        role = item.get("role")
        if role is not None and role not in _ROLES:
            supported = "'assistant', 'system', 'developer', and 'user'"
            text = f"Invalid value: '{role}'. Supported values are: {supported}."
            yield Refusal(400, text, "invalid_value", f"input[{index}]")
    for index, tool in enumerate(items(body.get("tools"))):
        if members(tool).get("type") == "function":
            problem = tool_name_problem(string(members(tool).get("name")), f"tools[{index}].name")
            if problem is not None:
                yield problem
    yield from _problems_of_calls(entries, continued=continued)
    yield from _problems_of_reasoning(entries)


def _problems_of_calls(entries: list[JsonObject], *, continued: bool) -> Iterator[Refusal]:
    """Calls and outputs match, wherever they stand; what a stored response holds cannot be seen here."""
    calls = [string(item.get("call_id")) for item in entries if item.get("type") == "function_call"]
    outputs = [string(item.get("call_id")) for item in entries if item.get("type") == "function_call_output"]
    for call in calls:
        if call not in outputs:
            yield Refusal(400, f"No tool output found for function call {call}.", None, "input")
    for output in outputs:
        if output not in calls and not continued:
            yield Refusal(400, f"No tool call found for function call output with call_id {output}.", None, "input")


def _problems_of_reasoning(entries: list[JsonObject]) -> Iterator[Refusal]:
    """A reasoning item belongs to what the model did next."""
    for index, item in enumerate(entries):
        following = entries[index + 1] if index + 1 < len(entries) else {}
        if item.get("type") == "reasoning" and not _is_own_work(following):
            text = f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
            yield Refusal(400, text, None, "input")


def _is_own_work(item: JsonObject) -> bool:
    """Whether the model made this item: its messages and calls, and the hosted tools' items."""
    if "role" in item:
        return item["role"] == "assistant"
    return item.get("type") not in {None, "function_call_output"}
