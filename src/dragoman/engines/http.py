"""Models behind HTTP, in both colours.

Owns: turning a conversation into a call that is ready: checks, fallbacks for structured replies, address, headers, key.
Must not know: how requests are sent.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from dragoman._chance import chance
from dragoman._stepping import step
from dragoman._version import __version__
from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.errors import AuthenticationError, ConfigurationError
from dragoman.providers import Call, Codec, Loss, ModelOptions, Profile, Provider, codec_of
from dragoman.transport import HttpRequest, RetryPolicy, Timeouts, Transport, join

from .base import AsyncEngine, BaseEngine, Engine, lossy
from .call import ModelCall, Prepared
from .keys import Confidential, Secret

_AGENT: Final = f"dragoman/{__version__} python/{'.'.join(map(str, sys.version_info[:3]))}"
_LOGGER: Final = logging.getLogger("dragoman.engines")


class Connection(Confidential, frozen=True, kw_only=True):
    """A model, where it is, and how it is to be called."""

    provider: Provider
    model: str
    profile: Profile
    base_url: str
    key: Secret | None = None
    options: ModelOptions = ModelOptions()
    strict: bool = False
    """Refuse a history of which this model would not get every part."""
    retry: RetryPolicy = RetryPolicy()
    timeouts: Timeouts = Timeouts()
    headers: Mapping[str, str] = {}
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    random: Callable[[], float] = chance

    @property
    def name(self) -> str:
        """As in `provider:model`."""
        return f"{self.provider.name}:{self.model}"

    @property
    def codec(self) -> Codec:
        """The dialect that the model speaks."""
        return codec_of(self.provider.dialect)

    def key_header(self) -> dict[str, str]:
        """The header with the key, if there is one."""
        if self.key is None:
            return {}
        name = self.provider.key_header
        if not self.key.is_sendable:
            message = f"The key for {self.provider.name} contains characters that no key has."
            hint = "Copy it again, without quotes, spaces or line ends."
            raise AuthenticationError(message, hint=hint, provider=self.provider.name)
        return {name: f"Bearer {self.key.reveal()}" if name == "authorization" else self.key.reveal()}


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
        self._codec: Codec = connection.codec
        self._headers: dict[str, str] = {
            "content-type": "application/json",
            "user-agent": _AGENT,
            **connection.headers,
        }
        self._key: dict[str, str] = connection.key_header()
        self._transport: Transport = transport
        self._warned: int = 0
        """How many losses were told of; the same ones come again with every turn."""

    def call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ModelCall:
        """A call that is ready to be made. Raises before anything is sent if it cannot be."""
        connection = self.connection
        prepared = self._prepare(conversation, tools, options, stream=stream)
        losses, wire = prepared.encoded.losses, prepared.encoded.request
        if losses:
            self._report(losses)
        wanted = "text/event-stream" if stream else "application/json"
        request = HttpRequest(
            method=wire.method,
            url=join(connection.base_url, wire.path),
            headers={**self._headers, "accept": wanted, **wire.headers, **self._key},
            body=wire.body,
            timeout=connection.timeouts,
        )
        return ModelCall(request, prepared, connection, self._transport, blocking=self._blocking)

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        """What this model would not get of the conversation, or would get in another form; nothing is sent."""
        if not conversation.messages:  # there is no request for it, and nothing to lose
            return ()
        return self._prepare(conversation.repaired().conversation, (), None, stream=False).encoded.losses

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        """The tools in the provider's own form, as JSON data; nothing is sent."""
        asked = Conversation().plus(Message.user("?"))  # no provider takes a request without a message
        body = self._prepare(asked, tools, None, stream=False).encoded.request.body
        return msgspec.json.decode(body, type=dict[str, object]).get("tools")

    def _prepare(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> Prepared:
        conversation.ensure_valid()
        call = Call(
            model=self.connection.model,
            conversation=conversation,
            profile=self.profile,
            tools=tuple(tools),
            options=self.options if options is None else options,
            stream=stream,
        )
        reader = None
        if call.options.response_format is not None:
            from dragoman.providers import prepare

            call, reader = prepare(call)
        return Prepared(self._codec, call, self._codec.encode(call), reader)

    def _report(self, losses: tuple[Loss, ...]) -> None:
        if self.connection.strict:
            raise lossy(self.name, losses)
        if len(losses) > self._warned:
            self._warned = len(losses)
            _LOGGER.warning("%s does not get all of the conversation: %s", self.name, "; ".join(map(str, losses)))


class HttpEngine(_Http, Engine):
    """A model behind HTTP, for a plain program. Safe to share between threads."""

    _blocking = True

    def close(self) -> None:
        """Close the connections."""
        step(self._transport.aclose())


class AsyncHttpEngine(_Http, AsyncEngine):
    """A model behind HTTP, for a program on an event loop. Safe to share between tasks."""

    _blocking = False

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
