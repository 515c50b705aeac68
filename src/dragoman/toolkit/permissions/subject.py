"""What a call is about: its arguments, sorted by what they mean.

Rules must judge what runs, so the arguments are read with the tool's own decoder, defaults and all, not with a second
one that might read them differently.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct, field

from dragoman.conversation import ToolCall
from dragoman.errors import ToolError
from dragoman.tools import AnyTool, decode_arguments, json_ready

from .rules import canonical_json, words_in

Kind: TypeAlias = Literal["command", "path", "url", "text", "environment"]

_NAMES: Final[Mapping[Kind, frozenset[str]]] = {
    "command": words_in("command commands cmd cmdline command_line shell_command argv"),
    "path": words_in(
        "path paths file files file_path file_paths filepath filename file_name directory directories dir folder root"
        " cwd workdir working_directory notebook_path source destination src dst target output_path input_path"
    ),
    "url": words_in("url urls uri uris href endpoint base_url"),
    "environment": words_in("env environ environment stdin input"),
}
_BY_NAME: Final[Mapping[str, Kind]] = {name: kind for kind, names in _NAMES.items() for name in names}

READY_TOOLS: Final = words_in(
    "Read Write Edit Glob Grep Bash Fetch Skill LoadSkillSupporting calculator now react_emoji send_update"
)
"""Tools whose arguments are known. Of any other tool a text that looks like a path or an address is taken for one,
whatever its argument is called."""
_MEANT: Final[Mapping[str, Mapping[str, Kind]]] = {
    "Glob": {"pattern": "path"},
    "Grep": {"glob": "text"},
    "LoadSkillSupporting": {"path": "text"},
}
"""Arguments of these that mean something else than their name says."""

_LONGEST_GUESS: Final = 4_096
_DEEPEST: Final = 20
_URL: Final = re.compile(r"\s*[A-Za-z][\w+.-]*:[/\\]{2}")
_PATHLIKE: Final = re.compile(r"[/\\~]|[A-Za-z]:[/\\]|(?:.*[/\\])?\.\.(?:[/\\]|$)")


class Subject(Struct, frozen=True, kw_only=True):
    """What a call is about."""

    tool: str
    read_only: bool
    commands: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    surrounds: bool = False
    """It sets variables or standard input of a command."""
    unclear: bool = False
    """There is a value of which nothing is known."""
    arguments: str = ""
    """All of them, as the tool gets them, in one spelling of JSON."""
    version: str = ""
    """A hash of what the tool says about itself: a tool that has changed is another one."""

    @property
    def fingerprint(self) -> str:
        """A hash of the tool and the exact arguments; the same on every door, whatever the call's id."""
        return _digest(self.tool, self.arguments)


class _Sorter(Struct):
    kinds: Mapping[str, Kind]
    guesses: bool
    found: defaultdict[Kind, list[str]] = field(default_factory=lambda: defaultdict(list))
    unclear: bool = False

    def take(self, name: str, value: object, kind: Kind = "text", depth: int = 0) -> None:
        kind = self.kinds.get(name) or _BY_NAME.get(name.lower()) or kind
        if depth > _DEEPEST:
            self.unclear = True
        elif isinstance(value, str):
            self._text(value, kind)
        elif isinstance(value, list):
            items = cast("list[object]", value)
            if kind == "command" and items and all(isinstance(item, str) for item in items):
                self.found["command"].append(shlex.join(cast("list[str]", items)))
                return
            for item in items:
                self.take("", item, kind, depth + 1)
        elif isinstance(value, dict):
            if value and kind == "environment":
                self.found[kind].append("")
            for key, item in cast("dict[str, object]", value).items():
                self.take(key, item, kind, depth + 1)
        elif value is not None and kind in ("command", "path", "url"):
            self.unclear = True

    def _text(self, value: str, kind: Kind) -> None:
        if kind == "text" and self.guesses and len(value) <= _LONGEST_GUESS:
            if _URL.match(value):
                kind = "url"
            elif _PATHLIKE.match(value) and "\n" not in value:
                kind = "path"
        if value:
            self.found[kind].append(value)


def subject_of(call: ToolCall, tool: AnyTool | None) -> Subject:
    """What a call is about. Of a tool that is not ours nothing is known but its name. Raises ToolValidationError."""
    known, unclear = _values(call, tool)
    sorter = _Sorter(_MEANT.get(call.name, {}), guesses=call.name not in READY_TOOLS)
    for name, value in known.items():
        sorter.take(name, value)
    found = sorter.found
    return Subject(
        tool=call.name,
        read_only=tool is not None and tool.options.read_only,
        commands=tuple(found["command"]),
        paths=tuple(found["path"]),
        urls=tuple(found["url"]),
        surrounds=bool(found["environment"]),
        unclear=unclear or sorter.unclear,
        arguments=canonical_json(call.parsed if unclear else known),
        version="unknown" if tool is None else _version(tool),
    )


def _values(call: ToolCall, tool: AnyTool | None) -> tuple[dict[str, object], bool]:
    """The arguments as the tool will get them, and whether one of them is of a type that JSON does not have."""
    if tool is None:
        return call.parsed, False
    decoded = decode_arguments(tool, call)
    given: Iterator[tuple[str, object]]
    if isinstance(decoded, Struct):
        fields = zip(decoded.__struct_encode_fields__, decoded.__struct_fields__, strict=True)
        given = ((key, getattr(decoded, attribute)) for key, attribute in fields)
    else:
        given = iter(cast("dict[str, object]", decoded).items())
    values: dict[str, object] = {}
    unclear = False
    for key, value in given:
        try:
            values[key] = msgspec.to_builtins(value, enc_hook=json_ready, str_keys=True)
        except (TypeError, ValueError, RecursionError, ToolError):
            values[key], unclear = None, True
    return values, unclear


def _version(tool: AnyTool) -> str:
    return _digest(tool.name, tool.description, bytes(tool.spec.parameters).decode())


def _digest(*values: str) -> str:
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()
