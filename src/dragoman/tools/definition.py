"""A tool: a function, its definition for the model, and how it may be used.

A tool is made from a function (`tool`), from an object's methods (`tools_of`) or from a JSON Schema
(`Tool.from_schema`), and compiled once.
Must not know: registries and how tools are run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import msgspec
from msgspec import Raw, Struct

from dragoman._checks import CheckedMeta, Count, NotNegative, suggest
from dragoman.conversation import ToolCall, ToolExample, ToolSpec
from dragoman.errors import ConfigurationError, ToolDefinitionError

if TYPE_CHECKING:
    from .arguments.reader import Arguments

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

NeedsApproval: TypeAlias = bool | Callable[[ToolCall], bool]


class ToolOptions(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True):
    """How a tool may be used."""

    timeout: NotNegative | None = None
    """Seconds for one try, `inf` for no limit; None leaves it to the run's configuration."""
    retries: Count | None = None
    """How often a failed or timed-out call is retried; None leaves it to the run's configuration."""
    budget: Count | None = None
    """How often it may be called in one run; None leaves it to the run's configuration."""
    requires_approval: NeedsApproval = False
    """Whether a person must approve each call, or a function that decides this for a given call."""
    read_only: bool = False
    """It changes nothing."""
    idempotent: bool = False
    """Running it again with the same arguments does no harm, so it may be repeated after a crash."""


_DEFAULTS = ToolOptions()


class ToolSettings(TypedDict, total=False):
    """The keyword arguments of `tool` and `Tool.from_schema`: the fields of ToolSpec and ToolOptions, and `speaks`."""

    name: str
    description: str
    strict: bool | None
    examples: Sequence[ToolExample]
    tags: Iterable[str]
    version: str
    timeout: float | None
    retries: int | None
    budget: int | None
    requires_approval: NeedsApproval
    read_only: bool
    idempotent: bool
    speaks: bool


class Tool(Struct, Generic[P, R], frozen=True, kw_only=True, eq=False):
    """A function that a model can call."""

    spec: ToolSpec
    function: Callable[P, R]
    arguments: Arguments
    options: ToolOptions
    is_async: bool = False
    takes_context: bool = False
    speaks: bool = False
    """It tells the user something, so the model may end its turn without another word."""
    needs_self: bool = False
    """Whether it is a method of a class, not yet bound to an object; it cannot run."""
    agent: object = None
    """The agent behind it, if the tool is one of `dragoman.chat.agents`."""

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        return self.spec.name

    @property
    def description(self) -> str:
        """The description that the model sees."""
        return self.spec.description

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type, /) -> Tool[P, R]: ...
    @overload
    def __get__(self: Tool[Concatenate[S, P], R], instance: S, owner: type, /) -> Tool[P, R]: ...
    def __get__(self, instance: object, owner: type, /) -> Tool[Any, R]:
        """`obj.method` of a decorated method is the tool bound to that object."""
        if instance is None or not self.needs_self:
            return self
        bound: Callable[..., R] = cast("Any", self.function).__get__(instance, owner)
        return cast("Tool[Any, R]", msgspec.structs.replace(self, function=bound, needs_self=False))

    def renamed(self, name: str) -> Tool[P, R]:
        """The same tool under another name."""
        _check_name(name)
        return msgspec.structs.replace(self, spec=msgspec.structs.replace(self.spec, name=name))

    @staticmethod
    def from_function(function: Callable[P, R], /, **settings: Unpack[ToolSettings]) -> Tool[P, R]:
        """A tool described by a function's name, docstring and type hints; the same as `tool(function)`."""
        return cast("Tool[P, R]", _define(function, settings))

    @staticmethod
    def from_schema(
        function: Callable[..., S], parameters: Mapping[str, object] | None = None, **settings: Unpack[ToolSettings]
    ) -> Tool[..., S]:
        """A tool whose parameters a JSON Schema describes; the function gets them as keyword arguments.

        If an argument is missing and the function has no default for it, the schema's `default` is used.
        """
        return _define(function, settings, {"type": "object", "properties": {}} if parameters is None else parameters)


AnyTool: TypeAlias = Tool[..., Any]
"""A tool, whatever its function takes and returns."""


