"""A model at a provider: everything about it that does not depend on the colour of the program.

Owns: turning a conversation into a prepared call: checks, files, fallbacks for structured replies, address, headers,
key.
Must not know: how requests are sent.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from dragoman._chance import chance
from dragoman._version import __version__
from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.errors import AuthenticationError
from dragoman.providers import Call, Codec, Dialect, Loss, ModelOptions, Profile, Provider, WireRequest, codec_of
from dragoman.transport import HttpRequest, RetryPolicy, Timeouts, Transport, join

from .call import Conditions, ModelCall, Prepared
from .keys import Secret
from .media import with_files_read
from .reply import lossy

_AGENT = f"dragoman/{__version__} python/{'.'.join(map(str, sys.version_info[:3]))}"


class Connection(Struct, frozen=True, kw_only=True):
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
        self,
        conversation: Conversation,
        tools: Sequence[ToolSpec],
        options: ModelOptions | None,
        *,
        stream: bool,
        transport: Transport,
        sleep: Callable[[float], Awaitable[None]],
    ) -> ModelCall:
        """A call that is ready to be made. Raises before anything is sent if it cannot be."""
        prepared = self._prepare(conversation, tools, options, stream=stream)
        encoded = prepared.encoded
        if encoded.losses and self.strict:
            raise lossy(self.name, encoded.losses)
        conditions = Conditions(self.retry, self.clock, self.wall_clock, self.random)
        return ModelCall(self._request(encoded.request, stream=stream), prepared, conditions, transport, sleep)

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        """What this model would not get of the conversation, or would get in another form; nothing is sent."""
        if not conversation.messages:  # there is no request for it, and nothing to lose
            return ()
        return self._prepare(conversation.repaired().conversation, (), None, stream=False).encoded.losses

    def prepared_tools(self, tools: Sequence[ToolSpec]) -> object:
        """The tools as this provider gets them, parsed from the request; nothing is sent."""
        asked = Conversation().plus(Message.user("?"))  # no provider takes a request without a message
        body = self._prepare(asked, tools, None, stream=False).encoded.request.body
        return msgspec.json.decode(body, type=dict[str, object]).get("tools")

    def _prepare(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> Prepared:
        read = with_files_read(conversation)
        conversation.ensure_valid()
        call = Call(
            model=self.model,
            conversation=read,
            profile=self.profile,
            tools=tuple(tools),
            options=self.options if options is None else options,
            stream=stream,
        )
        reader = None
        if call.options.response_format is not None:
            from dragoman.providers import prepare

            call, reader = prepare(call)
        codec = self.codec
        return Prepared(codec, call, codec.encode(call), reader)

    def _request(self, wire: WireRequest, *, stream: bool) -> HttpRequest:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream" if stream else "application/json",
            "user-agent": _AGENT,
            **self.headers,
            **wire.headers,
        }
        if self.key is not None:
            headers[self.provider.key_header] = self._key_header(self.key.reveal())
        url = join(self.base_url, wire.path)
        return HttpRequest(method=wire.method, url=url, headers=headers, body=wire.body, timeout=self.timeouts)

    def _key_header(self, key: str) -> str:
        if not key.isascii() or not key.isprintable() or key != key.strip():
            message = f"The key for {self.provider.name} contains characters that no key has."
            hint = "Copy it again, without quotes, spaces or line ends."
            raise AuthenticationError(message, hint=hint, provider=self.provider.name)
        return f"Bearer {key}" if self.provider.key_header == "authorization" else key
