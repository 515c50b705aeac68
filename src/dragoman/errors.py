"""Every exception this library raises, in one tree.

    DragomanError
    ├── ConfigurationError           a setting, file or argument is wrong
    │   ├── ConfigFileError          a configuration file is wrong (path, line)
    │   ├── InvalidBaseURLError      the address of a provider cannot be used (reason)
    │   ├── KeychainError            the system's keychain cannot be used (reason)
    │   ├── LocalModelError          a local model cannot be downloaded or run (reason)
    │   └── MissingKeyError          there is no key (places that were searched)
    ├── ProviderError                a model call failed (provider, model, status, request_id)
    │   ├── AuthenticationError      the key is missing, wrong or expired
    │   ├── PermissionDeniedError    the key is valid but has no permission
    │   ├── RateLimitError           too many requests (retry_after)
    │   ├── OverloadedError          the provider is busy (retry_after)
    │   ├── ContextTooLongError      the conversation does not fit the model
    │   ├── ContentFilteredError     the provider refused the content
    │   ├── InvalidRequestError      the provider did not accept the request
    │   ├── ModelNotFoundError       no such model for this key
    │   ├── ConnectionFailedError    no connection, or it broke
    │   ├── RequestTimeoutError      no answer in time
    │   └── ProtocolError            the reply is malformed
    ├── BatchError                   a batch has not ended, or was refused as a whole (batch, state)
    ├── ConversationError            a conversation cannot be used
    │   ├── InvalidConversationError calls and results do not match
    │   ├── LossyConversionError     a part of the history would be lost, and `strict` forbids that
    │   ├── MalformedDataError       stored bytes are not a conversation
    │   └── UnsupportedVersionError  stored bytes come from a newer version
    ├── ConcurrentUseError           a client is in the middle of a turn
    ├── InvalidAnswerError           the model's answer does not fit the requested type (text)
    ├── LimitReachedError            a run reached a limit (conversation)
    │   ├── StepLimitError           the limit of steps
    │   ├── UnknownCostError         a limit of cost cannot be enforced, because a price is unknown
    │   └── UnknownUsageError        a limit of tokens cannot be enforced, because they are not reported
    ├── StoppedError                 running work was cancelled, or reached its deadline (reason)
    ├── ToolError                    a tool or a tool call failed (tool_name, call_id, type)
    │   ├── ToolDefinitionError      a function or schema cannot become a tool
    │   ├── ToolConflictError        two tools with one name
    │   ├── ToolNotFoundError        the model called an unknown tool
    │   ├── ToolValidationError      the arguments do not fit the schema
    │   ├── ToolExecutionError       the tool itself failed
    │   ├── ToolTimeoutError         the tool took too long
    │   ├── ToolDeniedError          not permitted
    │   ├── ToolBudgetError          called more often than allowed
    │   ├── ToolCancelledError       the run was cancelled before the tool finished
    │   └── ToolAbortedError         a tool failed and the policy is to stop (results)
    ├── McpError                     an MCP server cannot be used (server)
    │   ├── McpConnectionError       it does not start, does not answer in time, or died
    │   └── McpProtocolError         it breaks the protocol, its own schemas, or a limit on what it may send
    ├── SkillError                   a skill, or a file of one, cannot be used
    │   └── SkillNotFoundError       no skill with that name
    ├── FleetError                   a turn cannot be submitted or run
    │   ├── TurnNotFoundError        no turn with that id
    │   └── UnknownAgentError        no worker knows the agent (known agents)
    ├── StoreError                   a store cannot read or write
    │   ├── InvalidCursorError       the cursor or the limit of a page is invalid
    │   ├── StoreConflictError       somebody else saved first
    │   └── StoreUnavailableError    disk full, read-only, database gone
    └── SnapshotError                one stored snapshot cannot be used
        ├── InvalidSnapshotIDError   the id is not a canonical UUID
        ├── SnapshotNotFoundError    no snapshot with that id
        ├── SnapshotVersionError     written by a newer version
        ├── SnapshotCorruptError     truncated, edited or not a snapshot
        └── SnapshotSealError        wrong key, or sealed and no key given

The message of an error says what happened, its `hint` what to do next; `str()` has both. Errors have fields for what
programs decide on (`status`, `retry_after`, `request_id`), so that nobody needs to parse a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, dataclass_transform

from dragoman._annotations import annotations_of

if TYPE_CHECKING:  # for the types of fields; see the reason in pyproject.toml
    from dragoman.conversation import Conversation, Message, ToolResult
    from dragoman.embeddings import Embeddings
    from dragoman.transport import AttemptRecord

ToolErrorType = Literal[
    "validation", "execution", "timeout", "not_found", "denied", "budget", "cancelled", "definition", "conflict"
]
"""The kind of a tool's failure in one word: `ToolError.type`, and `error_type` of a ToolResult."""


