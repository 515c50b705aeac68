"""The configuration of the command line: its tables, its arguments, and the model that answers."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, get_args

from msgspec import Struct

import dragoman.mcp
from dragoman.chat import FIELDS, LoadedConfig, default_model, find_key, load_config, parse_text
from dragoman.engines import bar_if_terminal, ensure_runtime, models, pull
from dragoman.errors import ConfigurationError, MissingKeyError
from dragoman.providers import ALIASES, PROFILES, PROVIDERS, Effort
from dragoman.toolkit import DirectorySkillStore, PermissionPolicy, policy_from, skill_directories

from .arguments import Approve, UsageError, expand_path, find_nearest, suggest
from .failures import LOCAL_MODEL, can_run_local
from .terminal import Terminal

_TRIED: Final = ("openai", "anthropic", "gemini")
"""If no model is named, the first of these with a key answers."""


class CliTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[cli]: defaults of the command line."""

    log: bool = True
    approve: Approve = "ask"
    tools: tuple[str, ...] = ()
    markdown: bool = True
    instructions: bool = True
    """Whether `chat` offers the project's instructions, such as AGENTS.md."""


class _SkillsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    directories: tuple[str, ...] = ()
    project: bool = False
    """Whether to load skills of the working directory, which may come from strangers."""


class _McpTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    servers: dict[str, dict[str, object]] = {}


class Settings(Struct, frozen=True, kw_only=True):
    """The tables for the command line, and the working directory."""

    cli: CliTable
    policy: PermissionPolicy
    skills: DirectorySkillStore
    servers: Mapping[str, Mapping[str, object]]
    """The entries of [mcp.servers], by name."""
    directory: Path

    def open_servers(self, *names: str, optional: bool = False) -> dragoman.mcp.McpServers:
        """The MCP servers of these names, by default all, for a `with` block."""
        for name in names:
            if name not in self.servers:
                hint = suggest(name, self.servers, f"Write [mcp.servers.{name}] into the configuration.")
                raise UsageError(f"The configuration has no MCP server {name!r}.", hint=hint)
        entries = {name: self.servers[name] for name in names or self.servers}
        return dragoman.mcp.McpServers.from_json({"mcpServers": entries}, optional=optional, environ=os.environ)


def read_settings(loaded: LoadedConfig) -> Settings:
    """Read and check all tables."""
    try:
        directory = Path.cwd()
    except OSError:
        raise UsageError("The working directory no longer exists.", hint="Change to another one.") from None
    try:
        policy = policy_from(loaded.section("permissions", dict[str, object]))
    except ConfigurationError as error:
        where = "" if "[permissions]" in error.message else "[permissions]: "
        raise ConfigurationError(f"{where}{error.message}", hint=error.hint) from None
    skills = loaded.section("skills", _SkillsTable)
    also = [expand_path(name) for name in skills.directories]
    return Settings(
        cli=loaded.section("cli", CliTable),
        policy=policy,
        skills=DirectorySkillStore(skill_directories(directory if skills.project else None, also=also)),
        servers=loaded.section("mcp", _McpTable).servers,
        directory=directory,
    )


# --- arguments --------------------------------------------------------------------------------------------------------


def load_with(arguments: Namespace) -> LoadedConfig:
    """The configuration with the arguments of a command."""
    return load_config(
        profile=arguments.profile,
        model=arguments.model and clean_models(arguments.model),
        system_prompt=arguments.system,
        base_url=arguments.base_url,
        strict=arguments.strict or None,
        options=parse_options(arguments.options),
    )


def parse_options(pairs: Iterable[Sequence[str]]) -> dict[str, object]:
    """Parse the pairs of `-o key value`."""
    known = {path[1]: field for path, field in FIELDS.items() if path[0] == "options"}
    found: dict[str, object] = {}
    for key, text in pairs:
        name = key.replace("-", "_")
        if name not in known:
            hint = suggest(name, known, f"There are: {', '.join(sorted(known))}.")
            raise UsageError(f"Models have no option {key!r}.", hint=hint)
        word = text.strip().lower()
        if name == "reasoning" and word in get_args(Effort):
            text = f'{{"effort": "{word}"}}'  # noqa: PLW2901 -- `high` is an effort
        elif name == "reasoning" and word.isdecimal():
            text = f'{{"budget": {int(word)}}}'  # noqa: PLW2901 -- `2000` is a budget
        found[name] = parse_text(known[name], text, f"-o {key}")
    return found


def clean_models(names: str) -> str | tuple[str, ...]:
    """One model, or several separated by commas: if one fails, the next one answers."""
    found = tuple([clean_model(name) for name in names.split(",") if name.strip()])
    return found if len(found) > 1 else "".join(found)


def clean_model(name: str) -> str:
    """The name without spaces around it; `local` and `local:` mean the default local model."""
    name = name.strip()
    if name in ("local", "local:"):
        return LOCAL_MODEL
    before, colon, _ = name.partition(":")
    known = [*PROVIDERS, *ALIASES, *PROFILES]
    # If the configured provider serves any model, a typo would be taken for the name of one, which may have colons.
    if colon and before not in known and (near := find_nearest(before, known, cutoff=0.85)):
        raise UsageError(f"There is no provider {before!r} (in {name!r}).", hint=f"Did you mean {near}?")
    return name


# --- the model that answers -------------------------------------------------------------------------------------------


def settle_model(loaded: LoadedConfig, terminal: Terminal) -> LoadedConfig:
    """If no model is named, choose the first provider with a key, or else the model on this machine."""
    if loaded.known.keys() & {("provider",), ("model",), ("base_url",)}:
        return loaded
    for provider in _TRIED:
        try:
            found = find_key(provider, keys=loaded.config.keys)
        except MissingKeyError:
            continue
        if found is not None:
            return loaded.change(model=f"{provider}:{default_model(provider)}")
    if not can_run_local():
        raise MissingKeyError("There is no key, and the local model is not installed.", provider=_TRIED[0])
    answers = f"No key was found, so the local model answers ({LOCAL_MODEL})."
    terminal.note(f"dragoman: {answers} Store a key with: dragoman keys set openai", "yellow")
    return loaded.change(model=LOCAL_MODEL)


def fetch_models(names: Collection[str], terminal: Terminal) -> None:
    """Download local models that are not here yet, before anything else is on the screen."""
    if "local" not in [name.partition(":")[0] for name in names] or not can_run_local():
        return
    for row in models():
        if f"local:{row.name}" in names and not row.present:
            ensure_runtime()
            terminal.note(f"dragoman: downloading local:{row.name}, once ({row.download / 1e9:.1f} GB).", "yellow")
            pull(row.name, None if terminal.quiet else bar_if_terminal(terminal.stderr))
