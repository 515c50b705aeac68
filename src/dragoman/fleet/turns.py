"""The values of a fleet: turns, their requests and outcomes, and events for watchers.

Owns: these values and their JSON forms. Must not know: databases, clients.

Requests and outcomes pass between versions of the library, so each has a version number, and a newer one is refused.
Errors are stored by the name of their type with the fields that are plain data, and raised again where the caller
waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from dragoman._decoding import decode_as
from dragoman.conversation import (
    Conversation,
    Ended,
    Message,
    StopReason,
    ToolCall,
    Usage,
    message_from_json,
    message_to_json,
)
from dragoman.errors import (
    DragomanError,
    MalformedDataError,
    UnsupportedVersionError,
    describe_error,
    recreate_error,
)
from dragoman.loop import ENDINGS, RunResult, Spent
from dragoman.stores import MessageAdded, ToolCallBegun, ToolCallDone
from dragoman.tools import Approval, PendingApproval

_T = TypeVar("_T")
VERSION: Final = 1


class Turn(Struct, frozen=True, kw_only=True):
    """A turn that was submitted."""

    id: str
    conversation: str
    """The id of its conversation in the store."""
    agent: str


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of a turn."""

    turn: Turn
    ending: Ended
    text: str = ""
    """The model's latest answer."""
    stop_reason: StopReason | None = None
    """Why the model's last reply ended."""
    note: str = ""
    """What is wrong with the answer and what to do about it; empty if nothing is."""
    pending: tuple[PendingApproval, ...] = ()
    """The calls that wait for a person, with the reason: `approve` or `deny` them."""
    usage: Usage = Usage()
    """The tokens of the turn, as far as its last worker knows them."""
    spent: Spent = Spent()
    """What the turn used on its last worker."""

    def __str__(self) -> str:
        return self.text


class TurnEnded(Struct, frozen=True, kw_only=True):
    """A turn has ended: with an outcome, or with the error that `wait` raises."""

    outcome: Outcome | None = None
    error: DragomanError | None = None


FleetEvent: TypeAlias = MessageAdded | ToolCallBegun | ToolCallDone | TurnEnded
"""A step of a conversation, for watchers."""


class FleetStatus(Struct, frozen=True, kw_only=True):
    """One agent's turns."""

    agent: str
    provider: str
    queued: int = 0
    running: int = 0
    oldest_seconds: float = 0.0
    """The age of the oldest turn that no worker has started."""
    ended: dict[str, int] = {}
    """How turns ended in the last hour: `done`, `await_approval`, `limit_reached`, `no_answer`, `cancelled` or
    `failed`."""
    seen: datetime | None = None
    """When a worker last offered this agent."""


_METRICS: Final = (
    ("turns", "Turns that are queued or running."),
    ("oldest_queued_seconds", "Age of the oldest turn that no worker has started."),
    ("ended_last_hour", "Turns that ended in the last hour."),
)


def prometheus_text(rows: Iterable[FleetStatus]) -> str:
    """The status as gauges, in the text format of Prometheus."""
    samples: dict[str, list[str]] = {name: [] for name, _ in _METRICS}
    for row in rows:
        labels = ",".join(
            [f"{name}={msgspec.json.encode(getattr(row, name)).decode()}" for name in ("agent", "provider")]
        )
        samples["turns"] += [f'{{{labels},state="{name}"}} {getattr(row, name)}' for name in ("queued", "running")]
        samples["oldest_queued_seconds"].append(f"{{{labels}}} {row.oldest_seconds:.3f}")
        samples["ended_last_hour"] += [f'{{{labels},ending="{name}"}} {count}' for name, count in row.ended.items()]
    lines: list[str] = []
    for name, text in _METRICS:
        metric = f"dragoman_fleet_{name}"
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} gauge", *[metric + sample for sample in samples[name]]]
    return "\n".join([*lines, ""])


# --- requests --------------------------------------------------------------------------------------------------------

_NOTHING: Final = Raw(b"null")


