"""What passes between a client and a script: the request that was received, and the reply that the script gives.

Must not know: any particular dialect. Requests may be of any shape, so they are read with care.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw

from dragoman.conversation import Json, Opaque, ResultPart, StopReason, Text, Thinking, ToolCall, ToolResult, Usage
from dragoman.providers import Dialect as DialectName

if TYPE_CHECKING:  # a fault changes how a reply is sent, so the two name each other's types
    from .faults import Fault

JsonObject: TypeAlias = dict[str, object]


@dataclass(frozen=True)
class Request:
    """One request that the simulator received, as scripts and assertions see it."""

    # What its body says, the same for all dialects:
    system: str = ""
    """The system prompt."""
    user_texts: tuple[str, ...] = ()
    """The texts of all user messages, in order."""
    tool_results: tuple[ToolResult, ...] = ()
    """The results that answer the calls of the last reply; empty if the request does not end with results."""
    tools: tuple[str, ...] = ()
    """The names of the tools that are offered."""
    turns: int = 0
    """How many replies of the model are in the history: 0 in the first request of a conversation."""
    # And the request itself:
    dialect: DialectName | Literal["unknown"] = "unknown"
    """`unknown`: the path belongs to no dialect, and the answer was a 404."""
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


_NOT_A_REPLY = {
    StopReason.INTERRUPTED: "a reply that breaks off is a reply with a fault: Reply(..., faults=[Cut()])",
    StopReason.ERROR: "a reply that fails is a reply with a fault: Reply(..., faults=[ErrorEvent()])",
}


Part: TypeAlias = Text | Thinking | ToolCall | Opaque
"""What a model says. `Opaque` is in the words of its `provider`, a dialect, and sent as it is: a block of Anthropic's,
a part of Gemini's, an item of the responses API, members of a message of chat completions."""


class Reply:
    """One scripted reply. It is written in the dialect of the request, streamed or whole as the request asks.

    Content is given in order: strings and blocks. `Thinking.provider` does not matter here, since every dialect writes
    thinking in its own way. `Text.citations` name web pages (url, title, quote, span), which a dialect tells as far as
    it can. Where a request asks for the likelihood of tokens, it is made up.

    usage             None: counts made up from the lengths of request and reply; `Usage()`, which knows nothing: not
                      reported
    stop_reason       None: tool calls if there are any, else the end of the answer
    raw_stop_reason   a word of the provider's own, written instead of the usual one for the stop reason
    headers           further headers of the response, e.g. rate limits
    delta             characters of text or arguments in one event of a stream; 0 puts a whole block into one event
    model             the model that answers, where it is not the one that was asked for
    """

    def __init__(
        self,
        *content: str | Part,
        usage: Usage | None = None,
        stop_reason: StopReason | None = None,
        raw_stop_reason: str | None = None,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
        delta: int = 16,
        model: str | None = None,
    ) -> None:
        blocks = tuple(Text(part) if isinstance(part, str) else part for part in content)
        for block in blocks:
            if not isinstance(block, Part):  # pyright: ignore[reportUnnecessaryIsInstance]
                message = f"a reply is made of Text, Thinking, ToolCall and Opaque blocks, not {type(block).__name__}"
                raise ValueError(message)
        if delta < 0:
            message = "delta is a number of characters, or 0"
            raise ValueError(message)
        if stop_reason in _NOT_A_REPLY:
            raise ValueError(_NOT_A_REPLY[stop_reason])
        self.blocks = blocks
        self.usage = usage
        self.stop_reason = stop_reason
        self.raw_stop_reason = raw_stop_reason
        self.faults = tuple(faults)
        self.headers = dict(headers or {})
        self.delta = delta
        self.model = model


# --- reading requests ------------------------------------------------------------------------------------------------

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
