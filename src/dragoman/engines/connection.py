"""A model at a provider: everything about it that does not depend on the colour of the program.

Owns: turning a conversation into a prepared call: checks, files, fallbacks for structured replies, address, headers,
key.
Must not know: how requests are sent.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from dragoman._chance import chance
from dragoman._version import __version__
from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.conversation.values import memory_of
from dragoman.errors import AuthenticationError, LossyConversionError
from dragoman.providers.catalogue import Dialect, Provider, codec_of
from dragoman.providers.codec import Call, Codec, Loss, WireRequest
from dragoman.providers.options import ModelOptions
from dragoman.providers.profile import Profile
from dragoman.transport.base_url import join
from dragoman.transport.protocol import HttpRequest, Timeouts
from dragoman.transport.retry import RetryPolicy

from .media import with_files_read
from .model_call import ModelCall, Prepared
from .secret import Secret

__all__ = ["Connection"]

_AGENT = f"dragoman/{__version__} python/{'.'.join(map(str, sys.version_info[:3]))}"


class _Envelope(NamedTuple):
    """What is on the outside of a request, and what it was made of: from turn to turn it is the same."""

    path: str
    own: Mapping[str, str]
    wire: Mapping[str, str]
    """Headers of the connection and of the codec, copied: what somebody does to their own must not change these."""
    url: str
    headers: Mapping[str, str]


# dict=True: the last envelopes are kept beside it.
class Connection(Struct, frozen=True, kw_only=True, dict=True):
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
        dialect: Dialect = self.provider.dialect
        return codec_of(dialect)

    def call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ModelCall:
        """Everything ready to be sent. Raises before anything is sent if the call cannot be made."""
        prepared = self._prepared(conversation, tools, options, stream=stream)
        encoded = prepared.encoded
        if encoded.losses and self.strict:
            raise _lossy(self.name, encoded.losses)
        request = self._request(encoded.request, stream=stream)
        return ModelCall(request, prepared, self.retry, self.clock, self.wall_clock, self.random)

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        """What this model would not get of the conversation, or would get in another form; nothing is sent."""
        if not conversation.messages:  # there is no request for it, and nothing to lose
            return ()
        return self._prepared(conversation.repaired().conversation, (), None, stream=False).encoded.losses

    def prepared_tools(self, tools: Sequence[ToolSpec]) -> object:
        """The tools as this provider gets them, parsed from the request; nothing is sent."""
        asked = Conversation().plus(Message.user("?"))  # no provider takes a request without a message
        body = self._prepared(asked, tools, None, stream=False).encoded.request.body
        return msgspec.json.decode(body, type=dict[str, object]).get("tools")

    def _prepared(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> Prepared:
        conversation.ensure_valid()
        call = Call(
            model=self.model,
            conversation=with_files_read(conversation),
            profile=self.profile,
            tools=tuple(tools),
            options=self.options if options is None else options,
            stream=stream,
        )
        reader = None
        if call.options.response_format is not None:
            from dragoman.providers.structured import prepare

            call, reader = prepare(call)
        codec = self.codec
        return Prepared(codec, call, codec.encode(call), reader)

    def _request(self, wire: WireRequest, *, stream: bool) -> HttpRequest:
        accepted = "text/event-stream" if stream else "application/json"
        memory = memory_of(self)
        known: _Envelope | None = memory.get(accepted)
        if known is None or known.path != wire.path or known.wire != wire.headers or known.own != self.headers:
            known = memory[accepted] = self._envelope(wire, accepted)
        return HttpRequest(
            method=wire.method,
            url=known.url,
            headers=known.headers,
            body=wire.body,
            timeout=self.timeouts,
            stream=stream,
        )

    def _envelope(self, wire: WireRequest, accepted: str) -> _Envelope:
        headers = {
            "content-type": "application/json",
            "accept": accepted,
            "user-agent": _AGENT,
            **self.headers,
            **wire.headers,
        }
        if self.key is not None:
            headers[self.provider.key_header] = self._key_header(self.key.reveal())
        return _Envelope(wire.path, dict(self.headers), dict(wire.headers), join(self.base_url, wire.path), headers)

    def _key_header(self, key: str) -> str:
        if not key.isascii() or not key.isprintable() or key != key.strip():
            message = f"The key for {self.provider.name} contains characters that no key has."
            hint = "Copy it again, without quotes, spaces or line ends."
            raise AuthenticationError(message, hint=hint, provider=self.provider.name)
        return f"Bearer {key}" if self.provider.key_header == "authorization" else key


def _lossy(name: str, losses: tuple[Loss, ...]) -> LossyConversionError:
    more = f" (and {len(losses) - 1} more)" if losses[1:] else ""
    message = f"{name} would not get all of the conversation: {losses[0]}{more}."
    return LossyConversionError(message, losses=tuple(map(str, losses)))
