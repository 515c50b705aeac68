from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dragoman.toolkit import PermissionChecker, PermissionPolicy
from dragoman.toolkit.permissions.patterns import PathResolver, Root, compile_path
from dragoman.toolkit.permissions.rules import Match
from dragoman.tools import Tool
from tests.toolkit.permissions.helpers import allow, ask, call, decision, deny, pairs


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with links that lead out of it, into it and around in it."""
    inside, outside = tmp_path / "work", tmp_path / "outside"
    for directory in (inside / "src" / "deep", inside / "docs", outside / "deep", tmp_path / "work-not"):
        directory.mkdir(parents=True)
    for file in (inside / "src" / "a.py", inside / ".env", outside / "secret", tmp_path / "work-not" / "x"):
        file.touch()
    (inside / "src" / "out").symlink_to(outside)
    (inside / "src" / "out-file").symlink_to(outside / "secret")
    (inside / "src" / "env").symlink_to(inside / ".env")
    (inside / "link").symlink_to(inside / "src")
    (inside / "loop").symlink_to(inside / "loop")
    (inside / "relative").symlink_to("../outside")
    (inside / "chain").symlink_to("relative")
    (inside / "dangling").symlink_to(outside / "nothing-yet")
    (tmp_path / "same").symlink_to(inside)
    return inside


HOSTILE = [
    "../outside/secret", "src/../../outside/secret", "src/out/secret", "src/out-file", "src/out",
    "src/out/../outside/secret", "relative/secret", "chain/secret", "dangling", "loop", "loop/x", "/etc/passwd",
    "//etc/passwd", "/proc/self/environ", "~/.ssh/id_rsa", "~root/.ssh/id_rsa", "~", "..", "../work-not/x",
    "./../outside", "src/deep/../../../outside/secret", "src/./../../outside", "file:///etc/passwd", "a\0b",
    "C:\\Windows", "x/" * 3000, "x" * 300,
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.parametrize("rules", [[], [allow("Read", path=".")], [allow("Read", path="src")], [allow(path="src/**")]])
def test_a_path_out_of_the_workspace_is_not_allowed(path: str, rules: list[object], workspace: Path) -> None:
    assert decision(rules, call("Read", file_path=path), workspace) == "ask"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path", ["src/a.py", "src", "./src/../src/a.py", "link/a.py", "src/env", "new/file", ".", "src/out/../a.py", "ä"]
)
def test_a_path_inside_is_read_without_asking(path: str, workspace: Path) -> None:
    expected = "ask" if path == "src/out/../a.py" else "allow"
    assert decision([], call("Read", file_path=path), workspace) == expected, "it may end beside the link's target"
    assert decision([], call("Read", file_path=str(workspace / path)), workspace) == expected


def test_the_workspace_may_be_a_link(workspace: Path) -> None:
    same = workspace.parent / "same"
    assert decision([], call("Read", file_path=str(same / "src" / "a.py")), same) == "allow"
    assert decision([], call("Read", file_path="src/a.py"), same) == "allow"
    assert decision([allow("Write", path="src")], call("Write", file_path=str(workspace / "src/b")), same) == "allow"
    assert decision([allow("Write", path=str(same / "src"))], call("Write", file_path="src/b"), same) == "allow"


ALLOWING = {
    ("src", "allow"): ["src/a.py", "src"],
    ("src/", "allow"): ["src/deep/x"],
    ("src", "ask"): ["srcs/a.py"],
    ("**/*.py", "ask"): ["src/a.pyc"],
    ("**", "ask"): ["/etc/passwd"],
    ("s?c/[ab].py", "allow"): ["src/a.py"],
    ("s?c/[ab].py", "ask"): ["src/c.py"],
    ("src/../docs", "allow"): ["docs/x"],
    ("src/../docs", "ask"): ["src/x"],
    ("SRC", "ask"): ["src/a.py"],
    ("link", "ask"): ["link/a.py"],
    ("src/out", "ask"): ["src/out/secret"],
    ("/", "allow"): ["/etc/passwd"],
}
DENYING = {
    (".env", "deny"): [".env", "./src/../.env", "src/env", ".ENV"],
    (".env", "ask"): [".", "loop", "a\0b"],
    (".env", "allow"): [".envrc", "docs"],
    ("**/.env", "deny"): ["src/deep/.env", ".env/below"],
    ("**/.env", "ask"): ["src"],
    ("**/.e*", "deny"): ["src/deep/.env"],
    ("src", "deny"): ["src/deep/x", "link/a.py"],
    ("link", "deny"): ["link/a.py", "src/a.py"],
    ("src/out", "deny"): ["src/out/secret"],
    ("../outside", "deny"): ["src/out/secret", "src/out-file", "dangling"],
    ("caf\u00e9", "deny"): ["cafe\u0301/x"],
    ("~/secrets", "deny"): ["~/secrets/x"],
    ("~/../secrets", "deny"): [str(Path.home().parent / "secrets")],
    ("~/../secrets", "allow"): ["secrets"],
    ("~//secrets", "deny"): ["~/secrets/x"],
    ("~*", "deny"): ["~x"],
}
IN_COMMANDS = {
    "allow": ["cat src/a.py", "cat src/a.py src/deep/b"],
    "ask": [
        "cat", "cat ../outside/secret", "cat src/a.py /etc/passwd", "cat src/out/secret", "cat src/*", "cat .e*",
        "cat $X", "grep -r key .",
    ],
    "deny": [
        "cat .env", "cat src/env", "cat < .env", "X=.env cat src/a.py", "cat $(echo .env)", "cat --from=.env",
        "cat -f.env", "echo .env; ls",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("rule", "path"), pairs(ALLOWING))
def test_patterns_that_allow(rule: tuple[str, str], path: str, workspace: Path) -> None:
    assert decision([allow("Write", path=rule[0])], call("Write", file_path=path), workspace) == rule[1]


@pytest.mark.parametrize(("rule", "path"), pairs(DENYING))
def test_patterns_that_deny(rule: tuple[str, str], path: str, workspace: Path) -> None:
    rules = [deny("Write", path=rule[0]), allow("Write")]
    assert decision(rules, call("Write", file_path=path), workspace) == rule[1]


@pytest.mark.parametrize(("expected", "command"), pairs(IN_COMMANDS))
def test_paths_within_commands(expected: str, command: str, workspace: Path) -> None:
    rules = [allow("Bash", command="cat", path="src"), deny("Bash", path=".env")]
    assert decision(rules, call("Bash", command=command), workspace) == expected


def test_operands_are_relative_to_the_working_directory(workspace: Path) -> None:
    rules = [allow("Bash", command="cat", path="src/deep")]
    assert decision(rules, call("Bash", command="cat src/deep/x"), workspace) == "allow"
    assert decision(rules, call("Bash", command="cat src/deep/x", cwd="docs"), workspace) == "ask"
    assert decision(rules, call("Bash", command=f"cat {workspace}/src/deep/x", cwd="docs"), workspace) == "ask"
    assert decision([deny("Bash", path=".env")], call("Bash", command="cat ../.env", cwd="docs"), workspace) == "deny"


def test_paths_in_the_arguments_of_unknown_tools_are_detected(workspace: Path) -> None:
    for text in ("/etc/passwd", "~/x", "../outside", "a/../../b", "\\\\server\\share", "C:\\x"):
        assert decision([], call("look", anything=text), workspace) == "ask", text
    for text in ("a question?", "1/2", "x", "v1..v2", "a\n/etc"):
        assert decision([], call("look", anything=text), workspace) == "allow", text


@pytest.mark.parametrize("name", ["input", "stdin", "args", "options", "env"])
def test_whatever_these_are_called(name: str, workspace: Path) -> None:
    see = Tool.from_schema(lambda **_: "", {"type": "object", "properties": {name: {}}}, name="see", read_only=True)
    checker = PermissionChecker(PermissionPolicy(), workspace=workspace)
    assert checker.judge(call("see", **{name: "plain"}), see).action == "allow"
    assert checker.judge(call("see", **{name: "/etc/passwd"}), see).action == "ask"
    assert checker.judge(call("see", **{name: ["/etc/passwd"]}), see).action == "ask"


ROOT = Root.of("/nowhere/work")
PARTS = st.sampled_from(["a", "b", ".env", "..", ".", "x.py", "A", ""])
PATHS = st.lists(PARTS, max_size=6).map("/".join).filter(bool)
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "**", "*.py", "?", ".env", ".."]), min_size=1, max_size=5).map(
    "/".join
)


@given(PATTERNS, PATHS)
def test_what_a_pattern_covers_it_also_touches(pattern: str, path: str) -> None:
    compiled, place = compile_path(pattern, ROOT), PathResolver(ROOT).resolve(path)
    assert place is not None
    if compiled.covers(place):
        assert compiled.touches(place, PathResolver(ROOT)) is Match.YES
    if compiled.touches(place, PathResolver(ROOT)) is Match.YES:
        below = PathResolver(ROOT).resolve(f"{path}/below")
        assert compiled.touches(below, PathResolver(ROOT)) is Match.YES, "all below what is denied is denied"


@given(PATHS)
def test_containment_agrees_with_normpath(path: str) -> None:
    place = PathResolver(ROOT).resolve(path)
    assert place is not None
    real = os.path.normpath(path if path.startswith("/") else f"/nowhere/work/{path}")
    assert compile_path(".", ROOT).covers(place) == (real == "/nowhere/work" or real.startswith("/nowhere/work/"))


def test_ask_rules_match_like_deny_rules(workspace: Path) -> None:
    assert decision([], call("Write", file_path="src/a.py"), workspace) == "ask"
    rules = [ask("Read", path=".env", reason="it holds keys")]
    assert decision(rules, call("Read", file_path=".env"), workspace) == "ask"
    assert decision(rules, call("Read", file_path="src/a.py"), workspace) == "allow"


def test_a_workspace_with_a_name_like_a_pattern(tmp_path: Path) -> None:
    workspace = tmp_path / "[ab] *?" / "~x"
    (workspace / "src").mkdir(parents=True)
    assert decision([], call("Read", file_path="src/x"), workspace) == "allow"
    assert decision([], call("Read", file_path="../x"), workspace) == "ask"
    assert decision([allow("Write", path="src/*.py")], call("Write", file_path="src/x.py"), workspace) == "allow"
    assert decision([deny("Read", path="**/.env")], call("Read", file_path="src/.env"), workspace) == "deny"
    assert decision([deny("Read", path="src")], call("Read", file_path="src/.env"), workspace) == "deny"


@given(PATTERNS, PATHS)
def test_patterns_agree_with_regular_expressions(pattern: str, path: str) -> None:
    if ".." in pattern or ".." in path or path.startswith("/"):
        return
    regex = "".join(
        "(?:[^/]+/)*" if part == "**" else part.replace(".", "[.]").replace("*", "[^/]*").replace("?", "[^/]") + "/"
        for part in pattern.split("/")
    )
    plain = "".join(f"{part}/" for part in path.split("/") if part not in ("", "."))
    glob = any(letter in pattern for letter in "*?")
    expected = re.fullmatch(regex, plain) if glob else re.match(regex, plain)
    assert compile_path(pattern, ROOT).covers(PathResolver(ROOT).resolve(path)) == bool(expected)
