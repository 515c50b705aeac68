"""`import dragoman` is cheap, and its public names are where they are said to be."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import dragoman
from dragoman import conversation

ROOT = Path(str(dragoman.__file__)).parent
HEAVY = {"argparse", "asyncio", "httptools", "jsonschema_rs", "msgspec", "pydantic"}


def loaded_after(statements: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after the statements."""
    code = f"import sys\n{statements}\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_nothing_heavy_and_no_room() -> None:
    loaded = loaded_after("import dragoman; dir(dragoman); dragoman.__version__")
    assert not HEAVY & loaded
    assert {name for name in loaded if name.startswith("dragoman")} == {
        "dragoman",
        "dragoman._door",
        "dragoman._version",
    }


def test_a_name_loads_its_own_room_when_it_is_used() -> None:
    loaded = loaded_after("import dragoman; dragoman.DragomanError")
    assert "dragoman.errors" in loaded
    assert not HEAVY & loaded


def test_importing_the_client_leaves_for_later_what_only_some_turns_need() -> None:
    loaded = loaded_after("from dragoman import ChatClient")
    codecs = {f"dragoman.providers.{name}" for name in ("counting", "failures", "prices", "prompt_cache", "requests")}
    standard = {"hashlib", "ipaddress", "logging", "pathlib", "socket", "ssl", "unicodedata"}
    assert not loaded & (codecs | standard | {"dragoman.providers.schema", "dragoman.tools.executor"})


def test_a_client_loads_its_own_provider_only() -> None:
    loaded = loaded_after("from dragoman import ChatClient; ChatClient('openai:gpt-5', key='k')")
    assert "dragoman.providers.openai_chat" in loaded
    others = {"asyncio", "httpx2", "xllamacpp", "dragoman.engines.local", "dragoman.engines.claude_cli"}
    assert not loaded & (others | {"dragoman.providers.anthropic", "dragoman.providers.gemini", "dragoman.mcp"})


def test_a_client_loads_the_stores_when_something_is_kept() -> None:
    made = "from dragoman import ChatClient; client = ChatClient('openai:gpt-5', key='k'); client.id; client.fork()"
    kept = "dragoman.chat.ledger"
    assert not {name for name in loaded_after(made) if name.startswith(("dragoman.stores.", kept))}
    assert kept in loaded_after(f"{made}; client.save()")


ROOMS = [dragoman, *[import_module(f"dragoman.{stub.parent.name}") for stub in ROOT.glob("*/__init__.pyi")]]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_every_name_at_a_door_is_there(room: ModuleType) -> None:
    assert dir(room) == sorted(set(dir(room)))
    for name in dir(room):
        found = getattr(room, name)
        assert getattr(room, name) is found
        # Once it is loaded, a module would hide what has its name at the door.
        assert found is dragoman.errors or not isinstance(found, ModuleType)


def test_the_root_has_few_names_and_each_is_that_of_its_room() -> None:
    assert len(dir(dragoman)) <= 80
    for name in set(dir(dragoman)) - {"DragomanError", "__version__", "errors"}:
        homes = [getattr(room, name) for room in [conversation, *ROOMS[1:]] if hasattr(room, name)]
        assert any(getattr(dragoman, name) is found for found in homes), name


def test_a_star_imports_what_the_door_offers() -> None:
    names: dict[str, object] = {}
    exec("from dragoman.loop import *", names)
    assert set(dir(import_module("dragoman.loop"))) <= names.keys()


def test_an_unknown_name_is_an_attribute_error_that_helps() -> None:
    with pytest.raises(AttributeError, match="module 'dragoman' has no attribute 'DragonError'") as caught:
        dragoman.DragonError  # noqa: B018 - the access is the test
    # With these two, the interpreter adds "Did you mean: 'DragomanError'?" to the traceback.
    assert caught.value.name == "DragonError"
    assert caught.value.obj is dragoman
