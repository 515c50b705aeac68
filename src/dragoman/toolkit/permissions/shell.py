"""Parsing shell commands, and the command patterns of rules.

This is not a shell. A rule that allows must not be deceived, so only plain simple commands are understood; a rule that
denies looks at every word, understood or not.

The pattern `git status` is the beginning of a command: these words, then any operands, and only those options that the
rule lists. Options can be dangerous (`git diff --output=…`, `find -delete`, `rg --pre=…`), and they can stand between
the words as well (`git -c core.pager=… status`), so none is trusted.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from dragoman.errors import ConfigurationError

from .rules import Match, words_in

MAX_LENGTH: Final = 32_768
"""Characters; a longer command is not understood."""

_RESERVED: Final = words_in(
    "! [[ ]] { } case coproc do done elif else esac fi for foreach function if in repeat select then time until while"
    " nocorrect noglob end"
)
_EXPANDING: Final = re.compile(r"[*?\[\]{}!^$]|(?:^|[=:])~")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=", re.ASCII)


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
    """A parsed text."""

    text: str
    commands: tuple[ShellCommand, ...] = ()
    simple: ShellCommand | None = None
    """The one plain command that this text is; None if it is anything else."""
    opaque: bool = False
    """It has something that is not parsed (a substitution, a compound command, a comment, an open quote …), and so
    `commands` is empty."""


_PIECE: Final = r"""'[^']*+'|"(?:[^"\\`!$]|\$(?![({\[]))*+"|\$(?![({'"\[])|[^ \t\n;&|()<>'"\\`$]"""
_TOKEN: Final = re.compile(
    r"(?P<blank>[ \t]+)|(?P<separator>[;&|\n])|(?P<redirection>[0-9]*(?:>[>&|]?|<(?!<)[>&|]?))"
    rf"|(?P<word>(?!\#)(?:{_PIECE})++)"
)
"""All that is parsed. Where none of this matches there is a substitution, a bracket, an escape, a comment, a
here-document or an open quote, and the text is opaque."""


@lru_cache(maxsize=64)
def read_shell(text: str) -> ShellText:
    """Parse a text into simple commands, as far as it is understood."""
    text = text.strip(" \t\n")  # models often end a command with a newline
    is_readable = len(text) <= MAX_LENGTH and text.replace("\n", "").replace("\t", "").isprintable()
    groups = _groups(text) if is_readable else None
    commands = [_command(*group) for group in groups or () if any(group)]
    if groups is None or any(command.words and command.words[0].text in _RESERVED for command in commands):
        return ShellText(text, opaque=True)
    first = commands[0] if commands and len(groups) == 1 else ShellCommand(())  # a `;` at the end makes two groups
    is_plain = first.words and not first.assignments and not first.redirections
    is_simple = is_plain and not any(word.expands for word in first.words)
    return ShellText(text, tuple(commands), first if is_simple else None)


def _groups(text: str) -> list[tuple[list[Word], list[Word]]] | None:
    """The words and the redirections of each command; None if there is something that is not parsed."""
    groups: list[tuple[list[Word], list[Word]]] = [([], [])]
    at, awaits_target = 0, False
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        at, kind = token.end(), token.lastgroup
        if kind == "word":
            groups[-1][awaits_target].append(_word(token[0]))
            awaits_target = False
        elif kind != "blank":
            if awaits_target:  # `>` with nothing after it
                return None
            awaits_target = kind == "redirection"
            if kind == "separator":
                groups.append(([], []))
    return None if awaits_target else groups


def _word(written: str) -> Word:
    pieces: list[str] = re.findall(_PIECE, written)
    bare = "".join(["''" if piece[0] in "'\"" else piece for piece in pieces])
    return Word(
        text="".join([piece[1:-1] if piece[0] in "'\"" else piece for piece in pieces]),
        quoted="'" in bare,
        expands=_EXPANDING.search(bare) is not None or any(piece[0] == '"' and "$" in piece for piece in pieces),
    )


def _command(words: list[Word], redirections: list[Word]) -> ShellCommand:
    count = 0
    while count < len(words) and _ASSIGNMENT.match(words[count].text):
        count += 1
    return ShellCommand(tuple(words[count:]), tuple(words[:count]), tuple(redirections))


_BETWEEN: Final = re.compile(r"[\s;&|()<>{}$`,=!\[\]#]+")
_QUOTES: Final = re.compile(r"""['"\\]""")


def mentioned(text: str) -> tuple[list[str], list[str]]:
    """Everything in a text that could be a word: once without the quotes, once with them as separators."""
    return _BETWEEN.split(_QUOTES.sub("", text)), _BETWEEN.split(_QUOTES.sub(" ", text))


# --- command patterns ------------------------------------------------------------------------------------------------

_RUN_THEIR_ARGUMENTS: Final = words_in(
    ". ash bash batch at builtin busybox caffeinate chroot chrt cmd command coproc csh dash doas entr env eval exec"
    " expect fish flock ionice ksh ltrace nice nohup nsenter parallel pkexec pwsh rlwrap runuser screen script"
    " setarch setsid sh source ssh stdbuf strace su sudo systemd-run taskset tcsh time timeout tmux toybox trap"
    " unshare watch xargs zsh"
)
"""A rule for one of these means exactly its words: what follows is a command of its own."""

_INTERPRETERS: Final = words_in(
    "awk bun deno ed emacs gawk gdb lua mawk nawk node nodejs nvim osascript perl php python python2 python3 pypy"
    " pypy3 Rscript ruby sed tclsh vi vim"
)
"""The same unless the rule names the script or module, whose arguments then follow."""

