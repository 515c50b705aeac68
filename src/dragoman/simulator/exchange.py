"""What passes between a client and a script: the request that arrived, and the reply that the script gives.

Requests may have any shape, so everything here reads JSON of the wrong type as empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw

from dragoman.conversation import Json, Opaque, ResultPart, StopReason, Text, Thinking, ToolCall, ToolResult, Usage
from dragoman.providers import Dialect as DialectName

if TYPE_CHECKING:  # replies and faults name each other's types
    from .faults import Fault

JsonObject: TypeAlias = dict[str, object]


@dataclass(frozen=True)
class Request:
    """One request that the simulator received, as scripts and assertions see it."""

    # Read from the body, the same for all dialects:
    system: str = ""
    user_texts: tuple[str, ...] = ()
    """The texts of all user messages, in order."""
    tool_results: tuple[ToolResult, ...] = ()
    """The results that answer the calls of the last reply, also if the user says something after them."""
    tools: tuple[str, ...] = ()
    """The names of the tools."""
    turns: int = 0
    """How many replies of the model are in the history: 0 in the first request of a conversation."""
    # The request itself:
    dialect: DialectName | Literal["unknown"] = "unknown"
    """`unknown`: no dialect has this path, and the answer was a 404."""
    model: str = ""
    stream: bool = False
    number: int = 0
    """Counted from 0, over all conversations, in the order of arrival."""
    method: str = "POST"
    path: str = ""
    """Without the query, percent signs resolved."""
    # Not printed: a test that was pointed here by mistake may carry a real key.
    query: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Names in lower case."""
    body: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    """The parsed JSON; empty if there was none that could be read."""
    raw: bytes = field(default=b"", repr=False)
    """The body as it arrived."""

    @property
    def api_key(self) -> str | None:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            return token.strip()
        named = [self.headers[name] for name in ("x-api-key", "x-goog-api-key", "api-key") if self.headers.get(name)]
        return named[0] if named else self.query.get("key")

    @property
    def last_user_text(self) -> str:
        """The text of the last user message; empty if there is none."""
        return self.user_texts[-1] if self.user_texts else ""


Part: TypeAlias = Text | Thinking | ToolCall | Opaque
"""A part of a reply. An `Opaque` names a dialect as its `provider` and is sent as it is: a content block of Anthropic's
or Bedrock's, a part of Gemini's, an item of the responses API, fields of a chat completion's message."""


class Reply:
    """One scripted reply. It is written in the dialect of the request, streamed or whole as the request asks.

    Content is given in order: strings and blocks. `Thinking.provider` is ignored: every dialect writes thinking in its
    own way. `Text.citations` must be web pages (url, title, quote, span). If a request asks for logprobs, they are made
    up.

    usage         by default estimated from the sizes of request and reply; an empty `Usage()` is not reported
    stop_reason   by default TOOL_CALLS if there are calls, else END
    headers       more headers of the response, e.g. rate limits
    delta         characters of text or arguments in one event of a stream; 0 puts a whole block into one event
    """

    def __init__(
        self,
        *content: str | Part,
        usage: Usage | None = None,
        stop_reason: StopReason | None = None,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
        delta: int = 16,
    ) -> None:
        self.blocks = tuple(Text(part) if isinstance(part, str) else part for part in content)
        for block in self.blocks:
            if not isinstance(block, Part):  # pyright: ignore[reportUnnecessaryIsInstance]
                message = f"a reply is made of Text, Thinking, ToolCall and Opaque blocks, not {type(block).__name__}"
                raise ValueError(message)
        if delta < 0:
            raise ValueError("delta is a number of characters, or 0")
        if stop_reason in (StopReason.INTERRUPTED, StopReason.ERROR):
            raise ValueError("a reply that breaks off or fails has a fault: Reply(..., faults=[Cut()]) or ErrorEvent()")
        self.usage = usage
        self.stop_reason = stop_reason
        self.faults = tuple(faults)
        self.headers = dict(headers or {})
        self.delta = delta


# --- reading requests ------------------------------------------------------------------------------------------------


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
    return content if isinstance(content, str) else "".join(string(part.get("text")) for part in objects(content))


def result_parts(content: object) -> tuple[ResultPart, ...]:
    """The content of a tool's result; what is not text stays JSON."""
    if isinstance(content, str):
        return (Text(content),)
    return tuple(
        Text(string(part["text"])) if "text" in part else Json(Raw(msgspec.json.encode(part.get("json", part))))
        for part in objects(content)
    )


# --- the history in a request ----------------------------------------------------------------------------------------

Entry: TypeAlias = tuple[Literal["system", "user", "model"], str] | ToolCall | ToolResult
"""A piece of a request's history. Of what the model said, only its calls matter: its texts are left empty."""


def read_history(request: Request, history: Iterable[Entry], *, continued: bool) -> tuple[Request, list[str]]:
    """The request with what its history says, and the problems: calls without a result, results without a call.

    With `continued` the provider holds the start of the conversation, and may know calls that are answered here.
    """
    system: list[str] = []
    user_texts: list[str] = []
    names: dict[str, str] = {}
    unanswered: list[str] = []
    results: list[ToolResult] = []
    problems: list[str] = []
    turns, in_reply = 0, False

    def expect_results() -> None:
        if unanswered:
            problems.append(f"Calls without a result right behind them: {', '.join(unanswered)}.")
            unanswered.clear()

    for entry in history:
        match entry:
            case ("system", text):
                system.append(text)
            case ("user", text):
                in_reply = False
                if text:
                    expect_results()
                    user_texts.append(text)
            case ("model", _):
                if not in_reply:  # neighbours are one reply
                    expect_results()
                    turns += 1
                in_reply, results = True, []
            case ToolCall():
                key = entry.id or entry.name
                names[key] = entry.name
                unanswered.append(key)
            case ToolResult():
                in_reply = False
                if (key := entry.call_id or entry.name) in unanswered:
                    unanswered.remove(key)
                elif not continued:
                    problems.append(f"There is a result for {key!r}, which is no call of the reply before it.")
                results.append(msgspec.structs.replace(entry, name=entry.name or names.get(entry.call_id, "")))
    expect_results()
    read = replace(
        request,
        system="\n".join(filter(None, system)),
        user_texts=tuple(user_texts),
        tool_results=tuple(results),
        turns=turns,
    )
    return read, problems
