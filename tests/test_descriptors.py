"""Files that are replaced as a whole."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dragoman._descriptors import replace_file


def test_only_the_owner_can_read_the_file_and_its_new_directory(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kept.json"
    replace_file(path, b"first")
    path.chmod(0o644)
    replace_file(path, b"second")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"second", 0o600)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_an_error_or_ctrl_c_keeps_the_old_file_and_leaves_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    path = tmp_path / "kept.json"
    replace_file(path, b"old")

    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(type(error)):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_readers_see_one_content_or_the_other(tmp_path: Path) -> None:
    path, contents = tmp_path / "kept", [bytes([number]) * 100_000 for number in range(4)]
    replace_file(path, contents[0])
    writers = [
        threading.Thread(target=lambda own=own: [replace_file(path, own) for _ in range(20)]) for own in contents
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_bytes() in contents
    for writer in writers:
        writer.join()
    assert list(tmp_path.iterdir()) == [path]
