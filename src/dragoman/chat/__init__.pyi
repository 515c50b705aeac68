from .answers import AnswerType as AnswerType
from .answers import answer_type as answer_type
from .answers import generate_schema as generate_schema
from .async_client import AsyncChatClient as AsyncChatClient
from .async_client import AsyncChatStream as AsyncChatStream
from .client import ChatClient as ChatClient
from .client import ChatStream as ChatStream
from .config import (
    Config as Config,
)
from .config import (
    ConfigArguments as ConfigArguments,
)
from .config import (
    Explanation as Explanation,
)
from .config import (
    LoadedConfig as LoadedConfig,
)
from .config import (
    default_model as default_model,
)
from .config import (
    load_config as load_config,
)
from .config_files import user_file as user_file
from .credentials import (
    KeyReference as KeyReference,
)
from .credentials import (
    StoredKey as StoredKey,
)
from .credentials import (
    delete_key as delete_key,
)
from .credentials import (
    find_key as find_key,
)
from .credentials import (
    keys_file as keys_file,
)
from .credentials import (
    list_keys as list_keys,
)
from .credentials import (
    reference_for as reference_for,
)
from .credentials import (
    resolve_provider as resolve_provider,
)
from .credentials import (
    store_key as store_key,
)
from .credentials import (
    stored_references as stored_references,
)
from .factory import new as new
from .factory import new_async as new_async
from .fields import FIELDS as FIELDS
from .fields import parse_text as parse_text
from .options import ChatOptions as ChatOptions
from .options import Prompt as Prompt
from .toml_file import ConfigWarning as ConfigWarning
