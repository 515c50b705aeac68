"""Reading requests, which may be of any shape, and what a script sees of them.

Must not know: any particular dialect.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeAlias, cast

import msgspec
from msgspec import Raw

from dragoman.conversation import Json, ResultPart, Text, ToolResult

from .exchange import Request

JsonObject: TypeAlias = dict[str, object]

_TEXT_PARTS: Final = ("text", "input_text", "output_text")


def members(value: object) -> JsonObject:
    """The value as an object; an empty one if it is something else."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """The value as an array; an empty one if it is something else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def objects(value: object) -> list[JsonObject]:
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
    """What a script sees of a request, collected while a dialect walks through its messages; and whether every call has
    its result before anybody else speaks, which all providers want."""

    def __init__(self, tools: list[JsonObject], *, continued: bool = False) -> None:
        self.problems: list[str] = []
        self._tools = tools
        self._continued = continued
        """Whether the provider holds the beginning of the conversation, and calls that are answered here."""
        self._system: list[str] = []
        self._texts: list[str] = []
        self._names: dict[str, str] = {}
        self._waiting: list[str] = []
        self._results: list[ToolResult] = []
        self._turns = 0
        self._in_reply = False

    def add_system(self, text: str) -> None:
        self._system.append(text)

    def add_user(self, text: str) -> None:
        if text:
            self._expect_results()
        self._in_reply = False
        self._texts.append(text)

    def add_reply(self) -> None:
        """Something that the model said; neighbours are one reply."""
        if not self._in_reply:
            self._expect_results()
        self._turns += not self._in_reply
        self._in_reply = True
        self._results = []

    def add_call(self, call_id: object, name: object) -> None:
        """A call of a tool; one without an id goes by its name."""
        key = string(call_id) or string(name)
        self._names[key] = string(name)
        self._waiting.append(key)

    def add_result(
        self, call_id: object, content: tuple[ResultPart, ...], *, name: str = "", failed: bool = False
    ) -> None:
        """The result of a call; its tool is that of the call, unless it says so itself."""
        self._in_reply = False
        made_for = string(call_id)
        if (key := made_for or name) in self._waiting:
            self._waiting.remove(key)
        elif not self._continued:
            self.problems.append(f"There is a result for {key!r}, which is no call of the reply before it.")
        self._results.append(ToolResult(made_for, name or self._names.get(made_for, ""), content, is_error=failed))

    def _expect_results(self) -> None:
        if self._waiting:
            self.problems.append(f"Calls without a result right behind them: {', '.join(self._waiting)}.")
        self._waiting = []

    def tell(self, request: Request) -> Request:
        """The request with all of this, when there is no more."""
        self._expect_results()
        return replace(
            request,
            system="\n".join(filter(None, self._system)),
            user_texts=tuple(filter(None, self._texts)),
            tool_results=tuple(self._results),
            tools=tuple(string(tool.get("name")) for tool in self._tools),
            turns=self._turns,
        )
