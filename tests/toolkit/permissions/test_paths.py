from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dragoman.errors import ConfigurationError
from dragoman.toolkit.permissions.places import Places, Surroundings, compile_path
from dragoman.toolkit.permissions.rules import Match
from tests.toolkit.permissions.helpers import allow, ask, call, decision, deny


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
    "../outside/secret",
    "src/../../outside/secret",
    "src/out/secret",
    "src/out-file",
    "src/out",
    "src/out/../outside/secret",
    "relative/secret",
    "chain/secret",
    "dangling",
    "loop",
    "loop/x",
    "/etc/passwd",
    "//etc/passwd",
    "/proc/self/environ",
    "~/.ssh/id_rsa",
    "~root/.ssh/id_rsa",
    "~",
    "..",
    "../work-not/x",
    "./../outside",
    "src/deep/../../../outside/secret",
    "src/./../../outside",
    "file:///etc/passwd",
    "a\0b",
    "C:\\Windows",
    "x/" * 3000,
]


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.parametrize("rules", [[], [allow("Read", path=".")], [allow("Read", path="src")], [allow(path="src/**")]])
def test_a_way_out_of_the_workspace_is_not_allowed(path: str, rules: list[object], workspace: Path) -> None:
    assert decision(rules, call("Read", file_path=path), workspace) == "ask"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path", ["src/a.py", "src", "./src/../src/a.py", "link/a.py", "src/env", "new/file", ".", "src/out/../a.py", "ä"]
)
def test_a_path_inside_is_read_without_asking(path: str, workspace: Path) -> None:
    expected = "ask" if path == "src/out/../a.py" else "allow"
    assert decision([], call("Read", file_path=path), workspace) == expected, "it may end beside the link's target"
    assert decision([], call("Read", file_path=str(workspace / path)), workspace) == expected


def test_the_workspace_may_be_reached_through_a_link(workspace: Path) -> None:
    same = workspace.parent / "same"
    assert decision([], call("Read", file_path=str(same / "src" / "a.py")), same) == "allow"
    assert decision([], call("Read", file_path="src/a.py"), same) == "allow"
    assert decision([allow("Write", path="src")], call("Write", file_path=str(workspace / "src/b")), same) == "allow"
    assert decision([allow("Write", path=str(same / "src"))], call("Write", file_path="src/b"), same) == "allow"


def test_a_tool_that_writes_asks_even_inside(workspace: Path) -> None:
    assert decision([], call("Write", file_path="src/a.py"), workspace) == "ask"


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("src", "src/a.py", "allow"),
        ("src/", "src/deep/x", "allow"),
        ("src", "src", "allow"),
        ("src", "srcs/a.py", "ask"),
        ("src/*.py", "src/a.py", "allow"),
        ("src/*.py", "src/deep/a.py", "ask"),
        ("src/**/*.py", "src/deep/a.py", "allow"),
        ("src/**/*.py", "src/a.py", "allow"),
        ("**/*.py", "a.py", "allow"),
        ("**/*.py", "src/deep/er/a.py", "allow"),
        ("**/*.py", "src/a.pyc", "ask"),
        ("**", "src/a.py", "allow"),
        ("**", "/etc/passwd", "ask"),
        ("*", "src", "allow"),
        ("*", "src/a.py", "ask"),
        ("s?c/[ab].py", "src/a.py", "allow"),
        ("s?c/[ab].py", "src/c.py", "ask"),
        ("src/../docs", "docs/x", "allow"),
        ("src/../docs", "src/x", "ask"),
        ("SRC", "src/a.py", "ask"),
        ("link", "link/a.py", "ask"),
        ("src/out", "src/out/secret", "ask"),
        ("/", "/etc/passwd", "allow"),
    ],
)
def test_patterns_that_allow(pattern: str, path: str, expected: str, workspace: Path) -> None:
    assert decision([allow("Write", path=pattern)], call("Write", file_path=path), workspace) == expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        (".env", ".env", "deny"),
        (".env", "./src/../.env", "deny"),
        (".env", "src/env", "deny"),
        (".env", ".ENV", "deny"),
        (".env", ".envrc", "allow"),
        ("**/.env", "src/deep/.env", "deny"),
        ("**/.env", ".env/below", "deny"),
        ("**/.e*", "src/deep/.env", "deny"),
        ("src", "src/deep/x", "deny"),
        ("src", "link/a.py", "deny"),
        ("link", "link/a.py", "deny"),
        ("link", "src/a.py", "deny"),
        ("src/out", "src/out/secret", "deny"),
        ("../outside", "src/out/secret", "deny"),
        ("../outside", "src/out-file", "deny"),
        ("../outside", "dangling", "deny"),
        (".env", ".", "ask"),
        ("**/.env", "src", "ask"),
        (".env", "docs", "allow"),
        (".env", "loop", "ask"),
        (".env", "a\0b", "ask"),
        ("caf\u00e9", "cafe\u0301/x", "deny"),
        ("~/secrets", "~/secrets/x", "deny"),
    ],
)
def test_patterns_that_deny(pattern: str, path: str, expected: str, workspace: Path) -> None:
    rules = [deny("Write", path=pattern), allow("Write")]
    assert decision(rules, call("Write", file_path=path), workspace) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat src/a.py", "allow"),
        ("cat src/a.py src/deep/b", "allow"),
        ("cat", "ask"),
        ("cat ../outside/secret", "ask"),
        ("cat src/a.py /etc/passwd", "ask"),
        ("cat src/out/secret", "ask"),
        ("cat src/*", "ask"),
        ("cat .env", "deny"),
        ("cat src/env", "deny"),
        ("cat < .env", "deny"),
        ("X=.env cat src/a.py", "deny"),
        ("cat $(echo .env)", "deny"),
        ("cat --from=.env", "deny"),
        ("cat -f.env", "deny"),
        ("cat .e*", "ask"),
        ("cat $X", "ask"),
        ("echo .env; ls", "deny"),
        ("grep -r key .", "ask"),
    ],
)
def test_paths_within_commands(command: str, expected: str, workspace: Path) -> None:
    rules = [allow("Bash", command="cat", path="src"), deny("Bash", path=".env")]
    assert decision(rules, call("Bash", command=command), workspace) == expected


