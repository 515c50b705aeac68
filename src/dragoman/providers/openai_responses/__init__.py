"""The dialect of OpenAI's Responses API, which other services speak too.

encode.py    a call to a request          history.py   its messages as input items
decode.py    bytes to events              profiles.py  what each model can do
"""

from __future__ import annotations

from dragoman.providers.codec import Call, Codec, Decoder, Encoded
from dragoman.providers.failures import read_refusal

from .decode import ReplyDecoder
from .encode import encode_call
from .history import READER


class OpenAIResponses:
    """The codec of the Responses API."""

    name = READER

    encode = staticmethod(encode_call)
    error = staticmethod(read_refusal)

    def decoder(self, call: Call, encoded: Encoded) -> Decoder:
        """A decoder for the reply to this request."""
        return ReplyDecoder.of(call, encoded)


CODEC: Codec = OpenAIResponses()
