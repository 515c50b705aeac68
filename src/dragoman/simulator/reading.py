"""Reading requests, which may be of any shape, and what a script sees of them.

Must not know: any particular dialect.
"""

from __future__ import annotations

from typing import Final, TypeAlias, cast

import msgspec
from msgspec import Raw

from dragoman.conversation import Json, ResultPart, Text, ToolResult

from .exchange import Content

JsonObject: TypeAlias = dict[str, object]

_TEXT_PARTS: Final = ("text", "input_text", "output_text")


def members(value: object) -> JsonObject:
    """The value as an object; an empty one if it is something else."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """The value as an array; an empty one if it is something else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def objects(value: object) -> list[JsonObject]:
    """The value as an array of objects."""
    return [members(item) for item in items(value)]


def string(value: object) -> str:
    """The value as a text; an empty one if it is something else."""
    return value if isinstance(value, str) else ""


def text_of(content: object) -> str:
    """The text of a message: the content itself, or that of its text parts."""
    if isinstance(content, str):
        return content
    return "".join(string(part.get("text")) for part in objects(content) if part.get("type") in _TEXT_PARTS)


def result_parts(content: object) -> tuple[ResultPart, ...]:
    """The content of a tool's result; what is not text stays JSON."""
    if isinstance(content, str):
        return (Text(content),)
    return tuple(
        Text(string(part.get("text"))) if part.get("type") in _TEXT_PARTS else Json(Raw(msgspec.json.encode(part)))
        for part in objects(content)
    )


class Transcript:
    """What a script sees of a request, collected while a dialect walks through its messages."""

    def __init__(self) -> None:
        self._system: list[str] = []
        self._texts: list[str] = []
        self._names: dict[str, str] = {}
        self._results: list[ToolResult] = []
        self._turns = 0
        self._in_reply = False

    def add_system(self, text: str) -> None:
        """A system prompt, or a further part of it."""
        self._system.append(text)

    def add_user(self, text: str) -> None:
        """A message of the user."""
        self._in_reply = False
        self._texts.append(text)

    def add_reply(self) -> None:
        """Something that the model said; neighbours are one reply."""
        self._turns += not self._in_reply
        self._in_reply = True
        self._results = []

    def add_call(self, call_id: object, name: object) -> None:
        """A call of a tool."""
        self._names[string(call_id)] = string(name)

    def add_result(
        self, call_id: object, content: tuple[ResultPart, ...], *, name: str = "", failed: bool = False
    ) -> None:
        """The result of a call; its tool is that of the call, unless it says so itself."""
        self._in_reply = False
        made_for = string(call_id)
        self._results.append(ToolResult(made_for, name or self._names.get(made_for, ""), content, is_error=failed))

    def content(self, tools: list[JsonObject]) -> Content:
        """All of it, and the tools that are offered."""
        return Content(
            system="\n".join(filter(None, self._system)),
            user_texts=tuple(filter(None, self._texts)),
            tool_results=tuple(self._results),
            tools=tuple(string(tool.get("name")) for tool in tools),
            turns=self._turns,
        )
