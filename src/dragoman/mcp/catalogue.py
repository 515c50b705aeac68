"""What other programs are told of a server: its tools, and resources and prompts, which are anything with a name.

Structured results are checked against what was promised for the tool.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, TypeAlias, cast, get_type_hints, is_typeddict
from urllib.parse import quote

import anyio.to_thread
import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dragoman.conversation import Media, Text, ToolResult, Value
from dragoman.errors import ToolDefinitionError
from dragoman.tools import AnyTool, Checker, compile_schema

from .settings import ToolAbout, read_about

_OURS = (Value, ToolResult, Text, Media)


class Catalogue:
    """The tools of one moment, as they are listed."""

    def __init__(self, by_name: Mapping[str, AnyTool], about: Mapping[str, ToolAbout]) -> None:
        self.source: Mapping[str, AnyTool] = by_name
        self.tools: list[types.Tool] = []
        self._checkers: dict[str, Checker] = {}
        for name, tool in by_name.items():
            given = about.get(name) or read_about(tool)
            output = given.output_schema if given.output_schema is not None else _output_schema(tool)
            if output is not None:
                self._checkers[name] = compile_schema(output)
            self.tools.append(_describe(tool, given, output))

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The parameters of a tool, or None if there is none of that name."""
        tool = self.source.get(name)
        return None if tool is None else tool.spec.schema

    def broken_promise(self, name: str, value: object) -> str:
        """What is wrong with a structured value, given what was promised for the tool; or nothing."""
        checker = self._checkers.get(name)
        problems = () if checker is None else checker.problems(value)
        return "; ".join(f"{'.'.join(map(str, each.path)) or 'the value'}: {each.text}" for each in problems)


def _describe(tool: AnyTool, about: ToolAbout, output: dict[str, object] | None) -> types.Tool:
    options = tool.options
    annotations = types.ToolAnnotations(
        title=about.title or None,
        read_only_hint=options.read_only,
        destructive_hint=False if options.read_only else about.destructive,
        idempotent_hint=options.idempotent or options.read_only,
        open_world_hint=about.open_world,
    )
    return types.Tool(
        name=tool.name,
        title=about.title or None,
        description=tool.description or None,
        input_schema=tool.spec.schema,
        output_schema=output,
        annotations=annotations,
    )


def _output_schema(tool: AnyTool) -> dict[str, object] | None:
    """JSON Schema of what the function returns, where its return type names the fields; else None.

    Only where what is written is exactly what the type says: a plain dict promises nothing, and content blocks are not
    data.
    """
    hint = _return_hint(tool.function)
    if not isinstance(hint, type) or issubclass(hint, _OURS):
        return None
    hint = cast("type[Any]", hint)
    write = getattr(hint, "model_json_schema", None)  # pydantic's, without importing pydantic
    try:
        if callable(write):
            schema = cast("dict[str, object]", write(by_alias=False, mode="serialization"))
        elif dataclasses.is_dataclass(hint) or is_typeddict(hint) or issubclass(hint, msgspec.Struct):
            schema = cast("dict[str, object]", msgspec.json.schema(hint))
        else:
            return None
        schema = _with_root(schema)
        if schema.get("type") != "object":
            return None
        compile_schema(schema)
    except (TypeError, ValueError, RecursionError, ToolDefinitionError):  # a type that has no schema promises nothing
        return None
    return schema


def _return_hint(function: Callable[..., object]) -> object:
    inner: Any = function
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    try:
        return get_type_hints(inner).get("return")
    except Exception:  # noqa: BLE001 -- hints are foreign code: names that only type checkers know, and worse
        return None


def _with_root(schema: dict[str, object]) -> dict[str, object]:
    """The same schema with its root written out, where that is a reference: MCP wants an object there."""
    reference, definitions = schema.get("$ref"), schema.get("$defs")
    if not isinstance(reference, str) or not isinstance(definitions, dict):
        return schema
    root = cast("dict[str, dict[str, object]]", definitions).get(reference.rpartition("/")[2], {})
    rest = {key: value for key, value in schema.items() if key != "$ref"}
    return {**root, **rest}


# --- resources and prompts -------------------------------------------------------------------------------------------

MAX_BYTES = 10 * 1024 * 1024
_RESOURCE_NOT_FOUND = -32002
"""What the specifications up to 2025-11-25 say; later ones use the code for invalid parameters."""


class Readable(Protocol):
    """Something that can be read by its name. It may have a `uri`, a `mime_type` and a `title` as well."""

    @property
    def name(self) -> str:
        """What it is asked for by, where it has no `uri`."""
        ...

    @property
    def description(self) -> str:
        """What it is, for people and models."""
        ...

    def read(self) -> str | bytes | Awaitable[str | bytes]:
        """The whole of it."""
        ...


