"""The tables of the configuration that are the command line's own.

Owns: [cli] and [skills], and reading [mcp] and [permissions].
Must not know: files.

    [cli]
    log = true                     # keep conversations
    approve = "ask"                # ask, auto or deny
    tools = ["Read", "Grep"]       # offered where no -T is given
    markdown = true                # of the chat

    [skills]
    directories = ["~/skills"]
    project = false                # whether skills of the working directory may be loaded

    [mcp.servers.files]            # as in an mcpServers document
    command = "mcp-files"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from dragoman.chat.config import LoadedConfig
from dragoman.errors import ConfigurationError
from dragoman.toolkit.permissions import PermissionPolicy, policy_from

__all__ = ["CliSettings", "SkillSettings", "cli_settings", "mcp_servers", "policy", "skill_settings"]


class CliSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the command line behaves where its options say nothing."""

    log: bool = True
    approve: Literal["ask", "auto", "deny"] = "ask"
    tools: tuple[str, ...] = ()
    markdown: bool = True


class SkillSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where skills are."""

    directories: tuple[str, ...] = ()
    project: bool = False
    """Whether the working directory's own skills are used: a project of a stranger brings a stranger's skills."""


def cli_settings(loaded: LoadedConfig) -> CliSettings:
    """The table [cli]."""
    return loaded.section("cli", CliSettings)


def skill_settings(loaded: LoadedConfig) -> SkillSettings:
    """The table [skills]."""
    return loaded.section("skills", SkillSettings)


class _Mcp(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    servers: dict[str, dict[str, object]] = {}


def mcp_servers(loaded: LoadedConfig) -> Mapping[str, Mapping[str, object]]:
    """The entries of [mcp.servers], by name."""
    return loaded.section("mcp", _Mcp).servers


def policy(loaded: LoadedConfig) -> PermissionPolicy:
    """The rules of [permissions]."""
    try:
        return policy_from(loaded.section("permissions", dict[str, object]))
    except ConfigurationError as error:
        if "[permissions]" in error.message:
            raise
        raise ConfigurationError(f"[permissions]: {error.message}", hint=error.hint) from None
