from .anthropic.decode import ReplyDecoder as ReplyDecoder
from .anthropic.history import encode_media as encode_media
from .catalogue import (
    ALIASES as ALIASES,
    PROGRAMS as PROGRAMS,
    PROVIDERS as PROVIDERS,
    WELL_KNOWN_MODELS as WELL_KNOWN_MODELS,
    Dialect as Dialect,
    Provider as Provider,
    codec_of as codec_of,
    divided as divided,
    profile_of as profile_of,
    provider_of as provider_of,
    split_model as split_model,
)
from .codec import (
    Adaptation as Adaptation,
    Call as Call,
    Codec as Codec,
    Decoder as Decoder,
    Encoded as Encoded,
    Loss as Loss,
    WireRequest as WireRequest,
    is_content as is_content,
    remembered as remembered,
)
from .counting import (
    TokenCount as TokenCount,
    cannot_count as cannot_count,
    counting_codec as counting_codec,
    estimated_tokens as estimated_tokens,
    length_of_block as length_of_block,
)
from .details import (
    SafetyRating as SafetyRating,
    TokenLogprob as TokenLogprob,
    choices_of as choices_of,
    logprobs_of as logprobs_of,
    safety_of as safety_of,
)
from .failures import failure as failure, read_refusal as read_refusal
from .gemini.encode import path_on_vertex as path_on_vertex
from .history import keeper_of as keeper_of
from .options import (
    Effort as Effort,
    ModelOptions as ModelOptions,
    Reasoning as Reasoning,
    ResponseFormat as ResponseFormat,
    without_secrets as without_secrets,
)
from .preflight import check as check
from .prices import (
    Prices as Prices,
    PriceTable as PriceTable,
    conversation_cost as conversation_cost,
    cost_of as cost_of,
    known_cost as known_cost,
    price_table as price_table,
    prices_of as prices_of,
    total_cost as total_cost,
    window_of as window_of,
)
from .profile import (
    Profile as Profile,
    ProfileRow as ProfileRow,
    ToolLimits as ToolLimits,
    profile_with as profile_with,
)
from .programs import PROFILES as PROFILES
from .prompt_cache import CacheUse as CacheUse, explain_cache as explain_cache
from .requests import (
    ToolNames as ToolNames,
    description_with_examples as description_with_examples,
    effective_options as effective_options,
    refuse_or_adapt as refuse_or_adapt,
)
from .server_tools import (
    CodeExecution as CodeExecution,
    ComputerUse as ComputerUse,
    FileSearch as FileSearch,
    HostedMcp as HostedMcp,
    ImageGeneration as ImageGeneration,
    Location as Location,
    ServerTool as ServerTool,
    WebFetch as WebFetch,
    WebSearch as WebSearch,
)
from .structured import AnswerReader as AnswerReader, answer_text as answer_text, prepare as prepare
