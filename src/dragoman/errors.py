"""Every exception this library raises, in one tree.

    DragomanError
    ├── ConfigurationError           a setting, file or argument is wrong
    │   ├── ConfigFileError          a configuration file is wrong; carries its path and line
    │   ├── InvalidBaseURLError      the address of a provider cannot be used; carries the reason
    │   ├── KeychainError            the system's keychain cannot be used; carries the reason
    │   ├── LocalModelError          the model on this machine cannot be had or run; carries the reason
    │   └── MissingKeyError          there is no key; carries the places that were looked at
    ├── ProviderError                a model call failed (provider, model, status, request_id)
    │   ├── AuthenticationError      the key is missing, wrong or expired
    │   ├── PermissionDeniedError    the key is right but may not do this
    │   ├── RateLimitError           too many requests; carries retry_after
    │   ├── OverloadedError          the provider is busy; carries retry_after
    │   ├── ContextTooLongError      the conversation does not fit the model
    │   ├── ContentFilteredError     the provider refused the content
    │   ├── InvalidRequestError      the provider did not accept the request
    │   ├── ModelNotFoundError       no such model for this key
    │   ├── ConnectionFailedError    no connection, or it broke
    │   ├── RequestTimeoutError      no answer in time
    │   └── ProtocolError            the reply is malformed
    ├── BatchError                   a batch is not over, or was refused as a whole (batch, state)
    ├── ConversationError            a conversation cannot be used
    │   ├── InvalidConversationError calls and results do not match
    │   ├── LossyConversionError     a part of the history would be lost and `strict` forbids it
    │   ├── MalformedDataError       stored bytes are not a conversation
    │   └── UnsupportedVersionError  stored bytes come from a newer version
    ├── ConcurrentUseError           a client is in the middle of a turn
    ├── InvalidAnswerError           the model's answer does not fit the type that was asked for; carries its text
    ├── LimitReachedError            a run hit a limit; carries the conversation
    │   ├── StepLimitError           … the limit of steps
    │   └── UnknownCostError         … a limit of cost that cannot be kept, since a price is not known
    ├── StoppedError                 work under way was cancelled, or its time is up; carries the reason
    ├── ToolError                    a tool or a tool call failed (tool_name, call_id, type)
    │   ├── ToolDefinitionError      a function or schema cannot become a tool
    │   ├── ToolConflictError        two tools of one name
    │   ├── ToolNotFoundError        the model named a tool that is not there
    │   ├── ToolValidationError      the arguments do not fit the schema
    │   ├── ToolExecutionError       the tool itself failed
    │   ├── ToolTimeoutError         the tool took too long
    │   ├── ToolDeniedError          not permitted
    │   ├── ToolBudgetError          called more often than allowed
    │   ├── ToolCancelledError       the run was cancelled before the tool finished
    │   └── ToolAbortedError         a tool failed and the policy says stop; carries the results
    ├── McpError                     an MCP server cannot be used (server)
    │   ├── McpConnectionError       it does not start, does not answer in time, or has died
    │   └── McpProtocolError         it breaks the protocol, its own schemas, or a limit on what it may send
    ├── SkillError                   a skill, or a file of one, cannot be used
    │   └── SkillNotFoundError       no skill of that name
    ├── FleetError                   a turn cannot be handed in or carried out
    │   ├── TurnNotFoundError        no turn of that id
    │   └── UnknownAgentError        no worker knows the agent; carries those that are known
    ├── StoreError                   a store cannot read or write
    │   ├── InvalidCursorError       the cursor or the limit of a page cannot be used
    │   ├── StoreConflictError       somebody else saved first
    │   └── StoreUnavailableError    disk full, read-only, database gone
    └── SnapshotError                one stored snapshot cannot be used
        ├── InvalidSnapshotIDError   the id is not a canonical UUID
        ├── SnapshotNotFoundError    no snapshot of that id
        ├── SnapshotVersionError     written by a newer version
        ├── SnapshotCorruptError     truncated, edited or not a snapshot
        └── SnapshotSealError        wrong key, or sealed and no key given

The text of an error says what happened; its `hint` says what to do next; `str()` gives both. Providers' errors carry
the fields a program decides on (`status`, `retry_after`, `request_id`), so that nobody needs to parse a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, dataclass_transform

if TYPE_CHECKING:  # the errors that hand work back name its type; see the reason in pyproject.toml
    from dragoman.conversation import Conversation, Message, ToolResult
    from dragoman.embeddings import Embeddings
    from dragoman.transport import AttemptRecord

ToolErrorType = Literal[
    "validation", "execution", "timeout", "not_found", "denied", "budget", "cancelled", "definition", "conflict"
]
"""The kind of a tool's failure in one word: `ToolError.type`, and `error_type` of a ToolResult."""


