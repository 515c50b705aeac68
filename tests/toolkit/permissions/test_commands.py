from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dragoman.errors import ConfigurationError
from dragoman.toolkit.permissions.commands import compile_command
from dragoman.toolkit.permissions.rules import Match
from dragoman.toolkit.permissions.shell import MAX_LENGTH, read_shell
from tests.toolkit.permissions.helpers import allow, call, decision, deny, pairs

STATUS = [allow("Bash", command="git status", options=("--short", "-s"))]

WELCOME = [
    "git status", "  git   status\t", "git status src", "git status --short", "git status -s src tests",
    "git status --short=yes", "git status -- src", "git status 'a file.py'", 'git status "a file.py"',
    "git status ''", "\ngit status\n\n",
]  # fmt: skip

HOSTILE = [
    # a second command
    "git status; rm -rf /", "git status ;rm -rf /", "git status;", "git status && rm -rf /", "git status&&rm -rf /",
    "git status || rm -rf /", "git status | sh", "git status |& sh", "git status & rm -rf /", "git status &",
    "git status\nrm -rf /", "git status\r\nrm -rf /", "\nrm -rf /\ngit status", "rm -rf /; git status",
    "true && git status", "! git status", "(git status)", "{ git status; }", "git status ;; rm",
    # substitution
    "git status $(rm -rf /)", "git status `rm -rf /`", 'git status "$(rm -rf /)"', 'git status "`rm -rf /`"',
    "git status $((1+1))", "git status ${IFS}", "git status ${x:-$(rm -rf /)}", "git status $HOME",
    'git status "$HOME"', "git status <(rm -rf /)", "git status >(rm -rf /)", "$(git status)", "`git status`",
    "$0 status", "git${IFS}status", "git status $'\\x3b' rm", 'git status $"x"', "git status @(a|b)",
    # redirection
    "git status > /etc/passwd", "git status >> ~/.bashrc", "git status >/etc/passwd", "git status 2>/etc/passwd",
    "git status &> /etc/passwd", "git status >| /etc/passwd", "git status < /etc/passwd", "git status <<EOF\nrm\nEOF",
    "git status <<< rm", ">x git status",
    # variables for one command
    "X=1 git status", "PATH=/tmp/evil git status", "LD_PRELOAD=/tmp/evil.so git status",
    "GIT_PAGER='rm -rf /' git status", "A[0]=1 git status", "A+=1 git status",
    # another command around it
    "env git status", "env X=1 git status", "env -S 'git status'", "sudo git status", "eval git status",
    "exec git status", "command git status", "builtin git status", "time git status", "nohup git status",
    "xargs git status", "sh -c 'git status'", "bash -c 'git status; rm -rf /'", "watch git status",
    "if git status; then rm -rf /; fi", "for x in git status; do rm; done", "while git status; do rm; done",
    "function git { rm; }; git status", "git() { rm -rf /; }; git status", "alias git=rm; git status",
    "coproc git status", "[[ git status ]]",
    # options that turn the command into another one
    "git -c core.pager='rm -rf /' status", "git -c core.fsmonitor=/tmp/evil status",
    "git --exec-path=/tmp/evil status", "git -C /tmp/evil status", "git --git-dir=/tmp/evil status",
    "git --config-env=core.pager=X status", "git status --output=/etc/passwd", "git status -c core.pager=rm",
    "git status --shor", "git status -sx", "git status '--output=/etc/passwd'", 'git status "-c" core.pager=rm',
    "git status -- --output=/etc/passwd", "git status +x", "git status @/tmp/arguments", "git status SHELL=/tmp/evil",
    # what the shell makes of words
    "git status *", "git status ?", "git status [a-z]*", "git status {a,b}", "git status ~", "git status ~root/.ssh",
    "git status --short=~/x", "git status !!", "git status # rm", "git status \\; rm", "git status \\\nrm",
    "git stat\\us", "g'i't status", '"git" status', "git 'status'", "'git status'", "git status 'open",
    'git status "open', "git status \\",
    # another program
    "/tmp/evil/git status", "./git status", "../git status", "Git status", "GIT STATUS", "git statusx",
    "git  status-x", "gitstatus", "git", "git stash", "status git", "\uff47it status", "git\u00a0status",
    "git\u200b status", "git status\x00; rm", "git status \x1b[2K", "git status \u202e", "git status \u2028rm",
    "git\x0bstatus", "", "   ", ";", "'", "git status " + "x" * MAX_LENGTH,
]  # fmt: skip


