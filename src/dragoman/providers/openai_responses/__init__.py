"""The dialect of OpenAI's Responses API, which other services speak too.

encode.py     the request: parameters, tools, state      history.py   messages as input items
reasoning.py  efforts and sampling                       content.py   texts, pictures and files of people and tools
decode.py     bytes to events                            reply.py     items to events
ending.py     stop reason, usage, what is kept           errors.py    refusals
pictures.py   pictures that the model made               parts.py     items while they grow
profiles.py   what each model can do                     wire.py      shapes and small readers
whole.py      the whole reply that most of them are to a message, by a short road
"""

from __future__ import annotations

from dragoman.providers.codec import Call, Codec, Decoder, Encoded

from .decode import ReplyDecoder
from .encode import encode_call
from .errors import http_error
from .whole import plain_message
from .wire import READER

__all__ = ["CODEC", "OpenAIResponses"]


class OpenAIResponses:
    """The codec of the Responses API."""

    name = READER

    encode = staticmethod(encode_call)
    plain_message = staticmethod(plain_message)
    error = staticmethod(http_error)

    def decoder(self, call: Call, encoded: Encoded) -> Decoder:
        """A decoder for the reply to this request."""
        return ReplyDecoder(call, encoded)


CODEC: Codec = OpenAIResponses()
