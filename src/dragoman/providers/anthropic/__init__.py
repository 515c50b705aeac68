"""Claude's Messages API.

encode.py    a call to a request        history.py   its messages as content blocks
decode.py    bytes to events            profiles.py  what each model can do
"""

from dragoman.providers.codec import Codec

from .decode import ReplyDecoder
from .encode import encode_call

CODEC = Codec(name="anthropic", encode=encode_call, decoder=ReplyDecoder)
