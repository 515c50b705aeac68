"""`dragoman models`: what there is, and what it can do."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping

from dragoman.chat import KeyReference, reference_for, stored_references
from dragoman.engines import MODELS
from dragoman.providers import PROFILES, PROVIDERS, Profile, profile_of

from .arguments import Parser, add_json
from .failures import list_models
from .output import print_json, print_table
from .terminal import Terminal


def declare(parser: Parser) -> None:
    """The commands about models."""
    parser.default = "list"
    examples = ("dragoman models list claude", "dragoman models list --json")
    listing = parser.add_command("list", _list, "List known models and what they can do.", *examples)
    listing.add_argument("word", nargs="?", default="", help="only names that contain this")
    add_json(listing)


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    word: str = arguments.word.lower()
    found = [row for row in _describe_models() if word in str(row["model"]).lower()]
    if arguments.json:
        print_json(terminal, found)
    else:
        head = ("model", "key", "tools", "JSON", "thinking", "window", "takes")
        keys = ("model", "key", "tools", "structured", "reasoning", "context_window", "media")
        print_table(terminal, head, [[_format(row.get(key)) for key in keys] for row in found])
    return 0


def _describe_models() -> Iterator[dict[str, object]]:
    stored = stored_references()
    for provider in PROVIDERS:
        key = _describe_key(provider, stored)
        for model in list_models(provider) or ["…"]:
            yield {"model": f"{provider}:{model}", "key": key, **_list_abilities(profile_of(provider, model))}
    for provider, profile in PROFILES.items():  # models of programs rather than of services
        names = {row.name: row.tools for row in MODELS.values()} if provider == "local" else {"…": profile.tools}
        for name, tools in names.items():
            abilities = {**_list_abilities(profile), "tools": tools}
            yield {"model": f"{provider}:{name}", "key": "not needed", **abilities}


def _describe_key(provider: str, stored: Mapping[str, KeyReference]) -> str:
    """Where the key is, without looking into keychains."""
    row = PROVIDERS[provider]
    if any(os.environ.get(name) for name in row.key_variables):
        return "set"
    if reference_for(provider, stored) is not None:
        return "stored"
    return "-" if row.needs_key else "not needed"


def _list_abilities(profile: Profile) -> dict[str, object]:
    return {
        "tools": profile.tools,
        "structured": profile.structured,
        "reasoning": profile.reasoning,
        "media": ", ".join(sorted(profile.media)),
        "context_window": profile.context_window,
        "max_output": profile.max_output,
    }


def _format(value: object) -> str:
    match value:
        case None | "none" | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case _:
            return str(value)