@overload
def tool(function: Callable[P, R], /, **settings: Unpack[ToolSettings]) -> Tool[P, R]: ...
@overload
def tool(function: None = None, /, **settings: Unpack[ToolSettings]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **settings: Unpack[ToolSettings]
) -> AnyTool | Callable[[Callable[..., Any]], AnyTool]:
    """Make a tool of a function: `tool(fn)`, `@tool` or `@tool(name=..., timeout=...)`.

    Name, description and parameters come from the function: its name, its docstring and its type hints. A first
    parameter annotated `ToolContext` gets the context of the call and is not shown to the model.
    """

    def define(fn: Callable[..., Any]) -> AnyTool:
        return _define(fn, settings)

    return define if function is None else define(function)


def tools_of(instance: object) -> list[AnyTool]:
    """The tools of an object: its methods decorated with `@tool`."""
    # From the base classes down: a tool that a subclass overrides keeps its place in the order.
    found: dict[str, Any] = {
        attribute: getattr(instance, attribute)
        for cls in reversed(type(instance).__mro__)
        for attribute, member in vars(cls).items()
        if isinstance(member, Tool)
    }
    bare = [attribute for attribute, member in found.items() if not isinstance(member, Tool)]
    if bare:  # it would lose the decorator's settings, such as that a person must approve it
        message = f"{type(instance).__name__}.{bare[0]} overrides a tool and is not decorated itself."
        raise ToolDefinitionError(message, hint="Decorate it with @tool too.", tool_name=bare[0])
    if not found:
        message = f"{type(instance).__name__} has no method decorated with @tool."
        raise ToolDefinitionError(message, hint="Decorate them, or pass obj.method instead.")
    return list(found.values())


def _define(fn: Callable[..., Any], settings: ToolSettings, schema: Mapping[str, object] | None = None) -> AnyTool:
    # Programs that define no tools need not load it.
    from .arguments.functions import name_of, read_function, read_handler

    if not callable(fn) or isinstance(fn, type):
        message = f"{fn!r} is not a function."
        raise ToolDefinitionError(message, hint="Give a function, a method or a callable object.")
    name = settings.get("name") or name_of(fn)
    if name == "<lambda>":
        raise ToolDefinitionError("A lambda has no name that a model could call.", hint="Name it: tool(fn, name=...).")
    _check_name(name)
    try:
        _check_settings(settings)
        function = read_function(fn) if schema is None else read_handler(fn, schema)
        of_options: dict[str, Any] = {k: v for k, v in settings.items() if k in ToolOptions.__struct_fields__}
        options = ToolOptions(**of_options) if of_options else _DEFAULTS
    except ConfigurationError as error:  # of ToolOptions
        raise ToolDefinitionError(error.message, hint="Correct the setting.", tool_name=name) from None
    except ToolDefinitionError as error:
        error.tool_name = name
        raise
    spec = ToolSpec(
        name=name,
        description=settings.get("description", function.description),
        parameters=Raw(msgspec.json.encode(function.arguments.schema)),
        strict=settings.get("strict"),
        examples=tuple(settings.get("examples", ())),
        tags=tuple(settings.get("tags", ())),
        version=settings.get("version", ""),
    )
    return Tool(
        spec=spec,
        function=fn,
        arguments=function.arguments,
        options=options,
        is_async=function.is_async,
        takes_context=function.takes_context,
        speaks=settings.get("speaks", False),
        needs_self=function.needs_self,
    )


def _check_settings(settings: ToolSettings) -> None:
    if unknown := [key for key in settings if key not in ToolSettings.__annotations__]:
        hint = suggest(unknown[0], ToolSettings.__annotations__)
        raise ToolDefinitionError(f"A tool has no setting {unknown[0]!r}.", hint=hint)
    if isinstance(tags := settings.get("tags"), str):
        raise ToolDefinitionError(f"tags={tags!r} is a string, not a list.", hint=f"Write tags=[{tags!r}].")


def _check_name(name: str) -> None:
    # Each provider's own rules are in its profile; these names could not be called anywhere.
    if not name or not name.isprintable() or name != name.strip():
        message = f"{name!r} cannot be the name of a tool."
        raise ToolDefinitionError(message, hint="Use letters, digits, '_' and '-'.", tool_name=name)
