"""How the program for a call is started: arguments, environment, first line. None of it can change while it runs.

Of the conversation, only the system prompt matters here. Nothing is started.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2s
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman._programs import find_program as look_up
from dragoman.conversation import ToolCall, parse_schema
from dragoman.engines.credential import Confidential, Secret
from dragoman.engines.keys import child_environment, may_go, usual_key
from dragoman.errors import ConfigurationError
from dragoman.providers import (
    PROVIDERS,
    Adaptation,
    Call,
    ModelOptions,
    ToolNames,
    description_with_examples,
    effective_options,
    refuse_or_adapt,
)
from dragoman.tools import Allow, Ask, Deny

from .decode import PREFIX
from .protocol import SERVER, wire_tools

DEFAULT_MODEL: Final = "default"
"""The model that the program uses by itself."""
OwnToolPermission: TypeAlias = "Callable[[ToolCall], Allow | Deny | Ask | Awaitable[Allow | Deny | Ask]]"
"""Decides about one use of the program's own tools; with a PermissionChecker: `checker.check`."""

_HOW_TO_GET: Final = (
    "Install it with `npm install -g @anthropic-ai/claude-code`, start it once to log in, and see that it is on the "
    "PATH; or say where it is: ClaudeSettings(program='/…/claude')."
)


class ClaudeSettings(Struct, frozen=True, kw_only=True):
    """How the program is run. By default it is isolated: none of the user's settings, no tools but ours."""

    program: str | None = None
    """Its path, or its name on the PATH; None: `claude`."""
    directory: str | None = None
    """Its working directory; None: the current one."""
    own_tools: tuple[str, ...] = ()
    """The program's own tools that the model may use, such as "Bash" or "Read"."""
    permission: OwnToolPermission | None = None
    """Decides about each use of these; None: all are refused."""
    own_prompt: bool = False
    """Keep the program's own system prompt, and append the conversation's."""
    setting_sources: tuple[str, ...] = ()
    """Which settings it reads: "user", "project", "local"."""
    environment: Mapping[str, str] = {}
    """More variables for it, which override ours."""
    arguments: tuple[str, ...] = ()
    """More arguments for it, after ours."""
    start_seconds: float = 60.0
    """How long it may take until its first output."""
    idle_programs: int = 4
    """How many programs are kept for the next turns of their conversations; the oldest is ended first."""


def find_program(settings: ClaudeSettings, find: Callable[[str], str | None] | None) -> str:
    """The path of the program. `find` looks a program up by its name; None: on the PATH. Raises ConfigurationError."""
    if os.name != "posix":
        message = "claude-local needs Linux, macOS or another POSIX system."
        raise ConfigurationError(message, hint="Use the API instead: anthropic:claude-sonnet-4-5.")
    found = look_up(settings.program) if settings.program else (find or look_up)("claude")
    if found is None:
        message = f"There is no executable program `{settings.program or 'claude'}` on this machine."
        raise ConfigurationError(message, hint=_HOW_TO_GET)
    return found


# --- arguments --------------------------------------------------------------------------------------------------------

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
_COMPLETE: Final = {
    # The model gets what we send: all tools at once, complete results, and the history as it is.
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "DISABLE_AUTO_COMPACT": "1",
    "ENABLE_TOOL_SEARCH": "false",
    "MAX_MCP_OUTPUT_TOKENS": "1000000",
    # A tool call waits as long as our side takes, perhaps for a person's approval.
    "MCP_TOOL_TIMEOUT": "100000000",
}

_ITS_OWN: Final = ("ANTHROPIC_", "CLAUDE_")
_OF_A_SESSION: Final = ("CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID")
"""Set by the program for its children: one that sees them believes that it is part of that session."""
_CLOUDS: Final = {
    "CLAUDE_CODE_USE_BEDROCK": ("AWS_",),
    "CLAUDE_CODE_USE_VERTEX": ("GOOGLE_", "CLOUD_ML_", "VERTEX_"),
    "CLAUDE_CODE_USE_FOUNDRY": ("AZURE_",),
}
_KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_MAX_ARGUMENT: Final = 64 * 1024
"""Bytes; a longer schema is sent through standard input."""
_MAX_DESCRIPTION: Final = 2048
_CUT: Final = "the program cuts it after 4096 characters, before its version 2.1.325 after 2048"


