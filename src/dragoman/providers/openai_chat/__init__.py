"""The dialect of OpenAI's chat completions, and of all the servers that speak it too.

profiles.py       what the models of OpenAI can do; servers.py: what the other servers can do
encode.py         a call to a request; history.py, messages.py, parts.py, replayed.py, call_ids.py: its messages;
                      tools.py, reasoning.py: its other members
whole.py          the whole reply that most of them are to a message, by a short road
decode.py         bytes to events; reply.py, calls.py, thoughts.py, think_tags.py, output_media.py: parts of a reply
finish.py         why a reply ended; usage.py: what it cost; extras.py: what else it says
errors.py         what a server says when it refuses
wire.py           the shapes of the wire
"""

from __future__ import annotations

from dragoman.providers.codec import Call, Codec, Decoder, Encoded

from .decode import ChatDecoder
from .encode import encode
from .errors import error_of
from .whole import plain_message

__all__ = ["CODEC", "OpenAIChatCodec"]


class OpenAIChatCodec:
    """The codec of chat completions."""

    name: str = "openai_chat"

    encode = staticmethod(encode)
    error = staticmethod(error_of)
    plain_message = staticmethod(plain_message)

    def decoder(self, call: Call, encoded: Encoded) -> Decoder:
        return ChatDecoder(call, encoded)


CODEC: Codec = OpenAIChatCodec()
