"""`Bash`: a shell command in the workspace.

The command runs with the rights of this program and is not confined to the workspace; permission rules decide what may
run. It inherits the variables on a list, and those that the program names, because a key may be in any other.

A command ends with its shell: processes that it leaves in the background, which could hold the pipe open forever, are
killed. Most of them are in its process group, which cannot be escaped by forking. A process with a session of its own
is found by a token in its environment, or as a descendant, in /proc of Linux. One that clears its environment and
outlives its parent is not found; only a container can stop that.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated, Final, NamedTuple, cast

from msgspec import Meta, Struct

from dragoman._descriptors import Descriptor, owned
from dragoman._programs import find_program, search_path
from dragoman.errors import ConfigurationError, ToolExecutionError, ToolTimeoutError
from dragoman.tools import AnyTool, ToolContext, tool

from .base import Deadline, Given, OutOfTimeError
from .files import UTF8, clip, skip_rest_of_character
from .workspace import Workspace

_MAX_COMMAND: Final = 100_000
"""Bytes. The system takes arguments of up to 128 KiB."""
_MAX_SECONDS: Final = 600.0
"""The longest timeout that the model can set."""
_MAX_OUTPUT: Final = 30_000
"""Bytes that are kept of standard output, and of standard error."""

_INHERITED: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"}
    | {f"LC_{kind}" for kind in ("ALL", "COLLATE", "CTYPE", "MESSAGES", "MONETARY", "NUMERIC", "TIME")}
)
_FIXED: Final = {
    # There is no terminal: no colours, no pager, no questions.
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
TOKEN_VARIABLE: Final = "DRAGOMAN_SHELL"  # noqa: S105 -- no secret, a mark
"""Holds the token by which the processes of a command are found."""


class BashSettings(Struct, frozen=True, kw_only=True):
    """How commands run."""

    seconds: float = 120.0
    """How long a command may take, unless the model sets a timeout."""
    env_names: tuple[str, ...] = ()
    """Variables of this program that commands inherit, beside the usual harmless ones."""
    env: Mapping[str, str] = {}
    """Further variables with their values."""


def bash_tool(workspace: Workspace, *, settings: BashSettings = BashSettings()) -> AnyTool:  # noqa: B008 -- frozen
    shell = find_program("bash") or find_program("sh")
    if shell is None:
        raise ConfigurationError("There is neither bash nor sh on this machine.")

    # Never retried: it is unknown what a command did before it failed.
    @tool(name="Bash", retries=0)
    def bash(
        context: ToolContext[object], *, command: Given, timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    ) -> str:
        """Run a shell command in the workspace's directory and return its output and exit code.

        Each command starts afresh: variables and `cd` do not last, and background processes are killed at its end.
        There is no standard input. A long output is cut in the middle.

        Args:
            command: The command, for bash.
            timeout_seconds: How long it may take.
        """
        if len(command.encode("utf-8", "replace")) > _MAX_COMMAND:
            message = f"the command is longer than {_MAX_COMMAND} bytes."
            raise ToolExecutionError(message, hint="Write it to a file and run that.")
        deadline = Deadline.of(context, min(timeout_seconds or settings.seconds, max(_MAX_SECONDS, settings.seconds)))
        token = secrets.token_hex(16)
        try:
            done = run_command([shell, "-c", "--", command], workspace.root, _environment(token, settings), deadline)
        except (OSError, ValueError) as error:
            raise ToolExecutionError(f"the command could not be started: {error}.") from error
        return _report(done, deadline.seconds)

    return bash


def _environment(token: str, settings: BashSettings) -> dict[str, str]:
    """The variables of a command: inherited ones, named ones, and given ones, which win."""
    passed = {name: os.environ[name] for name in (*sorted(_INHERITED), *settings.env_names) if name in os.environ}
    outer = os.environ.get(TOKEN_VARIABLE)  # a command may itself run a program that runs commands
    marked = {TOKEN_VARIABLE: f"{outer}:{token}" if outer else token}
    return {**_FIXED, **passed, "PATH": search_path(os.environ), **settings.env, **marked}


def _report(done: _Command, seconds: float) -> str:
    parts = [done.stdout.text] if done.stdout.text else []
    if done.stderr.text:
        parts.append(f"[stderr]\n{done.stderr.text}")
    if done.left_behind:
        parts.append("[Processes left in the background were killed.]")
    if not done.in_time:
        parts.append(f"[Stopped: the command did not end within {seconds:.3g} seconds.]")
        raise ToolTimeoutError(_join(parts), hint="")
    parts.append(_exit_line(done.exit_code))
    if done.exit_code:
        raise ToolExecutionError(_join(parts), hint="")
    return _join(parts)


def _join(parts: list[str]) -> str:
    return "\n".join([part.removesuffix("\n") for part in parts])


def _exit_line(code: int | None) -> str:
    if code is None or code >= 0:
        return f"[exit code {'unknown' if code is None else code}]"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"[ended by {name}]"


# --- running a command -----------------------------------------------------------------------------------------------

_READ: Final = 64 * 1024
_POLL_SECONDS: Final = 0.05
"""How soon a cancelled call is noticed."""
_TERM_SECONDS: Final = 0.1
"""How long a command may take to clean up after SIGTERM."""
_DRAIN_SECONDS: Final = 0.3
"""How long the rest of the output may take once the shell has ended."""
_REAP_SECONDS: Final = 5.0
"""How long a killed process may take to be gone."""
_KILL_ROUNDS: Final = 100


def run_command(argv: Sequence[str], cwd: str, env: Mapping[str, str], deadline: Deadline) -> _Command:
    """Run a command to its end. Raises OSError or ValueError if it cannot be started."""
    pipe, nothing, token = subprocess.PIPE, subprocess.DEVNULL, env[TOKEN_VARIABLE].rpartition(":")[2]
    try:
        child = subprocess.Popen(  # noqa: S603 -- this is what the tool is for
            argv, cwd=cwd, env=dict(env), stdin=nothing, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
        )
        command = _Command(child, token)
    except KeyboardInterrupt:  # between the start and the return of Popen: only the token identifies the process
        kill_all(None, token)
        raise
    try:
        command.in_time = command.wait(deadline)
    finally:  # also when the call is cancelled, or on Ctrl-C
        command.end()
    return command


class _Command:
    """A command and its output, while it runs and after its end."""

    def __init__(self, child: subprocess.Popen[bytes], token: str) -> None:
        self._child: subprocess.Popen[bytes] = child
        self._token: str = token
        self.stdout: _Output = _Output(_MAX_OUTPUT)
        self.stderr: _Output = _Output(_MAX_OUTPUT)
        self.in_time: bool = False
        """Whether it ended by itself."""
        self.exit_code: int | None = None
        """Negative for a signal; None if this program ignores its children."""
        self.left_behind: bool = False
        """Whether background processes had to be killed."""
        self._reaped: bool = False
        """The exit of the shell was taken by somebody else."""
        self._poll: select.poll = select.poll()
        self._pipes: dict[int, tuple[IO[bytes], _Output]] = {}
        for pipe, output in ((child.stdout, self.stdout), (child.stderr, self.stderr)):
            opened = cast("IO[bytes]", pipe)
            os.set_blocking(opened.fileno(), False)
            self._pipes[opened.fileno()] = (opened, output)
            self._poll.register(opened.fileno(), select.POLLIN)
        self._handle: Descriptor = Descriptor(-1)
        with suppress(OSError, AttributeError):  # only on Linux; elsewhere the shell is polled
            self._handle = owned(os.pidfd_open, child.pid)
            self._poll.register(self._handle.number, select.POLLIN)

    def wait(self, deadline: Deadline) -> bool:
        """Read output until the shell has ended; False if the time is over first."""
        try:
            while not self._is_over():
                deadline.check()
                self._read(min(_POLL_SECONDS, max(0.0, deadline.at - time.monotonic())))
        except OutOfTimeError:
            return False
        return True

    def end(self) -> None:
        """Kill whatever still runs, and read the rest of the output."""
        leader = None if self._reaped else self._child.pid
        known: list[Process] = []
        try:
            if not self.in_time and leader is not None:
                known = processes_of(leader, self._token)
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(leader, signal.SIGTERM)
                self._read_until(self._is_over, _TERM_SECONDS)
            else:
                self._read_until(lambda: not self._pipes, _DRAIN_SECONDS)
        finally:
            had_others = kill_all(None if self._reaped else leader, self._token, known)
            self.left_behind = had_others and self.in_time
            self._read_until(lambda: not self._pipes, _DRAIN_SECONDS)
            with suppress(subprocess.TimeoutExpired):  # stuck in the kernel: nothing more can be done
                code = self._child.wait(_REAP_SECONDS)
                self.exit_code = None if self._reaped else code
            for pipe, _ in self._pipes.values():
                pipe.close()
            self._handle.close()

    def _read_until(self, done: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not done() and (left := end - time.monotonic()) > 0:
            self._read(min(left, _POLL_SECONDS))

    def _is_over(self) -> bool:
        """Whether the shell has ended. It is not reaped yet, so that its pid stays its own until all are killed."""
        if not hasattr(os, "waitid"):
            return self._child.poll() is not None
        try:
            return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # this program ignores its children, or somebody else has reaped it
            self._reaped = True
            return True

    def _read(self, seconds: float) -> None:
        for number, _ in self._poll.poll(seconds * 1000):
            if number == self._handle.number:
                self._poll.unregister(number)  # it stays readable; only the pipes are left
                continue
            pipe, output = self._pipes[number]
            try:
                data = os.read(number, _READ)
            except BlockingIOError:
                continue
            if data:
                output.feed(data)
            else:
                self._poll.unregister(number)
                del self._pipes[number]
                pipe.close()


class _Output:
    """One stream. Half of the limit is for the beginning, half for the end, where results and errors usually are."""

    def __init__(self, limit: int) -> None:
        self._half: int = max(1, limit // 2)
        self._head: bytearray = bytearray()
        self._tail: bytearray = bytearray()
        self._total: int = 0

    def feed(self, data: bytes) -> None:
        self._total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    @property
    def text(self) -> str:
        """What was kept, with a mark where something is missing."""
        if self._total - len(self._head) <= min(len(self._tail), self._half):
            return _readable(bytes(self._head + self._tail))
        head = clip(bytes(self._head), UTF8)
        tail = skip_rest_of_character(bytes(self._tail[-self._half :]))
        left_out = self._total - len(head) - len(tail)
        mark = (
            f"[… {left_out} bytes left out of {self._total}; to see them, write the output to a file and read that …]"
        )
        return f"{_readable(head)}\n{mark}\n{_readable(tail)}"


def _readable(data: bytes) -> str:
    # NUL is valid text, but databases and terminals do not accept it.
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


# --- finding and killing processes -----------------------------------------------------------------------------------


class Process(NamedTuple):
    pid: int
    state: str
    parent: int
    group: int
    started: int


def kill_all(leader: int | None, token: str, known: Collection[Process] = ()) -> bool:
    """Kill all processes of a command; whether there were others than the leader.

    The leader must not have been reaped, so that its pid is not reused; None if it has. `known` are processes that were
    seen before: one whose parent has ended is no longer found as a descendant.
    """
    had_others = False
    for _ in range(_KILL_ROUNDS):
        others = processes_of(leader, token, known)
        if leader is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)
        if not others:
            break
        had_others = True
        for each in others:
            _kill(each)
    return had_others


def processes_of(leader: int | None, token: str, known: Collection[Process] = ()) -> list[Process]:
    """The processes of a command without its leader: its group, its descendants, and those with its token."""
    processes: list[Process] = []
    with suppress(OSError):
        names = [name for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 -- no need for paths
        processes = [each for name in names if (each := _process(name)) is not None]
    seen = {(each.pid, each.started) for each in known}
    begun = next((each.started for each in processes if each.pid == leader), 0)
    ours = {
        each.pid
        for each in processes
        if each.group == leader
        or (each.pid, each.started) in seen
        or (each.started >= begun and _has_token(each.pid, token))
    }
    ours |= set() if leader is None else {leader}
    while more := {each.pid for each in processes if each.parent in ours} - ours:
        ours |= more
    ours -= {leader or 0, os.getpid()}
    return [each for each in processes if each.pid in ours and each.state not in "ZX"]


def _kill(process: Process) -> None:
    with suppress(OSError, AttributeError), owned(os.pidfd_open, process.pid) as handle:
        now = _process(str(process.pid))
        if now is not None and now.started == process.started:
            signal.pidfd_send_signal(handle.number, signal.SIGKILL)


def _process(name: str) -> Process | None:
    with suppress(OSError, ValueError, IndexError):
        # The name of the program, in brackets, may contain anything.
        fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
        return Process(int(name), fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19]))
    return None


def _has_token(pid: int, token: str) -> bool:
    with suppress(OSError):
        return token.encode() in Path("/proc", str(pid), "environ").read_bytes()
    return False
