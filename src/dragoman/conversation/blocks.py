"""The blocks of a message: text, thinking, tool calls, tool results, media, and unknown ones.

Nothing here opens a file or a connection; files are read when media are added to a conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw

from dragoman._decoding import decode
from dragoman.errors import ToolErrorType, ToolValidationError

from .usage import Usage
from .values import Native, Value

if TYPE_CHECKING:
    from pathlib import PurePath


class Citation(Value, frozen=True, kw_only=True):
    """The source of a model's text, or of a part of it, as the provider reports it. Never sent to a model."""

    url: str | None = None
    title: str | None = None
    document: int | str | None = None
    """A file or document that the model was given: its id or name, or its index, counted from 0."""
    quote: str | None = None
    """The passage of the source."""
    start: int | None = None
    end: int | None = None
    """The part of the text that it supports, as in `text[start:end]`; None: the whole text."""
    place: tuple[Literal["char", "page", "block"], int, int] | None = None
    """Where in the source: the unit, the start and the end, as the provider counts them."""


_LINK: Final = re.compile(r"(?i:https?)://[^\s/\\<>][^\s<>]*")
"""An address that can be opened, and that shows its host."""
_MAX_LINES: Final = 100


def sources_of(citations: Iterable[Citation]) -> list[tuple[str, str]]:
    """Each source once, for display: its name, and its link, which is empty if it has none."""
    found: dict[tuple[object, ...], tuple[str, str]] = {}
    for one in citations:
        link = one.url if one.url and _LINK.fullmatch(one.url) else ""
        number = "" if one.document is None else f"document {one.document}"
        name = " ".join((one.title or one.url or number).split())
        if name:
            found.setdefault((link or one.document, "" if link else name), (name, link))
    return [*found.values()]


def source_lines(citations: Iterable[Citation]) -> list[str]:
    """The sources as numbered lines of text."""
    shown = [name if link in ("", name) else f"{name} {link}" for name, link in sources_of(citations)]
    more = [f"… and {len(shown) - _MAX_LINES:,} more"] if len(shown) > _MAX_LINES else []
    return [f"{number}. {line}" for number, line in enumerate(shown[:_MAX_LINES], 1)] + more


class Text(Value, frozen=True, tag="text", tag_field="type"):
    """Plain text, the model's or the user's."""

    text: str
    native: Native | None = None
    citations: tuple[Citation, ...] = ()


class Thinking(Value, frozen=True, tag="thinking", tag_field="type"):
    """The model's reasoning. Only the provider that wrote it can use its signature or encrypted content."""

    text: str
    provider: str
    signature: str | None = None
    encrypted: str | None = None
    native: Native | None = None

    @property
    def redacted(self) -> bool:
        """Whether the provider returned only an encrypted form and not the text."""
        return not self.text and self.encrypted is not None


class ToolCall(Value, frozen=True, tag="tool_call", tag_field="type"):
    """A tool call of the model. `arguments` is the text that the model wrote, which may not be valid JSON."""

    id: str
    name: str
    arguments: str = ""
    partial: bool = False
    """The reply ended before the arguments were complete; such a call is never run."""
    native: Native | None = None
    hosted: bool = False
    """The provider runs it itself, once it is approved."""
    asks: str = ""
    """Why the provider asks for approval; empty if it does not."""

    @property
    def has_arguments(self) -> bool:
        """Whether the model wrote any: an empty text is none, and so is `null`, as some write for a tool without
        parameters."""
        return self.arguments.strip() not in ("", "null")

    @property
    def parsed(self) -> dict[str, object]:
        """The arguments as a dict, empty if there are none. Raises ToolValidationError for invalid JSON."""
        if not self.has_arguments:
            return {}
        try:
            value: object = decode(self.arguments)
        except (msgspec.DecodeError, UnicodeError) as error:
            message = f"the arguments of {self.name!r} are not valid JSON: {error}."
            raise self._invalid(message) from None
        if not isinstance(value, dict):
            message = f"the arguments of {self.name!r} are not a JSON object but {type(value).__name__}."
            raise self._invalid(message)
        return cast("dict[str, object]", value)

    def _invalid(self, message: str) -> ToolValidationError:
        return ToolValidationError(message, tool_name=self.name, call_id=self.id, details=self.arguments)


MediaKind: TypeAlias = Literal["image", "document", "audio", "video"]
"""The kinds of media that models distinguish."""

# Our own table: the standard library's guess depends on files of the machine.
_TYPE_OF_SUFFIX = {
    **{f".{name}": f"image/{name}" for name in ("png", "jpeg", "gif", "webp", "heic", "heif", "bmp", "tiff")},
    **{f".{name}": f"audio/{name}" for name in ("wav", "flac", "ogg", "opus", "aac", "aiff")},
    **{f".{name}": f"video/{name}" for name in ("mp4", "webm", "mpeg")},
    **{f".{name}": f"text/{name}" for name in ("csv", "html", "xml")},
    ".jpg": "image/jpeg",
    ".tif": "image/tiff",
    ".svg": "image/svg+xml",
    ".mp3": "audio/mpeg",
    ".m4a": "audio/mp4",
    ".mov": "video/quicktime",
    ".mkv": "video/x-matroska",
    ".avi": "video/x-msvideo",
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".htm": "text/html",
    ".pdf": "application/pdf",
    ".json": "application/json",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}

_STORED: Final = "provider-file:"

_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


def _kind_of(mime_type: str) -> MediaKind:
    return _KINDS.get(mime_type.partition("/")[0], "document")