def _positional(*, kw_only: Literal[False] = False) -> Any:
    """A field whose name need not be said."""
    return kw_only


@dataclass_transform(kw_only_default=True, field_specifiers=(_positional,))
class _WithFields(Exception):  # noqa: N818 -- it is none by itself
    """What is annotated in the classes below is a keyword of their constructors, as in dataclasses."""


class _Hint:
    """What the raiser says, or else what the class does."""

    def __get__(self, error: DragomanError, kind: object = None) -> str:
        said = vars(error)["hint"]
        return error.next_step if said is None else said

    def __set__(self, error: DragomanError, said: str | None) -> None:
        vars(error)["hint"] = said


class DragomanError(_WithFields):
    """The root: catch this to catch everything the library raises on purpose."""

    next_step: ClassVar[str] = "See the message for what to change."
    """What to do where the raiser has nothing better to say."""
    message: str = _positional()
    hint: _Hint = _Hint()

    def __init__(self, message: str, *, hint: str | None = None, **fields: object) -> None:
        super().__init__(message)  # and nothing else, so that errors can be pickled, as process pools do
        self.message = message
        self.hint = hint
        for name, value in fields.items():
            if not any(name in getattr(kind, "__annotations__", ()) for kind in type(self).__mro__):
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            setattr(self, name, value)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class ConfigurationError(DragomanError):
    """A setting, a file or an argument is wrong."""

    next_step = "Correct the setting named here and try again."
    reason: str = ""
    """What is wrong in one word, where a program may want to decide on it."""


class InvalidBaseURLError(ConfigurationError):
    """The address of a provider cannot be used, for a `reason` of `dragoman.transport.addresses.Reason`.

    The text never repeats the address: it may hold a key.
    """

    next_step = "Give a base URL such as https://api.openai.com or http://localhost:11434."


class ConfigFileError(ConfigurationError):
    """A configuration file cannot be read, or something in it is wrong."""

    next_step = "Correct the file at the place named here."
    path: str = ""
    line: int | None = None
    """From 1, where it is known."""


class MissingKeyError(ConfigurationError):
    """There is no key for a provider, or none that may be sent to this address."""

    next_step = "Set the provider's environment variable, or give the key as an argument."
    provider: str = ""
    places: tuple[str, ...] = ()
    """Where it was looked for, in order."""


class KeychainError(ConfigurationError):
    """The system's keychain cannot be used: `not_installed`, `no_backend`, `locked`, `refused` or `failed`."""

    next_step = "Unlock the keychain, or keep the key in an environment variable."


class LocalModelError(ConfigurationError):
    """A model on this machine cannot be had or run.

    The `reason` is `not_installed`, `unknown_model`, `wrong_file`, `checksum`, `download`, `no_space`, `no_memory`,
    `unsupported_processor` or `failed`.
    """

    next_step = "Read what stands above; what was fetched so far is kept."


# --- a model call failed ---------------------------------------------------------------------------------------------


