"""What a request in the chat-completions dialect says, and what the API would refuse in it.

Owns: reading `messages`; the rules that clients break most often.
Must not know: replies. A rule that is not here is not checked: a request may pass that the API would refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dragoman.conversation import Text, ToolResult
from dragoman.simulator.dialects.dialect import Refusal
from dragoman.simulator.dialects.openai_shared import tool_name_problem
from dragoman.simulator.json_access import JsonObject, items, members, string
from dragoman.simulator.request import Heard

__all__ = ["check", "hear"]

_ROLES: Final = ("system", "assistant", "user", "function", "tool", "developer")


def hear(body: JsonObject) -> Heard:
    """The request in the terms of all dialects."""
    messages = [members(message) for message in items(body.get("messages"))]
    names: dict[str, str] = {}
    results: list[ToolResult] = []
    for message in messages:
        if message.get("role") == "assistant":
            results = []
        for call in _calls(message):
            names[string(call.get("id"))] = string(members(call.get("function")).get("name"))
        if message.get("role") == "tool":
            call_id = string(message.get("tool_call_id"))
            results.append(ToolResult(call_id, names.get(call_id, ""), (Text(_text(message)),)))
    system = [_text(message) for message in messages if message.get("role") in {"system", "developer"}]
    texts = [_text(message) for message in messages if message.get("role") == "user"]
    tools = [members(members(tool).get("function")) or members(tool) for tool in items(body.get("tools"))]
    return Heard(
        system="\n".join(system),
        user_texts=tuple(text for text in texts if text),
        tool_results=tuple(results),
        tools=tuple(string(tool.get("name")) for tool in tools),
        turns=sum(message.get("role") == "assistant" for message in messages),
    )


def _calls(message: JsonObject) -> list[JsonObject]:
    return [members(call) for call in items(message.get("tool_calls"))]


def _text(message: JsonObject) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(string(members(part).get("text")) for part in items(content))


# --- what the API would refuse ---------------------------------------------------------------------------------------


def check(body: JsonObject, _headers: Mapping[str, str]) -> Refusal | None:
    """The first thing that the API would refuse."""
    return next(_problems(body), None)


def _problems(body: JsonObject) -> Iterator[Refusal]:
    if not string(body.get("model")):
        yield Refusal(400, "you must provide a model parameter")
    if "messages" not in body:
        yield Refusal(400, "Missing required parameter: 'messages'.", "missing_required_parameter", "messages")
    messages = [members(message) for message in items(body.get("messages"))]
    if not messages:
        expected = "Expected an array with minimum length 1, but got an empty array instead."
        yield Refusal(400, f"Invalid 'messages': empty array. {expected}", "empty_array", "messages")
    for index, message in enumerate(messages):
        role = message.get("role")
        if role not in _ROLES:
            supported = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'"
            text = f"Invalid value: '{role}'. Supported values are: {supported}."
            yield Refusal(400, text, "invalid_value", f"messages[{index}].role")
        if role in {"user", "system"} and message.get("content") is None:
            place = f"messages.[{index}].content"
            yield Refusal(400, "Invalid value for 'content': expected a string, got null.", None, place)
    for index, tool in enumerate(items(body.get("tools"))):
        if members(tool).get("type") == "function":
            name = string(members(members(tool).get("function")).get("name"))
            problem = tool_name_problem(name, f"tools[{index}].function.name")
            if problem is not None:
                yield problem
    yield from _problems_of_calls(messages)


def _problems_of_calls(messages: list[JsonObject]) -> Iterator[Refusal]:
    """Right after a message with calls come its results, one message each; no other result is allowed."""
    waiting: list[str] = []
    called: list[str] = []
    for index, message in enumerate([*messages, JsonObject()]):
        if message.get("role") == "tool":
            call_id = string(message.get("tool_call_id"))
            if call_id not in called:
                text = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                yield Refusal(400, f"Invalid parameter: {text}", None, f"messages.[{index}].role")
            waiting = [call for call in waiting if call != call_id]
            continue
        if waiting:
            text = "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            text += f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}"
            yield Refusal(400, text, None, f"messages.[{index}].role")
        called = [string(call.get("id")) for call in _calls(message)]
        waiting = list(called)
