"""What a fleet passes around: turns, what is asked in them, what came of them, and what those who watch are told.

Owns: these values and their JSON forms. Must not know: databases, clients.

What is asked and what came of it cross from one version of the library to another, so each has a version of its own,
and a newer one is refused with an error that says so. Errors are written by the name of their type, with those fields
that are plain data, and raised again where the caller waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Message, ToolCall, Usage, message_from_json, message_to_json
from dragoman.errors import (
    DragomanError,
    MalformedDataError,
    UnsupportedVersionError,
    describe_error,
    recreate_error,
)
from dragoman.loop import ENDINGS, Ended, RunResult, Spent
from dragoman.stores import MessageAdded, ToolCallBegun, ToolCallDone
from dragoman.tools import Approval, PendingApproval

VERSION: Final = 1


class Turn(Struct, frozen=True, kw_only=True):
    """A turn that was handed in."""

    id: str
    conversation: str
    """The id of its conversation in the store."""
    agent: str


class Outcome(Struct, frozen=True, kw_only=True):
    """What came of a turn."""

    turn: Turn
    ending: Ended
    text: str = ""
    """The model's latest answer."""
    pending: tuple[PendingApproval, ...] = ()
    """The calls that wait for a person, and why: `approve` or `deny` them."""
    usage: Usage = Usage()
    """The tokens of the turn, as far as its last worker knows of them."""
    spent: Spent = Spent()
    """What the turn has used up on its last worker."""

    def __str__(self) -> str:
        return self.text


class TurnEnded(Struct, frozen=True, kw_only=True):
    """A turn has ended: with an outcome, or with the error that whoever waits for it gets."""

    outcome: Outcome | None = None
    error: DragomanError | None = None


FleetEvent: TypeAlias = MessageAdded | ToolCallBegun | ToolCallDone | TurnEnded
"""A step of a conversation, for those who watch."""


class FleetStatus(Struct, frozen=True, kw_only=True):
    """One agent's turns."""

    agent: str
    provider: str
    queued: int = 0
    running: int = 0
    oldest_seconds: float = 0.0
    """How long the oldest turn that nobody has begun has been waiting."""
    ended: dict[str, int] = {}
    """How turns ended in the last hour: `done`, `await_approval`, `limit_reached`, `cancelled` or `failed`."""
    seen: datetime | None = None
    """When a worker last said that it knows this agent."""


def prometheus_text(rows: Iterable[FleetStatus]) -> str:
    """The same as metrics, in the text format of Prometheus."""
    turns, ages, ends = list[str](), list[str](), list[str]()
    for row in rows:
        which = ",".join(
            [f"{name}={msgspec.json.encode(getattr(row, name)).decode()}" for name in ("agent", "provider")]
        )
        turns += [
            f'dragoman_fleet_turns{{{which},state="{name}"}} {getattr(row, name)}' for name in ("queued", "running")
        ]
        ages.append(f"dragoman_fleet_oldest_queued_seconds{{{which}}} {row.oldest_seconds:.3f}")
        ends += [
            f'dragoman_fleet_ended_last_hour{{{which},ending="{name}"}} {count}' for name, count in row.ended.items()
        ]
    head = "# HELP dragoman_fleet_{0} {1}\n# TYPE dragoman_fleet_{0} gauge"
    return "\n".join(
        [
            head.format("turns", "Turns that wait or are under way."),
            *turns,
            head.format("oldest_queued_seconds", "Age of the oldest turn that nobody has begun."),
            *ages,
            head.format("ended_last_hour", "Turns that ended in the last hour."),
            *ends,
            "",
        ]
    )


# --- what is asked ---------------------------------------------------------------------------------------------------


class Ask(Struct, frozen=True, kw_only=True):
    """What a turn is to do: say something, pass answers about calls on, or, with neither, go on."""

    message: Message | None = None
    """Its id is that of the turn, so that whoever takes the turn over can see whether it was said."""
    approvals: tuple[Approval, ...] = ()


_NOTHING: Final = Raw(b"null")


class _StoredAsk(Struct, frozen=True, kw_only=True, omit_defaults=True):
    version: int = 0
    message: Raw = _NOTHING
    approvals: tuple[Approval, ...] = ()


def ask_to_json(ask: Ask) -> bytes:
    """What is asked, as JSON."""
    message = _NOTHING if ask.message is None else Raw(message_to_json(ask.message))
    return msgspec.json.encode(_StoredAsk(version=VERSION, message=message, approvals=ask.approvals))


def ask_from_json(data: bytes) -> Ask:
    """Read what `ask_to_json` wrote. Raises UnsupportedVersionError or MalformedDataError."""
    stored = _read(data, _StoredAsk, "What this turn is to do")
    message = None if stored.message == _NOTHING else message_from_json(bytes(stored.message))
    return Ask(message=message, approvals=stored.approvals)


# --- what came of it -------------------------------------------------------------------------------------------------


class _StoredOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    version: int = 0
    ending: Ended = "done"
    text: str = ""
    calls: Raw = _NOTHING
    held: Raw = _NOTHING
    """For each of the calls the one of the conversation itself: another one where an agent makes it."""
    reasons: tuple[str, ...] = ()
    usage: Usage = Usage()
    spent: Spent = Spent()
    error: dict[str, object] | None = None


def outcome_to_json(result: RunResult | DragomanError | None, messages: Sequence[Message] = ()) -> bytes:
    """What came of a turn, as JSON; None if it was cancelled before it began. `messages` are those that it added."""
    if result is None:
        return msgspec.json.encode(_StoredOutcome(version=VERSION, ending="cancelled"))
    if isinstance(result, DragomanError):
        return msgspec.json.encode(_StoredOutcome(version=VERSION, error=describe_error(result)))
    replies = [message.usage for message in messages if message.role == "assistant"]
    pending = result.pending
    return msgspec.json.encode(
        _StoredOutcome(
            version=VERSION,
            ending=ENDINGS[type(result.ending)],
            text=result.text,
            calls=_write_calls([each.call for each in pending]),
            held=_write_calls([each.held for each in pending]),
            reasons=tuple([each.reason for each in pending]),
            usage=Usage.total_of(replies) if replies else result.usage,
            spent=result.spent,
        )
    )


def outcome_from_json(data: bytes, turn: Turn) -> Outcome | DragomanError:
    """Read what `outcome_to_json` wrote: the outcome, or the error that is to be raised."""
    stored = _read(data, _StoredOutcome, "What came of this turn")
    if stored.error is not None:
        return recreate_error(stored.error)
    calls = _read_calls(stored.calls)
    waiting = zip(calls, _read_calls(stored.held) or calls, stored.reasons, strict=True)
    return Outcome(
        turn=turn,
        ending=stored.ending,
        text=stored.text,
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


def _read(data: bytes, kind: type[Any], what: str) -> Any:
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version > VERSION:
            message = f"{what} was written in version {version}; this dragoman reads up to {VERSION}."
            raise UnsupportedVersionError(message, found=version, supported=VERSION)
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedDataError(f"{what} cannot be read: {str(error).rstrip('.')}.") from None


class _Version(Struct, frozen=True):
    version: int
