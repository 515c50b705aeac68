"""`Bash`: a shell command in the workspace.

The command runs with the rights of this program and is not held inside the workspace; what may run at all is for the
permission rules to say. It gets the variables on a list, and those that the program names. Nothing else is inherited:
no list of what must not pass can be complete, since a key may be in a variable of any name.

A command is over when the shell is: a process that it leaves in the background, and that may hold the pipe open for
ever, is ended with it. Its process group takes most of them in one step, and nothing in it can escape by forking. A
process that made a session of its own is found by the token in its environment, or as a descendant; for that Linux must
tell (/proc). What clears its environment and outlives its parent is not found: containing that takes a container.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated, Final, NamedTuple, cast

from msgspec import Meta, Struct

from dragoman._descriptors import Descriptor, owned
from dragoman.errors import ConfigurationError, ToolExecutionError, ToolTimeoutError
from dragoman.tools import AnyTool, ToolContext, tool

from .base import Deadline, Given, OutOfTimeError
from .files import UTF8, clip, skip_rest_of_character
from .workspace import Workspace

_MAX_COMMAND: Final = 100_000
"""Bytes. The system takes arguments of up to 128 KiB."""

_INHERITED: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"}
    | {f"LC_{kind}" for kind in ("ALL", "COLLATE", "CTYPE", "MESSAGES", "MONETARY", "NUMERIC", "TIME")}
)
_FIXED: Final = {
    # Nobody looks at a terminal: no colours, no pages to turn, no questions.
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
TOKEN_VARIABLE: Final = "DRAGOMAN_SHELL"  # noqa: S105 -- no secret, a mark
"""Marks the processes of a command, so that all of them can be found."""


class BashSettings(Struct, frozen=True, kw_only=True):
    """How commands run."""

    seconds: float = 120.0
    """How long a command may take where the model says nothing."""
    max_seconds: float = 600.0
    """How long the model may ask for."""
    max_output: int = 30_000
    """Bytes that are kept of standard output, and as many of standard error."""
    env_names: tuple[str, ...] = ()
    """Variables of this program that commands get beside the usual harmless ones."""
    env: Mapping[str, str] = {}
    """Variables with their values."""
    shell: str | None = None
    """The path of a shell that knows `-c`; None: bash, or sh where there is none."""


def bash_tool(workspace: Workspace, *, settings: BashSettings = BashSettings()) -> AnyTool:  # noqa: B008 -- frozen
    shell = settings.shell or shutil.which("bash") or shutil.which("sh")
    if shell is None:
        raise ConfigurationError("There is no shell on this machine.", hint="Name one: BashSettings(shell=...).")

    # Never repeated by itself: nobody knows what a command has done before it failed.
    @tool(name="Bash", retries=0)
    def bash(
        context: ToolContext[object], *, command: Given, timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    ) -> str:
        """Run a shell command in the workspace's directory and return its output and exit code.

        Each command starts afresh: variables and `cd` do not last, and what it leaves in the background is ended.
        There is no standard input. A long output is cut in the middle.

        Args:
            command: The command, for bash.
            timeout_seconds: How long it may take.
        """
        if len(command.encode("utf-8", "replace")) > _MAX_COMMAND:
            message = f"the command is longer than {_MAX_COMMAND} bytes."
            raise ToolExecutionError(message, hint="Write it to a file and run that.")
        deadline = Deadline.of(context, min(timeout_seconds or settings.seconds, settings.max_seconds))
        token = secrets.token_hex(16)  # something that only the processes of this command bear
        try:
            done = run_command(
                [shell, "-c", "--", command],
                cwd=workspace.root,
                env=_environment(token, settings),
                token=token,
                deadline=deadline,
                max_output=settings.max_output,
            )
        except (OSError, ValueError) as error:
            raise ToolExecutionError(f"the command could not be started: {error}.") from error
        return _report(done, deadline.seconds)

    return bash


def _environment(token: str, settings: BashSettings) -> dict[str, str]:
    """The variables of a command: inherited ones, those named, and those given, which win."""
    passed = {name: os.environ[name] for name in (*sorted(_INHERITED), *settings.env_names) if name in os.environ}
    outer = os.environ.get(TOKEN_VARIABLE)  # a command may itself run a program that runs commands
    marked = {TOKEN_VARIABLE: f"{outer}:{token}" if outer else token}
    return {"PATH": os.defpath, **_FIXED, **passed, **settings.env, **marked}


def _report(done: Finished, seconds: float) -> str:
    parts = [done.stdout] if done.stdout else []
    if done.stderr:
        parts.append(f"[stderr]\n{done.stderr}")
    if done.left_behind:
        parts.append("[Processes left in the background were killed.]")
    if not done.in_time:
        parts.append(f"[Stopped: the command did not end within {seconds:.3g} seconds.]")
        raise ToolTimeoutError(_join(parts), hint="", details=done)
    parts.append(_exit_line(done.exit_code))
    if done.exit_code:
        raise ToolExecutionError(_join(parts), hint="", details=done)
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


# --- one command from start to end, with all the processes that it starts ---------------------------------------------

_READ: Final = 64 * 1024
_POLL_SECONDS: Final = 0.05
"""How soon a cancelled call is noticed while it waits."""
_TERM_SECONDS: Final = 0.1
"""How long a command that must end may take for its clean-up."""
_DRAIN_SECONDS: Final = 0.3
"""How long the rest of the output may take when the shell is gone."""
_LAST_SECONDS: Final = 5.0
"""How long a process that was killed may take to be gone."""
_KILL_ROUNDS: Final = 100


class Finished(Struct, frozen=True, kw_only=True):
    in_time: bool
    """Whether it ended by itself."""
    exit_code: int | None
    """Negative for a signal; None if somebody else has taken it."""
    stdout: str
    stderr: str
    left_behind: bool
    """Whether processes in the background had to be ended."""


def run_command(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str], token: str, deadline: Deadline, max_output: int
) -> Finished:
    """Run a command and wait for its end. Raises OSError or ValueError if it cannot be started."""
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    try:
        child = subprocess.Popen(  # noqa: S603 -- this is what the tool is for
            argv, cwd=cwd, env=dict(env), stdin=nothing, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
        )
        running = _Running(child, token, max_output)
    except KeyboardInterrupt:  # between the start and the return of Popen: only its mark tells which process it is
        kill_all(None, token)
        raise
    in_time = False
    try:
        in_time = running.wait(deadline)
    finally:  # also when the call is cancelled, or Ctrl-C comes
        left_behind = running.end(gently=not in_time)
    return Finished(
        in_time=in_time,
        exit_code=running.exit_code,
        stdout=running.stdout.text,
        stderr=running.stderr.text,
        left_behind=left_behind and in_time,
    )


class _Running:
    def __init__(self, child: subprocess.Popen[bytes], token: str, max_output: int) -> None:
        self._child: subprocess.Popen[bytes] = child
        self._token: str = token
        self.stdout: Output = Output(max_output)
        self.stderr: Output = Output(max_output)
        self.exit_code: int | None = None
        self._taken: bool = False
        """Somebody else has waited for the shell."""
        self._poll: select.poll = select.poll()
        self._pipes: dict[int, tuple[IO[bytes], Output]] = {}
        for pipe, output in ((child.stdout, self.stdout), (child.stderr, self.stderr)):
            opened = cast("IO[bytes]", pipe)
            os.set_blocking(opened.fileno(), False)
            self._pipes[opened.fileno()] = (opened, output)
            self._poll.register(opened.fileno(), select.POLLIN)
        self._handle: Descriptor = Descriptor(-1)
        with suppress(OSError, AttributeError):  # Linux only; elsewhere we look now and then
            self._handle = owned(os.pidfd_open, child.pid)
            self._poll.register(self._handle.number, select.POLLIN)

    def wait(self, deadline: Deadline) -> bool:
        """Take in output until the shell is gone, or the time is over; whether it is gone."""
        try:
            while not self._is_over():
                deadline.check()
                self._take(min(_POLL_SECONDS, max(0.0, deadline.at - time.monotonic())))
        except OutOfTimeError:
            return False
        return True

    def end(self, *, gently: bool) -> bool:
        """End whatever still runs, and take in what is left of the output. Whether more than the shell was left."""
        leader = None if self._taken else self._child.pid
        known: list[Process] = []
        try:
            if gently and leader is not None:
                known = processes_of(leader, self._token)
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(leader, signal.SIGTERM)
                self._take_until(self._is_over, _TERM_SECONDS)
            else:
                self._take_until(lambda: not self._pipes, _DRAIN_SECONDS)
        finally:
            found = kill_all(None if self._taken else leader, self._token, known)
            self._take_until(lambda: not self._pipes, _DRAIN_SECONDS)
            with suppress(subprocess.TimeoutExpired):  # the kernel has not let go of it: nothing more can be done
                code = self._child.wait(_LAST_SECONDS)
                self.exit_code = None if self._taken else code
            for pipe, _ in self._pipes.values():
                pipe.close()
            self._handle.close()
        return found

    def _take_until(self, done: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not done() and (left := end - time.monotonic()) > 0:
            self._take(min(left, _POLL_SECONDS))

    def _is_over(self) -> bool:
        """Whether the shell has ended. It is not waited for yet: its number must stay its own until all are killed."""
        if not hasattr(os, "waitid"):
            return self._child.poll() is not None
        try:
            return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody has waited for all children, and knows how it ended
            self._taken = True
            return True

    def _take(self, seconds: float) -> None:
        for number, _ in self._poll.poll(seconds * 1000):
            if number == self._handle.number:
                self._poll.unregister(number)  # it stays so; what is left is to drain the pipes
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


class Output:
    """One stream. Half of the limit is for the beginning, half for the end, where results and errors mostly are."""

    def __init__(self, limit: int) -> None:
        self._half: int = max(1, limit // 2)
        self._head: bytearray = bytearray()
        self._tail: bytearray = bytearray()
        self.total: int = 0
        """How many bytes came in all."""

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    @property
    def text(self) -> str:
        """What is kept, with a mark where something is missing."""
        if self.total - len(self._head) <= min(len(self._tail), self._half):
            return _readable(bytes(self._head + self._tail))
        head = clip(bytes(self._head), UTF8)
        tail = skip_rest_of_character(bytes(self._tail[-self._half :]))
        left_out = self.total - len(head) - len(tail)
        mark = f"[… {left_out} bytes left out of {self.total}; to see them, write the output to a file and read that …]"
        return f"{_readable(head)}\n{mark}\n{_readable(tail)}"


def _readable(data: bytes) -> str:
    # NUL is valid text, but databases and terminals choke on it.
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


# --- finding and killing processes -----------------------------------------------------------------------------------


class Process(NamedTuple):
    pid: int
    state: str
    parent: int
    group: int
    started: int


def kill_all(leader: int | None, token: str, known: Collection[Process] = ()) -> bool:
    """Kill all processes of a command. Whether there was something to kill beside the leader.

    The leader must not have been waited for: until then nobody else can get its number. None if it has. `known` are
    processes that were seen before: one whose parent has ended meanwhile is nobody's descendant any more.
    """
    found = False
    for _ in range(_KILL_ROUNDS):
        left = processes_of(leader, token, known)
        if leader is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)
        if not left:
            break
        found = True
        for each in left:
            _kill(each)
    return found


def processes_of(leader: int | None, token: str, known: Collection[Process] = ()) -> list[Process]:
    """The processes of a command but for its leader: of its group, its descendants, and who bears its token."""
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
        or (each.started >= begun and _bears(each.pid, token))
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
        # The name of the program, in brackets, may hold anything.
        fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
        return Process(int(name), fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19]))
    return None


def _bears(pid: int, token: str) -> bool:
    with suppress(OSError):
        return token.encode() in Path("/proc", str(pid), "environ").read_bytes()
    return False