Offers: TypeAlias = Iterable[Readable] | Callable[[], Iterable[Readable]]
"""What is offered: fixed, or a function that says what there is now."""


class Store(Protocol):
    """Texts by name, such as a SkillStore: a list without the texts, and a text when it is wanted."""

    def list(self) -> Iterable[Any]: ...
    def load(self, name: str, /) -> Any: ...


class _Stored:
    """One text of a store, which is loaded when it is read."""

    mime_type: str = "text/markdown"

    def __init__(self, store: Store, about: Any) -> None:
        self._store: Store = store
        self.name: str = about.name
        self.description: str = about.description
        self.uri: str = f"skill://{quote(about.name, safe='')}/SKILL.md"

    def read(self) -> str:
        return self._store.load(self.name).body


def offers_of(store: Store) -> Callable[[], Iterable[Readable]]:
    """The texts of a store as resources or prompts: `McpServer(tools, prompts=offers_of(skills))`."""
    return lambda: [_Stored(store, about) for about in store.list()]


class OfferList:
    """The resources, or the prompts, of a server."""

    def __init__(self, kind: Literal["resources", "prompts"], offers: Offers) -> None:
        self._kind: str = kind
        self._offers: Offers = offers

    async def list(self) -> list[Readable]:
        """What there is now. The function that says so may look at the disk."""
        return await anyio.to_thread.run_sync(self._now)

    def _now(self) -> list[Readable]:
        return list(self._offers() if callable(self._offers) else self._offers)

    def uri(self, offer: Readable) -> str:
        """Its own, or one made of its name."""
        own: object = getattr(offer, "uri", None)
        return str(own) if own else f"dragoman://{self._kind}/{quote(offer.name, safe='')}"

    async def list_resources(self, _ctx: object, _params: object) -> types.ListResourcesResult:
        """What `resources/list` says."""
        resources = [
            types.Resource(
                name=offer.name,
                title=_optional(offer, "title"),
                uri=self.uri(offer),
                description=offer.description or None,
                mime_type=_optional(offer, "mime_type"),
            )
            for offer in await self.list()
        ]
        return types.ListResourcesResult(resources=resources)

    async def list_templates(self, _ctx: object, _params: object) -> types.ListResourceTemplatesResult:
        """What `resources/templates/list` says: all resources have fixed names."""
        return types.ListResourceTemplatesResult(resource_templates=[])

    async def read_resource(
        self, ctx: ServerRequestContext[Any, Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """What `resources/read` says."""
        uri = str(params.uri)
        for offer in await self.list():
            if self.uri(offer) == uri:
                return types.ReadResourceResult(contents=[_contents(uri, offer, await _read(offer))])
        code = types.INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else _RESOURCE_NOT_FOUND
        raise MCPError(code, f"Resource not found: {uri}", {"uri": uri})

    async def list_prompts(self, _ctx: object, _params: object) -> types.ListPromptsResult:
        """What `prompts/list` says."""
        prompts = [
            types.Prompt(name=offer.name, title=_optional(offer, "title"), description=offer.description or None)
            for offer in await self.list()
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(self, _ctx: object, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        """What `prompts/get` says: the text, as a message of the user."""
        for offer in await self.list():
            if offer.name == params.name:
                text = await _read(offer)
                words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
                message = types.PromptMessage(role="user", content=types.TextContent(text=words))
                return types.GetPromptResult(description=offer.description or None, messages=[message])
        raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")


def _optional(offer: Readable, name: str) -> str | None:
    value: object = getattr(offer, name, None)
    return str(value) if value else None


async def _read(offer: Readable) -> str | bytes:
    """The whole of it, unless that is too much; raises MCPError."""
    try:
        found = await anyio.to_thread.run_sync(offer.read, abandon_on_cancel=True)
        if inspect.isawaitable(found):
            found = await found
    except Exception as error:
        message = f"{offer.name!r} cannot be read: {type(error).__name__}: {error}"
        raise MCPError(types.INTERNAL_ERROR, message) from error
    if len(found) > MAX_BYTES:
        message = f"{offer.name!r} is larger than {MAX_BYTES} bytes"
        raise MCPError(types.INTERNAL_ERROR, message)
    return found


def _contents(uri: str, offer: Readable, data: str | bytes) -> types.TextResourceContents | types.BlobResourceContents:
    mime_type = _optional(offer, "mime_type")
    if isinstance(data, str):
        return types.TextResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=data)
    blob = base64.b64encode(data).decode("ascii")
    return types.BlobResourceContents(uri=uri, mime_type=mime_type or "application/octet-stream", blob=blob)
