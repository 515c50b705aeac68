"""`dragoman models`: what there is, what it can do, and whether one answers."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Final

from dragoman.cli.arguments import Command, Group, Parser

if TYPE_CHECKING:
    from dragoman.chat.config import LoadedConfig
    from dragoman.cli.terminal import Terminal
    from dragoman.providers.profile import Profile

__all__ = ["GROUP"]


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("word", nargs="?", default="", help="only names that contain this")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.cli.model_names import known_models
    from dragoman.cli.tables import print_json, print_table
    from dragoman.providers.catalogue import PROVIDERS, profile_of

    word: str = arguments.word.lower()
    found: list[dict[str, object]] = []
    for provider in PROVIDERS:
        for model in known_models(provider) or ["…"]:
            name = f"{provider}:{model}"
            if word in name.lower():
                found.append({"model": name, "key": _key_of(provider), **_abilities(profile_of(provider, model))})
    found += [row for row in _on_this_machine() if word in str(row["model"]).lower()]
    if arguments.json:
        print_json(terminal, found)
    else:
        head = ("model", "key", "tools", "JSON", "thinking", "window", "takes")
        keys = ("model", "key", "tools", "structured", "reasoning", "context_window", "media")
        print_table(terminal, [*head], [[_shown(row.get(key)) for key in keys] for row in found])
    return 0


def _on_this_machine() -> list[dict[str, object]]:
    """Models of programs rather than of services."""
    from dragoman.engines.local.table import MODELS
    from dragoman.providers.programs import PROFILES

    found: list[dict[str, object]] = []
    for provider, profile in PROFILES.items():
        names = {row.name: row.tools for row in MODELS.values()} if provider == "local" else {"…": profile.tools}
        for name, tools in names.items():
            found.append({"model": f"{provider}:{name}", "key": "not needed", **_abilities(profile), "tools": tools})
    return found


def _key_of(provider: str) -> str:
    """Where the key is, without looking into keychains."""
    from dragoman.chat.credentials import reference_for, stored_references
    from dragoman.providers.catalogue import PROVIDERS

    row = PROVIDERS[provider]
    if any(os.environ.get(name) for name in row.key_variables):
        return "set"
    if reference_for(provider, stored_references()) is not None:
        return "stored"
    return "-" if row.needs_key else "not needed"


def _abilities(profile: Profile) -> dict[str, object]:
    return {
        "tools": profile.tools,
        "structured": profile.structured,
        "reasoning": profile.reasoning,
        "media": sorted(profile.media),
        "context_window": profile.context_window,
        "max_output": profile.max_output,
    }


def _shown(value: object) -> str:
    match value:
        case None | "none":
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list():
            return ", ".join(map(str, value)) or "-"  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return str(value)


# --- check ------------------------------------------------------------------------------------------------------------


def _check_arguments(parser: Parser) -> None:
    parser.add_argument("model", nargs="?", help="provider:model; by default the configured one")
    parser.add_argument("--offline", action="store_true", help="do not ask the model anything")
    parser.add_argument("--profile", metavar="NAME", help="a profile of the configuration")
    parser.add_argument("--base-url", metavar="URL", help="the address of the provider")


def _check(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.chat.config import hide_query
    from dragoman.cli.arguments.talking import Talking
    from dragoman.cli.model_choice import choose
    from dragoman.cli.warning_lines import warnings_as_lines
    from dragoman.engines.factory import engine

    talking = Talking()
    talking.model, talking.profile, talking.base_url = arguments.model, arguments.profile, arguments.base_url
    with warnings_as_lines(terminal):
        loaded, note = choose(talking, os.environ)
        if note:
            terminal.note(f"dragoman: {note}", "yellow")
        config = loaded.config
        terminal.line(f"model     {config.model_name}")
        terminal.line(f"key       {_key_line(loaded)}")
        if config.base_url:
            terminal.line(f"address   {hide_query(config.base_url)}")
        made = engine(config.model_name, **config.for_engine())
        try:
            for name, value in _abilities(made.profile).items():
                terminal.line(f"{name:<14}  {_shown(value)}")
            if not arguments.offline:
                terminal.line(f"answers   {_say_something(made)}")
        finally:
            made.close()
    return 0


def _key_line(loaded: LoadedConfig) -> str:
    found = loaded.config.key()
    return "none, and none is needed" if found is None else f"{found.secret.masked} from {found.origin}"


def _say_something(made: object) -> str:
    import time

    from dragoman.conversation import Conversation, Message
    from dragoman.engines.engine import Engine

    engine: Engine = made  # pyright: ignore[reportAssignmentType]
    began = time.monotonic()
    reply = engine.reply(Conversation().plus(Message.user("Answer with the one word: yes")))
    said = " ".join(reply.message.text.split())[:60] or "(nothing)"
    return f"{said!r} after {time.monotonic() - began:.1f} s"


GROUP: Final = Group(
    "models",
    {
        "list": Command(
            "List known models and what they can do.",
            _list,
            _list_arguments,
            ("dragoman models list claude", "dragoman models list --json"),
        ),
        "check": Command(
            "Check that a model can be used: its name, its key, its answer.",
            _check,
            _check_arguments,
            ("dragoman models check openai:gpt-5 --offline",),
        ),
    },
    default="list",
)
