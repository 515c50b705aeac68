"""The text of `dragoman --help`.

Owns: its parts and their order.
Must not know: the options themselves; their parser describes them.
"""

from __future__ import annotations

from typing import Final

from dragoman._version import __version__

from .arguments import Parser
from .arguments.talking import add_asking
from .groups import GROUPS

__all__ = ["EXAMPLES", "asking_parser", "help_text"]

_USAGE: Final = 'dragoman [options] "question"\n       dragoman COMMAND [options]'

EXAMPLES: Final = (
    'dragoman "What is the capital of France?"',
    'cat notes.txt | dragoman "Sum this up in three lines"',
    'dragoman -T calculator "What is 12.5 % of 3,440?"',
    'dragoman --schema "name, age int, tags list" "Invent a person"',
    'dragoman -c "And in one sentence?"',
    "dragoman chat -T toolkit",
)


def asking_parser() -> Parser:
    """The parser of a question."""
    about = "One conversation, any model, tools that behave the same everywhere."
    parser = Parser("dragoman", usage=_USAGE, description=about, epilog=_epilog())
    add_asking(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument("-V", "--version", action="version", version=f"dragoman {__version__}", help="show the version")
    return parser


def help_text() -> str:
    """What `dragoman --help` prints."""
    return asking_parser().format_help().rstrip()


def _epilog() -> str:
    wide = max(map(len, GROUPS))
    commands = [f"  {name:<{wide}}  {summary}" for name, summary in GROUPS.items()]
    examples = [f"  {line}" for line in EXAMPLES]
    notes = [
        "The first word decides: a question that is the name of a command is asked with `dragoman ask models`.",
        "Exit codes: 0 done, 1 failed, 2 usage, 3 no key, 4 approval needed, 5 limit, 6 unreachable, 7 no answer,",
        "130 interrupted. More: dragoman COMMAND --help",
    ]
    return "\n".join(["commands:", *commands, "", "examples:", *examples, "", *notes])
