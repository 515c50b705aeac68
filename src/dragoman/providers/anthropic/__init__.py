"""Claude's Messages API.

encode.py     a call → a request: options, thinking, tools, beta features
history.py    messages → content blocks, and what of them is lost
decode.py     bytes → events, whole or as a stream
profiles.py   what each model can do
"""

from __future__ import annotations

from dragoman.providers.codec import Call, Decoder, Encoded
from dragoman.providers.failures import read_refusal

from .decode import ReplyDecoder
from .encode import encode_call


class AnthropicCodec:
    """The dialect; see Codec."""

    name: str = "anthropic"

    encode = staticmethod(encode_call)
    error = staticmethod(read_refusal)

    def decoder(self, call: Call, encoded: Encoded) -> Decoder:
        """A decoder for the reply to this request."""
        return ReplyDecoder(call, encoded.tool_names)


CODEC = AnthropicCodec()
