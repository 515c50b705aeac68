"""Running the command: in this process, or in one of its own."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli import main
from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Simulator

MODEL = "openai-compatible:sim"


@dataclass(frozen=True)
class Done:
    """What a run of the command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def ended(self, code: int, *words: str) -> bool:
        """Whether it ended with this code, and one line on standard error that has these words."""
        assert (self.code, self.err.count("\n")) == (code, 1), self
        assert not [word for word in words if word not in self.err], self.err
        return True


class Tty(io.StringIO):
    """A terminal in memory."""

    def isatty(self) -> bool:
        return True


class _Bytes(io.TextIOWrapper):
    """Standard input from memory, with bytes below it as the real one has."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")


class Surroundings:
    """A home directory of its own, and a simulator that the configuration points to."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.work = home / "work"
        self.work.mkdir()
        self._patch = monkeypatch
        for name in list(os.environ):
            if name.startswith(("DRAGOMAN_", "XDG_", "AI_")) or name.endswith(("_API_KEY", "_TOKEN")):
                monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
        if "keyring" in sys.modules:  # it looks at the variable once, perhaps in another test
            core = importlib.import_module("keyring.core")
            monkeypatch.setattr(core, "_keyring_backend", importlib.import_module("keyring.backends.fail").Keyring())
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.chdir(self.work)

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self._patch.setenv(name, value)

    @contextmanager
    def talking(self, script: Any = None, **given: Any) -> Generator[Simulator]:
        """A model that says what the script says answers inside the block."""
        with Simulator(script, **given) as simulator:
            self.set(DRAGOMAN_MODEL=MODEL, DRAGOMAN_BASE_URL=simulator.base_url("openai"))
            yield simulator

    @property
    def env(self) -> dict[str, str]:
        return dict(os.environ)

    def configure(self, text: str) -> Path:
        path = self.home / ".config" / "dragoman" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def here(self, *arguments: str, stdin: str | bytes | None = "") -> Done:
        """Run it in this process."""
        out, err = io.StringIO(), io.StringIO()
        data = stdin.encode() if isinstance(stdin, str) else stdin
        with self._patch.context() as patch:
            patch.setattr(sys, "stdin", None if data is None else _Bytes(data))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = main(list(arguments))
        return Done(code, out.getvalue(), err.getvalue())

    def ask(self, script: Any, *arguments: str, stdin: str | bytes | None = "") -> Done:
        """Run it in this process, with a model that says what the script says."""
        with self.talking(script):
            return self.here(*arguments, stdin=stdin)

    def apart(self, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
        """Run it in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "dragoman", *arguments],
            input=stdin,
            env={**self.env, **(env or {})},
            cwd=self.work,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Done(done.returncode, done.stdout, done.stderr)


def calling(name: str, arguments: Mapping[str, object], *, text: str = "", id: str = "c1") -> Reply:
    """A reply that calls a tool."""
    call = ToolCall(id, name, json.dumps(arguments))
    return Reply(text, call) if text else Reply(call)


def wait_for(path: Path) -> str:
    """What a file holds as soon as it holds something."""
    end = time.monotonic() + 60
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < end, f"{path.name} never came"
        time.sleep(0.05)
    return path.read_text().strip()