@pytest.mark.parametrize(("expected", "command"), pairs({"allow": WELCOME, "ask": HOSTILE}))
def test_a_rule_for_git_status_allows_that_and_nothing_else(expected: str, command: str) -> None:
    assert decision(STATUS, call("Bash", command=command)) == expected


def test_a_list_of_words_is_a_command() -> None:
    rules = [allow("run", command="git status")]
    assert decision(rules, call("run", argv=["git", "status"])) == "allow"
    assert decision(rules, call("run", argv=["git", "status", "; rm"])) == "allow", "one operand"
    assert decision(rules, call("run", argv=["git status"])) == "ask"
    assert decision(STATUS, call("run", argv=["git", "status"])) == "ask", "the rule is for Bash"


@pytest.mark.parametrize(
    "arguments", [{"cwd": "/"}, {"cwd": "../elsewhere"}, {"env": {"GIT_PAGER": "rm"}}, {"env": {"PATH": "/tmp/evil"}}]
)
def test_other_arguments_of_an_allowed_command_must_be_harmless(arguments: dict[str, object], tmp_path: Path) -> None:
    assert decision(STATUS, call("Bash", command="git status"), tmp_path) == "allow"
    assert decision(STATUS, call("Bash", command="git status", **arguments), tmp_path) == "ask"


