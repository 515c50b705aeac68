"""Rules and policies as data, and reading them from plain data such as a table of a TOML file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct

from dragoman._checks import check_names
from dragoman.errors import ConfigurationError

Action: TypeAlias = Literal["allow", "deny", "ask"]
"""What a rule says about the calls that it covers."""
Texts: TypeAlias = str | tuple[str, ...]

_LONGEST_LABEL: Final = 200
_LISTED: Final = ("tool", "command", "options", "path", "host")
"""The fields that are one text or several."""


class Match(IntEnum):
    """Whether a rule speaks of something: of several conditions the least holds, of several parts the greatest."""

    NO = 0
    MAYBE = 1
    """It cannot be told: a person should look."""
    YES = 2


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to do with calls of some kind. All that is said must fit; of several patterns in a list, one."""

    action: Action
    tool: Texts
    """The tool's name, or several; `*`, `?` and `[…]` stand for other letters."""
    command: Texts = ()
    """The first words of a shell command, such as `git status`. Operands may follow, options only if listed."""
    options: Texts = ()
    """Options that may follow the command: `--stat`, `-s`, or `*` for all. Only for rules that allow."""
    path: Texts = ()
    """A file, a directory with everything below it, or a pattern such as `src/**/*.py`; relative to the workspace."""
    host: Texts = ()
    """A host, `*.host` for those below it; with a scheme or port if need be."""
    arguments: str = ""
    """Exactly these arguments, defaults included: a JSON object."""
    version: str = ""
    """Holds only as long as this is the hash of the tool's name, description and parameters."""
    reason: str = ""
    """For the model and the person who is asked."""
    name: str = ""
    """What the rule is called in the audit line; without one, it is called by what it says."""

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):
            message = f"The rule for {self.tool!r} has the action {self.action!r}."
            raise ConfigurationError(message, hint="Say 'allow', 'deny' or 'ask'.")
        for field in _LISTED:
            given: Texts | list[str] = getattr(self, field)
            if isinstance(given, list):  # as people write it in Python; a rule does not change afterwards
                given = tuple(given)
                msgspec.structs.force_setattr(self, field, given)
            if not all(text.strip() for text in texts(given)) or (field == "tool" and not given):
                message = f"The rule for {self.tool!r} has an empty {field}."
                instead = "Say '*' for all tools." if field == "tool" else f"Leave {field} out if it does not matter."
                raise ConfigurationError(message, hint=instead)
        if self.options and not self.command:
            message = f"The rule for {self.tool!r} has options, and no command."
            raise ConfigurationError(message, hint="Say which command they belong to.")
        if self.arguments:
            try:
                plain = canonical_json(json.loads(self.arguments))
            except (ValueError, RecursionError):
                message = f"The rule for {self.tool!r} has arguments that are not JSON."
                raise ConfigurationError(message, hint="""Write an object, such as '{"x": 1}'.""") from None
            msgspec.structs.force_setattr(self, "arguments", plain)

    @property
    def label(self) -> str:
        # Without the arguments, which are the user's data.
        text = self.name or self._in_words("with exactly the arguments that were shown")
        return text if self.name or len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"

    @property
    def text(self) -> str:
        """What the rule says, in words: for whoever decides whether it shall hold."""
        return self._in_words(f"with exactly the arguments {self.arguments}")

    def _in_words(self, exactly: str) -> str:
        said = [self.action, _either(self.tool)]
        if self.arguments:
            said.append(exactly)
        if self.command:
            said.append(f"to run {_either(self.command)} {self._what_follows}")
        elif self.path:
            said.append(f"on paths in {_either(self.path)}")
        if self.host:
            said.append(f"with addresses at {_either(self.host)}")
        if len(said) == 2:
            said.append("with any arguments")
        return " ".join([*said, *(["until the tool changes"] if self.version else [])])

    @property
    def _what_follows(self) -> str:
        where = f"paths in {_either(self.path)}"
        words = f"words after it that are {where}" if self.path else "any words after it"
        if not self.options and self.action == "allow":
            return f"with {words} but no options"
        any_options = "*" in texts(self.options) or self.action != "allow"
        options = "any options" if any_options else f"the options {_either(self.options)}"
        return f"with {words} and {options}, which may have {where if self.path else 'any text'} for a value"


def _either(given: Texts) -> str:
    # In JSON, no text can be taken for more than one, and none does anything to a terminal.
    shown = [each if re.fullmatch(r"[\w./:*-]+", each, re.ASCII) else json.dumps(each) for each in texts(given)]
    return " or ".join(shown)


def canonical_json(value: object) -> str:
    """One spelling, in ASCII, so that no text is too odd for it: half a surrogate pair has no UTF-8 form."""
    return json.dumps(value, sort_keys=True)


class PermissionPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rules, and what happens where none fits. Their order does not matter: deny beats ask, ask beats allow."""

    rules: tuple[Rule, ...] = ()
    read_only: Action = "allow"
    """For tools that say they change nothing, where all that they touch is in the workspace."""
    default: Action = "ask"
    """For everything else."""


def texts(value: Texts) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def words_in(text: str) -> frozenset[str]:
    """The words of a table, which is easier to read in lines than in a column."""
    return frozenset(text.split())


def policy_from(data: Mapping[str, object]) -> PermissionPolicy:
    """A policy from plain data: `{"rules": [{"action": "allow", "tool": "Read"}]}`. Raises ConfigurationError."""
    check_names(data, PermissionPolicy.__struct_fields__, "permissions")
    rules = data.get("rules", ())  # before msgspec: a misspelt rule is a hole in the fence and deserves a good message
    if isinstance(rules, list | tuple):
        for index, rule in enumerate(cast("list[object]", rules)):
            if isinstance(rule, Mapping):
                check_names(cast("Mapping[str, object]", rule), Rule.__struct_fields__, f"rules[{index}]")
    try:
        return msgspec.convert(dict(data), PermissionPolicy)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"The permissions cannot be used: {error}.") from None
