from .context import (
    ContextPolicy as ContextPolicy,
)
from .context import (
    ContextUse as ContextUse,
)
from .context import (
    DropToolResults as DropToolResults,
)
from .context import (
    Summarise as Summarise,
)
from .context import (
    estimated_tokens as estimated_tokens,
)
from .io import AsyncIO as AsyncIO
from .io import LoopIO as LoopIO
from .io import PlainIO as PlainIO
from .orchestrator import (
    AsyncOrchestrator as AsyncOrchestrator,
)
from .orchestrator import (
    Orchestrator as Orchestrator,
)
from .orchestrator import (
    aexecute_tool_calls as aexecute_tool_calls,
)
from .orchestrator import (
    arun_tool_calling_loop as arun_tool_calling_loop,
)
from .orchestrator import (
    execute_tool_calls as execute_tool_calls,
)
from .orchestrator import (
    run_tool_calling_loop as run_tool_calling_loop,
)
from .run import Cancelled as Cancelled
from .run import Ending as Ending
from .run import LoopRun as LoopRun
from .run import RunResult as RunResult
from .settings import (
    LoopHooks as LoopHooks,
)
from .settings import (
    LoopOptions as LoopOptions,
)
from .settings import (
    LoopSettings as LoopSettings,
)
from .settings import (
    settings_of as settings_of,
)
from .step import (
    AskModel as AskModel,
)
from .step import (
    AwaitApproval as AwaitApproval,
)
from .step import (
    Done as Done,
)
from .step import (
    LimitReached as LimitReached,
)
from .step import (
    Limits as Limits,
)
from .step import (
    Prices as Prices,
)
from .step import (
    RunTools as RunTools,
)
from .step import (
    Spent as Spent,
)
from .step import (
    Step as Step,
)
from .step import (
    append_tool_results as append_tool_results,
)
from .step import (
    drop_unanswerable_calls as drop_unanswerable_calls,
)
from .step import (
    extract_tool_calls as extract_tool_calls,
)
from .step import (
    next_step as next_step,
)
from .step import (
    refuse_unanswered_calls as refuse_unanswered_calls,
)
from .stream import AsyncRunStream as AsyncRunStream
from .stream import RunStream as RunStream
from .stream import note_on as note_on
