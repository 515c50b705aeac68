"""What a loop can be given beside its model, its tools and its conversation: options, and hooks that look on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypedDict, TypeVar, cast

from msgspec import Struct

from dragoman._checks import check_takes_run, overlay
from dragoman.conversation import Conversation, Message, ToolCall, ToolResult
from dragoman.engines import Reply
from dragoman.errors import ConfigurationError
from dragoman.providers import ModelOptions
from dragoman.tools import ToolConfig

from .context import ContextPolicy
from .step import Limits

if TYPE_CHECKING:
    from .io import LoopIO
    from .result import RunResult
    from .run import LoopRun

Deps = TypeVar("Deps")

Hook: TypeAlias = Awaitable[None] | None
"""What a hook gives back: nothing, or, in an async run, something to be awaited."""


class RunContext(Struct, Generic[Deps], frozen=True, kw_only=True, eq=False):
    """What a function that a run asks may know of it: one that gives instructions, or tools, or checks an answer."""

    deps: Deps
    """Whatever the program gave to the run."""
    conversation: Conversation
    """As it stands."""
    model: str
    """As in `provider:model`."""


class Judge(Protocol):
    """Looks at what the model said last before a run may end with it."""

    def __call__(self, message: Message, context: RunContext[Any], io: LoopIO) -> Awaitable[Message | None]:
        """None if the run may end; else what the model is told, so that it goes on. An error ends the run."""
        ...

    def result(self, result: RunResult) -> RunResult:
        """The result of the run with what was made of that message."""
        ...


Instruction: TypeAlias = Callable[[RunContext[Any]], str | Awaitable[str | None] | None]
"""Is asked before each call of the model; what it says stands behind the system prompt in that request alone."""
Instructions: TypeAlias = str | Instruction | Sequence[str | Instruction]
"""A system prompt: a text, a function of the moment, or several of both."""


class LoopHooks:
    """Override what you want to see. In an async run the methods may be `async`.

    A hook that raises ends the run with its error; what was done until then is in `run.conversation`.
    """

    def before_model(self, run: LoopRun) -> Hook:
        """The model is about to be asked about `run.conversation`."""

    def after_model(self, run: LoopRun, reply: Reply) -> Hook:
        """The model has answered; its message is the last one of `run.conversation`."""

    def model_failed(self, run: LoopRun, error: Exception) -> Hook:
        """The model was asked and did not answer; the error is raised when the hooks have returned."""

    def before_tools(self, run: LoopRun, calls: tuple[ToolCall, ...]) -> Hook:
        """These calls are about to be carried out."""

    def tool_started(self, run: LoopRun, call: ToolCall) -> Hook:
        """This call's function is started as soon as the hook returns."""

    def tool_finished(self, run: LoopRun, result: ToolResult) -> Hook:
        """A call has its result, which nobody else has seen yet."""

    def after_tools(self, run: LoopRun, results: tuple[ToolResult, ...]) -> Hook:
        """The results are in `run.conversation`; calls that wait for a person are in `run.pending`."""

    def compacted(self, run: LoopRun, before: Conversation) -> Hook:
        """A context policy has shortened the history; `before` is the one it replaces."""


OnLimit: TypeAlias = Literal["raise", "return"]


class LoopOptions(TypedDict, total=False):
    """What a loop can be given beside its model and its tools."""

    system: Instructions | None
    """The system prompt: a text, a function of the RunContext, asked before each call of the model, or several."""
    options: ModelOptions
    """What is asked of the model in every step; without it, what the engine was made with."""
    limits: Limits
    """How far a run may go; without it, as many steps as the tools' config says."""
    on_limit: OnLimit
    """`raise` an error when a limit is reached, or `return` the result so far."""
    hooks: Iterable[LoopHooks]
    """Who is told of each phase of a run."""
    context: Iterable[ContextPolicy]
    """Who may shorten the history, asked one after the other before each call of the model."""
    deps: object
    """What tools find in their context."""


class LoopSettings(Struct, frozen=True, kw_only=True):
    """Everything about a run but its model, its tools and its conversation."""

    instructions: tuple[Instruction, ...] = ()
    """Those of the system prompt that are functions; its texts are in the conversation."""
    options: ModelOptions = ModelOptions()
    limits: Limits = Limits()
    on_limit: OnLimit = "raise"
    hooks: tuple[LoopHooks, ...] = ()
    context: tuple[ContextPolicy, ...] = ()
    deps: object = None
    judge: Judge | None = None
    """Who decides whether the run may end with what the model said."""
    accounts: bool = False
    """Whether each reply is kept with its account: when it was asked for, and every attempt."""


def settings_of(given: LoopOptions, model: ModelOptions, tools: ToolConfig) -> LoopSettings:
    """The settings that were given; what was not is as the engine and the tools' config have it."""
    return LoopSettings(
        instructions=split_instructions(given.get("system"))[1],
        options=overlay(given.get("options"), model),
        limits=overlay(given.get("limits"), Limits(steps=tools.max_iterations)),
        on_limit=given.get("on_limit", "raise"),
        hooks=tuple(given.get("hooks", ())),
        context=tuple(given.get("context", ())),
        deps=given.get("deps"),
    )


def split_instructions(given: Instructions | None) -> tuple[str | None, tuple[Instruction, ...]]:
    """The texts of a system prompt, joined, and its functions. None: there is no text."""
    if given is None or isinstance(given, str):
        return given, ()
    parts = cast("Sequence[object]", given if isinstance(given, Sequence) else [given])
    texts, functions = list[str](), list[Instruction]()
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif callable(part):
            check_takes_run(part, "the system prompt")
            functions.append(cast("Instruction", part))
        else:
            message = f"A system prompt cannot be made of a {type(part).__name__}."
            raise ConfigurationError(message, hint="Give a text, a function of the RunContext, or a list of both.")
    return "\n\n".join(texts) if texts else None, tuple(functions)
