from dragoman._files import read_files as read_files
from dragoman._stop import current_stop as current_stop

from .base import (
    AsyncEngine as AsyncEngine,
    AsyncReplyStream as AsyncReplyStream,
    Engine as Engine,
    MessageCall as MessageCall,
    ReplyStream as ReplyStream,
    ToolFeatures as ToolFeatures,
    adopt as adopt,
    lossy as lossy,
)
from .call import Reply as Reply, ReplyCall as ReplyCall, failed as failed
from .claude_cli.engine import AsyncClaudeEngine as AsyncClaudeEngine, ClaudeEngine as ClaudeEngine
from .claude_cli.launch import ClaudeSettings as ClaudeSettings
from .factory import (
    EngineOptions as EngineOptions,
    ProviderFactory as ProviderFactory,
    async_engine as async_engine,
    engine as engine,
    is_registered as is_registered,
    register_provider as register_provider,
)
from .http import AsyncHttpEngine as AsyncHttpEngine, Connection as Connection, HttpEngine as HttpEngine
from .keys import (
    Secret as Secret,
    given_key as given_key,
    hosts_of as hosts_of,
    may_go as may_go,
    missing_key as missing_key,
    usual_key as usual_key,
)
from .local.download import bar_if_terminal as bar_if_terminal
from .local.models import MODELS as MODELS, model_named as model_named
from .local.server import (
    ModelServer as ModelServer,
    running_models as running_models,
    stop_models as stop_models,
)
from .local.storage import (
    StoredModel as StoredModel,
    models as models,
    present as present,
    pull as pull,
    remove as remove,
)
from .scripted import (
    AsyncScriptedEngine as AsyncScriptedEngine,
    ScriptedCall as ScriptedCall,
    ScriptedEngine as ScriptedEngine,
)
