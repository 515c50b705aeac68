"""Nothing has become several times slower than the floor of the same run; see bench/regression.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import regression

ROOT = Path(__file__).resolve().parent.parent.parent


def test_nothing_is_far_slower_than_it_was() -> None:
    # In a process of its own: where coverage is measured, it would be measured there too.
    done = subprocess.run(
        [sys.executable, "bench/regression.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the floor (at most") == 2 * len(regression.OPERATIONS)


def test_what_is_too_slow_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    turn = regression.OPERATIONS["turn"]._replace(times=1, plain=0.001, on_loop=0.001)
    monkeypatch.setattr(regression, "OPERATIONS", {"turn": turn})
    monkeypatch.setattr(regression, "ROUNDS", 1)
    assert regression.main() == 1
    assert capsys.readouterr().out.count("TOO SLOW") == 2
