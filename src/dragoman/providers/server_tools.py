"""The providers' own tools as values, the same for all providers.

How they are written is in a table of each dialect (`server_tools.py` there); requests.py refuses what is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from dragoman._checks import CheckedMeta, Positive, reason_of
from dragoman._decoding import convert_to
from dragoman.errors import ConfigurationError

_TAG: Final = "server_tool"


class _Tool(
    Struct,
    metaclass=CheckedMeta,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag=True,
    tag_field=_TAG,
):
    pass


class Location(_Tool, frozen=True, tag="approximate", tag_field="type"):
    """Where the user is, roughly."""

    city: str | None = None
    region: str | None = None
    country: str | None = None
    """Two letters: `NL`."""
    timezone: str | None = None
    """`Europe/Amsterdam`."""


class WebSearch(_Tool, frozen=True):
    """The provider searches the web."""

    max_uses: Positive | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    location: Location | None = None


class WebFetch(_Tool, frozen=True):
    """The provider fetches pages whose URLs are in the conversation."""

    max_uses: Positive | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()


class CodeExecution(_Tool, frozen=True):
    """The model writes code, and the provider runs it in a sandbox."""


class FileSearch(_Tool, frozen=True):
    """The provider searches files that it stores."""

    stores: tuple[str, ...]
    """The provider's ids of the stores to search."""
    max_results: Positive | None = None


class ComputerUse(_Tool, frozen=True):
    """The model uses a computer of yours; your tool `computer` carries out its actions."""

    width: Positive | None = None
    """Of the screen, in pixels."""
    height: Positive | None = None


class HostedMcp(_Tool, frozen=True):
    """The provider calls the tools of an MCP server."""

    name: str
    url: str
    token: str | None = None
    allowed_tools: tuple[str, ...] = ()
    """Empty: all tools of the server."""
    approval: Literal["always", "never"] | None = None
    """Whether each call waits for your approval; None: the provider's default."""

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """Without the token."""
        return [(each, "…" if each == "token" else value) for each, value in given_fields(self).items()]

    def __repr__(self) -> str:
        return f"HostedMcp({', '.join([f'{name}={value!r}' for name, value in self.__rich_repr__()])})"


class ImageGeneration(_Tool, frozen=True):
    """The provider generates images."""

    size: str | None = None
    """`1024x1536`."""
    quality: str | None = None
    """`low`, `medium` or `high`."""
    format: str | None = None
    """`png`, `jpeg` or `webp`."""


ServerTool: TypeAlias = WebSearch | WebFetch | CodeExecution | FileSearch | ComputerUse | HostedMcp | ImageGeneration
"""A tool that the provider runs."""

if TYPE_CHECKING:
    AnyServerTool: TypeAlias = Raw | ServerTool
else:  # msgspec cannot tell the two apart; `as_server_tool` does
    AnyServerTool = Any


def as_server_tool(given: object) -> Raw | ServerTool:
    """A server tool from a value, raw JSON, or a mapping with the JSON of either."""
    if isinstance(given, Raw | ServerTool):
        return given
    if not isinstance(given, Mapping):
        message = f"server_tools of ModelOptions takes no {type(given).__name__}."
        raise ConfigurationError(message, hint="Use WebSearch(), or the provider's own JSON: msgspec.Raw(b'{…}').")
    if _TAG not in given:
        return Raw(msgspec.json.encode(given))
    try:
        return convert_to(cast("object", given), cast("type[ServerTool]", ServerTool))
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"A server tool does not fit: {reason_of(error)}.") from None


def given_fields(tool: ServerTool) -> dict[str, object]:
    """The fields that differ from their defaults."""
    values = [(field, getattr(tool, field.name)) for field in msgspec.structs.fields(tool)]
    return {field.name: value for field, value in values if value != field.default}


class ToolRow(NamedTuple):
    """How one of a provider's tools is written."""

    members: Mapping[str, object]
    """Members that are always sent."""
    fields: Mapping[str, str] = {}
    """The member for each field; `outer.inner` for a nested one."""
    rest: Callable[[Any], Mapping[str, object]] | None = None
    """Computes further members from the tool."""
    taken: tuple[str, ...] = ()
    """Fields that need no member, with any value (`url`) or with one value (`approval=never`)."""


ToolRows: TypeAlias = Mapping[type[ServerTool], ToolRow]
