from .context import (
    ContextPolicy as ContextPolicy,
    ContextUse as ContextUse,
    DropToolResults as DropToolResults,
    Summarise as Summarise,
    estimated_tokens as estimated_tokens,
)
from .io import AsyncIO as AsyncIO, LoopIO as LoopIO, PlainIO as PlainIO, close_engine as close_engine
from .orchestrator import (
    AsyncOrchestrator as AsyncOrchestrator,
    Orchestrator as Orchestrator,
    aexecute_tool_calls as aexecute_tool_calls,
    arun_tool_calling_loop as arun_tool_calling_loop,
    execute_tool_calls as execute_tool_calls,
    run_tool_calling_loop as run_tool_calling_loop,
)
from .run import Cancelled as Cancelled, Ending as Ending, LoopRun as LoopRun, RunResult as RunResult
from .settings import (
    LoopHooks as LoopHooks,
    LoopOptions as LoopOptions,
    LoopSettings as LoopSettings,
    settings_of as settings_of,
)
from .step import (
    AskModel as AskModel,
    AwaitApproval as AwaitApproval,
    Done as Done,
    LimitReached as LimitReached,
    Limits as Limits,
    Prices as Prices,
    RunTools as RunTools,
    Spent as Spent,
    Step as Step,
    append_tool_results as append_tool_results,
    drop_unanswerable_calls as drop_unanswerable_calls,
    extract_tool_calls as extract_tool_calls,
    next_step as next_step,
    refuse_unanswered_calls as refuse_unanswered_calls,
)
from .stream import AsyncRunStream as AsyncRunStream, RunStream as RunStream, note_on as note_on
