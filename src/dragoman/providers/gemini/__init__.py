"""The gemini dialect: `generateContent` and `streamGenerateContent`, on Google's Gemini API and on Vertex AI.

profiles.py       what the models can do, as rows
encode.py         a call → one request
settings.py       options → generationConfig and toolConfig
history.py        messages → contents, each encoded once
decode.py         bytes → events: whole replies, event streams, JSON arrays
whole.py          the whole reply that most of them are → a message, by a short road
parts.py          one part of a reply → events
partial_call.py   a function call whose arguments arrive in pieces
json_array.py     the elements of a JSON array, from bytes in any pieces
about.py          why a reply ended, what it cost, and what else it says of itself
errors.py         refusals → typed errors
wire.py           names and shapes of the wire that several of these share
"""

from collections.abc import Mapping

from dragoman.errors import ProviderError
from dragoman.providers.codec import Call, Decoder, Encoded

from .decode import GeminiDecoder
from .encode import encode
from .errors import refusal
from .whole import plain_message

__all__ = ["CODEC", "Gemini"]


class Gemini:
    """The codec of the dialect."""

    name: str = "gemini"

    encode = staticmethod(encode)
    plain_message = staticmethod(plain_message)

    def decoder(self, call: Call, encoded: Encoded) -> Decoder:
        """A decoder for the reply to this request."""
        return GeminiDecoder(call, encoded)

    def error(self, status: int, headers: Mapping[str, str], body: bytes, call: Call) -> ProviderError:
        """The typed error of a reply whose status is not 2xx."""
        return refusal(call, status, headers, body)


CODEC = Gemini()
