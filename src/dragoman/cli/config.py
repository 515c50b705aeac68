"""`dragoman config`: what holds, why, and where it is written."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from dragoman.chat import Explanation, keys_file, load_config, user_file
from dragoman.directories import cache_directory, state_directory

from .arguments import Parser, add_json, add_profile, expand_path
from .history import store_path
from .output import print_json
from .terminal import Terminal


def declare(parser: Parser) -> None:
    """The commands about the configuration."""
    parser.default = "show"
    about = "Show every setting, its value and where it comes from."
    show = parser.add_command("show", _show, about, "dragoman config show --set")
    add_profile(show)
    show.add_argument("--set", action="store_true", dest="only_set", help="only what differs from the defaults")
    add_json(show)
    parser.add_command("path", _show_paths, "Say where files are.", "dragoman config path")


def _find_file() -> Path:
    named = os.environ.get("DRAGOMAN_CONFIG", "").strip()
    return expand_path(named) if named else user_file()


def _show(arguments: argparse.Namespace, terminal: Terminal) -> int:
    explained = load_config(profile=arguments.profile).explain()
    rows = Explanation(row for row in explained if not (arguments.only_set and row.origin == "default"))
    if arguments.json:
        print_json(terminal, rows)
    else:
        terminal.line(str(rows) if rows else "Nothing is set; the defaults hold.")
    return 0


def _show_paths(_arguments: argparse.Namespace, terminal: Terminal) -> int:
    path = _find_file()
    also = [("also read", file) for file in load_config().files if file != path]
    own = [("cache", cache_directory()), ("state", state_directory())]
    for name, place in [("configuration", path), *also, ("keys", keys_file()), ("conversations", store_path()), *own]:
        terminal.line(f"{name:<13}  {place}")
    return 0
