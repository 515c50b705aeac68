from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from dragoman.errors import ToolConflictError, ToolNotFoundError
from dragoman.tools import AnyTool, Tool, ToolRegistry
from dragoman.tools.registry import as_tool_set


def named(name: str, *tags: str) -> AnyTool:
    return Tool.from_schema(lambda: name, name=name, tags=tags)


A, B, C = named("a", "x"), named("b", "x", "y"), named("c")


def names(tools: object) -> list[str]:
    return [each.name for each in tools]  # type: ignore[attr-defined]


def test_register_get_list_unregister() -> None:
    registry = ToolRegistry()
    assert len(registry) == 0
    assert registry.register(A) is A
    registry.register(B)
    assert registry.get("a") is registry.find("a") is A
    assert registry.find("z") is None
    assert registry.list() == list(registry) == [A, B]
    assert "a" in registry
    assert "z" not in registry
    assert registry.unregister("a") is A
    assert names(registry) == ["b"]


def test_unknown_and_duplicate_names() -> None:
    registry = ToolRegistry([named("get_weather"), named("get_time"), A])
    with pytest.raises(ToolNotFoundError, match="tool 'get_wether' not found. Did you mean 'get_weather'"):
        registry.get("get_wether")
    with pytest.raises(ToolNotFoundError, match="'get_weather' or 'get_time'"):
        registry.unregister("zzzzz")
    with pytest.raises(ToolNotFoundError, match="No tools are available"):
        ToolRegistry().get("x")
    registry.register(A)  # the same one again is no conflict
    other = named("a")
    with pytest.raises(ToolConflictError, match="two different tools named 'a'"):
        registry.register(other)
    assert registry.get("a") is A
    registry.register(other, replace=True)
    assert registry.get("a") is other


def test_merging() -> None:
    left, right = ToolRegistry([A, B]), ToolRegistry([C, named("a")])
    with pytest.raises(ToolConflictError):
        left.merge(right)
    assert names(left.merge(ToolRegistry([C]), ToolRegistry([A]))) == ["a", "b", "c"]
    assert names(left) == ["a", "b"]


def test_views_filter_rename_and_follow() -> None:
    registry = ToolRegistry([A, B])
    assert names(registry.filtered(["b", "zz"])) == ["b"]
    assert names(registry.filtered(lambda t: t.name < "b")) == ["a"]
    assert names(registry.filtered(lambda t: "y" in t.spec.tags)) == ["b"]
    assert names(registry.prefixed("git_")) == ["git_a", "git_b"]
    assert names(registry.renamed({"a": "alpha", "q": "r"})) == ["alpha", "b"]
    assert names(registry.filtered(["a", "b"]).prefixed("p_").renamed({"p_a": "first"})) == ["first", "p_b"]
    view = registry.prefixed("x_")
    assert view.by_name is view.by_name
    registry.register(C)
    assert names(view) == ["x_a", "x_b", "x_c"]
    assert view.find("x_c") is not None
    assert view.find("c") is None
    assert names(view.clone()) == ["x_a", "x_b", "x_c"]
    assert "x_a" in repr(view)
    assert "empty" in repr(ToolRegistry())
    with pytest.raises(ToolConflictError):
        names(registry.renamed({"a": "b"}))


def test_tools_in_any_form() -> None:
    registry = ToolRegistry([A])
    assert as_tool_set(registry) is registry
    assert names(as_tool_set({"a": A, "other": B})) == ["a", "other"]
    assert names(as_tool_set([A, B])) == ["a", "b"]

    def ping() -> str:
        return "pong"

    assert names(as_tool_set({"pong": ping, "b": B})) == ["pong", "b"]


def test_concurrent_changes_show_no_torn_state() -> None:
    registry = ToolRegistry([named("fixed")])
    view = registry.filtered(lambda t: not t.name.startswith("odd"))

    def change(prefix: str) -> None:
        mine = [named(f"{prefix}{i}") for i in range(10)]
        for each in mine * 20:
            registry.register(each)
            snapshot = registry.by_name
            assert each.name in registry
            assert list(snapshot) == [other.name for other in snapshot.values()]
            assert not any(name.startswith("odd") for name in view.by_name)
            assert registry.unregister(each.name) is each

    with ThreadPoolExecutor() as threads:
        list(threads.map(change, ["even", "odd", "other"]))
    assert names(registry) == ["fixed"]
