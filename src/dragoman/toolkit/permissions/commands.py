"""Command patterns: which commands a rule means.

The pattern `git status` is the beginning of a command: these words, then any operands, and only those options that the
rule lists. Options can be dangerous (`git diff --output=…`, `find -delete`, `rg --pre=…`), and they can stand between
the words as well (`git -c core.pager=… status`), so none is trusted.

Owns: patterns, and the tables of programs that run other programs. Must not know: how a text is read (`shell.py`). A
pattern that allows covers only what was read as one plain command; one that denies looks at every word, understood or
not, and still finds only the ways that somebody has thought of.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from dragoman.errors import ConfigurationError

from .rules import Match, words_in
from .shell import ShellCommand, ShellText, Word, read_shell

_BETWEEN: Final = re.compile(r"[\s;&|()<>{}$`,=!\[\]#]+")
_QUOTES: Final = re.compile(r"""['"\\]""")


def mentioned(text: str) -> tuple[list[str], list[str]]:
    """Everything in a text that could be a word: once without the quotes, once with them as separators."""
    return _BETWEEN.split(_QUOTES.sub("", text)), _BETWEEN.split(_QUOTES.sub(" ", text))


# --- programs --------------------------------------------------------------------------------------------------------

_RUN_THEIR_ARGUMENTS: Final = words_in(
    ". arch ash bash batch at builtin busybox bwrap caffeinate capsh catchsegv cgexec choom chpst chroot chronic"
    " chrt cmd command coproc csh daemonize dash dbus-launch dbus-run-session direnv doas eatmydata elvish entr"
    " env envdir envuidgid eval exec expect fakeroot faketime firejail fish flock genv gnice gnohup gosu gstdbuf"
    " gtime gtimeout gxargs hyperfine i386 ifne ionice ksh linux32 linux64 logsave ltrace machinectl mispipe mksh"
    " nice nodemon nohup nsenter nu numactl parallel perf pkexec please prlimit proot proxychains pwsh rlwrap"
    " run-parts runcon runuser screen script sem setarch setpriv setsid setuidgid sg sh softlimit source ssh"
    " ssh-agent start-stop-daemon stdbuf strace su su-exec sudo systemd-nspawn systemd-run taskset tcsh time"
    " timeout tmux torsocks toybox trap uname26 unbuffer unshare valgrind watch watchexec x86_64 xargs xonsh"
    " xvfb-run yash zsh"
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
    | words_in(
        "alias bind compgen complete docker enable fc find hash kubectl mapfile nix-shell npx pdm pipenv pipx podman"
        " poetry readarray start uv uvx xdg-open"
    )
)
"""For rules that deny: words after these are taken for commands."""

_RUN_NOTHING: Final = words_in(
    ": [ apropos b2sum base32 base64 basename bg break cal cat cd chgrp chmod chown cksum clear cmp comm continue cut"
    " date df diff diff3 dirname dirs du echo egrep exit expand expr false fg fgrep file fold getent grep groups head"
    " hexdump hostname id info jobs join kill killall logname look ls lsof md5sum mkdir nl nproc od paste pgrep pidof"
    " pkill popd printenv printf ps pushd pwd read readlink realpath return rev rmdir sdiff seq sha1sum sha256sum"
    " sha512sum shift shuf sleep stat strings sum tac tail tee test touch tput tr tree true truncate tsort tty type"
    " ulimit umask uname unexpand uniq unlink unset uptime wait wc whatis whereis which who whoami yes"
)
"""For rules that deny: words after these are no commands. After any other program that is in no table they may be."""

_RUN_BY_WORD: Final = {
    "git": words_in(
        "-c -u -x -O --config-env --exec --exec-path --extcmd --open-files-in-pager --receive-pack --upload-pack"
        " bisect config difftool filter-branch mergetool submodule"
    ),
    "man": words_in("-H -P --html --pager"),
    "npm": words_in("config exec explore run x --script-shell --shell"),
    "rg": words_in("--hostname-bin --pre"),
    "sort": words_in("--compress-program"),
}
"""For rules that deny: the same as before, unless one of these options or subcommands is among the words."""


def _may_run(program: str, words: list[str]) -> bool:
    """Whether it is possible that the program runs one of these words."""
    if program in _RUN_NOTHING:
        return False
    triggers = _RUN_BY_WORD.get(program)
    return triggers is None or any(_is_trigger(word, triggers) for word in words)


def _is_trigger(word: str, triggers: frozenset[str]) -> bool:
    if word.startswith("--"):
        name = option_name(word)
        return bool(name) and any(each.startswith(name) for each in triggers)  # a long option can be abbreviated
    return word in triggers or (word.startswith("-") and word[:2] in triggers)


# --- command patterns ------------------------------------------------------------------------------------------------


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
        found = max([self._touched_by(command) for command in text.commands], default=Match.NO)
        if found is Match.NO and "|" in text.text and any(map(_reads_commands, text.commands)):
            return Match.MAYBE if self._is_mentioned(text.text) else Match.NO  # `echo rm x | sh`
        return found

    def _touched_by(self, command: ShellCommand) -> Match:
        if not command.words:
            return Match.NO
        first, *rest = command.words
        if first.expands:
            return Match.MAYBE
        program, unsure = program_of(first.text), any(word.expands for word in rest)
        words = [word.text for word in (*command.words, *command.redirections)]
        runs_others = _runs_others(program)
        # Also within quotes: `bash -c "rm x"` has the command in one word.
        if runs_others and self._is_mentioned(_spread(words, deepest=_MOST_LETTERS)):
            return Match.YES
        if _same_program(program, self.words[0]):
            return self._follows([word.text for word in rest], unsure=unsure)
        is_hidden = (runs_others and unsure) or any(self._is_hidden_in(word) for word in rest)
        # `GIT_PAGER=rm git log`
        is_set = self._is_mentioned("\n".join([word.text for word in command.assignments]))
        may_run = _may_run(program, words[1:]) and self._is_mentioned(_spread(words[1:], deepest=2))
        return Match.MAYBE if is_hidden or is_set or may_run else Match.NO

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


_MOST_LETTERS: Final = 8


def _spread(words: list[str], *, deepest: int) -> str:
    """The words, and what may stand within one: `rm` of `EXEC:rm` and `-Srm`; if `deepest` is more than 2, `-vSrm`."""
    options = [word for word in words if word.startswith("-") and not word.startswith("--")]
    values = [word[at:] for word in options for at in range(2, min(deepest + 1, len(word)))]
    return "\n".join([*words, *values, *[word.replace(":", "\n") for word in words if ":" in word]])


def _runs_others(program: str) -> bool:
    return program in _MAY_RUN_COMMANDS or _is_interpreter(program)


def _reads_commands(command: ShellCommand) -> bool:
    """Whether this program may run what it reads from a pipe."""
    return bool(command.words) and _runs_others(program_of(command.words[0].text))


def _is_interpreter(program: str) -> bool:
    return program in _INTERPRETERS or re.fullmatch(r"(?:python|pypy|perl|ruby|lua|php)[\d.]+", program) is not None


def _same_program(given: str, wanted: str) -> bool:
    # Some file systems take RM for rm.
    return given.casefold() == program_of(wanted).casefold()


def _is_cluster(word: str) -> bool:
    """Whether the word is like `-rf`, whose letters can be given separately and in any order."""
    return re.fullmatch(r"-[A-Za-z]+", word) is not None
