"""`dragoman config`: what holds, why, and where it is written."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from pathlib import Path
from typing import Final

from dragoman.chat import Explanation, keys_file, load_config, user_file
from dragoman.directories import cache_directory, state_directory

from .arguments import Parser, UsageError, add_json, add_profile, expand_path
from .history import store_path
from .output import print_json
from .terminal import Terminal

TEMPLATE: Final = """\
# The configuration of dragoman. What is commented out is an example. `dragoman config show` says what holds, and why.

# model = "anthropic:claude-sonnet-4-5"
# system_prompt = "Answer briefly."

# [options]
# temperature = 0.2

# [cli]
# log = true                # keep conversations
# approve = "ask"           # calls that no rule allows: ask, auto or deny
# tools = ["Read", "Grep"]  # offered where no -T is given
# markdown = true           # render answers on a terminal

# [[permissions.rules]]
# action = "allow"
# tool = "Bash"
# command = ["git status", "git diff"]

# [mcp.servers.files]
# command = "mcp-server-files"
# args = ["."]
"""


def declare(parser: Parser) -> None:
    """The commands about the configuration."""
    parser.default = "show"
    about = "Show every setting, its value and where it comes from."
    show = parser.add_command("show", _show, about, "dragoman config show --set")
    add_profile(show)
    show.add_argument("--set", action="store_true", dest="only_set", help="only what differs from the defaults")
    add_json(show)
    parser.add_command("edit", _edit, "Edit your configuration file, and check it.", "dragoman config edit")
    parser.add_command("path", _show_paths, "Say where files are.", "dragoman config path")


def _find_file() -> Path:
    named = os.environ.get("DRAGOMAN_CONFIG", "").strip()
    return expand_path(named) if named else user_file()


def _show(arguments: argparse.Namespace, terminal: Terminal) -> int:
    explained = load_config(profile=arguments.profile).explain()
    rows = tuple(row for row in explained if not (arguments.only_set and row.origin == "default"))
    if arguments.json:
        print_json(terminal, rows)
    else:
        terminal.line(str(Explanation(rows)) if rows else "Nothing is set; the defaults hold.")
    return 0


def _show_paths(_arguments: argparse.Namespace, terminal: Terminal) -> int:
    path = _find_file()
    also = [("also read", file) for file in load_config().files if file != path]
    own = [("cache", cache_directory()), ("state", state_directory())]
    for name, place in [("configuration", path), *also, ("keys", keys_file()), ("conversations", store_path()), *own]:
        terminal.line(f"{name:<13}  {place}")
    return 0


def _edit(_arguments: argparse.Namespace, terminal: Terminal) -> int:
    path = _find_file()
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ("notepad" if os.name == "nt" else "vi")
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(TEMPLATE)
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode  # noqa: S603 -- the user's own
    except (OSError, ValueError) as error:
        message = f"{editor!r} cannot edit {path}: {error}."
        raise UsageError(message, hint="Set EDITOR to the command of your editor.") from None
    if code != 0:
        raise UsageError(f"{editor!r} ended with {code}.", hint=f"The file is {path}.")
    load_config(file=path)  # raises what is wrong with it, with the line
    terminal.say(f"{path} is in order.")
    return 0
