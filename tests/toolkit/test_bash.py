"""`Bash`: what is reported, what is inherited, and that everything ends."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dragoman.toolkit import BashSettings, Workspace
from dragoman.toolkit.bash import bash_tool, processes_of
from dragoman.tools import AnyTool, ToolConfig, ToolErrorHandling, ToolRun
from tests.processes import children, started
from tests.toolkit.calling import Call, bad, both_colours, call, good
from tests.tools.cases import eventually

linux = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


@pytest.fixture
def bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnyTool:
    monkeypatch.setattr("dragoman.toolkit.bash._MAX_OUTPUT", 2000)
    return bash_tool(Workspace(tmp_path))


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens of the commands that were run, so that a test can look for what is left of them."""
    made: list[str] = []
    new = secrets.token_hex

    def noted(size: int) -> str:
        made.append(new(size))
        return made[-1]

    monkeypatch.setattr(secrets, "token_hex", noted)
    return made


def nothing_is_left(tokens: list[str]) -> bool:
    """Whether no process of these commands runs any more; on an event loop that may take a moment longer."""
    return eventually(lambda: not any(processes_of(None, token) for token in tokens))


# --- what is reported ------------------------------------------------------------------------------------------------


@both_colours
def test_output_errors_and_exit_code(called: Call, bash: AnyTool) -> None:
    assert good(called(bash, command="echo out")) == "out\n[exit code 0]"
    text = bad(called(bash, command="echo out; echo err >&2; exit 3"), "execution")
    assert text == "out\n[stderr]\nerr\n[exit code 3]"
    assert good(called(bash, command="true")) == "[exit code 0]"


@pytest.mark.parametrize(
    "command", ["yes", "head -c 300M /dev/zero", "yes x | head -c 100M >&2", "while :; do echo spam; done"]
)
def test_long_output_is_cut_in_the_middle(bash: AnyTool, command: str) -> None:
    result = call(bash, command=f"echo begin; echo begin >&2; {command}; echo end", timeout_seconds=1)
    assert len(result.text) < 6000
    assert result.text.startswith("begin\n")
    assert " bytes left out of " in result.text


# --- what is inherited -----------------------------------------------------------------------------------------------


def test_no_secret_is_inherited(bash: AnyTool, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "HTTPS_PROXY", "BASH_ENV"]
    names += ["MY_ODDLY_NAMED_THING", "LD_PRELOAD_X", "PYTHONPATH", "BASH_FUNC_ls%%"]
    for name in names:
        monkeypatch.setenv(name, "s3cr3t" if name != "BASH_FUNC_ls%%" else "() { echo s3cr3t; }")
    text = good(call(bash, command="env; ls"))
    assert "s3cr3t" not in text
    assert f"PATH={os.environ['PATH']}" in text


def test_variables_that_are_named_or_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANTED", "yes")
    settings = BashSettings(env_names=("WANTED", "NO"), env={"GIVEN": "too", "TERM": "vt100"})
    text = good(call(bash_tool(Workspace(tmp_path), settings=settings), command="echo $WANTED $GIVEN $TERM ${NO-none}"))
    assert text == "yes too vt100 none\n[exit code 0]"


# --- everything ends -------------------------------------------------------------------------------------------------

CLINGING = [
    "sleep 300", "trap '' TERM INT HUP; sleep 300; sleep 300", "sh -c 'trap \"\" TERM; sleep 300 & wait; sleep 300'",
    "sleep 300 & wait", "(sleep 300 & sleep 300 & wait) | cat", "exec sleep 300", "exec >&- 2>&-; sleep 300",
    "kill -STOP $$", "setsid sleep 300 & wait; sleep 300", "setsid sh -c 'setsid sleep 300 & wait' & sleep 300",
    "setsid env -i sleep 300 & sleep 300", "nohup sleep 300 & sleep 300",
    "(trap '' HUP; setsid setsid sleep 300 </dev/null >/dev/null 2>&1 &) ; sleep 300",
]  # fmt: skip
LEFT_BEHIND = [
    "sleep 300 &", "sleep 300 & disown", "nohup sleep 300 >/dev/null 2>&1 &", "setsid sleep 300 &",
    "setsid sleep 300 >/dev/null 2>&1 </dev/null &", "(sleep 300 >/dev/null 2>&1 &)",
    "(setsid sh -c 'sleep 300 & wait' >/dev/null 2>&1 &)", "trap '' TERM; sleep 300 &",
]  # fmt: skip


@linux
@pytest.mark.parametrize("command", CLINGING)
def test_the_deadline_ends_a_command_with_all_its_processes(bash: AnyTool, tokens: list[str], command: str) -> None:
    text = bad(call(bash, command=f"echo begun; {command}", timeout_seconds=0.5), "timeout")
    assert text.startswith("begun\n")
    assert text.endswith("[Stopped: the command did not end within 0.5 seconds.]")
    assert nothing_is_left(tokens)


@linux
@pytest.mark.parametrize("command", LEFT_BEHIND)
def test_background_processes_are_killed_at_the_end(bash: AnyTool, tokens: list[str], command: str) -> None:
    text = good(call(bash, command=f"{command}\necho done"))
    assert text.endswith("done\n[Processes left in the background were killed.]\n[exit code 0]")
    assert nothing_is_left(tokens)


