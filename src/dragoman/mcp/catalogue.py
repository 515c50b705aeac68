"""The lists that a server shows its clients: tools, resources and prompts."""

from __future__ import annotations

import base64
import dataclasses
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, get_type_hints, is_typeddict
from urllib.parse import quote

import anyio.to_thread
import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct

from dragoman._annotations import signature_of
from dragoman._crashes import log_crash
from dragoman.conversation import Json, Media, ResultPart, Text, ToolResult, Value
from dragoman.errors import ToolDefinitionError
from dragoman.tools import AnyTool, Checker, compile_schema

from .asking import Asking, InputNeededError, answering
from .content import to_content
from .settings import ToolAbout, read_about

if TYPE_CHECKING:
    from dragoman.toolkit import SkillStore, SkillSummary

R = TypeVar("R")

_OURS = (Value, ToolResult, Text, Media)


class Catalogue:
    """The tools at one moment, as they are listed."""

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
        """The parameters of a tool; None if it is unknown."""
        tool = self.source.get(name)
        return None if tool is None else tool.spec.schema

    def check_output(self, name: str, value: object) -> str:
        """What is wrong with a structured result by the tool's output schema; empty if nothing is."""
        checker = self._checkers.get(name)
        problems = () if checker is None else checker.problems(value)
        return "; ".join(map(str, problems))


def _describe(tool: AnyTool, about: ToolAbout, output: dict[str, object] | None) -> types.Tool:
    options = tool.options
    return types.Tool(
        name=tool.name,
        title=about.title or None,
        description=tool.description or None,
        input_schema=tool.spec.schema,
        output_schema=output,
        annotations=types.ToolAnnotations(
            title=about.title or None,
            read_only_hint=options.read_only,
            destructive_hint=False if options.read_only else about.destructive,
            idempotent_hint=options.idempotent or options.read_only,
            open_world_hint=about.open_world,
        ),
    )


def _output_schema(tool: AnyTool) -> dict[str, object] | None:
    """JSON Schema of a return type with named fields; None for others, such as a plain dict or content blocks."""
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
        definitions = cast("dict[str, dict[str, object]]", schema.get("$defs", {}))
        if isinstance(reference := schema.pop("$ref", None), str):  # MCP wants an object at the root
            schema = {**definitions.get(reference.rpartition("/")[2], {}), **schema}
        if schema.get("type") != "object":
            return None
        compile_schema(schema)
    except (TypeError, ValueError, RecursionError, ToolDefinitionError):  # a type without a schema
        return None
    return schema


def _return_hint(function: Callable[..., object]) -> object:
    inner: Any = function
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    try:
        # This one alone: a name in another annotation may be known to type checkers only.
        holder = SimpleNamespace(__annotations__={"return": signature_of(inner).return_annotation})
        return get_type_hints(holder, inspect.unwrap(inner).__globals__)["return"]
    except Exception:  # noqa: BLE001 -- hints are foreign code: names that only type checkers know, and worse
        return None


# --- resources and prompts -------------------------------------------------------------------------------------------

_LOGGER = logging.getLogger("dragoman.mcp")
_MAX_BYTES = 10 * 1024 * 1024
_RESOURCE_NOT_FOUND = -32002
"""Up to 2025-11-25; later revisions use the code for invalid parameters."""


Content: TypeAlias = str | bytes | ResultPart | Sequence[ResultPart]


class Offer(Struct, frozen=True):
    """A resource or a prompt: content that can be read by name.

    `read` may be sync or async. Its parameters, all strings, are the arguments of a prompt, or the variables of a
    resource whose `uri` is a template, such as `notes://{day}`. It may ask questions, like a tool (`ask_user`).
    """

    name: str
    description: str
    read: Callable[..., Content | Awaitable[Content]]
    """Returns the content; parts of a prompt become a message each."""
    uri: str = ""
    """The URI of a resource; made from the name if empty."""
    mime_type: str = ""
    title: str = ""
    complete: Callable[[str, str], Iterable[str] | Awaitable[Iterable[str]]] | None = None
    """Returns suggestions for an argument, from its name and what was typed so far."""


Offers: TypeAlias = Iterable[Offer] | Callable[[], Iterable[Offer]]
"""A fixed list, or a function that returns the current one."""


def offers_of(store: SkillStore) -> Callable[[], Iterable[Offer]]:
    """The skills of a store as resources or prompts, loaded when read: `McpServer(prompts=offers_of(skills))`."""

    def offer(about: SkillSummary) -> Offer:
        uri = f"skill://{quote(about.name, safe='')}/SKILL.md"
        return Offer(about.name, about.description, lambda: store.load(about.name).body, uri, "text/markdown")

    return lambda: map(offer, store.list())


