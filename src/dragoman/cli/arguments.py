"""Parsers whose complaints are one line and say what was probably meant, and the options of a talk with a model.

Loads nothing but the standard library and the errors, since `--help` needs it.
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
"""A command at work. It gives its exit code, or nothing where all went well."""
Approve: TypeAlias = Literal["ask", "auto", "deny"]
APPROVE: Final[tuple[Approve, ...]] = ("ask", "auto", "deny")


class UsageError(ConfigurationError):
    """The command line is wrong."""

    next_step = "See dragoman --help."


def find_nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The name that was probably meant; empty if none is near."""
    from dragoman._checks import nearest  # with msgspec, which `--help` does not need

    return nearest(name, known, cutoff=cutoff)


def suggest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """`Did you mean …?`, or the other hint if no name is near."""
    near = find_nearest(name, known)
    return f"Did you mean {near}?" if near else otherwise


def expand_path(text: str) -> Path:
    """The path that a user means; `~` is the home directory."""
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError):
        raise UsageError(f"Nobody here is called {text.partition('/')[0]!r}.", hint="Write the path in full.") from None


def clean(text: str) -> str:
    """The text without halves of letters, which come from arguments that are not UTF-8 and cannot be sent."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Parser(argparse.ArgumentParser):
    """argparse, with errors instead of exits, and commands that are read one level at a time."""

    def __init__(self, prog: str | None = None, **given: Any) -> None:
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, formatter_class=form, allow_abbrev=False, add_help=False, **given)
        self.examples: Sequence[str] = ()
        self.run: Run | None = None
        self.commands: dict[str, Parser] = {}
        self.default: str = ""
        """The command that is meant where none is named; empty: the help."""
        self._below: Any = None
        self.add_argument("-h", "--help", action="help", help="show this text")

    def describe(self, run: Run, about: str, *examples: str) -> None:
        self.run, self.description, self.examples = run, about, examples
        self.epilog = "\n".join(["examples:", *(f"  {line}" for line in examples)])
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def add_group(self, name: str, about: str) -> Parser:
        """A parser below this one, to which commands or arguments are added."""
        if self._below is None:
            self._below = self.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
        parser: Parser = self._below.add_parser(name, help=about)
        self.commands[name] = parser
        return parser

    def add_command(self, name: str, run: Run, about: str, *examples: str) -> Parser:
        """A command of this group, to which arguments are added."""
        command = self.add_group(name, about)
        command.describe(run, about, *examples)
        return command

    def find_command(self, words: list[str]) -> tuple[Parser, list[str]]:
        """The command that the words name, and the words behind its name."""
        if not self.commands or words[:1] in (["-h"], ["--help"]):
            return self, words
        if words and not words[0].startswith("-"):
            if words[0] not in self.commands:
                hint = suggest(words[0], self.commands, f"There are: {', '.join(self.commands)}.")
                raise UsageError(f"{self.prog} has no command {words[0]!r}.", hint=hint)
            return self.commands[words[0]], words[1:]
        return (self.commands[self.default], words) if self.default else (self, ["--help"])

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The arguments, options and words in any order; behind `--` everything is a word."""
        if self.commands:  # only its help can be asked for
            return self.parse_args(arguments)
        options, behind = list(arguments), list[str]()
        if "--" in options:
            cut = options.index("--")
            options, behind = options[:cut], options[cut + 1 :]
        namespace, unknown = self.parse_known_intermixed_args(options)
        if unknown:
            raise self._refuse(unknown[0])
        if behind:
            words = next((a.dest for a in self._actions if not a.option_strings and a.nargs == "*"), None)
            if words is None:
                raise UsageError(f"{self.prog} takes nothing behind --.", hint=f"See {self.prog} --help.")
            setattr(namespace, words, [*getattr(namespace, words), *behind])
        return namespace

    def _refuse(self, given: str) -> UsageError:
        see = f"See {self.prog} --help."
        if not given.startswith("-"):
            return UsageError(f"{self.prog} has no use for {given!r}.", hint=see)
        option = given.partition("=")[0]
        meant = suggest(option, [name for action in self._actions for name in action.option_strings])
        return UsageError(f"There is no option {option}.", hint=f"{meant} {see}".strip())

    def error(self, message: str) -> NoReturn:
        text = f"{message[:1].upper()}{message[1:]}".rstrip(".")
        raise UsageError(f"{text}.", hint=f"See {self.prog} --help.")


def add_json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


# --- the options of whatever talks to a model -------------------------------------------------------------------------


def add_profile(parser: Parser) -> None:
    """The option of whatever reads the configuration."""
    parser.add_argument("--profile", metavar="NAME", help="a profile of the configuration")


def add_talking(parser: Parser, *, continues: bool = True) -> None:
    """The options of a talk; `continues` says whether it may go on with an earlier conversation."""
    add = parser.add_argument
    add(
        "-m",
        "--model",
        metavar="MODEL",
        help="provider:model, such as anthropic:claude-sonnet-4-5; a,b: if a fails, b answers",
    )
    add("-s", "--system", metavar="TEXT", help="the system prompt")
    tools = (
        "a tool the model may use: a name (dragoman tools list), `toolkit` for all, module:function, a .py file, or an "
        "MCP server of the configuration; may be repeated"
    )
    add("-T", "--tool", dest="tools", default=[], action="append", metavar="TOOL", help=tools)
    add("--approve", choices=APPROVE, help="calls that no rule allows: ask you (the default), run them, or refuse them")
    option = "an option of the model, such as temperature 0.2; may be repeated"
    add("-o", "--option", dest="options", default=[], nargs=2, action="append", metavar=("KEY", "VALUE"), help=option)
    if continues:
        add("-c", "--continue", dest="go_on", action="store_true", help="continue the latest conversation")
        add("--cid", metavar="ID", help="continue this conversation (dragoman history list)")
    add("--strict", action="store_true", help="fail where the model would not get all of it, such as an image")
    add("-n", "--no-log", action="store_true", help="do not keep the conversation")
    if continues:
        add("--usage", action="store_true", help="say how many tokens it took, and what they cost")
    add("-q", "--quiet", action="store_true", help="nothing on standard error but errors and questions")
    add_profile(parser)
    add("--base-url", metavar="URL", help="the address of the provider")


def add_asking(parser: Parser) -> None:
    add = parser.add_argument
    add("words", nargs="*", metavar="PROMPT", help="the question; - reads it from standard input")
    add_talking(parser)
    attachment = "an image, document or text that belongs to the question; may be repeated"
    add("-a", "--attachment", dest="attachments", default=[], action="append", metavar="FILE|URL", help=attachment)
    typed = "the same where the name does not say the type, such as image/png"
    add(
        "--at", dest="typed_attachments", default=[], nargs=2, action="append", metavar=("FILE|URL", "TYPE"), help=typed
    )
    schema = 'answer as JSON: a JSON Schema (file or text), or the short form "name, age int, tags list"'
    add("--schema", metavar="SCHEMA", help=schema)
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print one JSON object when all is done")
    formats.add_argument("--json-lines", action="store_true", help="print each event as JSON, one a line")
