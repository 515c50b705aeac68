"""What a client asked, as a script's function and a test's assertions see it.

Owns: Request.
Must not know: how a dialect wrote it, and how it arrived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from dragoman.conversation import ToolResult
from dragoman.providers.catalogue import Dialect as DialectName

__all__ = ["DialectName", "Heard", "Request"]

Asked: TypeAlias = DialectName | Literal["unknown"]


@dataclass(frozen=True)
class Heard:
    """What a request's body says, the same for all dialects."""

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


@dataclass(frozen=True)
class Request(Heard):
    """One request that the simulator received."""

    dialect: Asked = "unknown"
    """`unknown`: the path belongs to no dialect, and the answer was a 404."""
    model: str = ""
    stream: bool = False
    number: int = 0
    """Counted from 0, over all conversations, in the order of arrival."""
    key: str | None = None
    """The conversation's key, where the client gave one: see `Simulator.base_url`."""
    method: str = "POST"
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    # Not printed: a test that was pointed here by mistake may carry a real key.
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Names in lower case."""
    body: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    """The parsed JSON; empty if there was none that could be read."""
    raw: bytes = field(default=b"", repr=False)
    """The body as it arrived."""

    @property
    def last_user_text(self) -> str:
        """The text of the last user message; empty if there is none."""
        return self.user_texts[-1] if self.user_texts else ""
