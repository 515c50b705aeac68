"""What every dialect offers, and the values that pass between a codec and an engine.

Owns: Codec and Decoder; WireRequest; the reports (Adaptation, Loss); keeping what was worked out for a
message, a tool or a call for the next time.

A codec is stateless and its functions are pure. A decoder is made for one reply and fed with the reply's bytes in any
pieces; whole replies and streams give the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

import msgspec
from msgspec import Struct

from dragoman.conversation import (
    Conversation,
    Message,
    ReplyEvent,
    ReplyStarted,
    ToolSpec,
    UsageReported,
    memory_of,
)
from dragoman.errors import ConfigurationError

from .options import ModelOptions
from .profile import Profile


class Call(Struct, frozen=True, kw_only=True):
    """One model call, in our terms."""

    model: str
    conversation: Conversation
    profile: Profile
    tools: tuple[ToolSpec, ...] = ()
    options: ModelOptions = ModelOptions()
    stream: bool = False
    time: datetime | None = None
    """When it is made; the reply carries it, since prices change."""


class WireRequest(Struct, frozen=True, kw_only=True):
    """What is posted, in the provider's terms. Address and key are the engine's."""

    path: str
    """Behind the base URL, with a query if there is one, e.g. `/v1/messages`."""
    body: bytes = b""
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Without what may be a secret: tokens of hosted servers stand in bodies, keys in headers."""
        return f"WireRequest(path={self.path!r}, body=<{len(self.body)} bytes>, headers=<{', '.join(self.headers)}>)"


class Adaptation(Struct, frozen=True):
    """An option or a schema that was changed, or left out, to suit the model."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class Loss(Struct, frozen=True):
    """A part of the history that this model does not get, or gets in another form."""

    message: int
    block: int
    what: str
    """The kind of block: its `type` in our JSON form."""
    why: str

    def __str__(self) -> str:
        return f"message {self.message}, block {self.block} ({self.what}): {self.why}"


class Encoded(Struct, frozen=True, kw_only=True):
    """A request, and what had to be changed or left out to make it."""

    request: WireRequest
    adaptations: tuple[Adaptation, ...] = ()
    losses: tuple[Loss, ...] = ()
    tool_names: Mapping[str, str] = {}
    """For tools whose own names the provider would refuse: {name on the wire: own name}. Decoders map them back."""


class Frame(Struct, frozen=True, kw_only=True):
    """A request but for what changes from turn to turn; it depends on little more than the terms of a call."""

    path: str
    members: bytes
    """Of the body, without its braces; there may be none."""
    given: frozenset[str]
    """Members that the caller gives in place of ours."""
    headers: Mapping[str, str]
    adaptations: tuple[Adaptation, ...]
    tool_names: Mapping[str, str]

    def complete(
        self, members: Mapping[str, Sequence[bytes]], losses: tuple[Loss, ...], headers: Mapping[str, str] | None = None
    ) -> Encoded:
        """The request with these further members, whose JSON is to be joined."""
        body, before = [b"{", self.members], b',"' if self.members else b'"'
        for name, pieces in members.items():
            if name not in self.given:
                body += (before, name.encode(), b'":', *pieces)
                before = b',"'
        body.append(b"}")
        return Encoded(
            request=WireRequest(path=self.path, body=b"".join(body), headers=headers or self.headers),
            adaptations=self.adaptations,
            losses=losses,
            tool_names=self.tool_names,
        )


def nothing_to_send() -> ConfigurationError:
    message = "There is nothing to send: the conversation holds no message that this provider can take."
    return ConfigurationError(message, hint="Add a message of the user.")


class Decoder(Protocol):
    """Reads one reply."""

    @property
    def done(self) -> bool:
        """Whether the reply has come to the end that its dialect marks: there is nothing to wait for but `finish`."""
        ...

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        """Take in the next bytes and append the events that they complete.

        Raises a ProviderError: ProtocolError for malformed bytes, or what an error in the stream says. Events that came
        before the error are in the list by then.
        """
        ...

    def finish(self, events: list[ReplyEvent]) -> None:
        """The bytes have ended. Appends the last events; raises ProtocolError if the reply is not complete."""
        ...


class Codec(Struct, frozen=True, kw_only=True):
    """A dialect as a row: its name, its functions and its decoder."""

    name: str
    encode: Callable[[Call], Encoded]
    """The request for a call. Raises ConfigurationError for an option that the model cannot take."""
    decoder: Callable[[Call, Encoded], Decoder]


def is_content(event: ReplyEvent) -> bool:
    """Whether an event tells something of the answer itself, not only that there is one and what it costs so far.

    Until content has reached a caller, a reply that breaks off can be asked for again.
    """
    return type(event) not in (ReplyStarted, UsageReported)


_T = TypeVar("_T")
_P = ParamSpec("_P")


def remembered(value: Message | ToolSpec, key: str, make: Callable[[], _T]) -> _T:
    """What `make` gives, computed once for this value and kept beside it: messages and specs never change.

    The key must name everything besides the value that the result depends on.
    """
    memory = memory_of(value)
    try:
        return memory[key]
    except KeyError:
        result = memory[key] = make()
        return result


_MOST_TERMS: Final = 64
_NOTHING_SAID: Final = Conversation()


def per_terms(make: Callable[Concatenate[Call, _P], _T]) -> Callable[Concatenate[Call, _P], _T]:
    """A function of the terms of a call (all but its conversation) that works once for all calls on the same terms.

    Terms are the same if they are the same values, not only equal ones: to compare tools and options takes longer than
    most calls. An engine passes the same ones from turn to turn. What the function takes besides is compared.
    """
    made: dict[tuple[object, ...], tuple[_T, Call]] = {}

    @wraps(make)
    def once(call: Call, *more: _P.args, **none: _P.kwargs) -> _T:
        key: tuple[object, ...] = (call.model, call.stream, id(call.profile), id(call.options), *more)
        if call.tools:
            key += tuple(map(id, call.tools))
        known = made.get(key)
        if known is None:
            if len(made) >= _MOST_TERMS:
                made.clear()
            terms = msgspec.structs.replace(call, conversation=_NOTHING_SAID)
            known = made[key] = (make(terms, *more, **none), terms)  # with them, so that nothing else gets their ids
        return known[0]

    return once
