from dragoman._files import read_files as read_files
from dragoman._stop import current_stop as current_stop

from .base import (
    AsyncEngine as AsyncEngine,
    AsyncReplyStream as AsyncReplyStream,
    BaseEngine as BaseEngine,
    Engine as Engine,
    MessageCall as MessageCall,
    ReplyStream as ReplyStream,
    ToolFeatures as ToolFeatures,
    adopt as adopt,
    lossy as lossy,
)
from .call import Prepared as Prepared, Reply as Reply, ReplyCall as ReplyCall, failed as failed
from .claude_cli.engine import AsyncClaudeEngine as AsyncClaudeEngine, ClaudeEngine as ClaudeEngine
from .claude_cli.launch import ClaudeSettings as ClaudeSettings
from .clouds.aws import aws_keys as aws_keys
from .credential import (
    AwsKeys as AwsKeys,
    Confidential as Confidential,
    Credential as Credential,
    KeySource as KeySource,
    Secret as Secret,
    Token as Token,
)
from .factory import (
    EngineOptions as EngineOptions,
    Models as Models,
    ProviderFactory as ProviderFactory,
    async_engine as async_engine,
    engine as engine,
    is_registered as is_registered,
    made_here as made_here,
    register_provider as register_provider,
)
from .fallback import (
    AsyncFallbackEngine as AsyncFallbackEngine,
    Fallback as Fallback,
    FallbackEngine as FallbackEngine,
)
from .health import ModelHealth as ModelHealth
from .http import (
    AnyHttpEngine as AnyHttpEngine,
    AsyncHttpEngine as AsyncHttpEngine,
    Connection as Connection,
    Exchange as Exchange,
    HttpEngine as HttpEngine,
    as_service as as_service,
    understanding as understanding,
)
from .keys import (
    given_key as given_key,
    hosts_of as hosts_of,
    may_go as may_go,
    missing_key as missing_key,
    usual_key as usual_key,
)
from .limiter import RateLimiter as RateLimiter
from .local.models import MODELS as MODELS, model_named as model_named
from .local.runtime import ensure_runtime as ensure_runtime
from .local.server import (
    ModelServer as ModelServer,
    running_models as running_models,
    stop_models as stop_models,
)
from .local.storage import (
    StoredModel as StoredModel,
    bar_if_terminal as bar_if_terminal,
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
