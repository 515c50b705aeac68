from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from dragoman.errors import ConfigurationError
from dragoman.toolkit import PermissionPolicy, Rule, policy_from
from dragoman.toolkit.permissions import load_policy

TOML = """
[permissions]
default = "deny"

[[permissions.rules]]
action = "allow"
tool = "Bash"
command = ["git status", "git diff"]
options = "--stat"
reason = "looking is free"

[[permissions.rules]]
action = "deny"
tool = "*"
path = "**/.env"
"""
POLICY = PermissionPolicy(
    default="deny",
    rules=(
        Rule(
            action="allow",
            tool="Bash",
            command=("git status", "git diff"),
            options="--stat",
            reason="looking is free",
        ),
        Rule(action="deny", tool="*", path="**/.env"),
    ),
)


def test_a_policy_from_toml_and_json(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TOML)
    (tmp_path / "b.toml").write_text(TOML.replace("[permissions]", "").replace("permissions.", ""))
    (tmp_path / "c.json").write_bytes(msgspec.json.encode(POLICY))
    (tmp_path / "d.json").write_bytes(msgspec.json.encode({"permissions": POLICY, "other": 1}))
    (tmp_path / "e.toml").write_bytes(b"\xef\xbb\xbf" + TOML.encode())
    for name in ("a.toml", "b.toml", "c.json", "d.json", "e.toml"):
        assert load_policy(tmp_path / name) == POLICY, name


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rule": []}, r"permissions\.rule: unknown key; did you mean rules\?"),
        (
            {"rules": [{"action": "allow", "tool": "x", "comand": "ls"}]},
            r"rules\[0\]\.comand: .*did you mean command\?",
        ),
        ({"rules": [{"action": "allow", "tool": "x"}, {"acton": 1}]}, r"rules\[1\]\.acton: .*did you mean action\?"),
        ({"rules": [{"action": "permit", "tool": "x"}]}, r"Invalid enum value 'permit'.*rules\[0\]\.action"),
        ({"rules": [{"action": "allow"}]}, "missing required field `tool`"),
        ({"rules": [{"action": "allow", "tool": " "}]}, "empty tool pattern"),
        ({"rules": [{"action": "allow", "tool": "x", "command": [""]}]}, "empty command"),
        ({"rules": [{"action": "allow", "tool": "x", "path": 1}]}, "path"),
        ({"rules": [{"action": "allow", "tool": "x", "options": "-s"}]}, "no command"),
        ({"rules": [{"action": "allow", "tool": "x", "exact": True}]}, "no command"),
        ({"rules": {}}, "array"),
        ({"rules": [1]}, "rules"),
        ({"default": "maybe"}, "maybe"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(data: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        policy_from(data)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'{"permissions": 1}', b"1", b"[" * 100_000])
def test_a_file_that_is_no_policy(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError):
        load_policy(file)
    with pytest.raises(ConfigurationError):
        load_policy(tmp_path / "missing.toml")
    (tmp_path / "bad.toml").write_text("a = ")
    with pytest.raises(ConfigurationError):
        load_policy(tmp_path / "bad.toml")


@given(
    st.dictionaries(
        st.text(max_size=8), st.none() | st.integers() | st.text(max_size=5) | st.lists(st.text(max_size=3))
    )
)
def test_nothing_but_our_own_errors_comes_of_any_data(data: dict[str, object]) -> None:
    try:
        policy_from(data)
    except ConfigurationError:
        return
