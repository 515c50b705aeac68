"""The dialect of OpenAI's Responses API, which other services speak too.

encode.py     the request: parameters, tools, state      history.py   messages as input items
reasoning.py  efforts and sampling                       content.py   texts, pictures and files of people and tools
decode.py     bytes to events                            reply.py     items to events
ending.py     stop reason, usage, what is kept           errors.py    refusals
pictures.py   pictures that the model made               parts.py     items while they grow
profiles.py   what each model can do                     wire.py      shapes and small readers
whole.py      the whole reply that most of them are, by a short road
"""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.errors import ProviderError
from dragoman.providers.codec import Call, Codec, Decoder, Encoded

from .decode import ReplyDecoder
from .encode import encode_call
from .errors import http_error
from .wire import READER

__all__ = ["CODEC", "OpenAIResponses"]


class OpenAIResponses:
    """The codec of the Responses API."""

    name = READER

    def encode(self, call: Call) -> Encoded:
        """The request for this call."""
        return encode_call(call)

    def decoder(self, call: Call, encoded: Encoded) -> Decoder:
        """A decoder for the reply to this request."""
        return ReplyDecoder(call, encoded)

    def error(self, status: int, headers: Mapping[str, str], body: bytes, call: Call) -> ProviderError:
        """The typed error of a reply whose status is not 2xx."""
        return http_error(status, headers, body, call)


CODEC: Codec = OpenAIResponses()
