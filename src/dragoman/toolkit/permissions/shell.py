"""Reading shell commands, and writing them again.

Owns: the small grammar that is understood, and the one spelling in which an understood command runs. This is not a
shell: each sign of a text must be in the grammar, and with any other sign the whole text is opaque, which no rule
allows. Must not know: rules, programs, and what to do about a command.

A command that a rule allows is not run as the model wrote it: its words, as they were read here, are quoted anew
(`canonical`). So a sign that was read wrongly cannot become another command.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from .rules import words_in

MAX_LENGTH: Final = 32_768
"""Characters; a longer command is not understood."""

_RESERVED: Final = words_in(
    "! [[ ]] { } case coproc do done elif else esac fi for foreach function if in repeat select then time until while"
    " nocorrect noglob end"
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=", re.ASCII)

# --- the grammar -----------------------------------------------------------------------------------------------------

_BLANKS: Final = frozenset(" \t")
_SEPARATORS: Final = frozenset(";&|\n")
_REDIRECTING: Final = frozenset("<>")
_ENDS_OF_WORDS: Final = _BLANKS | _SEPARATORS | _REDIRECTING
_BARE: Final = frozenset(string.ascii_letters + string.digits + "_./:@%+,=-")
"""Signs that mean themselves in every shell, wherever they stand in an argument, but for a `=` at its beginning."""
_EXPANDING: Final = frozenset("*?[]{}!^")
"""The shell, or one of them, puts something else in their place."""
_VARIABLES: Final = frozenset(string.ascii_letters + string.digits + "_*@#?$!-")
"""What may follow a `$` outside of quotes; not what begins a substitution, or a quoted text of another kind."""
_DIGITS: Final = frozenset(string.digits)
_OPERATORS: Final = (">>", ">&", ">|", ">", "<&", "<>", "<")
_NOT_IN_DOUBLE_QUOTES: Final = ("\\", "`", "!", "$(", "${", "$[")


class Word(Struct, frozen=True):
    """One word of a command, without its quotes."""

    text: str
    quoted: bool = False
    """A part of it was quoted."""
    expands: bool = False
    """The shell would replace it: with a variable, file names, a home directory."""


class ShellCommand(Struct, frozen=True):
    words: tuple[Word, ...]
    assignments: tuple[Word, ...] = ()
    redirections: tuple[Word, ...] = ()
    """The files it reads or writes by `<` and `>`."""


class ShellText(Struct, frozen=True):
    """A text that was read."""

    text: str
    commands: tuple[ShellCommand, ...] = ()
    simple: ShellCommand | None = None
    """The one plain command that this text is; None if it is anything else."""
    canonical: str = ""
    """The words of this command in one spelling, which is what runs if a rule allows the command."""
    opaque: bool = False
    """It has something that is not in the grammar (a substitution, a compound command, a comment, an escape, an open
    quote …), and so `commands` is empty."""


@lru_cache(maxsize=64)
def read_shell(text: str) -> ShellText:
    """Read a text as simple commands, as far as it is understood."""
    text = text.strip(" \t\n")  # models often end a command with a newline
    try:
        groups = _Scanner(text).groups()
    except _NotUnderstoodError:
        return ShellText(text, opaque=True)
    commands = tuple([_command(*group) for group in groups if any(group)])
    if any(command.words and command.words[0].text in _RESERVED for command in commands):
        return ShellText(text, opaque=True)
    if len(groups) != 1 or not _is_plain(commands):  # a `;` at the end makes two groups
        return ShellText(text, commands)
    words = [word.text for word in commands[0].words]
    canonical = quoted(words)
    if not _reads_as(canonical, words):
        return ShellText(text, commands)
    return ShellText(text, commands, commands[0], canonical)


def _is_plain(commands: Sequence[ShellCommand]) -> bool:
    """Whether this is one command of plain words. Some shells take whatever has a `=` for an assignment."""
    if len(commands) != 1 or commands[0].assignments or commands[0].redirections or not commands[0].words:
        return False
    return "=" not in commands[0].words[0].text and not any(word.expands for word in commands[0].words)


def quoted(words: Iterable[str]) -> str:
    """A command of these words, each of them written such that it means itself."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if word and _BARE.issuperset(word) and not word.startswith("="):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _reads_as(text: str, words: Sequence[str]) -> bool:
    """Whether the text is one command of exactly these words."""
    try:
        (read, redirections), *others = _Scanner(text).groups()
    except _NotUnderstoodError:
        return False
    is_plain = not redirections and not others and not any(word.expands for word in read)
    return is_plain and [word.text for word in read] == list(words)


