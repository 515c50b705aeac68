"""The interface of a dialect, and the values that pass between a codec and an engine.

A codec is stateless and its functions are pure. A decoder is made for one reply and fed with the reply's bytes in any
pieces; whole replies and streams give the same events. `remembered` and `per_terms` cache what was computed for a
message, a tool or the terms of a call.
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
    """When the call is made; the reply carries it, since prices change."""


class WireRequest(Struct, frozen=True, kw_only=True):
    """The request in the provider's terms. The engine adds address and key."""

    path: str
    """After the base URL, with the query if there is one, e.g. `/v1/messages`."""
    body: bytes = b""
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Without body and header values, which may hold tokens and keys."""
        return f"WireRequest(path={self.path!r}, body=<{len(self.body)} bytes>, headers=<{', '.join(self.headers)}>)"


class Adaptation(Struct, frozen=True):
    """An option or a schema that was changed or left out to suit the model."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class Loss(Struct, frozen=True):
    """A part of the history that is not sent to this model, or sent in another form."""

    message: int
    block: int
    what: str
    """The kind of block: its `type` in our JSON form."""
    why: str

    def __str__(self) -> str:
        return f"message {self.message}, block {self.block} ({self.what}): {self.why}"


class Encoded(Struct, frozen=True, kw_only=True):
    """A request, and what was changed or left out."""

    request: WireRequest
    adaptations: tuple[Adaptation, ...] = ()
    losses: tuple[Loss, ...] = ()
    tool_names: Mapping[str, str] = {}
    """For tools whose names the provider would refuse: {name on the wire: own name}. Decoders map them back."""


class Frame(Struct, frozen=True, kw_only=True):
    """The part of a request that stays the same from turn to turn."""

    path: str
    members: bytes
    """The members of the body, without braces; may be empty."""
    given: frozenset[str]
    """Names of members that the caller replaces by its own."""
    headers: Mapping[str, str]
    adaptations: tuple[Adaptation, ...]
    tool_names: Mapping[str, str]

    def complete(self, members: Sequence[bytes], losses: tuple[Loss, ...]) -> Encoded:
        """The request with more members: pieces of JSON, each member with a comma before its name."""
        if not self.members and members:
            members = (members[0][1:], *members[1:])
        body = b"".join((b"{", self.members, *members, b"}"))
        return Encoded(
            request=WireRequest(path=self.path, body=body, headers=self.headers),
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
        """Whether the dialect's end marker has arrived: only `finish` is left to call."""
        ...

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        """Take in the next bytes and append the events that they complete.

        Raises a ProviderError: ProtocolError for malformed bytes, or the error that the stream reports. Events before
        the error are in the list by then.
        """
        ...

    def finish(self, events: list[ReplyEvent]) -> None:
        """The bytes have ended. Appends the last events; raises ProtocolError if the reply is not complete."""
        ...


class Codec(Struct, frozen=True, kw_only=True):
    """A dialect: its name, its encoder and its decoder."""

    name: str
    encode: Callable[[Call], Encoded]
    """Makes the request for a call. Raises ConfigurationError for an option that the model cannot take."""
    decoder: Callable[[Call, Encoded], Decoder]


def is_content(event: ReplyEvent) -> bool:
    """Whether an event is part of the answer itself, not only its start or its usage.

    Until content has reached a caller, a reply that breaks off can be retried.
    """
    return type(event) not in (ReplyStarted, UsageReported)


_T = TypeVar("_T")
_P = ParamSpec("_P")


def remembered(value: Message | ToolSpec, key: str, make: Callable[[], _T]) -> _T:
    """The result of `make`, cached with this value: messages and specs never change.

    The key must name everything besides the value that the result depends on.
    """
    memory = memory_of(value)
    try:
        return memory[key]
    except KeyError:
        result = memory[key] = make()
        return result


_MOST_TERMS: Final = 64
_EMPTY: Final = Conversation()


def per_terms(make: Callable[Concatenate[Call, _P], _T]) -> Callable[Concatenate[Call, _P], _T]:
    """Cache a function of the terms of a call: everything but its conversation.

    Terms are compared by identity, since to compare tools and options takes longer than most calls; an engine passes
    the same objects from turn to turn. Further arguments are compared by value.
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
            terms = msgspec.structs.replace(call, conversation=_EMPTY)
            known = made[key] = (
                make(terms, *more, **none),
                terms,
            )  # keeps them alive, so that nothing else gets their ids
        return known[0]

    return once
