"""What a message is made of: text, thinking, tool calls, tool results, media, and what we do not know.

Owns: the blocks and the views on them.
Must not know: how a provider writes them.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import msgspec
from msgspec import Raw

from dragoman.errors import ToolErrorType, ToolValidationError

from .media import Media
from .values import Native, Value

__all__ = ["Block", "Json", "Opaque", "ResultPart", "Text", "Thinking", "ToolCall", "ToolResult"]


class Text(Value, frozen=True, tag="text", tag_field="type"):
    """Plain text, the model's or the user's."""

    text: str
    native: Native | None = None


class Thinking(Value, frozen=True, tag="thinking", tag_field="type"):
    """The model's reasoning. Only the provider that wrote it can read its signature or encrypted content back."""

    text: str
    provider: str
    signature: str | None = None
    encrypted: str | None = None
    native: Native | None = None

    @property
    def redacted(self) -> bool:
        """Whether the provider withholds the text and gave only its encrypted form."""
        return not self.text and self.encrypted is not None


class ToolCall(Value, frozen=True, tag="tool_call", tag_field="type"):
    """The model asks for a tool. `arguments` is the text as the model wrote it, which may not be valid JSON."""

    id: str
    name: str
    arguments: str = ""
    partial: bool = False
    """The reply broke off before the arguments were complete; such a call is never run."""
    native: Native | None = None

    @property
    def parsed(self) -> dict[str, object]:
        """The arguments as a dict; no text at all means no arguments. Raises ToolValidationError otherwise."""
        if not self.arguments or self.arguments.isspace():
            return {}
        try:
            value: object = msgspec.json.decode(self.arguments)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            message = f"the arguments of {self.name!r} are not valid JSON: {error}."
            raise self._invalid(message) from None
        if not isinstance(value, dict):
            message = f"the arguments of {self.name!r} are not a JSON object but {type(value).__name__}."
            raise self._invalid(message)
        return cast("dict[str, object]", value)

    def _invalid(self, message: str) -> ToolValidationError:
        return ToolValidationError(message, tool_name=self.name, call_id=self.id, details=self.arguments)


class Json(Value, frozen=True, tag="json", tag_field="type"):
    """A JSON value in a tool's result."""

    raw: Raw

    @property
    def value(self) -> object:
        """The value, parsed."""
        return cast("object", msgspec.json.decode(self.raw))

    @property
    def text(self) -> str:
        """The value as JSON text."""
        return bytes(self.raw).decode()


ResultPart: TypeAlias = Text | Json | Media
"""What the content of a tool's result is made of."""


class ToolResult(Value, frozen=True, tag="tool_result", tag_field="type"):
    """What came of one tool call: what the model reads (`content`) and what programs look at (the rest)."""

    call_id: str
    name: str
    content: tuple[ResultPart, ...] = ()
    is_error: bool = False
    error_type: ToolErrorType | None = None
    structured: Json | None = None
    """A JSON value beside the content, where a tool gives both (MCP's structured content)."""
    duration: float | None = None
    """Seconds, retries included."""
    retries: int = 0

    @property
    def text(self) -> str:
        """The readable content: text and JSON parts, one after the other."""
        return "\n".join(part.text for part in self.content if not isinstance(part, Media))

    @property
    def value(self) -> object:
        """The result as data: the structured value, else the JSON content, else the text."""
        if self.structured is not None:
            return self.structured.value
        if len(self.content) == 1 and isinstance(self.content[0], Json):
            return self.content[0].value
        return self.text


class Opaque(Value, frozen=True, tag="opaque", tag_field="type"):
    """A block that only its provider understands, kept as raw JSON and sent back to that provider."""

    provider: str
    raw: Raw

    @property
    def value(self) -> object:
        """The block, parsed."""
        return cast("object", msgspec.json.decode(self.raw))


Block: TypeAlias = Text | Thinking | ToolCall | ToolResult | Media | Opaque
"""What a message is made of."""
