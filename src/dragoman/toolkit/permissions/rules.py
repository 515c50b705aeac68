"""Rules as data.

Owns: Rule and PermissionPolicy, and what is wrong with one.
Must not know: calls, files, and how a rule is matched.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman.errors import ConfigurationError

__all__ = ["Action", "PermissionPolicy", "Rule"]

Action: TypeAlias = Literal["allow", "deny", "ask"]
"""What a rule says about the calls that it covers."""
Texts: TypeAlias = str | tuple[str, ...]

_LONGEST_LABEL: Final = 200
_LISTED: Final = ("tool", "command", "options", "path", "host")
"""The fields that are one text or several."""


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to do with calls of some kind. All that is said must fit; of several patterns in a list, one."""

    action: Action
    tool: Texts
    """The tool's name, or several; `*`, `?` and `[…]` stand for other letters."""
    command: Texts = ()
    """The first words of a shell command, such as `git status`. Operands may follow, options only if listed."""
    options: Texts = ()
    """Options that may follow the command: `--stat`, `-s`, or `*` for all. Only for rules that allow."""
    exact: bool = False
    """Nothing may follow the command's words."""
    path: Texts = ()
    """A file, a directory with everything below it, or a pattern such as `src/**/*.py`; relative to the workspace."""
    host: Texts = ()
    """A host, `*.host` for those below it; with a scheme or port if need be."""
    arguments: dict[str, str | int | float | bool | None] = {}
    """Values of arguments by name; in texts, `*`, `?` and `[…]` stand for other letters."""
    reason: str = ""
    """For the model and the person who is asked."""
    name: str = ""
    """What the rule is called in the audit line; without one, it is called by what it says."""

    def __post_init__(self) -> None:
        for field in _LISTED:
            given: object = getattr(self, field)
            if isinstance(given, list):  # as people write it in Python; a rule does not change afterwards
                msgspec.structs.force_setattr(self, field, tuple(cast("list[str]", given)))
        if not self.tool or not all(name.strip() for name in texts(self.tool)):
            raise ConfigurationError("A rule has an empty tool pattern.", hint="Name the tool, or say '*' for all.")
        if (self.options or self.exact) and not self.command:
            message = f"The rule for {self.tool!r} has options or exact, and no command."
            raise ConfigurationError(message, hint="Say which command they belong to.")
        for field in _LISTED:
            if "" in texts(getattr(self, field)):
                message = f"The rule for {self.tool!r} has an empty {field}."
                raise ConfigurationError(message, hint=f"Leave {field} out if it does not matter.")

    @property
    def label(self) -> str:
        """What the rule is called in the audit line."""
        return self.name or _cut(f"{self.action} {self.canonical}")

    @property
    def canonical(self) -> str:
        """The rule in one text, whatever it is called and why it is there."""
        plain = msgspec.structs.replace(self, reason="", name="")
        data = {key: value for key, value in msgspec.to_builtins(plain).items() if key != "action"}
        return msgspec.json.encode(data, order="sorted").decode()


class PermissionPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rules, and what happens where none fits. Their order does not matter: deny beats ask, ask beats allow."""

    rules: tuple[Rule, ...] = ()
    read_only: Action = "allow"
    """For tools that say they change nothing, where all that they touch is in the workspace."""
    default: Action = "ask"
    """For everything else."""


def texts(value: Texts) -> tuple[str, ...]:
    """A text, or several, as several."""
    return (value,) if isinstance(value, str) else value


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
