from .arguments.json_schema import Checker as Checker, compile_schema as compile_schema
from .arguments.partial import PartialReader as PartialReader, read_beginning as read_beginning
from .arguments.problems import (
    InvalidArguments as InvalidArguments,
    Problem as Problem,
    is_array as is_array,
    is_object as is_object,
    kind_of as kind_of,
)
from .arguments.reader import (
    decoder_of_type as decoder_of_type,
    forgive as forgive,
    parse_text as parse_text,
    schema_of_type as schema_of_type,
)
from .arguments.schemas import map_subschemas as map_subschemas
from .batch import Batch as Batch, ToolEvent as ToolEvent, ToolPaused as ToolPaused
from .call import (
    Middleware as Middleware,
    Outcome as Outcome,
    decode_arguments as decode_arguments,
    json_ready as json_ready,
)
from .definition import (
    AnyTool as AnyTool,
    Tool as Tool,
    ToolOptions as ToolOptions,
    ToolSettings as ToolSettings,
    tool as tool,
    tools_of as tools_of,
)
from .executor import (
    Executed as Executed,
    OnResult as OnResult,
    ToolExecutor as ToolExecutor,
    aexecute_tool as aexecute_tool,
    atool_result_or_error as atool_result_or_error,
    execute_tool as execute_tool,
    tool_result_or_error as tool_result_or_error,
)
from .meter import Meter as Meter, Used as Used
from .registry import (
    FIND_TOOLS as FIND_TOOLS,
    AnyTools as AnyTools,
    MomentTools as MomentTools,
    SomeTools as SomeTools,
    ToolRegistry as ToolRegistry,
    ToolSet as ToolSet,
    ToolView as ToolView,
    as_tool_set as as_tool_set,
    not_found as not_found,
)
from .run import (
    Allow as Allow,
    Approval as Approval,
    Ask as Ask,
    Decision as Decision,
    Deny as Deny,
    Paused as Paused,
    PendingApproval as PendingApproval,
    PermissionCheck as PermissionCheck,
    RetryConfig as RetryConfig,
    ToolConfig as ToolConfig,
    ToolContext as ToolContext,
    ToolErrorHandling as ToolErrorHandling,
    ToolRun as ToolRun,
    approve as approve,
    deny as deny,
    fingerprint as fingerprint,
)
from .search import ToolIndex as ToolIndex, many_tools as many_tools
from .threads import (
    AsyncRunner as AsyncRunner,
    Job as Job,
    LoopThread as LoopThread,
    Runner as Runner,
    WorkerThreads as WorkerThreads,
    discard as discard,
)