class ProviderError(DragomanError):
    """A model call failed. The subclass says why; the fields say where."""

    next_step = "Try again; if it persists, look at the provider's status page."
    provider: str | None = None
    model: str | None = None
    status: int | None = None
    code: str | None = None
    request_id: str | None = None
    retry_after: float | None = None
    """Seconds the provider asks us to wait, where it said so."""
    partial: Message | None = None
    """What had been received of the reply when it failed."""
    conversation: Conversation | None = None
    """The conversation as far as it had got, valid to go on with, where a loop made the call."""
    attempts: tuple[AttemptRecord, ...] = ()
    """The ledger: every attempt, why it failed, how long was waited."""
    embeddings: Embeddings | None = None
    """The vectors that had come, where texts were embedded; `embed(…, resume=…)` goes on from them."""


class AuthenticationError(ProviderError):
    """The key is missing, wrong or expired."""

    next_step = "Check that the API key is the right one for this provider and has not expired."


class PermissionDeniedError(ProviderError):
    """The key is valid but may not use this model or feature."""

    next_step = "Use a key whose account has access, or choose another model."


class RateLimitError(ProviderError):
    """Too many requests or tokens for this key."""

    next_step = "Wait for `retry_after` seconds where it is set, or lower the rate of requests."


class OverloadedError(ProviderError):
    """The provider is out of capacity for the moment."""

    next_step = "Try again later, or use a fallback model."


class ContextTooLongError(ProviderError):
    """The conversation and the tools do not fit into the model's context."""

    next_step = "Shorten the history, send fewer tools, or use a model with a larger context."


class ContentFilteredError(ProviderError):
    """The provider refused to take or to produce the content."""

    next_step = "Rephrase the request; repeating it unchanged gives the same answer."


class InvalidRequestError(ProviderError):
    """The provider did not accept the request as it was sent."""

    next_step = "Correct the option or the message that the provider names; repeating it unchanged fails again."


class ModelNotFoundError(ProviderError):
    """There is no such model, or this key cannot see it."""

    next_step = "Check the spelling of the model's name against the provider's list."


class ConnectionFailedError(ProviderError):
    """No connection could be made, or it broke."""

    next_step = "Check the network, the base URL and the proxy settings."


class RequestTimeoutError(ProviderError):
    """No answer, or no further part of it, arrived in time."""

    next_step = "Raise the timeout, or ask for a shorter answer."


class ProtocolError(ProviderError):
    """A reply, or a stream of events, is not what the protocol allows."""

    next_step = "If it persists, report it with the request id: the reply could not be understood."


class BatchError(DragomanError):
    """A batch is not over yet, or was refused as a whole."""

    next_step = "Wait until the batch is over."
    batch: str = ""
    """Its id."""
    state: str = ""


# --- a conversation cannot be used -----------------------------------------------------------------------------------


class ConversationError(DragomanError):
    """A conversation, or its stored form, cannot be used as it is."""

    next_step = "Load another copy, or call repaired() on the conversation."


class InvalidConversationError(ConversationError):
    """Calls and results do not match; `problems` lists each place."""

    next_step = "Call repaired() to get a conversation that can be sent, with a list of what was changed."
    problems: tuple[str, ...] = ()


class LossyConversionError(ConversationError):
    """The model would not get all of the history, and the caller said `strict=True`; `losses` lists each part."""

    next_step = "Continue with the provider that wrote these parts, or go on without them: strict=False."
    losses: tuple[str, ...] = ()


class MalformedDataError(ConversationError):
    """The bytes are not a conversation in our JSON form."""

    next_step = "Check that the file is complete and was written by dragoman."


class UnsupportedVersionError(ConversationError):
    """The bytes were written by a newer version of the format."""

    next_step = "Upgrade dragoman to read it: pip install --upgrade dragoman."
    found: int
    supported: int


class ConcurrentUseError(DragomanError):
    """A client was used a second time while a turn was under way. Nothing was changed."""

    next_step = "Make one client for each conversation, share one made with stateless=True, or wait for the turn."


