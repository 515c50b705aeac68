"""Engines for models behind HTTP, sync and async.

Owns: preparing a call: checks, structured replies, address, headers, key.
Must not know: how requests are sent.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar, cast

import msgspec

import dragoman.providers
from dragoman._decoding import decode_as
from dragoman._stepping import step
from dragoman._stop import chance
from dragoman._version import __version__
from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.errors import AuthenticationError, ConfigurationError, ProtocolError, ProviderError
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
"""How many earlier calls are kept for `Reply.cache`."""
_AGENT: Final = f"dragoman/{__version__} python/{'.'.join(map(str, sys.version_info[:3]))}"


Sign: TypeAlias = Callable[[HttpRequest, AwsKeys], Mapping[str, str]]
"""Returns the headers of a signed request."""


class Connection(Confidential, frozen=True, kw_only=True):
    """A model, its address, and how to call it."""

    provider: Provider
    model: str
    profile: Profile
    base_url: str
    key: Secret | Credential | None = None
    sign: Sign | None = None
    """Signs requests with AWS keys; None if this provider does not use them."""
    options: ModelOptions = ModelOptions()
    prices: Prices | None = None
    """Prices that override the table."""
    strict: bool = False
    """Raise if the model would not get all of the history."""
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
        """Identifies the address and key of the model; for comparison only."""
        # Not the hash of a Credential: that is a memory address, which is reused after it is freed.
        return self.base_url, self.key if isinstance(self.key, Credential) else hash(self.key)

    @property
    def codec(self) -> Codec:
        return codec_of(self.provider.dialect)

    def key_header(self) -> dict[str, str]:
        """The header with a fixed key, if there is one."""
        return self._header(self.provider.key_header, self.key) if isinstance(self.key, Secret) else {}

    def signed(self, request: HttpRequest, made: MadeKey) -> HttpRequest:
        """The request with a generated key."""
        if isinstance(made, Token):
            headers = self._header(self.provider.token_header or self.provider.key_header, cast("Secret", made.value))
        elif self.sign is not None:
            headers = self.sign(request, made)
        else:
            message = f"{self.provider.name} takes a key, not AWS keys."
            raise ConfigurationError(message, hint="Let the key function return a text or a Token.")
        return msgspec.structs.replace(request, headers={**request.headers, **headers})

    def _header(self, name: str, key: Secret) -> dict[str, str]:
        if not key.is_sendable:
            message = f"The key for {self.provider.name} contains invalid characters."
            hint = "Copy it again, without quotes, spaces or line ends."
            raise AuthenticationError(message, hint=hint, provider=self.provider.name)
        return {name: f"Bearer {key.reveal()}" if name == "authorization" else key.reveal()}


class Exchange(ModelCall):
    """A request that is not a model call; sent and retried like one. `body` returns the raw reply."""

    repeatable: bool = True
    """Whether it may be sent again when its outcome is unknown; otherwise only after a refusal."""
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
        """Send the request and return the body of the reply. Raises ProviderError."""
        await self.reply()
        return self._body


def _refused(status: int | None) -> bool:
    """Whether a status means that nothing was done; a gateway timeout (504) does not tell."""
    return status is not None and ((400 <= status < 500 and status != 408) or status in (503, 529))


class _Http(BaseEngine):
    """What the sync and the async engine share."""

    _blocking: ClassVar[bool]

    def __init__(self, connection: Connection, transport: Transport) -> None:
        if transport.blocking is (not self._blocking):
            kind, fitting = ("A sync", "SocketTransport") if self._blocking else ("An async", "AsyncioTransport")
            message = f"{kind} engine cannot use {type(transport).__name__}."
            raise ConfigurationError(
                message, hint=f"Use {fitting}, or the {'async' if self._blocking else 'sync'} engine."
            )
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
            from .limiter import line_of  # rarely needed

            self._line = line_of(connection.limiter, connection.provider.name, connection.place)
        self._warned: int = 0
        """How many losses were logged; the same ones recur in every turn."""
        self._sent: tuple[Call, ...] = ()
        """Recent calls, which the provider may have in its cache."""

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
        codec = dragoman.providers.counting_codec(self._codec)  # loaded on first use
        prepared = self._prepare(conversation, tools, options, stream=False, codec=codec)
        return self._make_call(msgspec.structs.replace(prepared, reader=None))  # there is no answer to read

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
        """The encoded request of a call, and how its reply is decoded; nothing is sent. Raises if it is impossible."""
        prepared = self._prepare(conversation, tools, options, stream=stream)
        if prepared.encoded.losses:
            self._report(prepared.encoded.losses)
        return prepared

    def exchange(
        self, wire: WireRequest, *, method: str = "POST", repeatable: bool = True, is_read: bool = False
    ) -> Exchange:
        """Prepare another kind of request to the same provider, with the same key, for example for embeddings."""
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
        if not conversation.messages:  # nothing to lose
            return ()
        return self._prepare(conversation.repaired().conversation, (), None, stream=False).encoded.losses

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        asked = Conversation().plus(Message.user("?"))  # providers require a message
        body = self._prepare(asked, tools, None, stream=False).encoded.request.body
        return decode_as(body, dict[str, object]).get("tools")

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
            message = f"{self.connection.provider.name} has no chat models, only embeddings."
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
            import logging  # slow to import, and rarely needed

            logger = logging.getLogger("dragoman.engines")
            logger.warning("%s does not get all of the conversation: %s", self.name, "; ".join(map(str, losses)))


class HttpEngine(_Http, Engine):
    """A model behind HTTP, for a sync program. Safe to share between threads."""

    _blocking = True

    def close(self) -> None:
        step(self._transport.aclose())


class AsyncHttpEngine(_Http, AsyncEngine):
    """A model behind HTTP, for an async program. Safe to share between tasks."""

    _blocking = False

    async def aclose(self) -> None:
        await self._transport.aclose()


AnyHttpEngine: TypeAlias = HttpEngine | AsyncHttpEngine
_E = TypeVar("_E", HttpEngine, AsyncHttpEngine)


def as_service(made: object, kind: type[_E], what: str) -> _E:
    """The engine, if it calls a remote service; ConfigurationError if not, since a local program has no `what`."""
    if isinstance(made, AnyHttpEngine) and not isinstance(made, kind):
        colour, wanted = ("async", "sync") if kind is HttpEngine else ("sync", "async")
        raise ConfigurationError(f"The engine {made!r} is {colour}.", hint=f"Use a {wanted} engine, or {colour} code.")
    if not isinstance(made, kind):
        message = f"{getattr(made, 'name', made)} has no {what}: it is not a remote service."
        raise ConfigurationError(message, hint="Use a provider that is reached over HTTP, such as openai or gemini.")
    return made


@contextmanager
def understanding(engine: AnyHttpEngine, what: str) -> Generator[None]:
    """Inside the block, errors of parsing a reply of embeddings, batches or files become a ProtocolError."""
    try:
        yield
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError, AttributeError) as error:
        message = f"{what} of {engine.name} cannot be understood: {error}."
        provider, model = engine.connection.provider.name, engine.connection.model
        raise ProtocolError(message, provider=provider, model=model) from None
