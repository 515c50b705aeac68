"""The settings of a loop: options, limits, hooks, context policies, instructions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypedDict, TypeVar, cast

from msgspec import Struct

from dragoman._checks import check_takes_run, overlay
from dragoman.conversation import Conversation, Message, ToolCall, ToolResult
from dragoman.engines import Reply
from dragoman.errors import ConfigurationError
from dragoman.providers import ModelOptions
from dragoman.tools import PendingApproval, ToolConfig

from .context import ContextPolicy
from .step import Limits

if TYPE_CHECKING:
    from .io import LoopIO
    from .result import RunResult
    from .run import LoopRun

Deps = TypeVar("Deps")

Hook: TypeAlias = Awaitable[None] | None
"""What a hook returns: nothing, or in an async run an awaitable."""


class RunContext(Struct, Generic[Deps], frozen=True, kw_only=True, eq=False):
    """Passed to the caller's functions that supply instructions or tools, or check an answer."""

    deps: Deps
    """Whatever the program passed to the run as `deps`."""
    conversation: Conversation
    """The conversation so far."""
    model: str
    """As in `provider:model`."""


class Judge(Protocol):
    """Accepts or rejects the model's answer before a run ends with it."""

    def __call__(self, message: Message, context: RunContext[Any], io: LoopIO) -> Awaitable[Message | None]:
        """None to accept; else the message that tells the model what to correct. An error ends the run."""
        ...

    def result(self, result: RunResult) -> RunResult:
        """The result of the run, with the accepted answer in it."""
        ...


Instruction: TypeAlias = Callable[[RunContext[Any]], str | Awaitable[str | None] | None]
"""Called before each model call; the text it returns follows the system prompt in that request only."""
Instructions: TypeAlias = str | Instruction | Sequence[str | Instruction]
"""A system prompt: a text, a function that returns one, or several of both."""


class LoopHooks:
    """Override the methods you need. In an async run they may be `async`.

    A hook that raises ends the run with its error; the conversation so far is in `run.conversation`.
    """

    def before_model(self, run: LoopRun) -> Hook:
        """Called before the model gets `run.conversation`."""

    def after_model(self, run: LoopRun, reply: Reply) -> Hook:
        """Called after a reply: the last message of `run.conversation`, or left out of it because it says nothing."""

    def model_failed(self, run: LoopRun, error: Exception) -> Hook:
        """Called when a model call failed; the error is raised afterwards."""

    def before_tools(self, run: LoopRun, calls: tuple[ToolCall, ...]) -> Hook:
        """Called before the tool calls of a message are run."""

    def tool_started(self, run: LoopRun, call: ToolCall) -> Hook:
        """Called right before the function of a call starts."""

    def tool_finished(self, run: LoopRun, result: ToolResult) -> Hook:
        """Called with each result, before anybody else sees it."""

    def tool_paused(self, run: LoopRun, pending: PendingApproval) -> Hook:
        """Called when a tool, other than an agent, has paused its call, which waits for `pending.waits_for`."""

    def after_tools(self, run: LoopRun, results: tuple[ToolResult, ...]) -> Hook:
        """Called when the results are in `run.conversation`; calls that wait for approval are in `run.pending`.

        Also for the error results of calls that were cut off, which `before_tools` and `tool_started` do not get.
        """

    def compacted(self, run: LoopRun, before: Conversation) -> Hook:
        """Called after a context policy has shortened the history; `before` is the old one."""


OnLimit: TypeAlias = Literal["raise", "return"]


class LoopOptions(TypedDict, total=False):
    """The options of a loop, besides its model and tools."""

    system: Instructions | None
    """The system prompt: a text, a function of the RunContext (called before each model call), or several of both.

    It is sent instead of the conversation's own, which is sent where there is none; an empty text sends none at all.
    """
    options: ModelOptions
    """Options of every model call; by default those of the engine."""
    limits: Limits
    """How far a run may go; by default `ToolConfig.max_iterations` steps."""
    on_limit: OnLimit
    """`raise` an error when a limit is reached, or `return` the result so far."""
    hooks: Iterable[LoopHooks]
    """Called at each phase of a run."""
    context: Iterable[ContextPolicy]
    """Policies that may shorten the history, applied in order before each model call."""
    deps: object
    """Passed to tools and functions in their context."""


class LoopSettings(Struct, frozen=True, kw_only=True):
    """`LoopOptions` with defaults applied."""

    system: str | None = None
    """The texts of the system prompt; None if there is none, not even of functions: see `instructed`."""
    instructions: tuple[Instruction, ...] = ()
    """The functions of the system prompt."""
    options: ModelOptions = ModelOptions()
    limits: Limits = Limits()
    on_limit: OnLimit = "raise"
    hooks: tuple[LoopHooks, ...] = ()
    context: tuple[ContextPolicy, ...] = ()
    deps: object = None
    judge: Judge | None = None
    """Decides whether the run may end with the model's answer."""
    accounts: bool = False
    """Whether each reply is stored with its account: when it was requested, and every attempt."""

    def instructed(self, conversation: Conversation) -> Conversation:
        """The conversation as it is sent: with these texts, or with its own if the settings have no system prompt."""
        if self.system is None or (self.system or None) == conversation.system:
            return conversation
        return conversation.with_system(self.system or None)


def settings_of(given: LoopOptions, model: ModelOptions, tools: ToolConfig) -> LoopSettings:
    """The given options, with defaults from the engine and the tool config."""
    system, instructions = _split(given.get("system"))
    return LoopSettings(
        system=system,
        instructions=instructions,
        options=overlay(given.get("options"), model),
        limits=overlay(given.get("limits"), Limits(steps=tools.max_iterations)),
        on_limit=given.get("on_limit", "raise"),
        hooks=tuple(given.get("hooks", ())),
        context=tuple(given.get("context", ())),
        deps=given.get("deps"),
    )


def _split(given: Instructions | None) -> tuple[str | None, tuple[Instruction, ...]]:
    """Split a system prompt into its texts, joined (None only if nothing was given), and its functions."""
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
    return "\n\n".join(texts), tuple(functions)
