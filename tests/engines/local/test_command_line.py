"""The command line with real models, as somebody uses it who has no key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.engines.local.models import DEFAULT
from dragoman.engines.local.storage import models_directory
from tests.cli.running import Surroundings
from tests.engines.local.real import SMALL, needed, real

pytestmark = real


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """An empty home, and the models of this machine."""
    models = str(models_directory())
    home = tmp_path / "home"
    home.mkdir()
    surroundings = Surroundings(home, monkeypatch)
    surroundings.set(DRAGOMAN_MODEL_DIR=models)
    return surroundings


def test_no_key_and_a_tool(around: Surroundings) -> None:
    needed(DEFAULT)
    asked = ["What's 12*7? Use the tool.", "-T", "calculator", "--approve", "auto"]
    command = [sys.executable, "-m", "dragoman", *asked]
    done = subprocess.run(
        command, env=around.env, cwd=around.work, capture_output=True, text=True, check=False, timeout=540
    )
    assert done.returncode == 0, done.stderr
    assert "84" in done.stdout
    first, called, returned = done.stderr.splitlines()
    assert first.startswith(f"dragoman: No key was found, so the local model answers (local:{DEFAULT})")
    assert called.startswith("→ calculator")
    assert returned.startswith("← calculator")
    assert returned.endswith("84")


def test_the_group(around: Surroundings) -> None:
    needed(SMALL)
    listed = around.apart("local", "list", "--json").json
    assert [row["present"] for row in listed if row["name"] == SMALL] == [True]
    file = Path(next(row["path"] for row in listed if row["name"] == SMALL))
    assert f"Models are kept in {file.parent} " in around.apart("local").err
    pulled = around.apart("local", "pull", SMALL)
    assert (pulled.code, pulled.out, pulled.err) == (0, f"{file}\n", "")
    measured = around.apart("local", "bench", f"local:{SMALL}")
    assert measured.code == 0, measured.err
    assert measured.out.startswith(f"local:{SMALL}: ready in ")