class InvalidAnswerError(DragomanError):
    """The model's answer is not what was asked for; `text` is what it said, `problems` what is wrong with it."""

    next_step = "See error.text; ask again, loosen the type, or use a model that keeps to schemas."
    text: str = ""
    problems: tuple[str, ...] = ()
    conversation: Conversation | None = None


class LimitReachedError(DragomanError):
    """A run hit one of its limits. Nothing is lost: `conversation` is valid and can be continued."""

    next_step = "Continue from error.conversation, with a higher limit if the work is not done."
    conversation: Conversation
    limit: str


class StepLimitError(LimitReachedError):
    """The run took as many steps as it may."""


class UnknownCostError(LimitReachedError):
    """A limit of cost cannot be kept: nobody knows what the model costs, or a reply did not say how long it was."""

    next_step = "Say what a million tokens cost, prices=Prices(input=…, output=…), or leave the limit of cost out."
    limit: str = "cost"


# --- a tool or a tool call failed ------------------------------------------------------------------------------------


class StoppedError(DragomanError):
    """Work under way was cancelled, or its time is up."""

    next_step = "What was done until then is kept; ask again to go on."
    reason: Literal["cancelled", "deadline"] = "cancelled"
    embeddings: Embeddings | None = None
    """The vectors that had come, where texts were embedded; `embed(…, resume=…)` goes on from them."""


class ToolError(DragomanError):
    """A tool failed. `type` names the kind in one word; `details` holds what a program may want to look at."""

    next_step = ""
    type: ClassVar[ToolErrorType] = "execution"
    tool_name: str = ""
    call_id: str = ""
    details: object = None


class ToolDefinitionError(ToolError):
    """A function or a schema cannot become a tool."""

    next_step = "Change the parameter named here, or define the tool from a JSON Schema."
    type = "definition"


class ToolConflictError(ToolError):
    """A registry already holds another tool of this name."""

    next_step = "Rename one of the two, use registry.prefixed(...), or say replace=True."
    type = "conflict"


class ToolNotFoundError(ToolError):
    """The model named a tool that is not there, or is not allowed in this run."""

    next_step = "Call one of the tools that were offered."
    type = "not_found"


class ToolValidationError(ToolError):
    """The arguments do not fit the tool's schema. `details` keeps the raw text of the arguments."""

    next_step = "Call the tool again with corrected arguments."
    type = "validation"


class ToolExecutionError(ToolError):
    """The tool itself failed. A tool may raise this to choose the text that the model reads."""

    type = "execution"


class ToolTimeoutError(ToolError):
    """The tool did not finish in its time."""

    next_step = "Ask for less in one call, or raise the tool's timeout."
    type = "timeout"


class ToolDeniedError(ToolError):
    """The permission policy, or a person, said no."""

    next_step = "Do not repeat the call; find another way or ask the user."
    type = "denied"


class ToolBudgetError(ToolError):
    """The tool was called more often than this run allows."""

    next_step = "Continue without this tool."
    type = "budget"


class ToolCancelledError(ToolError):
    """The run was cancelled before the tool finished."""

    next_step = "Call the tool again if its result is still needed."
    type = "cancelled"


class ToolAbortedError(ToolError):
    """A tool failed and the policy is `abort`. `results` holds one result for every call that waits for nobody."""

    next_step = "See error.results; nothing that was done is lost."
    results: tuple[ToolResult, ...]
    conversation: Conversation | None = None
    """The conversation with these results, valid to go on with, where a loop ran the tools."""


# --- an MCP server cannot be used -------------------------------------------------------------------------------------


class McpError(DragomanError):
    """An MCP server cannot be used; `server` is its name."""

    next_step = "Look at the server's own log, and at its entry under mcpServers."
    server: str = ""


class McpConnectionError(McpError):
    """The server does not start, does not answer in time, or has died."""

    next_step = "Check the command or the address of the server, and start it by hand to see what it says."


class McpProtocolError(McpError):
    """The server breaks the protocol, its own schemas, or a limit on what it may send."""

    next_step = "Report it to those who make the server; the rest of the program is not affected."


