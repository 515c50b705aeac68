from .arguments.json_schema import Checker as Checker
from .arguments.json_schema import compile_schema as compile_schema
from .arguments.problems import (
    InvalidArguments as InvalidArguments,
)
from .arguments.problems import (
    Problem as Problem,
)
from .arguments.problems import (
    deeper_than as deeper_than,
)
from .arguments.problems import (
    is_object as is_object,
)
from .arguments.reader import (
    DEEPEST as DEEPEST,
)
from .arguments.reader import (
    TOO_DEEP as TOO_DEEP,
)
from .arguments.reader import (
    decoder_of_type as decoder_of_type,
)
from .arguments.reader import (
    parse_text as parse_text,
)
from .arguments.reader import (
    schema_of_type as schema_of_type,
)
from .batch import Batch as Batch
from .call import Middleware as Middleware
from .call import Outcome as Outcome
from .call import decode_arguments as decode_arguments
from .definition import (
    AnyTool as AnyTool,
)
from .definition import (
    Tool as Tool,
)
from .definition import (
    ToolOptions as ToolOptions,
)
from .definition import (
    ToolSettings as ToolSettings,
)
from .definition import (
    tool as tool,
)
from .definition import (
    tools_of as tools_of,
)
from .executor import (
    Executed as Executed,
)
from .executor import (
    OnResult as OnResult,
)
from .executor import (
    ToolExecutor as ToolExecutor,
)
from .executor import (
    aexecute_tool as aexecute_tool,
)
from .executor import (
    atool_result_or_error as atool_result_or_error,
)
from .executor import (
    execute_tool as execute_tool,
)
from .executor import (
    tool_result_or_error as tool_result_or_error,
)
from .registry import (
    AnyTools as AnyTools,
)
from .registry import (
    ToolRegistry as ToolRegistry,
)
from .registry import (
    ToolSet as ToolSet,
)
from .registry import (
    ToolView as ToolView,
)
from .registry import (
    not_found as not_found,
)
from .run import (
    Allow as Allow,
)
from .run import (
    Approval as Approval,
)
from .run import (
    Ask as Ask,
)
from .run import (
    Decision as Decision,
)
from .run import (
    Deny as Deny,
)
from .run import (
    PendingApproval as PendingApproval,
)
from .run import (
    PermissionCheck as PermissionCheck,
)
from .run import (
    RetryConfig as RetryConfig,
)
from .run import (
    ToolConfig as ToolConfig,
)
from .run import (
    ToolContext as ToolContext,
)
from .run import (
    ToolErrorHandling as ToolErrorHandling,
)
from .run import (
    ToolRun as ToolRun,
)
from .run import (
    approve as approve,
)
from .run import (
    deny as deny,
)
from .runner import discard as discard
from .threads import LoopThread as LoopThread
from .threads import WorkerThreads as WorkerThreads
from .threads import start_thread as start_thread
