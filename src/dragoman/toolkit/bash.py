"""`Bash`: a shell command in the workspace.

The command runs with the rights of this program and is not held inside the workspace; what may run at all is for the
permission rules to say. It gets the variables on a list, and those that the program names. Nothing else is inherited:
no list of what must not pass can be complete, since a key may be in a variable of any name.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct

from dragoman.errors import ConfigurationError, ToolExecutionError, ToolTimeoutError
from dragoman.tools import AnyTool, ToolContext

from .base import Deadline, ready
from .process_group import Finished, new_token, run_command
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
    """The tool `Bash`."""
    shell = settings.shell or shutil.which("bash") or shutil.which("sh")
    if shell is None:
        raise ConfigurationError("There is no shell on this machine.", hint="Name one: BashSettings(shell=...).")

    # Never repeated by itself: nobody knows what a command has done before it failed.
    @ready(name="Bash", needs=["command"], retries=0)
    def bash(
        context: ToolContext[object], *, command: str = "", timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
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
        began = time.monotonic()
        deadline = Deadline.of(context, min(timeout_seconds or settings.seconds, settings.max_seconds))
        token = new_token()
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
        return _report(done, deadline.at - began)

    return bash


def _environment(token: str, settings: BashSettings) -> dict[str, str]:
    """The variables of a command: inherited ones, those named, and those given, which win."""
    passed = {name: os.environ[name] for name in (*sorted(_INHERITED), *settings.env_names) if name in os.environ}
    outer = os.environ.get(TOKEN_VARIABLE)  # a command may itself run a program that runs commands
    marked = {TOKEN_VARIABLE: f"{outer}:{token}" if outer else token}
    return {"PATH": os.defpath, **_FIXED, **passed, **settings.env, **marked}


def _report(done: Finished, seconds: float) -> str:
    """What the model reads, as a result or as an error."""
    parts = [done.stdout] if done.stdout else []
    if done.stderr:
        parts.append(f"[stderr]\n{done.stderr}")
    if done.left_behind:
        parts.append("[Processes left in the background were ended.]")
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