class Media(Value, frozen=True, tag="media", tag_field="type"):
    """An image, document, audio or video: exactly one of `data`, `path` and `url` is set."""

    kind: MediaKind
    mime_type: str
    data: bytes | None = None
    path: str | None = None
    url: str | None = None
    name: str | None = None
    native: Native | None = None

    def __post_init__(self) -> None:
        if (self.data is not None) + (self.path is not None) + (self.url is not None) != 1:
            message = "media needs exactly one of data, path and url"
            raise ValueError(message)

    @classmethod
    def from_bytes(cls, data: bytes, mime_type: str, *, name: str | None = None) -> Media:
        """Media held in memory."""
        return cls(kind=_kind_of(mime_type), mime_type=mime_type, data=bytes(data), name=name)

    @classmethod
    def from_path(cls, path: str | PurePath, *, mime_type: str | None = None) -> Media:
        """Media in a file, which is read when they are passed to a chat client or returned by a tool, not now."""
        from pathlib import PurePath  # slow to load, and few programs send files

        pure = PurePath(path)
        mime_type = mime_type or cls._guess(pure.suffix, str(path))
        return cls(kind=_kind_of(mime_type), mime_type=mime_type, path=str(path), name=pure.name)

    @classmethod
    def from_url(cls, url: str, *, mime_type: str | None = None) -> Media:
        """Media at a URL, which the provider fetches if it can."""
        bare = url.partition("?")[0].partition("#")[0]
        stem, dot, ending = bare.rpartition("/")[2].rpartition(".")
        mime_type = mime_type or cls._guess(dot + ending if stem else "", url)
        return cls(kind=_kind_of(mime_type), mime_type=mime_type, url=url)

    @classmethod
    def from_file(cls, provider: str, id: str, *, mime_type: str, name: str | None = None) -> Media:
        """Media stored at a provider, which only its models can read (see `dragoman.files`)."""
        return cls(kind=_kind_of(mime_type), mime_type=mime_type, url=f"{_STORED}{provider}/{id}", name=name)

    @property
    def stored(self) -> tuple[str, str] | None:
        """The provider that stores them, and their id there; None for all other media."""
        if self.url is None or not self.url.startswith(_STORED):
            return None
        provider, _, id = self.url.removeprefix(_STORED).partition("/")
        return provider, id

    @staticmethod
    def _guess(suffix: str, where: str) -> str:
        found = _TYPE_OF_SUFFIX.get(suffix.lower())
        if found is None:
            message = f"cannot tell the type of {where!r} from its name; pass mime_type=..."
            raise ValueError(message)
        return found


class Json(Value, frozen=True, tag="json", tag_field="type"):
    """A JSON value in a tool's result."""

    raw: Raw

    @property
    def value(self) -> object:
        """The value, parsed."""
        return decode(self.raw)

    @property
    def text(self) -> str:
        """The value as JSON text."""
        return bytes(self.raw).decode()


ResultPart: TypeAlias = Text | Json | Media
"""The parts of a tool's result."""


class ToolResult(Value, frozen=True, tag="tool_result", tag_field="type"):
    """The result of one tool call: `content` for the model, the rest for programs."""

    call_id: str
    name: str
    content: tuple[ResultPart, ...] = ()
    is_error: bool = False
    error_type: ToolErrorType | None = None
    structured: Json | None = None
    """A JSON value in addition to the content (MCP's structured content)."""
    duration: float | None = None
    """Seconds, including retries."""
    retries: int = 0
    began: datetime | None = None
    """When the call started."""
    usage: Usage | None = None
    """The usage of models inside the tool, such as an agent's; `charged` is the cost, None if it is unknown."""
    spoke: bool = False
    """The tool has told the user something: an empty reply after it is an end, not a failure."""

    @property
    def text(self) -> str:
        """The text and JSON parts of the content, one per line."""
        return "\n".join(part.text for part in self.content if not isinstance(part, Media))

    @property
    def value(self) -> object:
        """The result as data: the structured value, else the JSON content, else the text."""
        if self.structured is not None:
            return self.structured.value
        if len(self.content) == 1 and isinstance(self.content[0], Json):
            return self.content[0].value
        return self.text


class ServerToolUse(Value, frozen=True):
    """What one of the provider's own tools did; the block's raw JSON has all details."""

    kind: str
    """`web_search`, `web_fetch`, `code_execution`, `file_search`, `image_generation`, `tool_search`, `mcp`, or the
    provider's own name."""
    phase: Literal["call", "result", "both"]
    """Some providers report a call and its result in two blocks with the same id."""
    id: str = ""
    name: str = ""
    """The provider's name of the tool; for MCP, the server and its tool: `server.tool`."""
    input: str = ""
    """Queries (one per line), code, an address, or arguments as JSON."""
    output: str = ""
    """The output of code, the text of a tool, titles or passages that were found; or why it failed."""
    sources: tuple[str, ...] = ()
    """Addresses or names of files."""
    is_error: bool = False

    def __str__(self) -> str:
        """One line: the tool, and its input or else its output."""
        details = (self.input or self.output or ", ".join(self.sources)).strip()
        more = f": {details.partition(chr(10))[0]}" if details else ""
        return f"{self.name or self.kind}{' failed' if self.is_error else ''}{more}"


class Opaque(Value, frozen=True, tag="opaque", tag_field="type"):
    """A block that only its provider understands, kept as raw JSON and sent back to that provider."""

    provider: str
    raw: Raw
    used: ServerToolUse | None = None
    """What the provider's own tool did, if the block is about one."""

    @property
    def value(self) -> object:
        """The block, parsed."""
        return decode(self.raw)


Block: TypeAlias = Text | Thinking | ToolCall | ToolResult | Media | Opaque
"""A part of a message."""
