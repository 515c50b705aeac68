"""The gemini dialect: `generateContent` and `streamGenerateContent`, on Google's Gemini API and on Vertex AI.

encode.py     a call → one request: path, options, thinking, tools
history.py    messages → contents, and what of them is lost
decode.py     bytes → events: whole replies, event streams, JSON arrays
profiles.py   what the models can do, as rows
"""

from __future__ import annotations

from dragoman.providers.codec import Call, Decoder, Encoded
from dragoman.providers.failures import read_refusal

from .decode import GeminiDecoder
from .encode import encode_call


class Gemini:
    """The codec of the dialect."""

    name: str = "gemini"

    encode = staticmethod(encode_call)
    error = staticmethod(read_refusal)

    def decoder(self, call: Call, encoded: Encoded) -> Decoder:
        """A decoder for the reply to this request."""
        return GeminiDecoder(call, encoded.tool_names)


CODEC = Gemini()
