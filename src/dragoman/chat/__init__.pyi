from .answers import AnswerType as AnswerType, answer_type as answer_type, generate_schema as generate_schema
from .async_client import AsyncChatClient as AsyncChatClient, AsyncChatStream as AsyncChatStream
from .client import ChatClient as ChatClient, ChatStream as ChatStream
from .config import (
    Config as Config,
    ConfigArguments as ConfigArguments,
    Explanation as Explanation,
    LoadedConfig as LoadedConfig,
    default_model as default_model,
    load_config as load_config,
)
from .config_files import user_file as user_file
from .credentials import (
    KeyReference as KeyReference,
    StoredKey as StoredKey,
    delete_key as delete_key,
    find_key as find_key,
    keys_file as keys_file,
    list_keys as list_keys,
    reference_for as reference_for,
    resolve_provider as resolve_provider,
    store_key as store_key,
    stored_references as stored_references,
)
from .factory import new as new, new_async as new_async
from .fields import FIELDS as FIELDS, parse_text as parse_text
from .options import ChatOptions as ChatOptions, Prompt as Prompt
from .toml_file import ConfigWarning as ConfigWarning
