"""Rules and policies as data, and parsing them from plain data such as a table of a TOML file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct

from dragoman._checks import CheckedMeta, check_names
from dragoman._decoding import check_depth, convert_to
from dragoman.errors import ConfigurationError

Action: TypeAlias = Literal["allow", "deny", "ask"]
Texts: TypeAlias = str | tuple[str, ...]

_MAX_LABEL: Final = 200


class Match(IntEnum):
    """Whether a rule applies: the least of its conditions, the greatest of the parts of a call."""

    NO = 0
    MAYBE = 1
    """Unclear: a person should decide."""
    YES = 2


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, metaclass=CheckedMeta):
    """What to do with certain calls. All its fields must match; of several patterns in a field, one.

    Rely on what you allow. A rule that denies a command, or a path or host in commands, finds the ways to write it that
    are known, but no list of them is complete: a script, a copy of the program or another program can do the same.
    """

    action: Action
    tool: Texts
    """The tool's name, or several; `*`, `?` and `[…]` are wildcards."""
    command: Texts = ()
    """The first words of a shell command, such as `git status`. Operands may follow, options only if listed."""
    options: Texts = ()
    """Options that may follow the command: `--stat`, `-s`, or `*` for all. Only for rules that allow."""
    path: Texts = ()
    """A file, a directory with everything below it, or a pattern such as `src/**/*.py`; relative to the workspace."""
    host: Texts = ()
    """A host, or `*.host` for its subdomains; optionally with a scheme or port."""
    arguments: str = ""
    """Exactly these arguments, defaults included: a JSON object."""
    version: str = ""
    """Applies only while this is the hash of the tool's name, description, parameters and own version; over MCP that
    is the server."""
    reason: str = ""
    """For the model and the person who is asked."""
    name: str = ""
    """Its name in the audit line; without one, its text is used."""

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):  # structs.replace does not check it
            message = f"The rule for {self.tool!r} has the action {self.action!r}."
            raise ConfigurationError(message, hint="Say 'allow', 'deny' or 'ask'.")
        for field in ("tool", "command", "options", "path", "host"):
            given: Texts = getattr(self, field)
            if not all(text.strip() for text in texts(given)) or (field == "tool" and not given):
                message = f"The rule for {self.tool!r} has an empty {field}."
                instead = "Say '*' for all tools." if field == "tool" else f"Leave {field} out if it does not matter."
                raise ConfigurationError(message, hint=instead)
        if self.options and not self.command:
            message = f"The rule for {self.tool!r} has options, and no command."
            raise ConfigurationError(message, hint="Say which command they belong to.")
        if self.arguments:
            try:
                check_depth(self.arguments)
                plain = canonical_json(json.loads(self.arguments))
            except ValueError:
                message = f"The rule for {self.tool!r} has arguments that are not JSON."
                raise ConfigurationError(message, hint="""Write an object, such as '{"x": 1}'.""") from None
            msgspec.structs.force_setattr(self, "arguments", plain)

    @property
    def label(self) -> str:
        """The name for the audit line, without the arguments, which are the user's data."""
        text = self.name or self._describe("with exactly the arguments that were shown")
        return text if self.name or len(text) <= _MAX_LABEL else text[: _MAX_LABEL - 1] + "…"

    @property
    def text(self) -> str:
        """The rule in words, for the person who decides about it."""
        return self._describe(f"with exactly the arguments {self.arguments}")

    def _describe(self, exactly: str) -> str:
        parts = [exactly] if self.arguments else []
        if self.command:
            parts.append(f"to run {_either(self.command)} {self._describe_rest()}")
        elif self.path:
            parts.append(f"on paths in {_either(self.path)}")
        if self.host:
            parts.append(f"with addresses at {_either(self.host)}")
        limit = ["until the tool changes"] if self.version else []
        return " ".join([self.action, _either(self.tool), *(parts or ["with any arguments"]), *limit])

    def _describe_rest(self) -> str:
        """What may follow the command."""
        where = f"paths in {_either(self.path)}"
        words = f"words after it that are {where}" if self.path else "any words after it"
        if not self.options and self.action == "allow":
            return f"with {words} but no options"
        any_options = "*" in texts(self.options) or self.action != "allow"
        options = "any options" if any_options else f"the options {_either(self.options)}"
        return f"with {words} and {options}, which may have {where if self.path else 'any text'} for a value"


def _either(given: Texts) -> str:
    # Quoted as JSON, no text can be mistaken for several, or control a terminal.
    shown = [each if re.fullmatch(r"[\w./:*-]+", each, re.ASCII) else json.dumps(each) for each in texts(given)]
    return " or ".join(shown)


def canonical_json(value: object) -> str:
    """JSON in one spelling, in ASCII: a lone surrogate has no UTF-8 form."""
    return json.dumps(value, sort_keys=True)


class PermissionPolicy(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, metaclass=CheckedMeta
):
    """Rules, and what happens if none matches. Their order does not matter: deny beats ask, ask beats allow."""

    rules: tuple[Rule, ...] = ()
    read_only: Action = "allow"
    """For tools declared read-only, if everything they touch is in the workspace."""
    default: Action = "ask"
    """For everything else."""


def labels_of_incomplete(policy: PermissionPolicy) -> str:
    """The rules that look for something in commands to deny it, where any other command is allowed; empty if none."""
    if policy.default != "allow":
        return ""
    found = [rule for rule in policy.rules if rule.action == "deny" and (rule.command or _looks_into_bash(rule))]
    return "; ".join([rule.label for rule in found])


def _looks_into_bash(rule: Rule) -> bool:
    return bool(rule.path or rule.host) and any(fnmatchcase("Bash", name) for name in texts(rule.tool))


def texts(value: Texts) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def words_in(text: str) -> frozenset[str]:
    """The words of a table, written in lines."""
    return frozenset(text.split())


def policy_from(data: Mapping[str, object]) -> PermissionPolicy:
    """Parse a policy: `{"rules": [{"action": "allow", "tool": "Read"}]}`. Raises ConfigurationError."""
    check_names(data, PermissionPolicy.__struct_fields__, "permissions")
    rules = data.get("rules", ())  # before msgspec, whose message would not name the nearest key
    if isinstance(rules, list | tuple):
        for index, rule in enumerate(cast("list[object]", rules)):
            if isinstance(rule, Mapping):
                check_names(cast("Mapping[str, object]", rule), Rule.__struct_fields__, f"rules[{index}]")
    try:
        return convert_to(dict(data), PermissionPolicy)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"The permissions cannot be used: {error}.") from None
