"""Mutate commands, and let bash say what it reads in those that the rules allow.

    python -m tests.toolkit.mutated_commands 100000

It needs nothing but bash and the core dependencies, so that any Python can run it. Each command is judged twice:

- By rules that allow three commands. What they allow is run by bash as the checker hands it on, and as the model wrote
  it. Both times bash must find the words that were judged, and nothing else.
- By a rule that denies `rm` where everything else is allowed. What that lets through must not make bash run `rm`.

bash runs in an empty directory, without programs: `git`, `cat` and `rm` are functions that write down their words.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dragoman.conversation import ToolCall
from dragoman.toolkit import PermissionChecker, PermissionPolicy, Rule
from dragoman.toolkit.permissions.shell import read_shell
from dragoman.tools import Allow

ALLOWING = PermissionPolicy(
    rules=(
        Rule(action="allow", tool="Bash", command=("git status", "cat"), options=("-s", "--short")),
        Rule(action="allow", tool="Bash", command="git log", options="*"),
    )
)
DENYING = PermissionPolicy(rules=(Rule(action="deny", tool="Bash", command="rm"),), default="allow")

ALLOWED = (
    "git status", "git status -s a b", "git status 'a b' \"c d\"", "git log --format='%h %s' HEAD~3", "cat a.txt b:c=d",
    "git status ''", "git status 'it'\"'\"'s'", "git log \"it's\" x,y", "cat é '→ b' \"ü\"", "git log -- '$x `y` \\z'",
)  # fmt: skip
HOSTILE = (
    "git status x$'\"' ; rm >P '\"'", "git status x$'\"'\nrm >P '\"'", "git status \"$(rm x)\"", "cat `rm x`",
    "git status x$\"'\" ; rm x \"'\"", "cat 'a\\' ; rm x '", "cat 'a\\'\"'\"'; rm x'", "cat $'\\'' ; rm x '",
    "cat \"a\\\" ; rm x \"", "git status # ' \nrm x '", "git status a#b ' ; rm x'", "git status; rm x", "cat a | rm x",
    "cat a && rm x", "cat a 2>&1", "cat a &>b rm x", "X=1 git status", "X='a b' rm x", "cat <<E\nrm x\nE",
    "cat <<<'rm x'",
    "cat {a,b}", "cat *", "cat ~", "cat a=~", "! cat a", "cat !!", "{ rm x; }", "(rm x)", "if rm x; then cat a; fi",
    "case a in b) rm x ;; esac", "cat $x ${x:-rm} $((1))", "cat <(rm x)", "git status \\; rm x", "cat a \\\nrm x",
    "[[ a ]]",
    "git\u00a0status", "cat\u3000a", "cat a\r\nrm x", "time rm x", "cat 'a\nrm x\n'", "rm() { cat a; }; rm x",
    ">a rm x",
)  # fmt: skip
PIECES = (
    *("'", '"', "'", '"', "\\", "$", "`", "$'", '$"', "\\'", '\\"', "'\"'\"'", "''", '""', "$("),
    *("${", "((", "<(", ">("),
    *(" ", " ", "\t", "\n", ";", "&", "|", "&&", "||", "(", ")", "{", "}", "<", ">", ">>", "<<"),
    *("<<<", "2>", "&>", "#", " #"),
    *("~", "*", "?", "[", "]", "!", "^", "=", ":", "%", "@", "+", ",", "-", "--", "é", "→"),
    *("\u00a0", "\u3000", "\u200b"),
    *("\r", "\x00", "\x0b", "\x85", "\ud800"),
    *("git", "status", "log", "cat", "rm", " rm x", "; rm x", "x", "-s", "a b", "X=1 ", "if"),
    *("then", "do", "in", "time "),
)  # fmt: skip
CALM = (" ", " ", "  ", "x", "-s", "é", "=x", ":", ",", "'a b'", '"a b"', "''", "'", '"', "\t", " -- ", "%", "#")
"""Pieces after which a command is often still understood."""


def mutated(draw: random.Random) -> str:
    """One of the commands above with a few pieces put in, taken out, replaced, doubled or exchanged."""
    text = draw.choice(draw.choice((ALLOWED, HOSTILE)))
    for _ in range(draw.choice((0, 1, 1, 2, 2, 3, 4, 6))):
        at, end = sorted(draw.choices(range(len(text) + 1), k=2))
        end = min(end, at + draw.choice((0, 0, 1, 2, 5)))
        new = draw.choice((draw.choice(PIECES), draw.choice(CALM), draw.choice(CALM), "", text[at:end] * 2))
        text = text[:at] + new + text[end:]
    return text


class Judged(NamedTuple):
    """A command that the rules allow."""

    written: str
    """As the model wrote it."""
    runs: str
    """What the checker hands on."""

    @property
    def words(self) -> list[str]:
        command = read_shell(self.written).simple
        return [] if command is None else [word.text for word in command.words]


class Found(NamedTuple):
    tried: int
    allowed: int
    """By the rules that allow three commands."""
    let_through: int
    """By the rule that denies one."""
    faults: list[str]


def judge(policy: PermissionPolicy, texts: Iterable[str]) -> Iterator[Judged]:
    checker = PermissionChecker(policy, workspace=tempfile.gettempdir())
    for text in texts:
        call = ToolCall("1", "Bash", json.dumps({"command": text}))
        decision = checker.check(call)
        if isinstance(decision, Allow):
            yield Judged(text, json.loads(decision.arguments or call.arguments)["command"])


def try_all(count: int, seed: int = 0) -> Found:
    """Judge so many mutated commands, and let bash run what is allowed."""
    draw = random.Random(seed)
    texts = [mutated(draw) for _ in range(count)]
    allowed, faults = list(judge(ALLOWING, texts)), list[str]()
    for text, read in zip([each.runs for each in allowed], read_by_bash([each.runs for each in allowed]), strict=True):
        again = read_shell(text)
        if again.simple is None or again.canonical != text or read != [[word.text for word in again.simple.words]]:
            faults.append(f"{text!r} runs as {read}")
    for each, read in zip(allowed, read_by_bash([each.written for each in allowed]), strict=True):
        if read != [each.words]:
            faults.append(f"{each.written!r} was read as {each.words}, and by bash as {read}")
    let_through = [each.runs for each in judge(DENYING, texts)]
    faults += [f"{text!r} is let through, and runs rm" for text in removing_in_bash(let_through)]
    return Found(count, len(allowed), len(let_through), faults)


# --- bash ------------------------------------------------------------------------------------------------------------

_WRITES_DOWN = r"""
exec 8>"$2" 9<"$1"
for program in git cat rm; do
    eval "$program() { printf '%s\0' $program \"\$@\" >&8; printf '\001\0' >&8; }"
