"""From settings and a call to the program that answers it: its arguments, its environment, and its first line.

Owns: ClaudeSettings; what of a call is decided when the program starts, and cannot be changed while it runs.
Must not know: the conversation, but for its system prompt. Nothing is started here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2s
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import ToolCall
from dragoman.engines.credential import Confidential, Secret
from dragoman.engines.keys import child_environment, may_go, usual_key
from dragoman.errors import ConfigurationError
from dragoman.providers import PROVIDERS, Adaptation, Call, ModelOptions, ToolNames, effective_options, refuse_or_adapt
from dragoman.tools import Allow, Ask, Deny

from .decode import PREFIX
from .protocol import SERVER, wire_tools

DEFAULT_MODEL: Final = "default"
"""Stands for whichever model the program uses by itself."""
OwnToolPermission: TypeAlias = "Callable[[ToolCall], Allow | Deny | Ask | Awaitable[Allow | Deny | Ask]]"
"""Decides about one use of the program's own tools; with a PermissionChecker: `checker.check`."""

_HOW_TO_GET: Final = (
    "Install it with `npm install -g @anthropic-ai/claude-code`, start it once to log in, and see that it is on the "
    "PATH; or say where it is: ClaudeSettings(program='/…/claude')."
)


class ClaudeSettings(Struct, frozen=True, kw_only=True):
    """How the program is run. By default it is kept to itself: no settings of the user's, no tools but ours."""

    program: str | None = None
    """Its path; None: looked for with `find_program`."""
    find_program: Callable[[str], str | None] | None = None
    """How it is found by name; None: on the PATH, as shutil.which does."""
    directory: str | None = None
    """Where it works; None: the current directory."""
    own_tools: tuple[str, ...] = ()
    """Tools of the program itself that the model may use, such as "Bash" or "Read"."""
    permission: OwnToolPermission | None = None
    """Decides about each use of those that the program asks about; None: all are refused."""
    own_prompt: bool = False
    """Keep the program's own system prompt, and put the conversation's behind it."""
    setting_sources: tuple[str, ...] = ()
    """Which settings it reads: "user", "project", "local"."""
    environment: Mapping[str, str] = {}
    """Further variables for it; they win over ours."""
    arguments: tuple[str, ...] = ()
    """Further arguments for it, behind ours."""
    start_seconds: float = 60.0
    """How long it may take until it says its first word."""
    idle_programs: int = 4
    """How many programs that wait for the next turn of their conversations are kept; the oldest is ended first."""


def find_program(settings: ClaudeSettings) -> str:
    if os.name != "posix":
        message = "claude-local needs Linux, macOS or another POSIX system."
        raise ConfigurationError(message, hint="Use the API instead: anthropic:claude-sonnet-4-5.")
    if settings.program is not None:
        if os.path.isfile(settings.program) and os.access(settings.program, os.X_OK):  # noqa: PTH113 -- a text, not a path
            return settings.program
        message = f"There is no program {settings.program!r} that could be run."
        raise ConfigurationError(message, hint=_HOW_TO_GET)
    found = (settings.find_program or shutil.which)("claude")
    if found is None:
        message = "The program `claude` was not found on this machine."
        raise ConfigurationError(message, hint=_HOW_TO_GET)
    return found


# --- from a call to a program -----------------------------------------------------------------------------------------

_FIXED: Final = (
    "-p",
    *("--input-format", "stream-json"),
    *("--output-format", "stream-json"),
    "--verbose",
    "--include-partial-messages",
    *("--permission-prompt-tool", "stdio"),
    "--strict-mcp-config",
    "--disable-slash-commands",
    "--no-session-persistence",
)

_QUIET: Final = {
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
}
_WHOLE: Final = {
    # What the model gets is what we give it: all tools at once, whole results, and the history as it is.
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "DISABLE_AUTO_COMPACT": "1",
    "ENABLE_TOOL_SEARCH": "false",
    "MAX_MCP_OUTPUT_TOKENS": "1000000",
    # A call of a tool waits as long as our side takes, be it for a person's approval.
    "MCP_TOOL_TIMEOUT": "100000000",
}

_ITS_OWN: Final = ("ANTHROPIC_", "CLAUDE_")
_OF_A_SESSION: Final = ("CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID")
"""Set inside of the program: a child that sees them takes itself for a part of that session."""
_CLOUDS: Final = {
    "CLAUDE_CODE_USE_BEDROCK": ("AWS_",),
    "CLAUDE_CODE_USE_VERTEX": ("GOOGLE_", "CLOUD_ML_", "VERTEX_"),
    "CLAUDE_CODE_USE_FOUNDRY": ("AZURE_",),
}
_KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_LONGEST_ARGUMENT: Final = 64 * 1024
"""Bytes; a longer schema goes through standard input."""


class Account(Confidential, frozen=True, kw_only=True):
    """Who pays and where: what the program takes from its own login unless it is said."""

    key: Secret | None = None
    base_url: str | None = None
    headers: Mapping[str, str] = {}
    attempts: int = 3
    environ: Mapping[str, str]
    """The variables of this process."""