def _command(words: list[Word], redirections: list[Word]) -> ShellCommand:
    count = 0
    while count < len(words) and _ASSIGNMENT.match(words[count].text):
        count += 1
    return ShellCommand(tuple(words[count:]), tuple(words[:count]), tuple(redirections))


# --- the scanner -----------------------------------------------------------------------------------------------------


class _NotUnderstoodError(Exception):
    """Something is not in the grammar."""


class _Scanner:
    """Reads a text once, from left to right, sign by sign. One that no branch names is refused."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH or not text.replace("\n", "").replace("\t", "").isprintable():
            raise _NotUnderstoodError
        self._text: str = text
        self._at: int = 0

    def groups(self) -> list[tuple[list[Word], list[Word]]]:
        """The words and the redirections of each command."""
        groups: list[tuple[list[Word], list[Word]]] = [([], [])]
        awaits_target = False
        while sign := self._text[self._at : self._at + 1]:
            if sign in _BLANKS:
                self._at += 1
            elif sign in _SEPARATORS | _REDIRECTING:
                if awaits_target:  # `>` with nothing after it
                    raise _NotUnderstoodError
                awaits_target = sign in _REDIRECTING
                if awaits_target:
                    self._operator()
                else:
                    groups.append(([], []))
                    self._at += 1
            else:
                word = self._word()
                if awaits_target or not self._is_descriptor(word):
                    groups[-1][awaits_target].append(word)
                awaits_target = False
        if awaits_target:
            raise _NotUnderstoodError
        return groups

    def _is_descriptor(self, word: Word) -> bool:
        """Whether this is the 2 of `2>`."""
        return _DIGITS.issuperset(word.text) and not word.quoted and self._text[self._at : self._at + 1] in ("<", ">")

    def _operator(self) -> None:
        """Step over a redirection; a here-document is none that is understood."""
        operator = next(each for each in _OPERATORS if self._text.startswith(each, self._at))
        self._at += len(operator)
        if operator == "<" and self._text.startswith("<", self._at):
            raise _NotUnderstoodError

    def _word(self) -> Word:
        start, parts, was_quoted, expands = self._at, list[str](), False, False
        while (sign := self._text[self._at : self._at + 1]) and sign not in _ENDS_OF_WORDS:
            if sign in ("'", '"'):
                inside = self._quoted(sign)
                parts.append(inside)
                was_quoted = True
                expands = expands or (sign == '"' and "$" in inside)
                continue
            expands = self._bare(sign, is_first=self._at == start) or expands
            parts.append(sign)
            self._at += 1
        return Word("".join(parts), was_quoted, expands)

    def _quoted(self, quote: str) -> str:
        """The text in quotes, which are stepped over."""
        end = self._text.find(quote, self._at + 1)
        inside = self._text[self._at + 1 : end]
        # One shell, fish, takes a backslash before the closing quote for an escape.
        if end < 0 or inside.endswith("\\") or (quote == '"' and any(each in inside for each in _NOT_IN_DOUBLE_QUOTES)):
            raise _NotUnderstoodError
        self._at = end + 1
        return inside

    def _bare(self, sign: str, *, is_first: bool) -> bool:
        """Whether the shell may replace this sign outside of quotes."""
        if sign in _BARE or not sign.isascii():
            return False
        if sign in _EXPANDING:
            return True
        if sign == "~":
            return is_first or self._text[self._at - 1] in "=:"
        if sign == "#" and not is_first:
            return False
        if sign == "$" and self._text[self._at + 1 : self._at + 2] in _VARIABLES:
            return True
        raise _NotUnderstoodError
