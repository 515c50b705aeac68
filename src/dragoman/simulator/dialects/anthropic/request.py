"""What a request in the messages dialect says, and what the API would refuse in it.

Owns: reading `messages`; the rules that clients break most often.
Must not know: replies. A rule that is not here is not checked: a request may pass that the API would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import Json, ResultPart, Text, ToolResult
from dragoman.simulator.dialects.dialect import Refusal
from dragoman.simulator.json_access import JsonObject, items, members, string
from dragoman.simulator.request import Heard
from dragoman.simulator.signatures import spoilt

__all__ = ["check", "hear"]

_ROLES: Final = ("user", "assistant", "system")
_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


def hear(body: JsonObject) -> Heard:
    """The request in the terms of all dialects."""
    messages = [members(message) for message in items(body.get("messages"))]
    names: dict[str, str] = {}
    results: list[ToolResult] = []
    for message in messages:
        if message.get("role") == "assistant":
            results = []
        for block in _blocks(message):
            if block.get("type") == "tool_use":
                names[string(block.get("id"))] = string(block.get("name"))
            elif block.get("type") == "tool_result":
                results.append(_result(block, names))
    texts = [_text(message.get("content")) for message in messages if message.get("role") == "user"]
    return Heard(
        system=_text(body.get("system")),
        user_texts=tuple(text for text in texts if text),
        tool_results=tuple(results),
        tools=tuple(string(members(tool).get("name")) for tool in items(body.get("tools"))),
        turns=sum(message.get("role") == "assistant" for message in messages),
    )


def _blocks(message: JsonObject) -> list[JsonObject]:
    return [members(block) for block in items(message.get("content"))]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(string(members(b).get("text")) for b in items(content) if members(b).get("type") == "text")


def _result(block: JsonObject, names: Mapping[str, str]) -> ToolResult:
    call_id = string(block.get("tool_use_id"))
    content = block.get("content")
    parts: list[ResultPart] = [Text(content)] if isinstance(content, str) else []
    for part in items(content):
        plain = members(part).get("type") == "text"
        parts.append(Text(string(members(part).get("text"))) if plain else Json(Raw(msgspec.json.encode(part))))
    return ToolResult(call_id, names.get(call_id, ""), tuple(parts), is_error=block.get("is_error") is True)


# --- what the API would refuse ---------------------------------------------------------------------------------------


def check(body: JsonObject, headers: Mapping[str, str]) -> Refusal | None:
    """The first thing that the API would refuse."""
    return next((Refusal(400, problem) for problem in _problems(body, headers)), None)


def _problems(body: JsonObject, headers: Mapping[str, str]) -> Iterator[str]:
    if "anthropic-version" not in headers:
        yield "anthropic-version: header is required"
    for name in ("model", "max_tokens", "messages"):
        if body.get(name) is None:
            yield f"{name}: Field required"
    messages = [members(message) for message in items(body.get("messages"))]
    if not messages:
        yield "messages: at least one message is required"
    for index, message in enumerate(messages):
        if message.get("role") not in _ROLES:
            yield f"messages.{index}.role: Input should be 'user', 'assistant' or 'system'"
    if messages and messages[0].get("role") == "assistant":
        yield 'messages: first message must use the "user" role'
    budget = members(body.get("thinking")).get("budget_tokens")
    limit = body.get("max_tokens")
    if isinstance(budget, int) and isinstance(limit, int) and limit <= budget:
        yield "`max_tokens` must be greater than `thinking.budget_tokens`."
    yield from _problems_of_tools(body)
    yield from _problems_of_content(messages)
    yield from _problems_of_calls(messages)


def _problems_of_tools(body: JsonObject) -> Iterator[str]:
    names = [string(members(tool).get("name")) for tool in items(body.get("tools"))]
    for index, name in enumerate(names):
        if not _TOOL_NAME.fullmatch(name):
            yield f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
    if len(set(names)) != len(names):
        yield "tools: Tool names must be unique."


def _problems_of_content(messages: list[JsonObject]) -> Iterator[str]:
    for index, message in enumerate(messages):
        content = message.get("content")
        last_reply = index == len(messages) - 1 and message.get("role") == "assistant"
        if not content and not last_reply:
            yield "messages: all messages must have non-empty content except for the optional final assistant message"
        for position, block in enumerate(_blocks(message)):
            place = f"messages.{index}.content.{position}"
            kind = block.get("type")
            if kind == "text" and not string(block.get("text")):
                yield "messages: text content blocks must be non-empty"
            if kind == "tool_use" and not _CALL_ID.fullmatch(string(block.get("id"))):
                yield f"{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
            if kind == "tool_use" and not isinstance(block.get("input"), dict):
                yield f"{place}.tool_use.input: Input should be a valid dictionary"
            if kind == "thinking" and spoilt(string(block.get("signature")), string(block.get("thinking"))):
                yield f"{place}: Invalid `signature` in `thinking` block"


def _problems_of_calls(messages: list[JsonObject]) -> Iterator[str]:
    """Every call is answered in the very next turn, and every result answers a call of the turn before."""
    called: list[str] = []
    before = 0
    for index, blocks in [*_turns(messages), (len(messages), [])]:
        results = [string(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
        missing = [call for call in called if call not in results]
        if missing:
            yield (
                f"messages.{before}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                f"next message."
            )
        for position, result in enumerate(results):
            if result not in called:
                yield (
                    f"messages.{index}.content.{position}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{result}. Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                    f"message."
                )
        called, before = [string(block.get("id")) for block in blocks if block.get("type") == "tool_use"], index
        if len(set(called)) != len(called):
            yield "messages: `tool_use` ids must be unique"


def _turns(messages: list[JsonObject]) -> list[tuple[int, list[JsonObject]]]:
    """The blocks of each turn, with the index of its first message: neighbours of one role are one turn."""
    turns: list[tuple[int, list[JsonObject]]] = []
    role: object = None
    for index, message in enumerate(messages):
        if not turns or message.get("role") != role:
            turns.append((index, []))
        role = message.get("role")
        turns[-1][1].extend(_blocks(message))
    return turns