def _positional(*, kw_only: Literal[False] = False) -> Any:
    """A positional field."""
    return kw_only


@dataclass_transform(kw_only_default=True, field_specifiers=(_positional,))
class _WithFields(Exception):  # noqa: N818 -- never raised itself
    """Annotated fields of the classes below are keywords of their constructors, as in dataclasses."""


class _Hint:
    """The hint of one error, by default the `next_step` of its class."""

    def __get__(self, error: DragomanError, kind: object = None) -> str:
        hint = vars(error)["hint"]
        return error.next_step if hint is None else hint

    def __set__(self, error: DragomanError, hint: str | None) -> None:
        vars(error)["hint"] = hint


class DragomanError(_WithFields):
    """The base class of all errors that the library raises on purpose."""

    next_step: ClassVar[str] = "See the message for what to change."
    """The default hint."""
    message: str = _positional()
    hint: _Hint = _Hint()

    def __init__(self, message: str, *, hint: str | None = None, **fields: object) -> None:
        super().__init__(message)  # only the message, so that errors can be pickled
        self.message = message
        self.hint = hint
        for name, value in fields.items():
            if not any(name in annotations_of(kind) for kind in type(self).__mro__):
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            setattr(self, name, value)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class ConfigurationError(DragomanError):
    """A setting, a file or an argument is wrong."""

    next_step = "Correct the setting named here and try again."
    reason: str = ""
    """What is wrong in one word, for programs."""


class InvalidBaseURLError(ConfigurationError):
    """The address of a provider cannot be used, for a `reason` of `dragoman.transport.addresses.Reason`.

    The message never repeats the address: it may hold a key.
    """

    next_step = "Use a base URL such as https://api.openai.com or http://localhost:11434."


class ConfigFileError(ConfigurationError):
    """A configuration file cannot be read, or something in it is wrong."""

    next_step = "Correct the file at the place named here."
    path: str = ""
    line: int | None = None
    """Counted from 1; None if it is unknown."""


class MissingKeyError(ConfigurationError):
    """There is no key for a provider, or none that may be sent to this address."""

    next_step = "Set the provider's environment variable, or pass the key as an argument."
    provider: str = ""
    places: tuple[str, ...] = ()
    """Where the key was searched, in order."""


class KeychainError(ConfigurationError):
    """The system's keychain cannot be used: `not_installed`, `no_backend`, `locked`, `refused` or `failed`."""

    next_step = "Unlock the keychain, or keep the key in an environment variable."


class LocalModelError(ConfigurationError):
    """A local model cannot be downloaded or run.

    The `reason` is `not_installed`, `unknown_model`, `wrong_file`, `checksum`, `download`, `no_space`, `no_memory`,
    `unsupported_processor` or `failed`.
    """

    next_step = "See the message; what was downloaded so far is kept."


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
    """How many seconds the provider asks to wait."""
    partial: Message | None = None
    """The part of the reply that had arrived."""
    conversation: Conversation | None = None
    """The conversation so far, valid to continue with, if a loop made the call."""
    attempts: tuple[AttemptRecord, ...] = ()
    """The ledger: every attempt, why it failed, how long it waited."""
    embeddings: Embeddings | None = None
    """The vectors so far, if texts were embedded; `embed(…, resume=…)` continues from them."""


class AuthenticationError(ProviderError):
    """The key is missing, wrong or expired."""

    next_step = "Check that the API key is the right one for this provider and has not expired."


class PermissionDeniedError(ProviderError):
    """The key is valid but may not use this model or feature."""

    next_step = "Use a key whose account has access, or choose another model."


class RateLimitError(ProviderError):
    """Too many requests or tokens for this key."""

    next_step = "Wait for `retry_after` seconds if it is set, or send fewer requests."


class OverloadedError(ProviderError):
    """The provider has no capacity at the moment."""

    next_step = "Try again later, or use a fallback model."


class ContextTooLongError(ProviderError):
    """The conversation and the tools do not fit into the model's context."""

    next_step = "Shorten the history, send fewer tools, or use a model with a larger context."