class Ask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a turn is to do: add a prompt, pass decisions about calls on, or, with neither, continue."""

    version: int = 0
    message: Raw = _NOTHING
    """The prompt. Its id is that of the turn, so that a worker that takes the turn over sees whether it was added."""
    approvals: tuple[Approval, ...] = ()

    @property
    def prompt(self) -> Message | None:
        """The message to be added."""
        return None if self.message == _NOTHING else message_from_json(bytes(self.message))


def ask_to_json(prompt: Message | None = None, approvals: Sequence[Approval] = ()) -> bytes:
    """What a turn is to do, as JSON."""
    message = _NOTHING if prompt is None else Raw(message_to_json(prompt))
    return msgspec.json.encode(Ask(version=VERSION, message=message, approvals=tuple(approvals)))


def ask_from_json(data: bytes) -> Ask:
    """Read what `ask_to_json` wrote. Raises UnsupportedVersionError or MalformedDataError."""
    return _read(data, Ask, "The request of this turn")


# --- outcomes --------------------------------------------------------------------------------------------------------


class _StoredOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    version: int = 0
    ending: Ended = "done"
    text: str = ""
    stop_reason: StopReason | None = None
    note: str = ""
    calls: Raw = _NOTHING
    held: Raw = _NOTHING
    """For each call the one of the conversation itself, which differs if an agent behind a tool makes the call."""
    reasons: tuple[str, ...] = ()
    usage: Usage = Usage()
    spent: Spent = Spent()
    error: dict[str, object] | None = None


def outcome_to_json(result: RunResult | DragomanError | None, messages: Sequence[Message] = ()) -> bytes:
    """The result of a turn as JSON; None if it was cancelled before it began.

    `messages` are those that it added, if another worker had begun it: they know what that one used.
    """
    if result is None:
        return msgspec.json.encode(_StoredOutcome(version=VERSION, ending="cancelled"))
    if isinstance(result, DragomanError):
        return msgspec.json.encode(_StoredOutcome(version=VERSION, error=describe_error(result)))
    pending = result.pending
    return msgspec.json.encode(
        _StoredOutcome(
            version=VERSION,
            ending=ENDINGS[type(result.ending)],
            text=result.text,
            stop_reason=result.stop_reason,
            note=result.note,
            calls=_write_calls([each.call for each in pending]),
            held=_write_calls([each.held for each in pending]),
            reasons=tuple([each.reason for each in pending]),
            usage=Conversation(messages=tuple(messages)).usage if messages else result.usage,
            spent=result.spent,
        )
    )


def outcome_from_json(data: bytes, turn: Turn) -> Outcome | DragomanError:
    """Read what `outcome_to_json` wrote: the outcome, or the error to be raised."""
    stored = _read(data, _StoredOutcome, "The outcome of this turn")
    if stored.error is not None:
        return recreate_error(stored.error)
    calls = _read_calls(stored.calls)
    waiting = zip(calls, _read_calls(stored.held) or calls, stored.reasons, strict=True)
    return Outcome(
        turn=turn,
        ending=stored.ending,
        text=stored.text,
        stop_reason=stored.stop_reason,
        note=stored.note,
        pending=tuple(
            [
                PendingApproval(call=call, reason=why, within=None if held == call else held)
                for call, held, why in waiting
            ]
        ),
        usage=stored.usage,
        spent=stored.spent,
    )


def _write_calls(calls: Sequence[ToolCall]) -> Raw:
    return Raw(message_to_json(Message.assistant(*calls))) if calls else _NOTHING


def _read_calls(stored: Raw) -> tuple[ToolCall, ...]:
    return () if stored == _NOTHING else message_from_json(bytes(stored)).tool_calls


class _Version(Struct, frozen=True):
    version: int


def _read(data: bytes, kind: type[_T], what: str) -> _T:
    try:
        version = decode_as(data, _Version).version
        if version > VERSION:
            message = f"{what} was written in version {version}; this dragoman reads up to {VERSION}."
            raise UnsupportedVersionError(message, found=version, supported=VERSION)
        return decode_as(data, kind)
    except msgspec.MsgspecError as error:
        raise MalformedDataError(f"{what} cannot be read: {str(error).rstrip('.')}.") from None