class OfferList:
    """The resources, or the prompts, of a server, and the handlers of requests for them."""

    def __init__(self, offers: Offers) -> None:
        self._offers: Offers = offers

    async def _list(self) -> list[Offer]:
        # In a thread, because the function may read files.
        return await anyio.to_thread.run_sync(lambda: list(self._offers() if callable(self._offers) else self._offers))

    async def list_resources(self, _ctx: object, _params: object) -> types.ListResourcesResult:
        offers = [offer for offer in await self._list() if not UriTemplate.is_template(offer.uri)]
        found = [types.Resource(uri=_uri(offer), **_about(offer)) for offer in offers]
        return types.ListResourcesResult(resources=found)

    async def list_templates(self, _ctx: object, _params: object) -> types.ListResourceTemplatesResult:
        offers = [offer for offer in await self._list() if UriTemplate.is_template(offer.uri)]
        found = [types.ResourceTemplate(uri_template=offer.uri, **_about(offer)) for offer in offers]
        return types.ListResourceTemplatesResult(resource_templates=found)

    async def read_resource(
        self, ctx: ServerRequestContext[Any, Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        uri = str(params.uri)

        async def read(_asking: Asking) -> types.ReadResourceResult:
            for offer in await self._list():
                variables = _variables(offer.uri, uri) if UriTemplate.is_template(offer.uri) else {}
                if _uri(offer) == uri or variables:
                    return types.ReadResourceResult(contents=[_contents(uri, offer, await _read(offer, variables))])
            code = types.INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else _RESOURCE_NOT_FOUND
            raise MCPError(code, f"Resource not found: {uri}", {"uri": uri})

        return await answering(ctx, params, read)

    async def list_prompts(self, _ctx: object, _params: object) -> types.ListPromptsResult:
        prompts = [
            types.Prompt(
                name=offer.name,
                title=offer.title or None,
                description=offer.description or None,
                arguments=[
                    types.PromptArgument(name=name, required=parameter.default is parameter.empty)
                    for name, parameter in signature_of(offer.read).parameters.items()
                ],
            )
            for offer in await self._list()
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(
        self, ctx: ServerRequestContext[Any, Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        async def get(_asking: Asking) -> types.GetPromptResult:
            offer = await self._find(params.name)
            if offer is None:
                raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
            found = await _read(offer, params.arguments or {})
            found = found.decode("utf-8", "replace") if isinstance(found, bytes) else found
            parts = [found] if isinstance(found, Text | Media | Json) else found
            blocks = await anyio.to_thread.run_sync(to_content, [Text(parts)] if isinstance(parts, str) else parts)
            messages = [types.PromptMessage(role="user", content=block) for block in blocks]
            return types.GetPromptResult(description=offer.description or None, messages=messages)

        return await answering(ctx, params, get)

    async def complete(self, name: str, argument: str, value: str) -> list[str]:
        """Suggestions for an argument of a prompt, by its name, or of a resource, by its template."""
        offer = await self._find(name)
        if offer is None or offer.complete is None:
            return []
        return list(await _call(offer, offer.complete, argument, value))

    async def _find(self, name: str) -> Offer | None:
        return next((offer for offer in await self._list() if name in (offer.name, _uri(offer))), None)


def _uri(offer: Offer) -> str:
    return offer.uri or f"dragoman://resources/{quote(offer.name, safe='')}"


def _about(offer: Offer) -> dict[str, Any]:
    about = {"title": offer.title, "description": offer.description, "mime_type": offer.mime_type}
    return {"name": offer.name, **{key: value or None for key, value in about.items()}}


def _variables(template: str, uri: str) -> dict[str, str]:
    """The values of a template's variables in this URI; none if it does not match, or has `..` in a value."""
    found = UriTemplate.parse(template).match(uri) or {}
    texts = {name: value for name, value in found.items() if isinstance(value, str)}
    return texts if len(texts) == len(found) and not any(".." in value.split("/") for value in texts.values()) else {}


async def _read(offer: Offer, arguments: Mapping[str, str]) -> Content:
    """Read the content. Raises MCPError, also if it is too large."""
    try:
        signature_of(offer.read).bind(**arguments)
    except TypeError as error:
        raise MCPError(types.INVALID_PARAMS, f"{offer.name!r}: {error}") from None
    found = await _call(offer, partial(offer.read, **arguments))
    if isinstance(found, str | bytes) and len(found) > _MAX_BYTES:
        raise MCPError(types.INTERNAL_ERROR, f"{offer.name!r} is larger than {_MAX_BYTES} bytes")
    return found


async def _call(offer: Offer, function: Callable[..., R | Awaitable[R]], *given: str) -> R:
    """Call a function of the offer, sync or async. Raises MCPError."""
    try:
        found = await anyio.to_thread.run_sync(partial(function, *given), abandon_on_cancel=True)
        return await found if inspect.isawaitable(found) else cast("R", found)
    except (InputNeededError, MCPError):
        raise
    except Exception as error:
        log_crash(_LOGGER, "the function of %r crashed", offer.name, error=error)
        message = f"{offer.name!r} cannot be read: {type(error).__name__}: {error}"
        raise MCPError(types.INTERNAL_ERROR, message) from error


def _contents(uri: str, offer: Offer, data: Content) -> types.TextResourceContents | types.BlobResourceContents:
    if isinstance(data, str):
        return types.TextResourceContents(uri=uri, mime_type=offer.mime_type or "text/plain", text=data)
    if not isinstance(data, bytes):
        raise MCPError(types.INTERNAL_ERROR, f"{offer.name!r} is a resource, and so must give a text or bytes")
    blob = base64.b64encode(data).decode("ascii")
    return types.BlobResourceContents(uri=uri, mime_type=offer.mime_type or "application/octet-stream", blob=blob)
