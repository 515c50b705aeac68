"""The dialect of OpenAI's chat completions, and of all the servers that speak it too.

encode.py    a call to a request          history.py   its messages
decode.py    bytes to events              wire.py      the JSON of the wire
profiles.py  what models and servers can do
"""

from __future__ import annotations

from dragoman.providers.codec import Call, Codec, Decoder, Encoded
from dragoman.providers.failures import read_refusal

from .decode import ChatDecoder
from .encode import encode


class OpenAIChatCodec:
    """The codec of chat completions."""

    name: str = "openai_chat"

    encode = staticmethod(encode)
    error = staticmethod(read_refusal)

    def decoder(self, call: Call, encoded: Encoded) -> Decoder:
        """A decoder for the reply to this request."""
        return ChatDecoder.of(call, encoded)


CODEC: Codec = OpenAIChatCodec()