def test_operands_are_seen_from_where_the_command_runs(workspace: Path) -> None:
    rules = [allow("Bash", command="cat", path="src/deep")]
    assert decision(rules, call("Bash", command="cat src/deep/x"), workspace) == "allow"
    assert decision(rules, call("Bash", command="cat src/deep/x", cwd="docs"), workspace) == "ask"
    assert decision(rules, call("Bash", command=f"cat {workspace}/src/deep/x", cwd="docs"), workspace) == "ask"
    assert decision([deny("Bash", path=".env")], call("Bash", command="cat ../.env", cwd="docs"), workspace) == "deny"


def test_a_path_of_a_tool_that_nobody_knows_is_found_by_its_look(workspace: Path) -> None:
    for text in ("/etc/passwd", "~/x", "../outside", "a/../../b", "\\\\server\\share", "C:\\x"):
        assert decision([], call("look", anything=text), workspace) == "ask", text
    for text in ("a question?", "1/2", "x", "v1..v2", "a\n/etc"):
        assert decision([], call("look", anything=text), workspace) == "allow", text


def test_a_path_that_cannot_be_a_file_name_is_nowhere(workspace: Path) -> None:
    around = Surroundings.of(workspace)
    assert Places(around).of("\ud800") is None
    assert Places(around).of("x" * 300) is None
    assert Places(around).of("") is None


@pytest.mark.parametrize("pattern", ["", " ", "a\0b"])
def test_a_pattern_that_means_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigurationError):
        decision([allow("Read", path=(pattern,))], call("Read", file_path="x"))


PARTS = st.sampled_from(["a", "b", ".env", "..", ".", "x.py", "A", ""])
PATHS = st.lists(PARTS, max_size=6).map("/".join).filter(bool)
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "**", "*.py", "?", ".env", ".."]), min_size=1, max_size=5).map(
    "/".join
)


@given(PATTERNS, PATHS)
def test_what_a_pattern_covers_it_also_touches(pattern: str, path: str) -> None:
    around = Surroundings.of("/nowhere/work", "/nowhere/home")
    compiled, place = compile_path(pattern, around), Places(around).of(path)
    assert place is not None
    if compiled.covers(place):
        assert compiled.touches(place, Places(around)) is Match.YES
    if compiled.touches(place, Places(around)) is Match.YES:
        below = Places(around).of(f"{path}/below")
        assert compiled.touches(below, Places(around)) is Match.YES, "all below what is denied is denied"


@given(PATHS)
def test_inside_is_what_the_system_says(path: str) -> None:
    around = Surroundings.of("/nowhere/work", "/nowhere/home")
    place = Places(around).of(path)
    assert place is not None
    real = os.path.normpath(path if path.startswith("/") else f"/nowhere/work/{path}")
    assert compile_path(".", around).covers(place) == (real == "/nowhere/work" or real.startswith("/nowhere/work/"))


def test_ask_rules_are_touched_like_deny_rules(workspace: Path) -> None:
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
def test_patterns_mean_what_a_regular_expression_says(pattern: str, path: str) -> None:
    around = Surroundings.of("/nowhere/work", "/nowhere/home")
    if ".." in pattern or ".." in path or path.startswith("/"):
        return
    regex = "".join(
        "(?:[^/]+/)*" if part == "**" else part.replace(".", "[.]").replace("*", "[^/]*").replace("?", "[^/]") + "/"
        for part in pattern.split("/")
    )
    plain = "".join(f"{part}/" for part in path.split("/") if part not in ("", "."))
    glob = any(letter in pattern for letter in "*?")
    expected = re.fullmatch(regex, plain) if glob else re.match(regex, plain)
    place = Places(around).of(path)
    assert compile_path(pattern, around).covers(place) == bool(expected)