class ContentFilteredError(ProviderError):
    """The provider refused the request or withheld the answer because of its content."""

    next_step = "Rephrase the request; the same request gets the same answer."


class InvalidRequestError(ProviderError):
    """The provider did not accept the request as it was sent."""

    next_step = "Correct the option or the message that the provider names; the same request fails again."


class ModelNotFoundError(ProviderError):
    """There is no such model, or this key has no access to it."""

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
    """A batch has not ended yet, or was refused as a whole."""

    next_step = "Wait until the batch has ended."
    batch: str = ""
    """Its id."""
    state: str = ""


# --- a conversation cannot be used -----------------------------------------------------------------------------------


class ConversationError(DragomanError):
    """A conversation, or its stored form, cannot be used as it is."""

    next_step = "Load another copy, or call repaired() on the conversation."


class InvalidConversationError(ConversationError):
    """Calls and results do not match; `problems` lists each place."""

    next_step = "Call repaired() to get a conversation that can be sent, and a list of the changes."
    problems: tuple[str, ...] = ()


class LossyConversionError(ConversationError):
    """The model would not receive the whole history, and `strict` is set; `losses` lists the missing parts."""

    next_step = "Continue with the provider that wrote these parts, or without them: strict=False."
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
    """A client was used again during a turn. Nothing was changed."""

    next_step = "Create one client per conversation, share one with stateless=True, or wait for the turn."


class InvalidAnswerError(DragomanError):
    """The model's answer does not fit the requested type; `text` is the answer, `problems` says what is wrong."""

    next_step = "See error.text; ask again, loosen the type, or use a model that follows schemas."
    text: str = ""
    problems: tuple[str, ...] = ()
    conversation: Conversation | None = None


class LimitReachedError(DragomanError):
    """A run reached one of its limits. Nothing is lost: `conversation` is valid and can be continued."""

    next_step = "Continue from error.conversation, with a higher limit if the work is not done."
    conversation: Conversation
    limit: str


class StepLimitError(LimitReachedError):
    """The run reached its limit of steps."""


class UnknownCostError(LimitReachedError):
    """A limit of cost cannot be enforced: the price of the model or the usage of a reply is unknown."""

    next_step = "Set the price of a million tokens, prices=Prices(input=…, output=…), or remove the limit of cost."
    limit: str = "cost"


class UnknownUsageError(LimitReachedError):
    """A limit of tokens cannot be enforced: the server does not report how many a reply used."""

    next_step = "Limit the steps or the model calls instead, or ask the server to report its usage."
    limit: str = "tokens"


# --- a tool or a tool call failed ------------------------------------------------------------------------------------


class StoppedError(DragomanError):
    """Running work was cancelled, or reached its deadline."""

    next_step = "What was done so far is kept; ask again to continue."
    reason: Literal["cancelled", "deadline"] = "cancelled"
    embeddings: Embeddings | None = None
    """The vectors so far, if texts were embedded; `embed(…, resume=…)` continues from them."""


class ToolError(DragomanError):
    """A tool failed. `type` names the kind in one word; `details` holds data for programs."""

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
    """A registry already holds another tool with this name."""

    next_step = "Rename one of the two, use registry.prefixed(...), or pass replace=True."
    type = "conflict"


class ToolNotFoundError(ToolError):
    """The model called a tool that does not exist, or is not allowed in this run."""

    next_step = "Call one of the tools that were offered."
    type = "not_found"


class ToolValidationError(ToolError):
    """The arguments do not fit the tool's schema. `details` keeps the raw text of the arguments."""

    next_step = "Call the tool again with corrected arguments."
    type = "validation"


class ToolExecutionError(ToolError):
    """The tool itself failed. A tool can raise this to choose the text for the model."""

    type = "execution"


class ToolTimeoutError(ToolError):
    """The tool did not finish in time."""

    next_step = "Ask for less in one call, or raise the tool's timeout."
    type = "timeout"


class ToolDeniedError(ToolError):
    """The permission policy, or a person, refused the call."""

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
    """A tool failed and the policy is `abort`. `results` has one result for every call that needs no approval."""

    next_step = "See error.results; no result is lost."
    results: tuple[ToolResult, ...]
    conversation: Conversation | None = None
    """The conversation with these results, valid to continue with, if a loop ran the tools."""


# --- an MCP server cannot be used -------------------------------------------------------------------------------------


