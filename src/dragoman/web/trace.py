"""A timeline of each turn of a conversation, from what is stored with its messages.

A turn is all that follows a message of the user. Replies have an account (when they were requested, every attempt, the
first token), results of tools their start and duration, so the timeline of an old turn is complete. What an older
version has stored without times is listed without them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct, structs

from dragoman.conversation import Conversation, Message, ToolResult, Usage


class AttemptSpan(Struct, frozen=True, kw_only=True):
    """One attempt of a model call, in seconds from the start of the turn."""

    start: float
    end: float
    outcome: str
    model: str | None = None
    status: int | None = None


class Span(Struct, frozen=True, kw_only=True):
    """A model call or a tool call of a turn. Times are None if they are unknown."""

    kind: Literal["model", "tool"]
    name: str
    message: int
    """Its index in the conversation."""
    start: float | None = None
    end: float | None = None
    first_token: float | None = None
    """In seconds from the start of the turn."""
    attempts: tuple[AttemptSpan, ...] = ()
    failed: bool = False
    note: str = ""
    input: int | None = None
    output: int | None = None


class Turn(Struct, frozen=True, kw_only=True):
    """One turn, as a timeline."""

    message: int
    """The index of the user's message."""
    title: str
    began: datetime | None = None
    seconds: float = 0.0
    spans: tuple[Span, ...] = ()


def timeline(conversation: Conversation) -> tuple[Turn, ...]:
    """The turns of a conversation, in order."""
    turns: list[Turn] = []
    begins = [index for index, message in enumerate(conversation.messages) if message.role == "user"]
    for place, begin in enumerate(begins):
        end = begins[place + 1] if place + 1 < len(begins) else len(conversation.messages)
        if end > begin + 1:
            turns.append(_turn(conversation.messages[:end], begin))
    return tuple(turns)


def _turn(messages: tuple[Message, ...], begin: int) -> Turn:
    following = list(enumerate(messages))[begin + 1 :]
    results = [result for _, message in following for result in message.tool_results]
    moments = [message.account.began for _, message in following if message.account is not None]
    moments += [result.began for result in results if result.began is not None]
    zero = min(map(_in_utc, moments), default=None)
    spans: list[Span] = []
    for index, message in following:
        if message.role == "assistant":
            spans.append(_model_span(message, index, zero))
        spans += [_tool_span(result, index, zero) for result in message.tool_results]
    ends = [span.end for span in spans if span.end is not None]
    title = " ".join(messages[begin].text[:200].split())[:80]
    return Turn(message=begin, title=title, began=zero, seconds=max(ends, default=0.0), spans=tuple(spans))


def _in_utc(time: datetime) -> datetime:
    """A time without a zone is in UTC."""
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _since(zero: datetime | None, time: datetime | None) -> float | None:
    return None if zero is None or time is None else (_in_utc(time) - zero).total_seconds()


def _model_span(message: Message, index: int, zero: datetime | None) -> Span:
    account, usage = message.account, message.usage or Usage()
    start = None if account is None else _since(zero, account.began)
    span = Span(
        kind="model",
        name=f"{message.provider}:{message.model}" if message.provider else message.model or "model",
        message=index,
        start=start,
        failed=message.interrupted,
        input=usage.input,
        output=usage.output,
    )
    if account is None or start is None:
        return span
    attempts: list[AttemptSpan] = []
    at, first_token = start, None
    for each in account.attempts:
        at += each.waited + each.queued
        first_token = at + each.first_token if each.first_token is not None else None
        end, model = at + each.duration, each.model or None
        attempts.append(AttemptSpan(start=at, end=end, outcome=each.outcome, model=model, status=each.status))
        at = end
    return structs.replace(
        span,
        end=start + account.seconds,
        first_token=first_token,
        attempts=tuple(attempts),
        note=f"{len(attempts)} attempts" if len(attempts) > 1 else "",
    )


def _tool_span(result: ToolResult, index: int, zero: datetime | None) -> Span:
    start = _since(zero, result.began)
    retries = f"{result.retries} retries" if result.retries else ""
    return Span(
        kind="tool",
        name=result.name,
        message=index,
        start=start,
        end=None if start is None else start + (result.duration or 0.0),
        failed=result.is_error,
        note=retries or (result.error_type or ""),
    )
