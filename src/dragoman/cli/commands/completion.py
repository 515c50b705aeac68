"""`dragoman completion`: scripts for bash, zsh and fish.

Owns: the scripts, made from the parsers themselves, so that they name what there is.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, NamedTuple

from dragoman.cli.arguments import Command, Group, Parser

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.cli.terminal import Terminal

__all__ = ["GROUP", "SHELLS", "script"]


class _Words(NamedTuple):
    """What may follow one group's name."""

    commands: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    """By command."""


def _words() -> tuple[dict[str, _Words], tuple[str, ...]]:
    from dragoman.cli.groups import GROUPS, group
    from dragoman.cli.help_text import asking_parser

    found: dict[str, _Words] = {}
    for name in GROUPS:
        loaded = group(name)
        options = {command: _options(loaded.parser(command)) for command in loaded.commands}
        found[name] = _Words(tuple(command for command in loaded.commands if command), options)
    return found, _options(asking_parser())


def _options(parser: Parser) -> tuple[str, ...]:
    named = [name for action in parser._actions for name in action.option_strings]
    return tuple(name for name in named if name.startswith("--") or len(name) == 2)


def _bash() -> str:
    groups, asking = _words()
    cases: list[str] = []
    for name, words in groups.items():
        for command, options in words.options.items():
            cases.append(f'    "{name} {command}") words="{" ".join(options)}" ;;')
        if words.commands:
            cases.append(f'    "{name} "*) words="{" ".join(words.commands)}" ;;')
        else:
            cases.append(f'    "{name} "*) words="{" ".join(words.options[""])}" ;;')
    return f"""\
# bash completion for dragoman: eval "$(dragoman completion bash)"
_dragoman() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" first="${{COMP_WORDS[1]}}" second="" words=""
  [ "$COMP_CWORD" -gt 2 ] && second="${{COMP_WORDS[2]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{" ".join([*groups, *asking])}"
  else
    case "$first $second" in
{chr(10).join(cases)}
    *) words="{" ".join(asking)}" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _dragoman dragoman
"""


def _zsh() -> str:
    return f"""\
#compdef dragoman
# zsh completion for dragoman: eval "$(dragoman completion zsh)"
autoload -U +X bashcompinit && bashcompinit
{_bash()}"""


def _fish() -> str:
    from dragoman.cli.groups import GROUPS

    groups, asking = _words()
    lines = ["# fish completion for dragoman: dragoman completion fish | source", "complete -c dragoman -f"]
    lines += [
        f"complete -c dragoman -n __fish_use_subcommand -a {name} -d '{_quoted(summary)}'"
        for name, summary in GROUPS.items()
    ]
    lines += [f"complete -c dragoman -n __fish_use_subcommand {_fish_option(name)}" for name in asking]
    for name, words in groups.items():
        inside = f"-n '__fish_seen_subcommand_from {name}'"
        lines += [f"complete -c dragoman {inside} -a {command}" for command in words.commands]
        every = dict.fromkeys(option for options in words.options.values() for option in options)
        lines += [f"complete -c dragoman {inside} {_fish_option(option)}" for option in every]
    return "\n".join([*lines, ""])


def _fish_option(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


SHELLS: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def script(shell: str) -> str:
    """The script for a shell."""
    return SHELLS[shell]()


def _arguments(parser: Parser) -> None:
    parser.add_argument("shell", choices=sorted(SHELLS), help="whose script is printed")


def _run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    terminal.answer(script(arguments.shell))
    return 0


GROUP: Final = Group(
    "completion",
    {
        "": Command(
            "Print a completion script.",
            _run,
            _arguments,
            ('eval "$(dragoman completion bash)"', "dragoman completion fish | source"),
        )
    },
)