class McpError(DragomanError):
    """An MCP server cannot be used; `server` is its name."""

    next_step = "Check the server's log, and its entry under mcpServers."
    server: str = ""


class McpConnectionError(McpError):
    """The server does not start, does not answer in time, or died."""

    next_step = "Check the command or the address of the server, and start it by hand to see its output."


class McpProtocolError(McpError):
    """The server breaks the protocol, its own schemas, or a limit on what it may send."""

    next_step = "Report it to the authors of the server; the rest of the program is not affected."


# --- skills ----------------------------------------------------------------------------------------------------------


class SkillError(DragomanError):
    """A skill, or one of its files, cannot be used."""

    next_step = "See `problems` of its DirectorySkillStore."


class SkillNotFoundError(SkillError):
    """There is no skill with that name."""

    next_step = "List the store to see its names."


# --- fleets ----------------------------------------------------------------------------------------------------------


class FleetError(DragomanError):
    """A turn cannot be submitted, or its worker failed."""

    next_step = "Check the log of the workers; what was done so far is in the store."


class TurnNotFoundError(FleetError):
    """The fleet has no turn with that id."""

    next_step = "Check the id, the database and the schema; turns that ended long ago are removed."


class UnknownAgentError(FleetError):
    """No worker offers this agent, or the worker that took the turn does not have it."""

    next_step = "Check the name, and start workers with the agent before you submit turns for it."
    agent: str = ""
    known: tuple[str, ...] = ()


# --- stores and snapshots --------------------------------------------------------------------------------------------


class StoreError(DragomanError):
    """A store cannot read or write."""

    next_step = "Check the store's path or address and its permissions."


class InvalidCursorError(StoreError):
    """The cursor or the limit of a page is invalid."""

    next_step = "Start again without a cursor, or use the cursor of the page before with the same filters."


class StoreConflictError(StoreError):
    """Somebody else saved a newer version first; nothing was overwritten."""

    next_step = "Load the newest version, apply your change to it and save again."


class StoreUnavailableError(StoreError):
    """The disk is full or read-only, or the database cannot be reached."""

    next_step = "Fix the problem and save again; what was saved before is safe."


class SnapshotError(DragomanError):
    """One stored snapshot cannot be used."""

    next_step = "Choose another snapshot; the rest of the store is not affected."


class InvalidSnapshotIDError(SnapshotError):
    """The id is not a canonical, lower-case UUID."""

    next_step = "Use the id exactly as save() returned it."


class SnapshotNotFoundError(SnapshotError):
    """The store has no snapshot with that id."""

    next_step = "List the store to see its ids."


class SnapshotVersionError(SnapshotError):
    """The snapshot was written by a newer version."""

    next_step = "Upgrade dragoman to read it: pip install --upgrade dragoman."


class SnapshotCorruptError(SnapshotError):
    """The snapshot was truncated or edited, or is not a snapshot."""

    next_step = "Restore it from a backup; it was left unchanged."


class SnapshotSealError(SnapshotError):
    """The snapshot is sealed and the key is wrong or missing."""

    next_step = "Pass the key that it was sealed with."


# --- errors as JSON ---------------------------------------------------------------------------------------------------


def describe_error(error: DragomanError) -> dict[str, object]:
    """The error as plain JSON data: its class, its texts, and its fields that are numbers or texts."""
    return {"error": type(error).__name__, **{name: value for name, value in vars(error).items() if _is_plain(value)}}


def _is_plain(value: object) -> bool:
    """Whether it is plain data; a conversation or a ledger of attempts is left out."""
    if isinstance(value, tuple):
        return all(isinstance(each, str) for each in cast("tuple[object, ...]", value))
    return isinstance(value, str | int | float | bool)


def recreate_error(described: Mapping[str, object]) -> DragomanError:
    """The error that `describe_error` described. Classes and fields of a newer version are left out."""
    named = globals().get(str(described.get("error")))
    kind: type[DragomanError] = named if isinstance(named, type) and issubclass(named, DragomanError) else DragomanError
    known = {name for each in kind.__mro__ for name in annotations_of(each)} - {"message", "hint"}
    hint = described.get("hint")
    fields = {
        name: tuple(cast("list[object]", value)) if isinstance(value, list) else value
        for name, value in described.items()
        if name in known
    }
    return kind(str(described.get("message", "")), hint=None if hint is None else str(hint), **fields)