# --- skills ----------------------------------------------------------------------------------------------------------


class SkillError(DragomanError):
    """A skill, or one of its files, cannot be used."""

    next_step = "Look at `problems` of its DirectorySkillStore: they say what is wrong with it."


class SkillNotFoundError(SkillError):
    """There is no skill of that name."""

    next_step = "List the store to see the names that it has."


# --- fleets ----------------------------------------------------------------------------------------------------------


class FleetError(DragomanError):
    """A turn cannot be handed in, or the worker that carried it out failed."""

    next_step = "Look at the log of the workers; what was done until then is in the store."


class TurnNotFoundError(FleetError):
    """The fleet has no turn of that id."""

    next_step = "Check the id, the database and the schema; turns that ended long ago are removed."


class UnknownAgentError(FleetError):
    """No worker has offered this agent, or the one that took the turn does not have it."""

    next_step = "Check the name, and start workers that have the agent before turns are handed in for it."
    agent: str = ""
    known: tuple[str, ...] = ()


# --- stores and snapshots --------------------------------------------------------------------------------------------


class StoreError(DragomanError):
    """A store cannot read or write."""

    next_step = "Check the store's path or address and its permissions."


class InvalidCursorError(StoreError):
    """The cursor or the limit of a page cannot be used."""

    next_step = "Begin again without a cursor, or use the one of the page before, with the same filters."


class StoreConflictError(StoreError):
    """Somebody else saved a newer version first; nothing was overwritten."""

    next_step = "Load the newest version, apply your change to it and save again."


class StoreUnavailableError(StoreError):
    """The disk is full or read-only, or the database cannot be reached."""

    next_step = "Free the resource named here and save again; what was saved before is safe."


class SnapshotError(DragomanError):
    """One stored snapshot cannot be used."""

    next_step = "Choose another snapshot; the rest of the store is not affected."


class InvalidSnapshotIDError(SnapshotError):
    """The id is not a canonical, lower-case UUID."""

    next_step = "Use the id exactly as save() returned it."


class SnapshotNotFoundError(SnapshotError):
    """The store has no snapshot of that id."""

    next_step = "List the store to see the ids that it holds."


class SnapshotVersionError(SnapshotError):
    """The snapshot was written by a newer version."""

    next_step = "Upgrade dragoman to read it: pip install --upgrade dragoman."


class SnapshotCorruptError(SnapshotError):
    """The snapshot is truncated, was edited, or is not one."""

    next_step = "Restore it from a copy; it was left where it is."


class SnapshotSealError(SnapshotError):
    """The snapshot is sealed and the key is wrong or missing."""

    next_step = "Give the key that it was sealed with."


# --- for another process ----------------------------------------------------------------------------------------------


def describe_error(error: DragomanError) -> dict[str, object]:
    """The error as plain JSON data: its class, its texts and those of its fields that are numbers or texts."""
    told = {name: value for name, value in vars(error).items() if _is_plain(value)}
    return {"error": type(error).__name__, **told}


def _is_plain(value: object) -> bool:
    """Whether it is data; a conversation or a ledger of attempts stays where it is."""
    if isinstance(value, tuple):
        return all(isinstance(each, str) for each in cast("tuple[object, ...]", value))
    return isinstance(value, str | int | float | bool)


def recreate_error(told: Mapping[str, object]) -> DragomanError:
    """The error that `describe_error` told of. Of a newer version, what is not known here is left out."""
    named = globals().get(str(told.get("error")))
    kind: type[DragomanError] = named if isinstance(named, type) and issubclass(named, DragomanError) else DragomanError
    known = {name for each in kind.__mro__ for name in getattr(each, "__annotations__", ())} - {"message", "hint"}
    hint = told.get("hint")
    fields = {
        name: tuple(cast("list[object]", value)) if isinstance(value, list) else value
        for name, value in told.items()
        if name in known
    }
    return kind(str(told.get("message", "")), hint=None if hint is None else str(hint), **fields)
