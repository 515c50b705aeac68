"""Which page shows what.

Owns: the pages, their order and their words; which names stand on which page.
Must not know: how a page is made.

A public name goes to the page that lists the module it is made in; names of a page come in the order of its modules,
and within one in the order of the source. A test says so when a name has no page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["FROM_THE_LIBRARY", "INSIDE", "PAGES", "Page", "Section"]


@dataclass(frozen=True, kw_only=True)
class Section:
    """Names of one namespace."""

    namespace: str = "dragoman"
    """What people import them from."""
    modules: tuple[str, ...] = ()
    """Where they are made, in the order of the page. A package stands for all that is below it. Empty: anywhere."""
    only: tuple[str, ...] = ()
    """Only these names, where the namespace has more than the documentation speaks of."""
    first: tuple[str, ...] = ()
    """Names to begin with, whatever the order of the source."""
    last: tuple[str, ...] = ()
    """Names to end with."""


@dataclass(frozen=True, kw_only=True)
class Page:
    file: str
    title: str
    about: str
    guide: str = ""
    """The page of the documentation that tells how it is used."""
    sections: tuple[Section, ...]


PAGES: Final[tuple[Page, ...]] = (
    Page(
        file="chat.md",
        title="Chat",
        about="A conversation with a model that may call tools: the client, its stream, and answers of a type.",
        guide="chat.md",
        sections=(
            Section(
                modules=(
                    "dragoman.chat.client",
                    "dragoman.chat.async_client",
                    "dragoman.chat.options",
                    "dragoman.chat.prompt",
                    "dragoman.chat.schema",
                    "dragoman.chat.new",
                ),
                last=("generate_schema", "new", "new_async"),
            ),
            Section(namespace="dragoman.chat.client", only=("OnEvent",)),
        ),
    ),
    Page(
        file="configuration.md",
        title="Configuration and keys",
        about="Settings from files, the environment and arguments, and where the keys of providers are.",
        guide="configuration.md",
        sections=(
            Section(
                modules=(
                    "dragoman.chat.config",
                    "dragoman.chat.toml",
                    "dragoman.chat.credentials",
                    "dragoman._version",
                ),
                first=("load_config", "Config", "LoadedConfig"),
            ),
            Section(namespace="dragoman.chat.config.config", only=("ConfigArguments",)),
            Section(namespace="dragoman.chat.config.loaded", only=("Explanation",)),
            Section(namespace="dragoman.chat.credentials.find", only=("Found",)),
            Section(namespace="dragoman.chat.credentials.stored", only=("StoredKey",)),
        ),
    ),
    Page(
        file="conversation.md",
        title="Conversation",
        about="The values that everything else is made of: blocks, messages, conversations. They are frozen; a change "
        "gives a new value. Each also has `extra`, which keeps fields of a newer version of the JSON form.",
        guide="conversation.md",
        sections=(
            Section(
                modules=(
                    "dragoman.conversation.conversation",
                    "dragoman.conversation.message",
                    "dragoman.conversation.blocks",
                    "dragoman.conversation.validity",
                    "dragoman.conversation.values",
                    "dragoman.conversation.json_form",
                ),
                first=("Conversation", "Message", "Role", "Block"),
                last=("ChangeKind",),
            ),
        ),
    ),
    Page(
        file="events.md",
        title="Events",
        about="What happens while a model answers and tools run.",
        guide="conversation.md",
        sections=(
            Section(
                modules=(
                    "dragoman.conversation.events",
                    "dragoman.conversation.fold",
                )
            ),
        ),
    ),
    Page(
        file="tools.md",
        title="Tools",
        about="Tools made of functions, sets of them, who may call them, and how calls are carried out.",
        guide="tools.md",
        sections=(
            Section(
                modules=(
                    "dragoman.tools.definition",
                    "dragoman.conversation.tool_spec",
                    "dragoman.tools.context",
                    "dragoman.tools.registry",
                    "dragoman.tools.config",
                    "dragoman.tools.permission",
                    "dragoman.tools.executor",
                    "dragoman.tools.executor",
                    "dragoman.tools",
                ),
                first=("tool", "tools_of", "Tool"),
            ),
        ),
    ),
    Page(
        file="engines.md",
        title="Engines and models",
        about="A model's reply to a conversation, whatever stands behind it; what can be asked of a model, and what "
        "one can do.",
        guide="models.md",
        sections=(
            Section(
                modules=(
                    "dragoman.engines.factory",
                    "dragoman.engines.engine",
                    "dragoman.engines.reply",
                    "dragoman.engines.keys",
                    "dragoman.providers.options",
                    "dragoman.providers.profile",
                    "dragoman.providers.codec",
                    "dragoman.providers.preflight",
                    "dragoman.engines.claude_cli",
                ),
                first=("engine", "async_engine", "EngineOptions", "Engine", "Reply", "ModelOptions"),
                last=("ProviderFactory", "register_provider", "HttpEngine", "AsyncHttpEngine"),
            ),
            Section(namespace="dragoman.engines.engine", only=("Stream", "AsyncStream")),
            Section(namespace="dragoman.engines.claude_cli.engine", only=("ClaudeOptions",)),
            Section(namespace="dragoman.providers.profile", only=("ToolLimits",)),
            Section(namespace="dragoman.providers.preflight", only=("Report", "ToolReport", "Finding")),
        ),
    ),
    Page(
        file="loop.md",
        title="The loop",
        about="Ask the model, run the tools that it calls, ask again: with limits, hooks and a history that fits.",
        guide="loop.md",
        sections=(
            Section(
                modules=(
                    "dragoman.loop.orchestrator",
                    "dragoman.loop.settings",
                    "dragoman.loop.run",
                    "dragoman.loop.context",
                    "dragoman.loop.step",
                ),
                first=("run_tool_calling_loop", "arun_tool_calling_loop", "Orchestrator", "LoopOptions", "RunResult"),
            ),
        ),
    ),
    Page(
        file="stores.md",
        title="Stores",
        about="Conversations that survive: snapshots, the journal between them, the stores for both, and sealing.",
        guide="stores.md",
        sections=(
            Section(
                modules=(
                    "dragoman.stores.file",
                    "dragoman.stores.sqlite",
                    "dragoman.stores.postgres",
                    "dragoman.stores.async_store",
                    "dragoman.stores.protocol",
                    "dragoman.stores.snapshot",
                    "dragoman.stores.json_form",
                    "dragoman.stores.summary",
                    "dragoman.stores.journal",
                    "dragoman.stores.entries",
                    "dragoman.stores.ids",
                    "dragoman.stores.sealing",
                )
            ),
            Section(namespace="dragoman.stores.sealing", only=("ResealProgress", "progress_bar")),
            Section(namespace="dragoman.stores.protocol", only=("Resealed",)),
        ),
    ),
    Page(
        file="toolkit.md",
        title="The toolkit",
        about="Ready tools for a directory, and the way to a person.",
        guide="toolkit.md",
        sections=(Section(namespace="dragoman.toolkit", first=("toolkit",)),),
    ),
    Page(
        file="permissions.md",
        title="Permissions",
        about="Which calls of tools may run, by rules.",
        guide="permissions.md",
        sections=(Section(namespace="dragoman.toolkit.permissions"),),
    ),
    Page(
        file="skills.md",
        title="Skills",
        about="Instructions that a model loads when it needs them.",
        guide="skills.md",
        sections=(Section(namespace="dragoman.toolkit.skills"),),
    ),
    Page(
        file="mcp.md",
        title="MCP",
        about="Our tools for other programs, and other programs' tools for ours. Most of it needs the extra `mcp`.",
        guide="mcp.md",
        sections=(
            Section(
                namespace="dragoman.mcp", first=("McpServers", "connect", "McpServer", "serve_stdio", "serve_http")
            ),
            Section(namespace="dragoman.mcp.server.app", only=("McpServerSettings",)),
            Section(namespace="dragoman.mcp.server.http", only=("HttpSettings",)),
            Section(namespace="dragoman.mcp.client.servers", only=("ServerStatus",)),
        ),
    ),
    Page(
        file="transport.md",
        title="Transport",
        about="The way to a provider and back: addresses, time limits, retries.",
        guide="models.md",
        sections=(
            Section(
                modules=(
                    "dragoman.transport.protocol",
                    "dragoman.transport.retry",
                    "dragoman.transport.addresses",
                )
            ),
            Section(
                namespace="dragoman.transport.protocol",
                only=("Transport", "HttpRequest", "Response", "BaseTransport", "BaseResponse"),
            ),
            Section(namespace="dragoman.transport.retry", only=("RateLimit",)),
            Section(namespace="dragoman.transport.socket_transport", only=("SocketTransport",)),
            Section(namespace="dragoman.transport.asyncio_transport", only=("AsyncioTransport",)),
            Section(namespace="dragoman.transport.httpx_adapter", only=("HttpxTransport",)),
        ),
    ),
    Page(
        file="testing.md",
        title="Testing",
        about="Doubles for tests, without a key and without the network: a scripted engine and recorded exchanges. The "
        "third, a local server, has [a page of its own](simulator.md).",
        guide="testing.md",
        sections=(
            Section(
                modules=("dragoman.engines.scripted", "dragoman.transport.tape"),
                first=("ScriptedEngine", "AsyncScriptedEngine"),
            ),
        ),
    ),
    Page(
        file="simulator.md",
        title="Simulator",
        about="A local server that speaks the dialects of all providers, and can go wrong in every way that they do.",
        guide="testing.md",
        sections=(
            Section(
                namespace="dragoman.simulator",
                modules=(
                    "dragoman.simulator.server",
                    "dragoman.simulator.script",
                    "dragoman.simulator.reply",
                    "dragoman.simulator.request",
                    "dragoman.simulator.faults",
                    "dragoman.providers.catalogue",
                ),
                first=("Simulator", "Script", "echo", "Reply", "Request", "DialectName", "Chunking", "FAULTS", "Fault"),
            ),
        ),
    ),
    Page(
        file="local.md",
        title="The model on this machine",
        about="Models that run without a key: the weights, and answers of a form. Needs the extra `local`.",
        guide="local.md",
        sections=(
            Section(
                namespace="dragoman.engines.local.shelf", only=("models", "present", "pull", "remove", "ModelOnShelf")
            ),
            Section(namespace="dragoman.engines.local.grammar", only=("schema_grammar",)),
        ),
    ),
    Page(
        file="errors.md",
        title="Errors",
        about="Every exception that the library raises on purpose, in one tree. The text of an error says what "
        "happened; its `hint` says what to do next; `str()` gives both.",
        sections=(Section(namespace="dragoman.errors", last=("ToolErrorType",)),),
    ),
)

FROM_THE_LIBRARY: Final = frozenset(
    {
        "AsyncChatStream",
        "AsyncHttpEngine",
        "Batch",
        "ChatStream",
        "HttpEngine",
        "LoopRun",
        "Tool",
        "ToolContext",
    }
)
"""Classes whose objects people get and do not make: how one is made is not shown."""

INSIDE: Final[Mapping[str, frozenset[str]]] = {
    "dragoman.AsyncOrchestrator": frozenset({"drive", "settings", "start"}),
    "dragoman.LoopRun": frozenset({"complete", "events", "has_done_something", "hooks", "settle", "was_cut_short"}),
    "dragoman.Orchestrator": frozenset({"drive", "settings", "start"}),
    "dragoman.Tape": frozenset({"find", "note", "write", "write_reply"}),
    "dragoman.ToolExecutor": frozenset({"stepped_events"}),
    "dragoman.mcp.McpServer": frozenset({"answer", "call", "catalogue", "listed", "notices", "shelves"}),
    "dragoman.simulator.Simulator": frozenset({"answer", "lost", "opened"}),
}
"""Members that other parts of the library use and people do not: they are not shown."""
