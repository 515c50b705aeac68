from .context import (
    ContextPolicy as ContextPolicy,
    ContextUse as ContextUse,
    DropToolResults as DropToolResults,
    Summarise as Summarise,
    warn_of_unknown_window as warn_of_unknown_window,
)
from .durable import (
    DurableIO as DurableIO,
    DurableStep as DurableStep,
    RemoteCall as RemoteCall,
    outcome_from_json as outcome_from_json,
    outcome_to_json as outcome_to_json,
    reply_from_json as reply_from_json,
    reply_to_json as reply_to_json,
    take_outcome as take_outcome,
)
from .io import (
    AsyncIO as AsyncIO,
    AsyncRunStream as AsyncRunStream,
    LoopIO as LoopIO,
    PlainIO as PlainIO,
    RunStream as RunStream,
    close_engine as close_engine,
    note_on as note_on,
)
from .meter import RunMeter as RunMeter, share_limits as share_limits
from .moment import instruct as instruct, tools_of as tools_of
from .orchestrator import (
    AsyncOrchestrator as AsyncOrchestrator,
    Orchestrator as Orchestrator,
    RunOptions as RunOptions,
    aexecute_tool_calls as aexecute_tool_calls,
    arun_tool_calling_loop as arun_tool_calling_loop,
    execute_tool_calls as execute_tool_calls,
    run_tool_calling_loop as run_tool_calling_loop,
)
from .result import (
    ENDINGS as ENDINGS,
    Cancelled as Cancelled,
    Ending as Ending,
    RunResult as RunResult,
)
from .run import LoopRun as LoopRun
from .settings import (
    Instruction as Instruction,
    Instructions as Instructions,
    Judge as Judge,
    LoopHooks as LoopHooks,
    LoopOptions as LoopOptions,
    LoopSettings as LoopSettings,
    OnLimit as OnLimit,
    RunContext as RunContext,
    settings_of as settings_of,
)
from .step import (
    NOTHING_SPENT as NOTHING_SPENT,
    UNCERTAIN as UNCERTAIN,
    AskModel as AskModel,
    AwaitApproval as AwaitApproval,
    Done as Done,
    LimitReached as LimitReached,
    Limits as Limits,
    NoAnswer as NoAnswer,
    RefuseCalls as RefuseCalls,
    RunTools as RunTools,
    Spent as Spent,
    Step as Step,
    append_tool_results as append_tool_results,
    extract_tool_calls as extract_tool_calls,
    next_step as next_step,
    offered_tools as offered_tools,
    refuse_unanswered_calls as refuse_unanswered_calls,
    step_options as step_options,
)
