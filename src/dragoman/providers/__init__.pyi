from .anthropic.decode import ReplyDecoder as ReplyDecoder
from .anthropic.history import encode_media as encode_media
from .catalogue import (
    ALIASES as ALIASES,
)
from .catalogue import (
    PROGRAMS as PROGRAMS,
)
from .catalogue import (
    PROVIDERS as PROVIDERS,
)
from .catalogue import (
    WELL_KNOWN_MODELS as WELL_KNOWN_MODELS,
)
from .catalogue import (
    Dialect as Dialect,
)
from .catalogue import (
    Provider as Provider,
)
from .catalogue import (
    codec_of as codec_of,
)
from .catalogue import (
    divided as divided,
)
from .catalogue import (
    profile_of as profile_of,
)
from .catalogue import (
    provider_of as provider_of,
)
from .catalogue import (
    split_model as split_model,
)
from .codec import (
    Adaptation as Adaptation,
)
from .codec import (
    Call as Call,
)
from .codec import (
    Codec as Codec,
)
from .codec import (
    Decoder as Decoder,
)
from .codec import (
    Encoded as Encoded,
)
from .codec import (
    Loss as Loss,
)
from .codec import (
    WireRequest as WireRequest,
)
from .codec import (
    remembered as remembered,
)
from .failures import failure as failure
from .openai_chat import CODEC as CODEC
from .openai_chat.wire import OPEN as OPEN
from .openai_chat.wire import ThinkTags as ThinkTags
from .options import (
    Effort as Effort,
)
from .options import (
    ModelOptions as ModelOptions,
)
from .options import (
    Reasoning as Reasoning,
)
from .options import (
    ResponseFormat as ResponseFormat,
)
from .preflight import check as check
from .profile import Profile as Profile
from .profile import ProfileRow as ProfileRow
from .profile import ToolLimits as ToolLimits
from .programs import PROFILES as PROFILES
from .programs import profile_with as profile_with
from .requests import ToolNames as ToolNames
from .requests import effective_options as effective_options
from .requests import refuse_or_adapt as refuse_or_adapt
from .schema.write import restored as restored
from .structured import AnswerReader as AnswerReader
from .structured import answer_text as answer_text
from .structured import prepare as prepare