class Account(Confidential, frozen=True, kw_only=True):
    """Who pays, and where; by default the program uses its own login."""

    key: Secret | None = None
    base_url: str | None = None
    headers: Mapping[str, str] = {}
    attempts: int = 3
    environ: Mapping[str, str]
    """The variables of this process."""


class Launch(Confidential, frozen=True, kw_only=True):
    """How to start a program."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str | None
    opening: Mapping[str, object]
    """The request `initialize`."""
    tools: tuple[Raw, ...]
    names: Mapping[str, str]
    """Our tools' own names, by the names that the program uses."""
    structured: bool
    key: str
    """A hash of all this: programs with the same key are interchangeable."""


def launch_for(
    call: Call, program: str, settings: ClaudeSettings, account: Account, adaptations: list[Adaptation]
) -> Launch:
    """How to start the program for this call. Raises ConfigurationError for what the program does not support."""
    options = effective_options(call, adaptations)
    tools = () if options.tool_choice == "none" else call.tools
    for spec in tools:
        if spec.strict:
            adaptations.append(Adaptation(f"strict of tool {spec.name!r}", "the program does not support it"))
        if len(description_with_examples(spec)) > _MAX_DESCRIPTION:
            adaptations.append(Adaptation(f"description of tool {spec.name!r}", _CUT))
    if options.server_tools:
        refuse_or_adapt(call, adaptations, "server_tools", "the program has tools of its own", "See own_tools.")
    names = ToolNames([spec.name for spec in tools], call.profile.tool_limits)
    arguments = [program, *_FIXED, *_by_model(call.model), *_isolation(settings)]
    arguments += _by_reasoning(call, options, adaptations)
    opening: dict[str, object] = {"subtype": "initialize"}
    # The system prompt is sent through standard input: everybody on the machine can read arguments.
    system = call.conversation.system or ""
    if system or not settings.own_prompt:
        opening["appendSystemPrompt" if settings.own_prompt else "systemPrompt"] = system
    if tools:
        opening["sdkMcpServers"] = [SERVER]
        arguments += ["--allowed-tools", f"{PREFIX}*"]
    if options.response_format is not None:
        schema = options.response_format.schema
        if about := options.response_format.description:
            schema = Raw(msgspec.json.encode({"description": about, **parse_schema(schema)}))
        if len(bytes(schema)) <= _MAX_ARGUMENT:
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
        key=blake2s(everything).hexdigest(),  # hashed, because it contains the account's key
    )


def _by_model(model: str) -> tuple[str, ...]:
    if model.startswith("-"):
        message = f"{model!r} is not the name of a model."
        raise ConfigurationError(message, hint="Write claude-local:sonnet, or claude-local: for the program's default.")
    return () if model in ("", DEFAULT_MODEL) else ("--model", model)


def _isolation(settings: ClaudeSettings) -> list[str]:
    found = ["--tools", ",".join(settings.own_tools), f"--setting-sources={','.join(settings.setting_sources)}"]
    if settings.own_tools:
        # The program must ask about every use, including those that it would allow by itself.
        ask = {"permissions": {"ask": list(settings.own_tools)}}
        found += ["--settings", msgspec.json.encode(ask).decode()]
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
    found |= _login(account) | _QUIET | _COMPLETE
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
    """The given key, or else the key that the program would find by itself, if it may be sent to the base URL."""
    found: dict[str, str] = {}
    if account.base_url:
        found["ANTHROPIC_BASE_URL"] = account.base_url
    if account.key is not None:
        if account.base_url and not may_go(account.key, account.base_url):
            message = "The key for claude-local does not belong to this base URL."
            raise ConfigurationError(message, hint="Give the key together with the base URL as arguments.")
        found["ANTHROPIC_API_KEY"] = account.key.reveal()
        return found
    if account.base_url:  # else key and address are both from the user's environment
        usual = usual_key(PROVIDERS["anthropic"], account.environ)
        if usual is None or not may_go(usual[0], account.base_url):
            return found
    return found | {name: account.environ[name] for name in _KEYS if account.environ.get(name)}
