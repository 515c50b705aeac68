from .base import (
    AsyncEngine as AsyncEngine,
    AsyncHttpEngine as AsyncHttpEngine,
    AsyncStream as AsyncStream,
    Engine as Engine,
    HttpEngine as HttpEngine,
    Stream as Stream,
    ToolFeatures as ToolFeatures,
)
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
from .keys import (
    Secret as Secret,
    given_key as given_key,
    hosts_of as hosts_of,
    missing_key as missing_key,
    usual_key as usual_key,
)
from .local.download import bar_if_terminal as bar_if_terminal
from .local.factory import bench as bench
from .local.models import MODELS as MODELS, model_named as model_named
from .local.storage import (
    StoredModel as StoredModel,
    models as models,
    present as present,
    pull as pull,
    remove as remove,
)
from .reply import Reply as Reply, lossy as lossy
from .scripted import (
    AsyncScriptedEngine as AsyncScriptedEngine,
    ScriptedCall as ScriptedCall,
    ScriptedEngine as ScriptedEngine,
)