LETTER = {
    "allow": [
        ("env", "env"), ("sudo apt", "sudo apt"), ("python -m pytest", "python -m pytest tests"),
        ("node build.js", "node build.js all"), ("npm run test", "npm run test"), ("'my tool' go", "'my tool' go x"),
        ("git log", "git log HEAD~3"),
    ],
    "ask": [
        ("env", "env rm"), ("sudo apt", "sudo apt update"), ("bash -c", "bash -c 'rm -rf /'"),
        ("timeout 5", "timeout 5 rm"), ("python", "python evil.py"), ("python3.12", "python3.12 evil.py"),
        ("python -c", "python -c 'import os'"), ("/usr/bin/env", "/usr/bin/env rm"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("expected", "case"), pairs(LETTER))
def test_programs_that_run_others_are_allowed_only_with_exact_words(expected: str, case: tuple[str, str]) -> None:
    pattern, command = case
    assert decision([allow("Bash", command=pattern)], call("Bash", command=command)) == expected


def test_all_options() -> None:
    free = [allow("Bash", command="ls", options="*")]
    assert decision(free, call("Bash", command="ls -la --color=no src")) == "allow"
    assert decision(free, call("Bash", command="ls -la; rm x")) == "ask"


# --- to deny ---------------------------------------------------------------------------------------------------------

REMOVES = [
    "rm x", "rm", "/bin/rm x", "./rm x", "\\rm x", "'rm' x", 'r""m x', "r\\m x", "RM x", "rm.exe x", "ls; rm x",
    "ls && rm x", "ls | rm x", "ls & rm x", "ls\nrm x", "(rm x)", "{ rm x; }", "$(rm x)", "`rm x`", 'echo "$(rm x)"',
    "X=1 rm x", ">log rm x", "sudo rm x", "env A=b rm x", "xargs rm < list", "find . -exec rm {} +",
    "find . -exec rm x", "bash -c 'rm x'", 'sh -c "cd /; rm x"', "eval 'rm x'", "timeout 5 rm x",
    "python -c 'import os; os.system(\"rm x\")'", "if true; then rm x; fi", "for f in *; do rm $f; done",
    "cat <<EOF | sh\nrm x\nEOF", "true; # comment\nrm x", "echo 'open; rm x", "nohup rm x &", "ssh host rm x",
]  # fmt: skip


MAY_REMOVE = [
    "$X x", "$(printf 'r%s' m) x", "`echo cm0gLXJm | base64 -d` x", "eval $X", "bash -c $X", "foo 'rm x'",
    "git -c alias.x='!rm y' x", "x" * (MAX_LENGTH + 1),
]  # fmt: skip
OTHERS = ["ls rm", "git rm x", "echo rm", "ls; echo rm", "rmdir x", "ls *.py", "echo $HOME"]


@pytest.mark.parametrize(("expected", "command"), pairs({"deny": REMOVES, "ask": MAY_REMOVE, "allow": OTHERS}))
def test_a_denied_command_is_found_anywhere_in_the_text(expected: str, command: str) -> None:
    assert decision([deny("Bash", command="rm"), allow("Bash")], call("Bash", command=command)) == expected


WRAPPED = [
    "setpriv rm x", "prlimit rm x", "choom -n 0 rm x", "linux64 rm x", "setarch x86_64 rm x", "ssh-agent rm x",
    "env -S'rm x'", "env -vS'rm x'", "env --split-string='rm x'", "bash -crm", "hash -p /bin/rm q; q x",
    "compgen -C rm x",
    "complete -C 'rm x' y", "mapfile -C rm -c 1 y", "readarray -C 'rm x' y", "bind -x 'a:rm x'", "trap rm 0",
    "alias q=rm",
    "valgrind rm x", "perf stat rm x", "fakeroot rm x", "firejail rm x", "bwrap --bind / / rm x", "gosu a rm x",
    "sg a rm",
    "start-stop-daemon -S -x rm", "run-parts rm", "runcon x rm y", "systemd-nspawn rm x", "numactl rm x",
    "chronic rm x",
    "gtimeout 5 rm x", "sh y <rm", "unbuffer rm x", "dbus-run-session rm x", "xvfb-run rm x", "arch -x86_64 rm x",
]  # fmt: skip
"""Words after these programs are taken for commands."""

MAY_BE_WRAPPED = [
    "tar -I rm -cf x y", "tar -Irm x", "tar --to-command=rm x", "tar --checkpoint-action=exec=rm x",
    "split --filter=rm x",
    "git -c alias.x=!rm x", "git -c core.pager='rm x' log", "git bisect run rm x", "git rebase --exec rm",
    "git rebase -xrm",
    "git submodule foreach rm x", "git difftool --extcmd=rm", "git grep -Orm x", "git fetch --upload-p=rm x",
    "git config alias.x '!rm x'", "sort --compress-prog=rm x", "rsync -e rm x y", "man -P rm ls",
    "man --pager='rm x' ls",
    "rg --pre=rm x", "npm exec rm", "cp rm q", "cp /bin/rm q; ./q x", "ln -s /bin/rm q", "dd if=/bin/rm of=q",
    "socat EXEC:rm -", "make SHELL=rm", "scp -S rm x y", "GIT_PAGER=rm git log", "LESSOPEN='|rm x' less y",
    "export GIT_PAGER=rm; git log", "echo rm x | sh", "printf 'rm x' | sudo bash", "ld.so /bin/rm x",
    "gcc -wrapper rm x.c",
    "a-program-that-nobody-knows rm x", "{fd}>y rm x", "X=rm; $X x", "x -arm y",
]  # fmt: skip
"""Other programs, unless they are known to run nothing, or not in this way, may run their words, or copy a program."""

NO_PROGRAM = [
    "ls rm", "cat rm", "grep rm x | sort", "which rm", "man rm", "npm rm y", "git rm x", "git log -- rm", "git add rm",
    "git commit -m 'about rm'", "rg rm src", "sort rm", "X=1 ls rm", "test -e rm && echo rm", "mkdir rm",
    "gcc -c arm.c",
]  # fmt: skip


@pytest.mark.parametrize(("expected", "command"), pairs({"deny": WRAPPED, "ask": MAY_BE_WRAPPED, "allow": NO_PROGRAM}))
def test_a_denied_command_is_found_behind_another_program(expected: str, command: str) -> None:
    assert decision([deny("Bash", command="rm")], call("Bash", command=command), default="allow") == expected


NOT_FOUND = ["unlink x", "./tidy", "make clean", "find . -delete", "git clean -f", "bash tidy.sh", "python tidy.py"]


@pytest.mark.parametrize("command", NOT_FOUND)
def test_no_list_of_denied_commands_is_complete(command: str) -> None:
    """As the documentation says: this removes files, and nothing in its words says so."""
    assert decision([deny("Bash", command="rm")], call("Bash", command=command), default="allow") == "allow"


SEVERAL_WORDS = {
    ("git push", "deny"): [
        "git push", "git push origin main --force", "git -C /x push", "git -c a=b push origin", "cd x && git push",
    ],
    ("git push", "allow"): ["git pull"],
    ("git push", "ask"): ["git $X"],
    ("rm -rf", "deny"): ["rm -rf x", "rm -fr x", "rm -r -f x", "rm -Rrvf x", "rm x -rf"],
    ("rm -rf", "ask"): ["rm --recursive --force x"],
    ("rm -rf", "allow"): ["rm x", "rm -r x"],
    ("curl --upload-file", "deny"): ["curl --upload-file x y"],
}  # fmt: skip


@pytest.mark.parametrize(("expected", "command"), pairs(SEVERAL_WORDS))
def test_a_denied_command_of_several_words(expected: tuple[str, str], command: str) -> None:
    pattern, action = expected
    assert decision([deny("Bash", command=pattern), allow("Bash")], call("Bash", command=command)) == action


def test_a_deny_rule_has_no_options() -> None:
    with pytest.raises(ConfigurationError, match="only a rule that allows"):
        decision([deny("Bash", command="rm", options=("-r",))], call("Bash", command="x"))


def test_a_long_command_is_searched_in_linear_time() -> None:
    many = "rm " * 200_000
    assert decision([deny("Bash", command="rm -rf now"), allow("Bash")], call("Bash", command=many)) == "ask"
    many = "$(" + "rm " * 10_000
    assert decision([deny("Bash", command="rm now"), allow("Bash")], call("Bash", command=many)) == "ask"


# --- against real shells ---------------------------------------------------------------------------------------------

PIECES = st.sampled_from([
    "git", "status", "x", "-s", "a b", " ", "\t", "\n", ";", "&", "&&", "|", "||", "(", ")", "{", "}", "<", ">", "$",
    "`", "'", '"', "\\", "#", "*", "?", "[", "]", "~", "!", "=", "-", "--", "+", ",", ":", "/", "%", "^", "@", "é",
    "{a,b}", "$x", "$(git)", "X=1", "''", '""', "\r", "\x0b", "\u00a0",
])  # fmt: skip
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@given(TEXTS)
def test_any_command_can_be_parsed(text: str) -> None:
    read = read_shell(text)
    pattern = compile_command("git status")
    assert pattern.touches(read) in Match
    if pattern.covers(read):
        assert pattern.touches(read) is Match.YES, "what is allowed could also be denied"


@given(TEXTS, st.sampled_from([";", "&&", "||", "|", "&", "\n", "|&"]), TEXTS)
def test_no_second_command_is_ever_allowed(before: str, between: str, after: str) -> None:
    pattern = compile_command("git status", options=("*",))
    unquoted = before.replace("'", "").replace('"', "")
    assert not pattern.covers(read_shell(f"git status {unquoted}{between}{after}x"))


CALM = st.lists(
    st.sampled_from(["x", "-s", " ", " ", "a b", "'", '"', "=", "/", ":", ",", "é", "--", "%", "''"]), max_size=12
)
"""Texts of which many are understood."""

SHELLS = [shell for shell in ("bash", "dash", "zsh", "ksh", "busybox") if shutil.which(shell)]


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose only program is a `git` that prints its arguments."""
    directory = tmp_path_factory.mktemp("bin")
    program = directory / "git"
    program.write_text("#!/bin/sh\nprintf '%s\\0' git \"$@\"\n")
    program.chmod(0o700)
    return directory


@pytest.mark.skipif(not SHELLS, reason="no shell is installed")
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(rest=TEXTS | CALM.map("".join))
def test_real_shells_run_what_was_understood(rest: str, stub: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = f"git status {rest}"
    command = read_shell(text).simple
    if command is None:
        return
    expected = "".join(f"{word.text}\0" for word in command.words)
    empty = tmp_path_factory.mktemp("empty")
    for shell in SHELLS:
        words = [shutil.which(shell) or shell, *(["sh"] if shell == "busybox" else []), "-c", text]
        done = subprocess.run(
            words, cwd=empty, env={"PATH": str(stub)}, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        assert (done.stdout.decode(), done.returncode) == (expected, 0), f"{shell} reads {text!r} differently"
    assert list(empty.iterdir()) == []
