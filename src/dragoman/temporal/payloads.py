"""The values that cross Temporal's server, and their form there.

Owns: the arguments and results of activities and of the workflow; the converter, in which our values have our JSON
form; errors that keep their types; sealing.
Must not know: workers, workflows, clients.

Everything is `json/plain`, so that Temporal's own tools show it. Conversations and messages are raw JSON inside: a
conversation of a newer version can be passed on, and is refused only where it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, cast, get_args

import msgspec
from msgspec import Raw, Struct
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    ActivitySerializationContext,
    CompositePayloadConverter,
    DefaultFailureConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
    PayloadCodec,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)
from temporalio.exceptions import ApplicationError

from dragoman._decoding import decode_as
from dragoman.conversation import (
    Conversation,
    Ended,
    Message,
    StopReason,
    Usage,
    conversation_from_json,
    conversation_to_json,
    message_from_json,
    message_to_json,
)
from dragoman.errors import ConfigurationError, DragomanError, describe_error, recreate_error
from dragoman.loop import Limits, OnLimit, Spent, outcome_from_json, outcome_to_json
from dragoman.providers import ModelOptions
from dragoman.stores import AesGcmSealing
from dragoman.tools import Approval, PendingApproval, ToolErrorHandling

LARGEST: Final = 1_900_000
"""Bytes of one payload. Temporal refuses more than two megabytes, and the workflow would be stuck."""

NOTHING: Final = Raw(b"null")


# --- arguments and results of activities ------------------------------------------------------------------------------


class AgentFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a workflow needs to know of an agent during a turn; everything else stays on the workers."""

    limits: Limits = Limits()
    on_limit: OnLimit = "raise"
    system: str | None = None
    """The texts of its system prompt, so that the conversation names what is sent; None if it has none."""
    context: tuple[tuple[str, Raw], ...] = ()
    """The context policies: the name and the fields of each."""
    context_window: int | None = None
    tools: dict[str, bool] = {}
    """The tools by name, and whether a call needs the conversation."""
    agents: frozenset[str] = frozenset()
    """The tools that are agents: they share what is left of the limits."""
    tools_of_moment: bool = False
    """Whether a function on the worker returns the tools; then every call needs the conversation."""
    max_parallel_tools: int = 5
    tool_error_handling: ToolErrorHandling = ToolErrorHandling.CONTINUE
    run_timeout: float | None = None
    heartbeat: float = 10.0
    timeout: float = 3600.0


class Ask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of the model."""

    agent: str
    conversation: Raw
    options: ModelOptions = ModelOptions()
    first: bool = False
    """Whether it is the first of its turn: a tool choice that forces a call applies only to this one."""
    tools: bool = True
    """False for a model call of a context policy."""
    seconds: float | None = None
    """The remaining time of the turn."""


class Do(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of a tool."""

    agent: str
    message: Raw
    """A message that contains only the call."""
    approval: Approval | None = None
    counts: dict[str, int] = {}
    """How often each tool was called before in this turn."""
    known: bool = True
    """Whether the agent had a tool of this name when the turn began."""
    conversation: Raw = NOTHING
    seconds: float | None = None
    limits: Limits = Limits()
    """What agents inside may use."""


# --- arguments and results of the workflow ----------------------------------------------------------------------------


def write_conversation(conversation: Conversation) -> Raw:
    """The conversation as JSON. Raises ConfigurationError if the server would refuse it."""
    data = conversation_to_json(conversation)
    if len(data) > LARGEST:
        message = f"The conversation has {len(data):,} bytes; Temporal takes up to two megabytes."
        hint = "Shorten it with a context policy (context=[DropToolResults()]), or keep large media elsewhere."
        raise ConfigurationError(message, hint=hint)
    return Raw(data)


class TurnOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a turn, or the state of a conversation."""

    ending: Ended | None = None
    """None while a turn is running, and before the first."""
    reply: Raw = NOTHING
    stop_reason: StopReason | None = None
    """Why the model's last reply ended."""
    note: str = ""
    """What is wrong with the answer and what to do about it; empty if nothing is."""
    waits: dict[str, str] = {}
    spent: Spent = Spent()
    """What the turn has used."""
    usage: Usage = Usage()
    """The tokens of the turn since it last waited for a person."""

    def __str__(self) -> str:
        return self.text

    @property
    def message(self) -> Message | None:
        """The model's latest message."""
        return None if self.reply == NOTHING else message_from_json(bytes(self.reply))

    @property
    def text(self) -> str:
        """The model's latest answer."""
        message = self.message
        return "" if message is None else message.text

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a person, with the reason: `approve` or `deny` them."""
        message = self.message if self.waits else None
        calls = () if message is None else message.tool_calls
        return tuple(
            [PendingApproval(call=call, reason=self.waits[call.id]) for call in calls if call.id in self.waits]
        )


class ConversationStart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The argument of a ConversationWorkflow, also when it continues as new."""

    agent: str
    conversation: Raw = write_conversation(Conversation())
    options: ModelOptions = ModelOptions()
    limits: Limits = Limits()
    longest_history: int | None = None
    """Events after which the workflow continues as new between turns; None: when Temporal suggests it."""
    waits: dict[str, str] = {}
    """Ids of calls that wait for a person, with the reason."""
    spent: Spent = Spent()
    """What the turn that waits for a person has used."""
    queue: tuple[Raw, ...] = ()
    """Messages that were added in the meantime."""
    forgotten: int = 0
    """How many messages context policies have removed."""
    key: str = ""
    outcome: TurnOutcome = TurnOutcome()
    """That of the last turn, for a caller that repeats it with this key."""


