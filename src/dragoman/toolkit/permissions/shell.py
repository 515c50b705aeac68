"""Reading the text of a shell command, carefully and no further than is safe.

Owns: which simple commands a text holds, and whether all of it was understood.
Must not know: rules.

This is no shell. A rule that allows something must not be deceived, so whatever is not plainly a simple command is not
understood; a rule that denies something looks at all that can be seen, understood or not.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from .match import words_in

__all__ = ["ShellCommand", "ShellText", "Word", "mentioned", "read_shell"]

LONGEST: Final = 32_768
"""Characters of a command that are read; nobody writes more by hand, and a longer one is not understood."""

_RESERVED: Final = words_in(
    "! [[ ]] { } case coproc do done elif else esac fi for foreach function if in repeat select then time until while"
    " nocorrect noglob end"
)
_GLOBS: Final = frozenset("*?[]{}!^")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=", re.ASCII)


class Word(Struct, frozen=True):
    """One word of a command, with its quotes taken off."""

    text: str
    quoted: bool = False
    """A part of it was quoted."""
    expands: bool = False
    """The shell would put something else in its place: a variable, file names, a home directory."""


class ShellCommand(Struct, frozen=True):
    """A simple command."""

    words: tuple[Word, ...]
    assignments: tuple[Word, ...] = ()
    redirections: tuple[Word, ...] = ()
    """The files it reads or writes by `<` and `>`."""


class ShellText(Struct, frozen=True):
    """What was read of a text."""

    text: str
    commands: tuple[ShellCommand, ...]
    separated: bool
    """There is a `;`, `&`, `|`, bracket or newline: more than one command, or a list that could become one."""
    opaque: bool
    """There is something that is not read: a substitution, a compound command, a comment, an open quote …"""

    @property
    def simple(self) -> ShellCommand | None:
        """The one plain command that this text is; None if it is anything else."""
        if self.opaque or self.separated or len(self.commands) != 1:
            return None
        (command,) = self.commands
        if command.assignments or command.redirections or not command.words:
            return None
        return None if any(word.expands for word in command.words) else command


class _Reader:
    """One pass over the text, character by character."""

    def __init__(self, text: str) -> None:
        self.text: str = text
        self.at: int = 0
        self.opaque: bool = False
        self.separated: bool = False
        self.commands: list[ShellCommand] = []
        self._words: list[Word] = []
        self._redirections: list[Word] = []
        self._awaits_target: bool = False
        self._start_word()

    def _start_word(self) -> None:
        self._letters: list[str] = []
        self._in_word: bool = False
        self._quoted: bool = False
        self._expands: bool = False

    def read(self) -> ShellText:
        text = self.text
        while self.at < len(text):
            character = text[self.at]
            self.at += 1
            step = _STEPS.get(character)
            if step is not None:
                step(self)
            else:
                self._letter(character)
        self.end_command()
        return ShellText(text, tuple(self.commands), self.separated, self.opaque)

    def _letter(self, character: str) -> None:
        if character in _GLOBS or (character == "~" and (not self._in_word or self._letters[-1:] in (["="], [":"]))):
            self._expands = True
        elif not character.isprintable():
            self.opaque = True
        self._letters.append(character)
        self._in_word = True

    def end_word(self) -> None:
        if not self._in_word:
            return
        word = Word("".join(self._letters), self._quoted, self._expands)
        (self._redirections if self._awaits_target else self._words).append(word)
        self._awaits_target = False
        self._start_word()

    def end_command(self) -> None:
        self.end_word()
        if self._awaits_target:  # `>` with nothing after it
            self.opaque, self._awaits_target = True, False
        count = 0
        while count < len(self._words) and _ASSIGNMENT.match(self._words[count].text):
            count += 1
        words = tuple(self._words[count:])
        if words and words[0].text in _RESERVED:
            self.opaque = True
        if self._words or self._redirections:
            self.commands.append(ShellCommand(words, tuple(self._words[:count]), tuple(self._redirections)))
        self._words.clear()
        self._redirections.clear()

    def separator(self) -> None:
        self.separated = True
        self.end_command()

    def bracket(self) -> None:
        self.opaque = True
        self.separator()

    def redirection(self) -> None:
        if self._in_word and not self._quoted and "".join(self._letters).isdigit():
            self._start_word()  # the number of a file descriptor
        self.end_word()
        here = self.text[self.at : self.at + 1]
        if self.text[self.at - 1] == here == "<":
            self.opaque = True  # what follows on the next lines is text, or a script
        if here in ("<", ">", "&", "|"):
            self.at += 1
        self._awaits_target = True

    def comment_or_letter(self) -> None:
        if not self._in_word:
            self.opaque = True
        self._letter("#")

    def escape(self) -> None:
        self.opaque = True
        following = self.text[self.at : self.at + 1]
        self.at += 1
        if following != "\n":
            self._letters.append(following)
            self._in_word = True

    def dollar(self) -> None:
        self._in_word = self._expands = True
        self._letters.append("$")
        if self.text[self.at : self.at + 1] in ("(", "{", "'", '"', "["):
            self.opaque = True

    def backtick(self) -> None:
        self.opaque = True
        self.separator()

    def single_quote(self) -> None:
        end = self.text.find("'", self.at)
        if end < 0:
            self.opaque, end = True, len(self.text)
        self._quoted_text(self.text[self.at : end])
        self.at = end + 1

    def double_quote(self) -> None:
        end = self.at
        while end < len(self.text) and self.text[end] != '"':
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            self.opaque, end = True, len(self.text)
        inside = self.text[self.at : end]
        if "`" in inside or "\\" in inside or "!" in inside or re.search(r"\$[({\[]", inside):
            self.opaque = True
        if "$" in inside:
            self._expands = True
        self._quoted_text(inside)
        self.at = end + 1

    def _quoted_text(self, inside: str) -> None:
        if not inside.replace("\n", "").replace("\t", "").isprintable():
            self.opaque = True
        self._letters.append(inside)
        self._in_word = self._quoted = True


_STEPS: Final = {
    " ": _Reader.end_word,
    "\t": _Reader.end_word,
    ";": _Reader.separator,
    "&": _Reader.separator,
    "|": _Reader.separator,
    "\n": _Reader.separator,
    "(": _Reader.bracket,
    ")": _Reader.bracket,
    "<": _Reader.redirection,
    ">": _Reader.redirection,
    "#": _Reader.comment_or_letter,
    "\\": _Reader.escape,
    "$": _Reader.dollar,
    "`": _Reader.backtick,
    "'": _Reader.single_quote,
    '"': _Reader.double_quote,
}


@lru_cache(maxsize=64)
def read_shell(text: str) -> ShellText:
    """The simple commands of a text, and whether all of it was understood."""
    text = text.strip(" \t\n")  # models like to end a command with a newline
    if len(text) > LONGEST:
        return ShellText(text, (), separated=True, opaque=True)
    return _Reader(text).read()


_BETWEEN = re.compile(r"[\s;&|()<>{}$`,=!\[\]#]+")
_QUOTES = re.compile(r"""['"\\]""")


def mentioned(text: str) -> tuple[list[str], list[str]]:
    """Everything in a text that could be a word: once with the quotes taken off, once with them as separators."""
    return _BETWEEN.split(_QUOTES.sub("", text)), _BETWEEN.split(_QUOTES.sub(" ", text))
