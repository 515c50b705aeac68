from __future__ import annotations

import tomllib

import msgspec
import pytest
from hypothesis import given, strategies as st

from dragoman.errors import ConfigurationError
from dragoman.toolkit import PermissionPolicy, Rule, policy_from

TOML = """
[permissions]
default = "deny"

[[permissions.rules]]
action = "allow"
tool = "Bash"
command = ["git status", "git diff"]
options = "--stat"
reason = "looking"

[[permissions.rules]]
action = "deny"
tool = "*"
path = "**/.env"
"""
POLICY = PermissionPolicy(
    default="deny",
    rules=(
        Rule(action="allow", tool="Bash", command=("git status", "git diff"), options="--stat", reason="looking"),
        Rule(action="deny", tool="*", path="**/.env"),
    ),
)


def test_a_policy_from_toml_and_json() -> None:
    assert policy_from(tomllib.loads(TOML)["permissions"]) == POLICY
    assert policy_from(msgspec.json.decode(msgspec.json.encode(POLICY))) == POLICY


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rule": []}, r"permissions has no setting 'rule'\. Did you mean rules\?"),
        ({"rules": [{"action": "allow", "tool": "x", "comand": "ls"}]}, r"rules\[0\] .*Did you mean command\?"),
        ({"rules": [{"action": "allow", "tool": "x"}, {"acton": 1}]}, r"rules\[1\] .*'acton'.*Did you mean action\?"),
        ({"rules": [{"action": "permit", "tool": "x"}]}, r"Invalid enum value 'permit'.*rules\[0\]\.action"),
        ({"rules": [{"action": "allow"}]}, "missing required field `tool`"),
        ({"rules": [{"action": "allow", "tool": " "}]}, "an empty tool"),
        ({"rules": [{"action": "allow", "tool": "x", "command": [""]}]}, "empty command"),
        ({"rules": [{"action": "allow", "tool": "x", "path": 1}]}, "path"),
        ({"rules": [{"action": "allow", "tool": "x", "options": "-s"}]}, "no command"),
        ({"rules": {}}, "array"),
        ({"rules": [1]}, "rules"),
        ({"default": "maybe"}, "maybe"),
    ],
)
def test_errors_name_the_place(data: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        policy_from(data)


def test_a_wrong_value_is_refused_in_code_too() -> None:
    with pytest.raises(ConfigurationError, match="action of Rule does not fit: invalid enum value 'Deny'"):
        Rule(action="Deny", tool="Bash")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="action 'Deny'"):
        msgspec.structs.replace(Rule(action="deny", tool="Bash"), action="Deny")
    with pytest.raises(ConfigurationError, match="default of PermissionPolicy does not fit"):
        PermissionPolicy(default="Deny")  # type: ignore[arg-type]
    assert Rule(action="deny", tool=["Bash", "Read"]).tool == ("Bash", "Read")  # type: ignore[arg-type]


@given(
    st.dictionaries(
        st.text(max_size=8), st.none() | st.integers() | st.text(max_size=5) | st.lists(st.text(max_size=3))
    )
)
def test_any_data_gives_a_policy_or_a_configuration_error(data: dict[str, object]) -> None:
    try:
        policy_from(data)
    except ConfigurationError:
        return