SPAWNER = """
import os, signal, sys, time
depth = int(sys.argv[1])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if depth % 2:
    os.setsid() if os.getpid() != os.getpgid(0) else None
for _ in range(2 if depth else 0):
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-S", "-E", __file__, str(depth - 1)])
print("up", flush=True)
time.sleep(300)
"""


@linux
@pytest.mark.slow
def test_a_fork_bomb_is_killed_at_the_deadline(tmp_path: Path, bash: AnyTool, tokens: list[str]) -> None:
    """31 processes that ignore SIGTERM, half of them in sessions of their own; not more, however long it takes."""
    (tmp_path / "bomb.py").write_text(SPAWNER)
    text = bad(call(bash, command=f"ulimit -u 4000; {sys.executable} -S -E bomb.py 4", timeout_seconds=3), "timeout")
    assert "up" in text
    assert nothing_is_left(tokens)


@linux
@both_colours
@pytest.mark.parametrize("timed", [False, True], ids=["in the caller's thread", "in a worker"])
@pytest.mark.parametrize(
    "command", ["trap '' TERM; setsid sleep 300 & sleep 300", "trap '' TERM INT HUP; while :; do sleep 1; done", "yes"]
)
def test_a_cancelled_command_is_killed_at_once(
    called: Call, timed: bool, command: str, bash: AnyTool, tmp_path: Path, tokens: list[str]
) -> None:
    """The call and its processes, though they ignore SIGTERM: 0.25 seconds where nothing else is to be done."""
    run, cancelled = ToolRun(), list[float]()

    def cancel() -> None:
        eventually((tmp_path / "begun").exists)
        cancelled.append(time.monotonic())
        run.cancel()

    watcher = threading.Thread(target=cancel)
    watcher.start()
    config = ToolConfig(execution_timeout=60.0) if timed else None
    bad(called(bash, run=run, config=config, command=f"touch begun; {command}"), "cancelled")
    watcher.join()
    assert time.monotonic() - cancelled[0] < 20
    assert nothing_is_left(tokens)


@linux
@both_colours
def test_the_deadline_of_the_run_ends_the_command(called: Call, bash: AnyTool, tokens: list[str]) -> None:
    began = time.monotonic()
    bad(called(bash, run=ToolRun(deadline=began + 0.6), command="sleep 300"), "timeout")
    assert time.monotonic() - began < 10
    assert nothing_is_left(tokens)


PROGRAM = """
import signal, sys
from dragoman import ToolCall, ToolExecutor
from dragoman.toolkit import Workspace, bash
{setup}
with ToolExecutor([bash.bash_tool(Workspace(sys.argv[1]))]) as executor:
    print(executor.execute(ToolCall("1", "Bash", '{{"command": "{command}"}}')).text)
"""


@linux
def test_ctrl_c_ends_the_command(tmp_path: Path) -> None:
    token = f"ctrl-c-{os.getpid()}"
    setup = f"import secrets; secrets.token_hex = lambda size: {token!r}"
    program = PROGRAM.format(setup=setup, command="touch begun; sleep 300")
    with started([sys.executable, "-c", program, tmp_path], stderr=subprocess.PIPE) as child:
        assert any(eventually((tmp_path / "begun").exists) for _ in range(6))
        child.send_signal(signal.SIGINT)
        _, complaint = child.communicate(timeout=60)
    assert b"KeyboardInterrupt" in complaint
    assert nothing_is_left([token])


@linux
def test_descriptors_are_closed_and_children_reaped(bash: AnyTool) -> None:
    call(bash, command="true")
    before, born = len(list(Path("/proc/self/fd").iterdir())), children()
    for command in ("true", "exit 3", "sleep 300 &", "yes | head -c 100000"):
        call(bash, command=command)
    call(bash, command="sleep 300", timeout_seconds=0.2)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert children() <= born


@linux
def test_other_processes_are_not_killed(bash: AnyTool, tokens: list[str]) -> None:
    with started(["sleep", "300"]) as stranger:
        call(bash, command="sleep 300 & setsid sleep 300 &")
        call(bash, command="sleep 300", timeout_seconds=0.3)
        assert stranger.poll() is None
    assert nothing_is_left(tokens)


def test_open_files_are_not_inherited(tmp_path: Path, bash: AnyTool) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        text = call(bash, command=f"echo x >&{file.fileno()}").text
    assert "Bad file descriptor" in text


@linux
def test_a_process_without_the_token_is_found_as_a_descendant(tmp_path: Path, bash: AnyTool) -> None:
    command = "setsid env -i sh -c 'echo $$ > pid; exec sleep 300' & sleep 300"
    bad(call(bash, command=command, timeout_seconds=1), "timeout")
    process = Path("/proc", (tmp_path / "pid").read_text().strip())
    assert eventually(lambda: not process.exists()), "whoever has adopted it may take a moment to bury it"


def test_commands_are_never_retried(tmp_path: Path, bash: AnyTool) -> None:
    config = ToolConfig(tool_error_handling=ToolErrorHandling.RETRY)
    assert call(bash, config=config, command="echo x >> log; exit 1").retries == 0
    assert (tmp_path / "log").read_text() == "x\n"


@linux
def test_a_program_that_ignores_sigchld_gets_the_output(tmp_path: Path) -> None:
    ignoring = PROGRAM.format(setup="signal.signal(signal.SIGCHLD, signal.SIG_IGN)", command="sleep 300 & echo hi")
    command = [sys.executable, "-c", ignoring, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("hi\n")
    assert done.stdout.endswith("[exit code unknown]\n")
