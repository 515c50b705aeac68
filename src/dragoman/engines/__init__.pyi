from .base import (
    AsyncEngine as AsyncEngine,
)
from .base import (
    AsyncHttpEngine as AsyncHttpEngine,
)
from .base import (
    AsyncStream as AsyncStream,
)
from .base import (
    Engine as Engine,
)
from .base import (
    HttpEngine as HttpEngine,
)
from .base import (
    Stream as Stream,
)
from .base import (
    ToolFeatures as ToolFeatures,
)
from .claude_cli.engine import AsyncClaudeEngine as AsyncClaudeEngine
from .claude_cli.engine import ClaudeEngine as ClaudeEngine
from .claude_cli.launch import ClaudeSettings as ClaudeSettings
from .factory import (
    EngineOptions as EngineOptions,
)
from .factory import (
    ProviderFactory as ProviderFactory,
)
from .factory import (
    async_engine as async_engine,
)
from .factory import (
    engine as engine,
)
from .factory import (
    is_registered as is_registered,
)
from .factory import (
    register_provider as register_provider,
)
from .keys import (
    Secret as Secret,
)
from .keys import (
    given_key as given_key,
)
from .keys import (
    hosts_of as hosts_of,
)
from .keys import (
    missing_key as missing_key,
)
from .keys import (
    usual_key as usual_key,
)
from .local.download import bar_if_terminal as bar_if_terminal
from .local.factory import bench as bench
from .local.models import MODELS as MODELS
from .local.models import model_named as model_named
from .local.storage import (
    StoredModel as StoredModel,
)
from .local.storage import (
    models as models,
)
from .local.storage import (
    present as present,
)
from .local.storage import (
    pull as pull,
)
from .local.storage import (
    remove as remove,
)
from .reply import Reply as Reply
from .reply import lossy as lossy
from .scripted import (
    AsyncScriptedEngine as AsyncScriptedEngine,
)
from .scripted import (
    ScriptedCall as ScriptedCall,
)
from .scripted import (
    ScriptedEngine as ScriptedEngine,
)