class Answers(Struct, frozen=True):
    """A person's decisions about pending calls."""

    approvals: tuple[Approval, ...]


class Seen(Struct, frozen=True, kw_only=True):
    """Messages that are new to a watcher."""

    messages: tuple[Raw, ...]
    position: int
    """The position after the last of them."""


def waits_of(pending: Iterable[PendingApproval]) -> dict[str, str]:
    """The reason for each pending call, by id."""
    return {each.call.id: each.reason for each in pending}


# --- values as JSON ---------------------------------------------------------------------------------------------------

_FORMS: Final[dict[type, tuple[Any, Any]]] = {
    Raw: (bytes, Raw),
    Conversation: (conversation_to_json, conversation_from_json),
    Message: (message_to_json, message_from_json),
    PendingApproval: (outcome_to_json, outcome_from_json),
}
"""Types with their own JSON form; other Structs are written by msgspec."""


def _is_ours(hint: object) -> bool:
    """Whether a type is a Struct, or contains one."""
    return (isinstance(hint, type) and issubclass(hint, Struct)) or any(map(_is_ours, get_args(hint)))


class _JsonConverter(JSONPlainPayloadConverter):
    """Temporal's JSON converter, with our forms for our values."""

    def to_payload(self, value: Any) -> Payload | None:
        form = _FORMS.get(cast("type[object]", type(value)))
        if form is not None:
            data = form[0](value)
            data = data.encode() if isinstance(data, str) else data
        elif isinstance(value, Struct) or (isinstance(value, list | tuple) and value and isinstance(value[0], Struct)):
            data = msgspec.json.encode(cast("object", value))
        else:
            return super().to_payload(value)
        return Payload(metadata={"encoding": b"json/plain"}, data=data)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        form = None if type_hint is None else _FORMS.get(type_hint)
        if form is not None:
            return form[1](payload.data)
        if _is_ours(type_hint):
            return decode_as(payload.data, cast("Any", type_hint))
        return super().from_payload(payload, type_hint)


class DragomanPayloadConverter(CompositePayloadConverter):
    """Temporal's converter, with ours for JSON."""

    def __init__(self) -> None:
        usual = DefaultPayloadConverter.default_encoding_payload_converters
        super().__init__(*[each for each in usual if each.encoding != "json/plain"], _JsonConverter())


class DragomanFailureConverter(DefaultFailureConverter):
    """Our errors keep their types: raised in an activity, they reach the workflow and its callers."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        if isinstance(exception, DragomanError):
            exception = application_error(exception).with_traceback(exception.__traceback__)
        super().to_failure(exception, payload_converter, failure)

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        found = super().from_failure(failure, payload_converter)
        if isinstance(found, ApplicationError) and found.details and isinstance(found.details[0], dict):
            description = cast("dict[str, object]", found.details[0])
            if description.get("error") == found.type:
                return recreate_error(description)
        return found


class SealedFailureConverter(DragomanFailureConverter):
    """The same, with messages and stack traces in the payload that the codec seals."""

    def __init__(self) -> None:
        super().__init__(encode_common_attributes=True)


def application_error(error: DragomanError, *, retry_in: float | None = None) -> ApplicationError:
    """The error in Temporal's form. Without `retry_in` it is not retried."""
    delay = None if retry_in is None else timedelta(seconds=retry_in)
    description, name = describe_error(error), type(error).__name__
    return ApplicationError(str(error), description, type=name, non_retryable=retry_in is None, next_retry_delay=delay)


# --- sealing ----------------------------------------------------------------------------------------------------------


class SealingCodec(PayloadCodec, WithSerializationContext):
    """Seals every payload with the keys of a store's sealing, bound to its workflow.

    Unsealed payloads are refused, as in a sealed store, unless the sealing has `accept_plain=True`.
    """

    ENCODING: Final = b"binary/dragoman-sealed"

    def __init__(self, sealing: AesGcmSealing, workflow_id: str = "") -> None:
        self._sealing: AesGcmSealing = sealing
        self._about: bytes = f"dragoman.temporal/1/{workflow_id}".encode()

    def with_context(self, context: SerializationContext) -> SealingCodec:
        """The codec for the payloads of one workflow."""
        if isinstance(context, WorkflowSerializationContext | ActivitySerializationContext):
            return SealingCodec(self._sealing, context.workflow_id or "")
        return self

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        seal, about = self._sealing.seal, self._about
        sealed = [seal(each.SerializeToString(), about=about) for each in payloads]
        return [Payload(metadata={"encoding": self.ENCODING}, data=data) for data in sealed]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._open(each) for each in payloads]

    def _open(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") == self.ENCODING:
            return Payload.FromString(self._sealing.unseal(payload.data, about=self._about))
        if payload.data:
            self._sealing.unseal(payload.data, about=self._about)  # refuses it, or accepts plain data
        return payload