_MAY_RUN_COMMANDS: Final = (
    _RUN_THEIR_ARGUMENTS
    | _INTERPRETERS
    | words_in("alias docker find kubectl npx nix-shell pdm pipenv pipx podman poetry start uv uvx xdg-open")
)
"""For rules that deny: words after these may be commands."""


class CommandPattern(Struct, frozen=True):
    words: tuple[str, ...]
    options: frozenset[str] = frozenset()
    """Options that may follow; `*` stands for all of them."""

    def covers(self, text: ShellText) -> bool:
        """Whether the text is this command and nothing else: for rules that allow."""
        command = text.simple
        if command is None:
            return False
        given = command.words[: len(self.words)]
        if len(given) < len(self.words) or not all(map(_is_plainly, given, self.words)):
            return False
        rest = command.words[len(self.words) :]
        if self._is_closed:
            return not rest
        options = {option_name(word.text) for word in rest} - {""}
        return "*" in self.options or options <= self.options

    @property
    def _is_closed(self) -> bool:
        program = program_of(self.words[0])
        if program in _RUN_THEIR_ARGUMENTS:
            return True
        names_script = len(self.words) > 1 and self.words[-1][:1] not in "-+"
        return _is_interpreter(program) and not names_script

    def touches(self, text: ShellText) -> Match:
        """Whether the text runs this command, or may: for rules that deny or ask."""
        if text.opaque:
            return Match.YES if self._is_mentioned(text.text) else Match.MAYBE
        return max([self._touched_by(command) for command in text.commands], default=Match.NO)

    def _touched_by(self, command: ShellCommand) -> Match:
        if not command.words:
            return Match.NO
        first, *rest = command.words
        if first.expands:
            return Match.MAYBE
        program, unsure = program_of(first.text), any(word.expands for word in rest)
        runs_others = program in _MAY_RUN_COMMANDS or _is_interpreter(program)
        # Also within quotes: `bash -c "rm x"` has the command in one word.
        if runs_others and self._is_mentioned("\n".join([word.text for word in command.words])):
            return Match.YES
        if _same_program(program, self.words[0]):
            return self._follows([word.text for word in rest], unsure=unsure)
        is_hidden = (runs_others and unsure) or any(self._is_hidden_in(word) for word in rest)
        return Match.MAYBE if is_hidden else Match.NO

    def _follows(self, rest: list[str], *, unsure: bool) -> Match:
        """Whether the pattern's other words are among these in this order, with any words in between."""
        wanted, remaining = [word for word in self.words[1:] if not _is_cluster(word)], iter(rest)
        if all(any(word == other for other in remaining) for word in wanted):
            letters = {letter for word in self.words[1:] if _is_cluster(word) for letter in word[1:]}
            given = {letter for word in rest if _is_cluster(word) for letter in word[1:]}
            if letters <= given:
                return Match.YES
            # `rm --recursive` may be what `rm -r` means.
            return Match.MAYBE if unsure or any(word.startswith("--") for word in rest) else Match.NO
        return Match.MAYBE if unsure else Match.NO

    def _is_mentioned(self, text: str) -> bool:
        for tokens in mentioned(text):
            for index, token in enumerate(tokens):
                if _same_program(program_of(token), self.words[0]):
                    if self._follows(tokens[index + 1 :], unsure=False) is not Match.NO:
                        return True
                    break  # whatever follows a later mention follows this one too
        return False

    def _is_hidden_in(self, word: Word) -> bool:
        """Whether a quoted argument would be this command if a program ran it."""
        if not word.quoted or not re.search(r"[\s;&|!]", word.text):
            return False
        parts = re.split(r"[;&|\n!`(]", word.text)
        return any(_same_program(program_of(part.split()[0]), self.words[0]) for part in parts if part.strip())


def compile_command(pattern: str, *, options: tuple[str, ...] = ()) -> CommandPattern:
    """Compile a pattern. Raises ConfigurationError unless it is a plain command."""
    command = read_shell(pattern).simple
    if command is None:
        message = f"The command pattern {pattern!r} is not a plain command."
        hint = "Give the first words of one command, such as 'git status', without '*', ';', '|', '$' or redirections."
        raise ConfigurationError(message, hint=hint)
    return CommandPattern(tuple(word.text for word in command.words), frozenset(options))


def option_name(text: str) -> str:
    """The name of an option or assignment: `--stat` of `--stat=80`, `CC` of `CC=evil`; empty for an operand."""
    name, equals, _ = text.partition("=")
    is_more = bool(equals) or (text[:1] in ("-", "+", "@") and text not in ("--", "-"))
    return (name or "=") if is_more else ""


def program_of(word: str) -> str:
    return word.replace("\\", "/").rpartition("/")[2].removesuffix(".exe")


def _is_plainly(given: Word, wanted: str) -> bool:
    """Whether the word is the wanted one, without quotes that it does not need: nobody who means `git` quotes it."""
    return given.text == wanted and (not given.quoted or not re.fullmatch(r"[\w./:@%+,-]+", wanted))


def _is_interpreter(program: str) -> bool:
    return program in _INTERPRETERS or re.fullmatch(r"(?:python|pypy|perl|ruby|lua|php)[\d.]+", program) is not None


def _same_program(given: str, wanted: str) -> bool:
    # Some file systems take RM for rm.
    return given.casefold() == program_of(wanted).casefold()


def _is_cluster(word: str) -> bool:
    """Whether the word is like `-rf`, whose letters can be given separately and in any order."""
    return re.fullmatch(r"-[A-Za-z]+", word) is not None
