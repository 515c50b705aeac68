"""A policy that was written into a configuration.

Owns: reading it from TOML, JSON or a dict, and saying what is wrong with it.
Must not know: how rules are matched.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec

from dragoman.errors import ConfigurationError
from dragoman.tools.arguments.problems import unknown

from .rules import PermissionPolicy, Rule

__all__ = ["load_policy", "policy_from"]


def policy_from(data: Mapping[str, object]) -> PermissionPolicy:
    """A policy from plain data: `{"rules": [{"action": "allow", "tool": "Read"}]}`. Raises ConfigurationError."""
    _check_keys(data, PermissionPolicy.__struct_fields__, "permissions")
    rules = data.get("rules", ())
    if isinstance(rules, list | tuple):
        for index, rule in enumerate(cast("list[object]", rules)):
            if isinstance(rule, Mapping):
                _check_keys(cast("Mapping[str, object]", rule), Rule.__struct_fields__, f"rules[{index}]")
    try:
        return msgspec.convert(dict(data), PermissionPolicy)
    except msgspec.ValidationError as error:
        message = f"The permissions cannot be used: {error}."
        raise ConfigurationError(message) from None


def load_policy(path: str | os.PathLike[str]) -> PermissionPolicy:
    """A policy from a .toml or .json file: its table `permissions`, or all of it. Raises ConfigurationError."""
    file = Path(path)
    try:
        raw = file.read_bytes()
        data: object = msgspec.json.decode(raw) if file.suffix == ".json" else tomllib.loads(raw.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        message = f"The permissions in {file.name!r} cannot be read: {error}."
        raise ConfigurationError(message) from None
    if not isinstance(data, dict):
        message = f"The permissions in {file.name!r} are not a table."
        raise ConfigurationError(message, hint="Write [[rules]] tables, or an object with the key 'rules'.")
    found = cast("dict[str, object]", data)
    inner = found.get("permissions", found)
    if not isinstance(inner, dict):
        message = f"'permissions' in {file.name!r} is not a table."
        raise ConfigurationError(message, hint="Write [[permissions.rules]] tables.")
    return policy_from(cast("dict[str, object]", inner))


def _check_keys(data: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    # Before msgspec looks at it, because a misspelt rule is a hole in the fence and deserves the best message.
    for key in data:
        if key not in known:
            message = f"{where}.{key}: {unknown(key, known, 'key', data)}"
            raise ConfigurationError(message, hint="Correct the key; nothing was loaded.")
