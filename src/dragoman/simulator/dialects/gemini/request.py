"""What a request in the generateContent dialect says, and what the API would refuse in it.

Owns: reading `contents`; the rules that clients break most often.
Must not know: replies. A rule that is not here is not checked: a request may pass that the API would refuse.

The API takes `snake_case` for every `camelCase` name; so does this reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import Json, ToolResult
from dragoman.simulator.dialects.dialect import Refusal
from dragoman.simulator.json_access import JsonObject, items, members, string
from dragoman.simulator.request import Heard
from dragoman.simulator.signatures import spoilt

__all__ = ["check", "hear"]

_FUNCTION_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")


def hear(body: JsonObject) -> Heard:
    """The request in the terms of all dialects."""
    contents = [members(content) for content in items(body.get("contents"))]
    results: list[ToolResult] = []
    for content in contents:
        if content.get("role") == "model":
            results = []
        results += [_result(answer) for answer in _named(content, "functionResponse")]
    texts = [_text(content) for content in contents if content.get("role") != "model"]
    return Heard(
        system=_text(members(_either(body, "systemInstruction"))),
        user_texts=tuple(text for text in texts if text),
        tool_results=tuple(results),
        tools=tuple(string(declaration.get("name")) for declaration in _declarations(body)),
        turns=sum(content.get("role") == "model" for content in contents),
    )


def _either(holder: JsonObject, name: str) -> object:
    """A member under its name in camel case, or in snake case."""
    snake = re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
    return holder.get(name, holder.get(snake))


def _parts(content: JsonObject) -> list[JsonObject]:
    return [members(part) for part in items(content.get("parts"))]


def _named(content: JsonObject, name: str) -> list[JsonObject]:
    return [members(value) for part in _parts(content) if (value := _either(part, name)) is not None]


def _text(content: JsonObject) -> str:
    return "".join(string(part.get("text")) for part in _parts(content))


def _declarations(body: JsonObject) -> list[JsonObject]:
    tools = [members(tool) for tool in items(body.get("tools"))]
    return [members(one) for tool in tools for one in items(_either(tool, "functionDeclarations"))]


def _result(answer: JsonObject) -> ToolResult:
    response = members(answer.get("response"))
    # The documented way to report a failure is a member `error`.
    failed = "error" in response and "output" not in response and "result" not in response
    content = (Json(Raw(msgspec.json.encode(response))),)
    return ToolResult(string(answer.get("id")), string(answer.get("name")), content, is_error=failed)


# --- what the API would refuse ---------------------------------------------------------------------------------------


def check(body: JsonObject, _headers: Mapping[str, str]) -> Refusal | None:
    """The first thing that the API would refuse."""
    return next((Refusal(400, problem) for problem in _problems(body)), None)


def _problems(body: JsonObject) -> Iterator[str]:
    contents = [members(content) for content in items(body.get("contents"))]
    if not contents:
        yield "* GenerateContentRequest.contents: contents is not specified\n"
    for index, content in enumerate(contents):
        # A single message may leave its role out.
        if content.get("role") not in {"user", "model", "function"} and ("role" in content or len(contents) > 1):
            yield "Please use a valid role: user, model."
        if not _parts(content):
            yield f"* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty.\n"
    for index, declaration in enumerate(_declarations(body)):
        if not _FUNCTION_NAME.fullmatch(string(declaration.get("name"))):
            yield (
                f"* GenerateContentRequest.tools[0].function_declarations[{index}].name: Invalid function name. Must "
                f"start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots "
                f"(.), colons (:), or dashes (-), with a maximum length of 64.\n"
            )
    yield from _problems_of_calls(contents)
    yield from _problems_of_signatures(contents)


def _problems_of_calls(contents: list[JsonObject]) -> Iterator[str]:
    """A turn with calls is followed by a turn with as many responses."""
    called, before = 0, ""
    for content in [*contents, JsonObject()]:
        role, calls = string(content.get("role")), len(_named(content, "functionCall"))
        if calls and before == "model":
            yield (
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        if (called or role != "model") and called != len(_named(content, "functionResponse")):
            yield (
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        called, before = calls, role


def _problems_of_signatures(contents: list[JsonObject]) -> Iterator[str]:
    for content in contents:
        for part in _parts(content):
            name = string(members(_either(part, "functionCall")).get("name"))
            if spoilt(string(_either(part, "thoughtSignature")), name):
                yield "Thought signature is not valid."
