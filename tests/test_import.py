"""`import dragoman` is cheap, and its public names are where they are said to be."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import dragoman

HEAVY = {"argparse", "asyncio", "docstring_parser", "httptools", "jsonschema_rs", "msgspec", "pydantic"}


def loaded_after(statements: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after the statements."""
    code = f"import sys\n{statements}\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_nothing_heavy_and_no_room() -> None:
    loaded = loaded_after("import dragoman; dir(dragoman); dragoman.__version__")
    assert not HEAVY & loaded
    assert {name for name in loaded if name.startswith("dragoman")} == {"dragoman", "dragoman._version"}


def test_a_name_loads_its_own_room_when_it_is_used() -> None:
    loaded = loaded_after("import dragoman; dragoman.DragomanError")
    assert "dragoman.errors" in loaded
    assert not HEAVY & loaded


def test_a_client_loads_its_own_provider_only() -> None:
    loaded = loaded_after("from dragoman import ChatClient; ChatClient('openai:gpt-5', key='k')")
    assert "dragoman.providers.openai_chat" in loaded
    others = {"asyncio", "httpx2", "xllamacpp", "dragoman.engines.local", "dragoman.engines.claude_cli"}
    assert not loaded & (others | {"dragoman.providers.anthropic", "dragoman.providers.gemini", "dragoman.mcp"})


def test_a_client_loads_the_stores_when_something_is_kept() -> None:
    made = "from dragoman import ChatClient; client = ChatClient('openai:gpt-5', key='k'); client.id; client.fork()"
    kept = "dragoman.chat.keeping"
    assert not {name for name in loaded_after(made) if name.startswith(("dragoman.stores.", kept))}
    assert kept in loaded_after(f"{made}; client.save()")


@pytest.mark.parametrize("name", dragoman.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(dragoman, name) is getattr(dragoman, name)


@pytest.mark.parametrize("name", dragoman._HOMES)
def test_a_public_name_is_the_one_in_its_home(name: str) -> None:
    home = import_module(dragoman._HOMES[name])
    is_module = home.__name__ == f"dragoman.{name}"
    assert getattr(dragoman, name) is (home if is_module else getattr(home, name))
    assert is_module or name in getattr(home, "__all__", [name]), "a name is public here only if it is public at home"


def test_dir_lists_the_public_names() -> None:
    assert dir(dragoman) == sorted(dragoman.__all__)


def test_an_unknown_name_is_an_attribute_error_that_helps() -> None:
    with pytest.raises(AttributeError, match="no attribute 'DragonError'; its public names are listed in") as caught:
        dragoman.DragonError  # noqa: B018 - the access is the test
    # With these two, the interpreter adds "Did you mean: 'DragomanError'?" to the traceback.
    assert caught.value.name == "DragonError"
    assert caught.value.obj is dragoman


def test_the_table_the_list_and_the_imports_for_type_checkers_agree() -> None:
    """A name is published in three places; a type checker sees only one of them."""
    tree = ast.parse(Path(str(dragoman.__file__)).read_text(encoding="utf-8"))
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imported: dict[str, str] = {}
    for node in guarded.body:
        assert isinstance(node, ast.ImportFrom), ast.unparse(node)
        for alias in node.names:
            is_module = node.module == "dragoman"
            imported[alias.asname or alias.name] = f"dragoman.{alias.name}" if is_module else str(node.module)
    assert imported == dragoman._HOMES
    assert set(dragoman.__all__) == {"__version__", *dragoman._HOMES}
    assert dragoman.__all__ == sorted(dragoman.__all__)
    assert list(dragoman._HOMES) == sorted(dragoman._HOMES)
