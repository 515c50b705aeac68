"""Models behind HTTP, in both colours.

Owns: turning a conversation into a call that is ready: checks, fallbacks for structured replies, address, headers, key.
Must not know: how requests are sent.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar, cast

import msgspec

import dragoman.providers
from dragoman._stepping import step
from dragoman._stop import chance
from dragoman._version import __version__
from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.errors import AuthenticationError, ConfigurationError, ProviderError
from dragoman.providers import (
    Call,
    Codec,
    Encoded,
    Loss,
    ModelOptions,
    Profile,
    Provider,
    WireRequest,
    codec_of,
)
from dragoman.transport import HttpRequest, RetryPolicy, Timeouts, Transport, join

from .base import AsyncEngine, BaseEngine, Engine, lossy
from .call import ModelCall, Prepared
from .credential import AwsKeys, Confidential, Credential, MadeKey, Secret, Token
from .keys import without_keys

if TYPE_CHECKING:
    from dragoman.providers import Prices

    from .limiter import Line, RateLimiter

_RECENT: Final = 8
"""How many calls before one are kept to compare it with."""
_AGENT: Final = f"dragoman/{__version__} python/{'.'.join(map(str, sys.version_info[:3]))}"


Sign: TypeAlias = Callable[[HttpRequest, AwsKeys], Mapping[str, str]]
"""The headers that prove who sends a request."""


class Connection(Confidential, frozen=True, kw_only=True):
    """A model, where it is, and how it is to be called."""

    provider: Provider
    model: str
    profile: Profile
    base_url: str
    key: Secret | Credential | None = None
    sign: Sign | None = None
    """How requests are signed with keys of Amazon; None: this provider takes none."""
    options: ModelOptions = ModelOptions()
    prices: Prices | None = None
    """What the model costs, in place of what the table says."""
    strict: bool = False
    """Refuse a history of which this model would not get every part."""
    retry: RetryPolicy = RetryPolicy()
    timeouts: Timeouts = Timeouts()
    headers: Mapping[str, str] = {}
    limiter: RateLimiter | None = None
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    random: Callable[[], float] = chance

    @property
    def name(self) -> str:
        return f"{self.provider.name}:{self.model}"

    @property
    def place(self) -> tuple[str, object]:
        """Where the model is, and by which key it is called: nothing that could be shown to anybody."""
        # Not the hash of a Credential: that is an address, which comes back for another one when this one is freed.
        return self.base_url, self.key if isinstance(self.key, Credential) else hash(self.key)

    @property
    def codec(self) -> Codec:
        return codec_of(self.provider.dialect)

    def key_header(self) -> dict[str, str]:
        """The header with a key that was typed, if there is one."""
        return self._header(self.provider.key_header, self.key) if isinstance(self.key, Secret) else {}

    def signed(self, request: HttpRequest, made: MadeKey) -> HttpRequest:
        """The request with a key that was made."""
        if isinstance(made, Token):
            headers = self._header(self.provider.token_header or self.provider.key_header, cast("Secret", made.value))
        elif self.sign is not None:
            headers = self.sign(request, made)
        else:
            message = f"{self.provider.name} takes a key, and no keys of Amazon."
            raise ConfigurationError(message, hint="Let the function that makes the key give a text or a Token.")
        return msgspec.structs.replace(request, headers={**request.headers, **headers})

    def _header(self, name: str, key: Secret) -> dict[str, str]:
        if not key.is_sendable:
            message = f"The key for {self.provider.name} contains characters that no key has."
            hint = "Copy it again, without quotes, spaces or line ends."
            raise AuthenticationError(message, hint=hint, provider=self.provider.name)
        return {name: f"Bearer {key.reveal()}" if name == "authorization" else key.reveal()}


class Exchange(ModelCall):
    """A request that is no model's call, and its reply as it is: sent and tried again like one that is."""

    repeatable: bool = True
    """Whether it may be sent again when nobody knows what became of it; otherwise only what was refused is."""
    _body: bytes = b""

    async def try_again(self, error: ProviderError) -> bool:
        if not self.repeatable and not _refused(error.status):
            without_keys(error, (self._sent or self.request).headers)
            self._record("not repeated: it may have arrived", error)
            return False
        return await super().try_again(error)

    async def advance(self) -> None:
        self._body = await self._read()
        self.over = True
        self._record("ok", None)

    async def body(self) -> bytes:
        """Send it and give the body of the reply. Raises ProviderError."""
        await self.reply()
        return self._body