class Launch(Confidential, frozen=True, kw_only=True):
    """A program to be started."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str | None
    opening: Mapping[str, object]
    """The request `initialize`."""
    tools: tuple[Raw, ...]
    names: Mapping[str, str]
    """Own names of our tools by those that the program knows them by."""
    structured: bool
    key: str
    """Names all of this: a program that was started the same way will do."""


def launch_for(call: Call, settings: ClaudeSettings, account: Account, adaptations: list[Adaptation]) -> Launch:
    """The program for this call. Raises ConfigurationError for what the program cannot do, or if it is not there."""
    options = effective_options(call, adaptations)
    tools = () if options.tool_choice == "none" else call.tools
    unsupported = "the program does not support it"
    adaptations += [Adaptation(f"strict of tool {spec.name!r}", unsupported) for spec in tools if spec.strict]
    if options.server_tools:
        refuse_or_adapt(call, adaptations, "server_tools", "the program has tools of its own", "See own_tools.")
    names = ToolNames([spec.name for spec in tools], call.profile.tool_limits)
    arguments = [find_program(settings), *_FIXED, *_by_model(call.model), *_isolation(settings)]
    arguments += _by_reasoning(call, options, adaptations)
    opening: dict[str, object] = {"subtype": "initialize"}
    # The system prompt goes through standard input: arguments can be seen by everybody on the machine.
    system = call.conversation.system or ""
    if system or not settings.own_prompt:
        opening["appendSystemPrompt" if settings.own_prompt else "systemPrompt"] = system
    if tools:
        opening["sdkMcpServers"] = [SERVER]
        arguments += ["--allowed-tools", f"{PREFIX}*"]
    if options.response_format is not None:
        schema = options.response_format.schema
        if len(bytes(schema)) <= _LONGEST_ARGUMENT:
            arguments += ["--json-schema", bytes(schema).decode()]
        else:
            opening["jsonSchema"] = schema
    arguments += settings.arguments
    environment = _environment(settings, account, options)
    offered = tuple(wire_tools(tools, names))
    everything = msgspec.json.encode([arguments, sorted(environment.items()), opening, offered])
    return Launch(
        arguments=tuple(arguments),
        environment=environment,
        directory=settings.directory,
        opening=opening,
        tools=offered,
        names={f"{PREFIX}{names.wire(spec.name)}": spec.name for spec in tools},
        structured=options.response_format is not None,
        key=blake2s(everything).hexdigest(),  # hashed: it holds the key of the account
    )


def _by_model(model: str) -> tuple[str, ...]:
    if model.startswith("-"):
        message = f"{model!r} is not the name of a model."
        raise ConfigurationError(message, hint="Write claude-local:sonnet, or claude-local: for the program's default.")
    return () if model in ("", DEFAULT_MODEL) else ("--model", model)


def _isolation(settings: ClaudeSettings) -> list[str]:
    found = ["--tools", ",".join(settings.own_tools), f"--setting-sources={','.join(settings.setting_sources)}"]
    if settings.own_tools:
        # Also about what it would let pass by itself, the program is to ask.
        asking = {"permissions": {"ask": list(settings.own_tools)}}
        found += ["--settings", msgspec.json.encode(asking).decode()]
    return found


def _by_reasoning(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> list[str]:
    wanted = options.reasoning
    if wanted is None:
        return []
    if wanted.budget is not None:
        return ["--max-thinking-tokens", str(wanted.budget)]
    if wanted.effort is None:
        return []
    if wanted.effort == "none":
        return ["--thinking", "disabled"]
    if wanted.effort in call.profile.efforts:
        return ["--effort", wanted.effort]
    refuse_or_adapt(call, adaptations, f"reasoning.effort={wanted.effort!r}", "it knows low to max", "Say 'low'.")
    return ["--effort", "low"]


# --- the environment --------------------------------------------------------------------------------------------------


def _environment(settings: ClaudeSettings, account: Account, options: ModelOptions) -> dict[str, str]:
    environ = account.environ
    clouds = [begin for switch, begins in _CLOUDS.items() if environ.get(switch) for begin in begins]
    found = child_environment(environ, own=(*_ITS_OWN, *clouds))
    for name in (*_OF_A_SESSION, *_KEYS):
        found.pop(name, None)
    found |= _login(account) | _QUIET | _WHOLE
    found["CLAUDE_CODE_MAX_RETRIES"] = str(max(0, account.attempts - 1))
    if options.max_tokens is not None:
        found["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(options.max_tokens)
    headers = {**account.headers, **options.extra_headers}
    if headers:
        found["ANTHROPIC_CUSTOM_HEADERS"] = "\n".join([f"{name}: {value}" for name, value in headers.items()])
    if options.extra_body:
        found["CLAUDE_CODE_EXTRA_BODY"] = msgspec.json.encode(options.extra_body).decode()
    return found | dict(settings.environment)


def _login(account: Account) -> dict[str, str]:
    """The key that was given, or else what the program would find by itself, where it may go."""
    found: dict[str, str] = {}
    if account.base_url:
        found["ANTHROPIC_BASE_URL"] = account.base_url
    if account.key is not None:
        if account.base_url and not may_go(account.key, account.base_url):
            message = "The key for claude-local does not belong to this base URL."
            raise ConfigurationError(message, hint="Give the key together with the base URL as arguments.")
        found["ANTHROPIC_API_KEY"] = account.key.reveal()
        return found
    address = account.base_url or account.environ.get("ANTHROPIC_BASE_URL", "")
    usual = usual_key(PROVIDERS["anthropic"], account.environ)
    said_together = not account.base_url  # both of the user's own environment
    for name in _KEYS:
        value = account.environ.get(name)
        if value and (said_together or (usual is not None and may_go(usual[0], address))):
            found[name] = value
    return found