done
command_not_found_handle() { printf '%s\0' "not found:" "$@" $'\001' >&8; }
while IFS= read -r -d '' -u 9 text; do
    eval "$text"
    printf '\002\0' >&8
done
"""
_REMOVES = r"""
exec 8>"$2" 9<"$1"
rm() { printf '%s\0' "$number" >&8; }
command_not_found_handle() { case $1 in rm) rm ;; esac; }
number=0
while IFS= read -r -d '' -u 9 text; do
    ( eval "$text" )
    number=$((number + 1))
done
printf 'done\0' >&8
"""


def read_by_bash(texts: list[str]) -> list[list[list[str]]]:
    """For each text the commands that bash runs, as lists of words."""
    found = _bash(_WRITES_DOWN, texts)
    runs = [found_by_one.split("\1\0")[:-1] for found_by_one in found.split("\2\0")[:-1]]
    assert len(runs) == len(texts), "bash has ended before the last text"
    return [[run.split("\0")[:-1] for run in each] for each in runs]


def removing_in_bash(texts: list[str]) -> list[str]:
    """The texts for which bash runs `rm`."""
    *numbers, end = _bash(_REMOVES, texts).split("\0")[:-1]
    assert end == "done", "bash has ended before the last text"
    return [texts[number] for number in sorted(set(map(int, numbers)))]


def _bash(script: str, texts: list[str]) -> str:
    """What the script writes down about texts, in an empty directory and without any program."""
    bash = shutil.which("bash")
    assert bash is not None
    with tempfile.TemporaryDirectory() as directory:
        place, given, answer = Path(directory, "empty"), Path(directory, "texts"), Path(directory, "answer")
        place.mkdir()
        given.write_bytes(b"".join([text.encode("utf-8", "replace").replace(b"\0", b"?") + b"\0" for text in texts]))
        words = [bash, "--noprofile", "--norc", "-c", script, "bash", str(given), str(answer)]
        environment = {"PATH": "/nonexistent", "LC_ALL": "C.UTF-8"}
        quiet = subprocess.DEVNULL
        subprocess.run(words, cwd=place, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, check=False)
        left = [each.name for each in place.iterdir()]
        assert script != _WRITES_DOWN or not left, f"bash has written {left}"
        return answer.read_text("utf-8")


if __name__ == "__main__":
    result = try_all(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    counts = f"{result.tried} tried, {result.allowed} allowed, {result.let_through} let through past a deny rule"
    said = "\n".join(result.faults[:20]) or "bash reads each of them as it was judged"
    sys.stdout.write(f"Python {sys.version.split(maxsplit=1)[0]}: {counts}\n{said}\n")
    sys.exit(bool(result.faults))
