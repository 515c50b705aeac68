"""A parser whose complaints are one line and say what was probably meant.

Owns: Parser, UsageError, and the nearest of some names.
Must not know: any particular option.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import NoReturn, TypeVar

from dragoman.errors import ConfigurationError

__all__ = ["Parser", "UsageError", "nearest"]

N = TypeVar("N", bound=argparse.Namespace)


class UsageError(ConfigurationError):
    """The command line is wrong."""

    next_step = "See dragoman --help."


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The name that was probably meant; empty if none is near."""
    from difflib import get_close_matches

    names = list(known)
    lower = {each.lower(): each for each in names}
    swapped = [each for each in names if sorted(each) == sorted(name)]  # `chta`
    near = swapped or [lower[found] for found in get_close_matches(name.lower(), lower, n=1, cutoff=cutoff)]
    return near[0] if near else ""


class Parser(argparse.ArgumentParser):
    """argparse, with errors instead of exits."""

    def __init__(self, prog: str, *, usage: str | None = None, description: str = "", epilog: str = "") -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.add_argument("-h", "--help", action="help", help="show this text")

    def read(self, arguments: Sequence[str], namespace: N) -> N:
        """The arguments, options and words in any order; behind `--` everything is a word."""
        options, behind = list(arguments), list[str]()
        if "--" in options:
            cut = options.index("--")
            options, behind = options[:cut], options[cut + 1 :]
        _, unknown = self.parse_known_intermixed_args(options, namespace)
        if unknown:
            raise self._unknown(unknown[0])
        self._take_words(namespace, behind)
        return namespace

    def _take_words(self, namespace: argparse.Namespace, words: list[str]) -> None:
        if not words:
            return
        for action in self._actions:
            if not action.option_strings and action.nargs == "*":
                setattr(namespace, action.dest, [*getattr(namespace, action.dest), *words])
                return
        message = f"{self.prog} takes nothing behind --."
        raise UsageError(message, hint=f"See {self.prog} --help.")

    def _unknown(self, given: str) -> UsageError:
        if not given.startswith("-"):
            return UsageError(f"{self.prog} has no use for {given!r}.", hint=f"See {self.prog} --help.")
        option = given.partition("=")[0]
        near = nearest(option, [name for action in self._actions for name in action.option_strings])
        meant = f"Did you mean {near}? " if near else ""
        return UsageError(f"There is no option {option}.", hint=f"{meant}See {self.prog} --help.")

    def error(self, message: str) -> NoReturn:
        text = f"{message[:1].upper()}{message[1:]}".rstrip(".")
        raise UsageError(f"{text}.", hint=f"See {self.prog} --help.")
