"""Which commands there are.

Owns: the table of groups: each one's word, its module, and what it is for.
Must not know: what is in the modules; the one that is needed is loaded when it is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from .arguments import Group

__all__ = ["GROUPS", "group"]

GROUPS: Final = {
    "ask": "ask a question; the same as no command at all",
    "chat": "talk with a model, interactively",
    "models": "list models and what they can do; check one",
    "tools": "list tools, show a schema, check them against a model",
    "keys": "store, list and remove API keys",
    "history": "list, show, search, export and delete conversations",
    "mcp": "serve tools over MCP; list and call tools of MCP servers",
    "skills": "list and validate skills",
    "config": "show the configuration and where it comes from; edit it",
    "local": "the model on this machine: list, pull, remove, bench",
    "simulate": "start a local server that speaks all dialects, for tests",
    "doctor": "check keys, network, versions, store and model",
    "completion": "print a completion script for bash, zsh or fish",
}


def group(name: str) -> Group:
    """The group, loaded now."""
    return cast("Group", import_module(f"dragoman.cli.commands.{name}").GROUP)
