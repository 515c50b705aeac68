"""Claude's Messages API.

encode.py     a call → a request
history.py    messages → content blocks; media.py: images and documents
tools.py      tools and the schema of a structured reply
thinking.py   how thinking is asked for, and what it forbids
betas.py      which features need a header
decode.py     bytes → events; parts.py: the blocks while they grow; ending.py: stop reason and usage
whole.py      the whole reply that most of them are → a message, by a short road
errors.py     refusals → typed errors
profiles.py   what each model can do
wire.py       shapes on the wire
"""

from __future__ import annotations

from dragoman.providers.codec import Call, Decoder, Encoded

from .decode import ReplyDecoder
from .encode import encoded_call
from .errors import error_of
from .whole import plain_message

__all__ = ["CODEC", "AnthropicCodec"]


class AnthropicCodec:
    """The dialect; see Codec."""

    name: str = "anthropic"

    encode = staticmethod(encoded_call)
    plain_message = staticmethod(plain_message)
    error = staticmethod(error_of)

    def decoder(self, call: Call, encoded: Encoded) -> Decoder:
        """A decoder for the reply to this request."""
        return ReplyDecoder(call, encoded.tool_names)


CODEC = AnthropicCodec()
