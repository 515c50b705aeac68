"""Argument parsers whose errors are one line with a suggestion, and the options that several commands share.

Imports only the standard library and the errors, to keep `--help` fast.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

from dragoman.errors import ConfigurationError

if TYPE_CHECKING:
    from .terminal import Terminal

Run: TypeAlias = "Callable[[Any, Terminal], int | None]"
"""The function of a command; it returns the exit code, or None for 0."""
Approve: TypeAlias = Literal["ask", "auto", "deny"]
APPROVE: Final[tuple[Approve, ...]] = ("ask", "auto", "deny")


class UsageError(ConfigurationError):
    """The command line is wrong."""

    next_step = "See dragoman --help."


def find_nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The name that was probably meant; empty if none is similar."""
    from dragoman._checks import nearest  # with msgspec, which `--help` does not need

    return nearest(name, known, cutoff=cutoff)


def suggest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """`Did you mean …?`, or the other hint if no name is similar."""
    near = find_nearest(name, known)
    return f"Did you mean {near}?" if near else otherwise


def expand_path(text: str) -> Path:
    """The path, with `~` as the home directory."""
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError):
        message = f"There is no user {text.partition('/')[0]!r} on this machine."
        raise UsageError(message, hint="Write the path in full.") from None


def clean(text: str) -> str:
    """The text without lone surrogates, which come from arguments that are not UTF-8 and cannot be sent."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Parser(argparse.ArgumentParser):
    """argparse with exceptions instead of exits, and commands that are parsed one level at a time."""

    def __init__(self, prog: str | None = None, **given: Any) -> None:
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, formatter_class=form, allow_abbrev=False, add_help=False, **given)
        self.color: bool = False  # Python 3.14 would paint the help, and what is printed is made harmless
        self.examples: Sequence[str] = ()
        self.run: Run | None = None
        self.commands: dict[str, Parser] = {}
        self.default: str = ""
        """The command that runs if none is named; empty: print the help."""
        self._below: Any = None
        self.add_argument("-h", "--help", action="help", help="show this text")

    def describe(self, run: Run, about: str, *examples: str) -> None:
        self.run, self.description, self.examples = run, about, examples
        self.epilog = "\n".join(["examples:", *(f"  {line}" for line in examples)])
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def add_group(self, name: str, about: str) -> Parser:
        """Add a parser below this one, for commands or arguments."""
        if self._below is None:
            self._below = self.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
        parser: Parser = self._below.add_parser(name, help=about)
        self.commands[name] = parser
        return parser

    def add_command(self, name: str, run: Run, about: str, *examples: str) -> Parser:
        """Add a command to this group."""
        command = self.add_group(name, about)
        command.describe(run, about, *examples)
        return command

    def find_command(self, words: list[str]) -> tuple[Parser, list[str]]:
        """The command that the words name, and the words after its name."""
        if not self.commands or words[:1] in (["-h"], ["--help"]):
            return self, words
        if words and not words[0].startswith("-"):
            if words[0] not in self.commands:
                hint = suggest(words[0], self.commands, f"There are: {', '.join(self.commands)}.")
                raise UsageError(f"{self.prog} has no command {words[0]!r}.", hint=hint)
            return self.commands[words[0]], words[1:]
        return (self.commands[self.default], words) if self.default else (self, ["--help"])

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments, options and words in any order; after `--` everything is a word."""
        if self.commands:  # a group has nothing but its help
            return self.parse_args(arguments)
        options, behind = list(arguments), list[str]()
        if "--" in options:
            cut = options.index("--")
            options, behind = options[:cut], options[cut + 1 :]
        namespace, unknown = self.parse_known_intermixed_args(options)
        words = next((a.dest for a in self._actions if not a.option_strings and a.nargs == "*"), None)
        if unknown and unknown[0].startswith("-"):
            option = unknown[0].partition("=")[0]
            meant = suggest(option, [name for action in self._actions for name in action.option_strings])
            raise UsageError(f"There is no option {option}.", hint=f"{meant} See {self.prog} --help.".strip())
        if unknown:
            self.error(f"{self.prog} takes no argument {unknown[0]!r}")
        if behind and words is None:
            self.error(f"{self.prog} takes no arguments after --")
        if behind and words is not None:
            setattr(namespace, words, [*getattr(namespace, words), *behind])
        return namespace

    def error(self, message: str) -> NoReturn:
        text = message if message.startswith(self.prog) else f"{message[:1].upper()}{message[1:]}"
        raise UsageError(f"{text.rstrip('.')}.", hint=f"See {self.prog} --help.")


def add_json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_profile(parser: Parser) -> None:
    parser.add_argument("--profile", metavar="NAME", help="a profile of the configuration")


def add_talking(parser: Parser, *, continues: bool = True) -> None:
    """The options of a conversation; `continues`: it can be an earlier one."""
    add = parser.add_argument
    model = "provider:model, such as anthropic:claude-sonnet-4-5; a,b: if a fails, b answers"
    add("-m", "--model", metavar="MODEL", help=model)
    add("-s", "--system", metavar="TEXT", help="the system prompt")
    tools = (
        "a tool the model may use: a name (dragoman tools list), `toolkit` for all, module:function, a .py file, or an "
        "MCP server of the configuration; may be repeated"
    )
    add("-T", "--tool", dest="tools", default=[], action="append", metavar="TOOL", help=tools)
    approve = "what to do with calls no rule allows: ask you (the default), run them, or refuse"
    add("--approve", choices=APPROVE, help=approve)
    option = "an option of the model, such as temperature 0.2; may be repeated"
    add("-o", "--option", dest="options", default=[], nargs=2, action="append", metavar=("KEY", "VALUE"), help=option)
    if continues:
        add("-c", "--continue", dest="go_on", action="store_true", help="continue the latest conversation")
        add("--cid", metavar="ID", help="continue this conversation (dragoman history list)")
    add("--strict", action="store_true", help="fail if the model cannot take everything, such as an image")
    add("-n", "--no-log", action="store_true", help="do not keep the conversation")
    if continues:
        add("--usage", action="store_true", help="print the tokens used and what they cost")
    add("-q", "--quiet", action="store_true", help="print only errors and questions to standard error")
    add_profile(parser)
    add("--base-url", metavar="URL", help="the address of the provider")


def add_asking(parser: Parser) -> None:
    add = parser.add_argument
    add("words", nargs="*", metavar="PROMPT", help="the question; - reads it from standard input")
    add_talking(parser)
    attachment = "an image, document or text for the question; may be repeated"
    add("-a", "--attachment", dest="attachments", default=[], action="append", metavar="FILE|URL", help=attachment)
    typed, names = "the same with its type, such as image/png, if its name does not show it", ("FILE|URL", "TYPE")
    add("--at", dest="typed_attachments", default=[], nargs=2, action="append", metavar=names, help=typed)
    schema = 'answer as JSON: a JSON Schema (file or text), or the short form "name, age int, tags list"'
    add("--schema", metavar="SCHEMA", help=schema)
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print one JSON object at the end")
    formats.add_argument("--json-lines", action="store_true", help="print each event as a line of JSON")
