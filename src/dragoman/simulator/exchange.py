"""What passes between a client and a script: the request that was received, and the reply that the script gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from dragoman.conversation import Opaque, StopReason, Text, Thinking, ToolCall, ToolResult, Usage
from dragoman.providers import Dialect as DialectName

if TYPE_CHECKING:  # a fault changes how a reply is sent, so the two name each other's types
    from .faults import Fault


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
