"""The dialect of OpenAI's chat completions, and of all the servers that speak it too.

encode.py    a call to a request        history.py   its messages
decode.py    bytes to events            parts.py     what a reply can hold besides text
profiles.py  what models and servers can do
"""

from dragoman.providers.codec import Codec

from .decode import ReplyDecoder
from .encode import encode_call

CODEC = Codec(name="openai_chat", encode=encode_call, decoder=ReplyDecoder)
