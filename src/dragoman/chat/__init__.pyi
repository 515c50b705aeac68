from .agents import agent_tool as agent_tool
from .answers import (
    AnswerType as AnswerType,
    AsyncTypedStream as AsyncTypedStream,
    Check as Check,
    TypedResult as TypedResult,
    TypedStream as TypedStream,
    answer_type as answer_type,
    generate_schema as generate_schema,
)
from .client import (
    AsyncChatClient as AsyncChatClient,
    AsyncChatStream as AsyncChatStream,
    ChatClient as ChatClient,
    ChatStream as ChatStream,
)
from .config import (
    FIELDS as FIELDS,
    Config as Config,
    default_model as default_model,
    parse_text as parse_text,
)
from .config_files import (
    ConfigWarning as ConfigWarning,
    UntrustedWarning as UntrustedWarning,
    user_file as user_file,
)
from .config_sources import Explanation as Explanation, LoadedConfig as LoadedConfig, load_config as load_config
from .credentials import (
    KeyReference as KeyReference,
    StoredKey as StoredKey,
    delete_key as delete_key,
    find_key as find_key,
    keys_file as keys_file,
    list_keys as list_keys,
    resolve_provider as resolve_provider,
    store_key as store_key,
)
from .factory import new as new, new_async as new_async
from .handoffs import handoff as handoff
from .options import (
    ChatOptions as ChatOptions,
    drop_engine_options as drop_engine_options,
    find_engine as find_engine,
    make_executor as make_executor,
)
from .turns import Prompt as Prompt, make_message as make_message