def _refused(status: int | None) -> bool:
    """Whether a status says that nothing was done; a gateway that gave up (504) knows nothing of what is behind it."""
    return status is not None and ((400 <= status < 500 and status != 408) or status in (503, 529))


class _Http(BaseEngine):
    """What both colours have in common."""

    _blocking: ClassVar[bool]

    def __init__(self, connection: Connection, transport: Transport) -> None:
        if transport.blocking is (not self._blocking):
            kind, fitting = ("plain", "SocketTransport") if self._blocking else ("async", "AsyncioTransport")
            message = f"An engine for {kind} programs cannot use {type(transport).__name__}."
            raise ConfigurationError(message, hint=f"Use {fitting}, or the engine of the other colour.")
        self.connection: Connection = connection
        self.name: str = connection.name
        self.profile: Profile = connection.profile
        self.options: ModelOptions = connection.options
        self.prices: Prices | None = connection.prices
        self._codec: Codec = connection.codec
        self._headers: dict[str, str] = {
            "content-type": "application/json",
            "user-agent": _AGENT,
            **connection.headers,
        }
        self._key: dict[str, str] = connection.key_header()
        self._transport: Transport = transport
        self.place: tuple[object, ...] | None = connection.place
        self._line: Line | None = None
        if connection.limiter is not None:
            from .limiter import line_of  # few programs need it

            self._line = line_of(connection.limiter, connection.provider.name, connection.place)
        self._warned: int = 0
        """How many losses were told of; the same ones come again with every turn."""
        self._sent: tuple[Call, ...] = ()
        """What was sent of late, which the provider may have in its cache."""

    def call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ModelCall:
        prepared = self.prepare(conversation, tools, options, stream=stream)
        return self._make_call(prepared, self._remember)

    def _remember(self, call: Call) -> tuple[Call, ...]:
        sent = self._sent = (*self._sent[-_RECENT:], call)
        return sent

    def count_call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None
    ) -> ModelCall | None:
        if not self.profile.counts_tokens:
            return None
        codec = dragoman.providers.counting_codec(self._codec)  # few programs need it
        prepared = self._prepare(conversation, tools, options, stream=False, codec=codec)
        return self._make_call(msgspec.structs.replace(prepared, reader=None))  # no answer is to be read

    def _make_call(self, prepared: Prepared, remember: Callable[[Call], tuple[Call, ...]] | None = None) -> ModelCall:
        wanted = "text/event-stream" if prepared.call.stream else "application/json"
        request = self._request(prepared.encoded.request, wanted)
        call = ModelCall(
            request, prepared, self.connection, self._transport, blocking=self._blocking, remember=remember
        )
        if self._line is not None:
            call.line = self._line
        return call

    def prepare(
        self,
        conversation: Conversation,
        tools: Sequence[ToolSpec] = (),
        options: ModelOptions | None = None,
        *,
        stream: bool = False,
    ) -> Prepared:
        """A call as the model will get it, and how its reply is read; nothing is sent. Raises if it cannot be made."""
        prepared = self._prepare(conversation, tools, options, stream=stream)
        if prepared.encoded.losses:
            self._report(prepared.encoded.losses)
        return prepared

    def exchange(
        self, wire: WireRequest, *, method: str = "POST", repeatable: bool = True, is_read: bool = False
    ) -> Exchange:
        """A request of another kind to the same provider, with the same key, ready to be sent: for vectors, say."""
        call = Call(model=self.connection.model, conversation=Conversation(), profile=self.profile)
        request, prepared = self._request(wire, "*/*", method), Prepared(self._codec, call, Encoded(request=wire))
        made = Exchange(request, prepared, self.connection, self._transport, blocking=self._blocking)
        made.repeatable, made.is_read, made.line = repeatable, is_read, self._line
        return made

    def _request(self, wire: WireRequest, accept: str, method: str = "POST") -> HttpRequest:
        return HttpRequest(
            url=join(self.connection.base_url, wire.path),
            method=method,
            headers={**self._headers, "accept": accept, **wire.headers, **self._key},
            body=wire.body,
            timeout=self.connection.timeouts,
        )

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        if not conversation.messages:  # there is no request for it, and nothing to lose
            return ()
        return self._prepare(conversation.repaired().conversation, (), None, stream=False).encoded.losses

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        asked = Conversation().plus(Message.user("?"))  # no provider takes a request without a message
        body = self._prepare(asked, tools, None, stream=False).encoded.request.body
        return msgspec.json.decode(body, type=dict[str, object]).get("tools")

    def _prepare(
        self,
        conversation: Conversation,
        tools: Sequence[ToolSpec],
        options: ModelOptions | None,
        *,
        stream: bool,
        codec: Codec | None = None,
    ) -> Prepared:
        if not self.connection.provider.chat:
            message = f"{self.connection.provider.name} has no models that answer, only embeddings."
            raise ConfigurationError(message, hint="Use another provider here, and this one in dragoman.embeddings.")
        conversation.ensure_valid()
        call = Call(
            model=self.connection.model,
            conversation=conversation,
            profile=self.profile,
            tools=tuple(tools),
            options=self.options if options is None else options,
            stream=stream,
            time=datetime.fromtimestamp(self.connection.wall_clock(), UTC),
        )
        reader = None
        if call.options.response_format is not None:
            call, reader = dragoman.providers.prepare(call)
        codec = codec or self._codec
        return Prepared(codec, call, codec.encode(call), reader)

    def _report(self, losses: tuple[Loss, ...]) -> None:
        if self.connection.strict:
            raise lossy(self.name, losses)
        if len(losses) > self._warned:
            self._warned = len(losses)
            import logging  # slow to load, and hardly ever needed here

            logger = logging.getLogger("dragoman.engines")
            logger.warning("%s does not get all of the conversation: %s", self.name, "; ".join(map(str, losses)))


class HttpEngine(_Http, Engine):
    """A model behind HTTP, for a plain program. Safe to share between threads."""

    _blocking = True

    def close(self) -> None:
        step(self._transport.aclose())


class AsyncHttpEngine(_Http, AsyncEngine):
    """A model behind HTTP, for a program on an event loop. Safe to share between tasks."""

    _blocking = False

    async def aclose(self) -> None:
        await self._transport.aclose()


AnyHttpEngine: TypeAlias = HttpEngine | AsyncHttpEngine
_E = TypeVar("_E", HttpEngine, AsyncHttpEngine)


def as_service(made: object, kind: type[_E], what: str) -> _E:
    """The engine, if it speaks to a service; a program on this machine, say, has no `what`: ConfigurationError."""
    if isinstance(made, AnyHttpEngine) and not isinstance(made, kind):
        programs = "an event loop" if kind is HttpEngine else "plain programs"
        hint = "Use the function, the class or the engine of the other colour."
        raise ConfigurationError(f"The engine {made!r} is for {programs}.", hint=hint)
    if not isinstance(made, kind):
        message = f"{getattr(made, 'name', made)} has no {what}: it is no service."
        raise ConfigurationError(message, hint="Use a provider that is reached over HTTP, such as openai or gemini.")
    return made
