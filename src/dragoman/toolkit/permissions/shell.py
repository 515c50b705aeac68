"""Shell commands: reading their text, and patterns that a rule has for them.

This is no shell. A rule that allows something must not be deceived, so whatever is not plainly a simple command is not
understood; a rule that denies something looks at all that can be seen, understood or not.

`git status` as a pattern is the beginning of a command: these words, then any operands, then those options alone that
the rule lists. Options are where programs hide their teeth (`git diff --output=…`, `find -delete`, `rg --pre=…`), and
they stand between the words as well (`git -c core.pager=… status`), so none is taken on trust.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from dragoman.errors import ConfigurationError

from .rules import Match, words_in

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


_BETWEEN: Final = re.compile(r"[\s;&|()<>{}$`,=!\[\]#]+")
_QUOTES: Final = re.compile(r"""['"\\]""")


def mentioned(text: str) -> tuple[list[str], list[str]]:
    """Everything in a text that could be a word: once with the quotes taken off, once with them as separators."""
    return _BETWEEN.split(_QUOTES.sub("", text)), _BETWEEN.split(_QUOTES.sub(" ", text))


# --- command patterns ------------------------------------------------------------------------------------------------

_RUN_THEIR_ARGUMENTS: Final = words_in(
    ". ash bash batch at builtin busybox caffeinate chroot chrt cmd command coproc csh dash doas entr env eval exec"
    " expect fish flock ionice ksh ltrace nice nohup nsenter parallel pkexec pwsh rlwrap runuser screen script"
    " setarch setsid sh source ssh stdbuf strace su sudo systemd-run taskset tcsh time timeout tmux toybox trap"
    " unshare watch xargs zsh"
)
"""A rule for one of these means exactly the words it says: what follows is a command of its own."""

_INTERPRETERS: Final = words_in(
    "awk bun deno ed emacs gawk gdb lua mawk nawk node nodejs nvim osascript perl php python python2 python3 pypy"
    " pypy3 Rscript ruby sed tclsh vi vim"
)
"""The same unless the rule names the script or module: then what follows are arguments of that."""

_MAY_RUN_COMMANDS: Final = (
    _RUN_THEIR_ARGUMENTS
    | _INTERPRETERS
    | words_in("alias docker find kubectl npx nix-shell pdm pipenv pipx podman poetry start uv uvx xdg-open")
)
"""For a rule that denies: words after these may be commands."""


class CommandPattern(Struct, frozen=True):
    """A pattern, compiled."""

    words: tuple[str, ...]
    options: frozenset[str] = frozenset()
    """Options that may follow; `*` stands for all of them."""
    exact: bool = False
    """Nothing may follow."""

    def covers(self, text: ShellText) -> bool:
        """Whether the text is this command and nothing else: for rules that allow."""
        command = text.simple
        if command is None:
            return False
        given = command.words[: len(self.words)]
        if len(given) < len(self.words) or not all(map(_is_plainly, given, self.words)):
            return False
        rest = command.words[len(self.words) :]
        if self.exact or self._is_closed:
            return not rest
        return all(self._may_follow(word.text) for word in rest)

    @property
    def _is_closed(self) -> bool:
        program = program_of(self.words[0])
        if program in _RUN_THEIR_ARGUMENTS:
            return True
        names_script = len(self.words) > 1 and self.words[-1][:1] not in "-+"
        return _is_interpreter(program) and not names_script

    def _may_follow(self, text: str) -> bool:
        name = option_name(text)
        return not name or name in self.options or "*" in self.options

    def touches(self, text: ShellText) -> Match:
        """Whether the text does this, or might: for rules that deny or ask."""
        if text.opaque:
            return Match.YES if self._is_mentioned(text.text) else Match.MAYBE
        return max([self._touched_by(command) for command in text.commands], default=Match.NO)

    def _touched_by(self, command: ShellCommand) -> Match:
        if not command.words:
            return Match.NO
        first, *rest = command.words
        if first.expands:
            return Match.MAYBE
        program = program_of(first.text)
        # Within quotes as well: `bash -c "rm x"` has the command in one word.
        whole = "\n".join([word.text for word in command.words])
        if (program in _MAY_RUN_COMMANDS or _is_interpreter(program)) and self._is_mentioned(whole):
            return Match.YES
        if _same_program(program, self.words[0]):
            return self._follows([word.text for word in rest], unsure=any(word.expands for word in rest))
        runs_others = program in _MAY_RUN_COMMANDS or _is_interpreter(program)
        if runs_others and any(word.expands for word in rest):
            return Match.MAYBE
        return Match.MAYBE if any(self._is_hidden_in(word) for word in rest) else Match.NO

    def _follows(self, rest: list[str], *, unsure: bool) -> Match:
        """Whether the pattern's other words are among these, in this order; other words may stand in between."""
        wanted = [word for word in self.words[1:] if not _is_cluster(word)]
        if _is_subsequence(wanted, rest):
            letters = {letter for word in self.words[1:] if _is_cluster(word) for letter in word[1:]}
            given = {letter for word in rest if _is_cluster(word) for letter in word[1:]}
            if letters <= given:
                return Match.YES
            # `rm --recursive` may be what `rm -r` means.
            return Match.MAYBE if unsure or any(word.startswith("--") for word in rest) else Match.NO
        return Match.MAYBE if unsure else Match.NO

    def _is_mentioned(self, text: str) -> bool:
        return any(self._is_among(tokens) for tokens in mentioned(text))

    def _is_among(self, tokens: list[str]) -> bool:
        for index, token in enumerate(tokens):
            if _same_program(program_of(token), self.words[0]):
                # What follows a later mention follows the first one too.
                return self._follows(tokens[index + 1 :], unsure=False) is not Match.NO
        return False

    def _is_hidden_in(self, word: Word) -> bool:
        """Whether a quoted argument, taken as a command, would be this one: some programs run what they are given."""
        if not word.quoted or not re.search(r"[\s;&|!]", word.text):
            return False
        parts = re.split(r"[;&|\n!`(]", word.text)
        return any(_same_program(program_of(part.split()[0]), self.words[0]) for part in parts if part.strip())


def compile_command(pattern: str, *, options: tuple[str, ...] = (), exact: bool = False) -> CommandPattern:
    """The pattern, or ConfigurationError if it is not a plain command itself."""
    command = read_shell(pattern).simple
    if command is None:
        message = f"The command pattern {pattern!r} is not a plain command."
        hint = "Give the first words of one command, such as 'git status', without '*', ';', '|', '$' or redirections."
        raise ConfigurationError(message, hint=hint)
    return CommandPattern(tuple(word.text for word in command.words), frozenset(options), exact)


def option_name(text: str) -> str:
    """What an argument sets, if it is more than an operand: `--stat` of `--stat=80`, `CC` of `CC=evil`."""
    name, equals, _ = text.partition("=")
    is_more = bool(equals) or (text[:1] in ("-", "+", "@") and text not in ("--", "-"))
    return (name or "=") if is_more else ""


def program_of(word: str) -> str:
    """The name of a program, however it is reached."""
    return word.replace("\\", "/").rpartition("/")[2].removesuffix(".exe")


def _is_plainly(given: Word, wanted: str) -> bool:
    """Whether the word is the wanted one, and is written without need for quotes: nobody who means `git` quotes it."""
    return given.text == wanted and (not given.quoted or not re.fullmatch(r"[\w./:@%+,-]+", wanted))


def _is_interpreter(program: str) -> bool:
    return program in _INTERPRETERS or re.fullmatch(r"(?:python|pypy|perl|ruby|lua|php)[\d.]+", program) is not None


def _same_program(given: str, wanted: str) -> bool:
    # Some file systems take RM for rm.
    return given.casefold() == program_of(wanted).casefold()


def _is_cluster(word: str) -> bool:
    """`-rf`: letters that could also be given one by one, and in another order."""
    return re.fullmatch(r"-[A-Za-z]+", word) is not None


def _is_subsequence(wanted: list[str], given: list[str]) -> bool:
    rest = iter(given)
    return all(any(word == other for other in rest) for word in wanted)
