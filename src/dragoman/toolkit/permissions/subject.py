"""What a call is about: the commands, paths and URLs among its arguments.

Rules must judge what runs, so the tool's own decoder reads the arguments, defaults included.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman._decoding import check_depth
from dragoman.conversation import ToolCall
from dragoman.errors import ToolError
from dragoman.tools import AnyTool, decode_arguments, json_ready

from .rules import canonical_json, words_in
from .shell import quoted

Place: TypeAlias = tuple[str | int, ...]
"""The names and indices that lead to a value; empty for a list of words, which no shell reads."""
Kind: TypeAlias = Literal["command", "path", "url", "text", "environment", "unclear"]

_NAMES: Final[Mapping[Kind, frozenset[str]]] = {
    "command": words_in("command commands cmd cmdline command_line shell_command argv"),
    "path": words_in(
        "path paths file files file_path file_paths filepath filename file_name directory directories dir folder root"
        " cwd workdir working_directory notebook_path source destination src dst target output_path input_path"
    ),
    "url": words_in("url urls uri uris href endpoint base_url"),
    "environment": words_in("env environ environment stdin input args arguments flags options"),
}


def _spelling(name: str) -> str:
    """One for `file_path`, `filePath` and `FILE-PATH`."""
    return name.replace("_", "").replace("-", "").lower()


_BY_NAME: Final[Mapping[str, Kind]] = {_spelling(name): kind for kind, names in _NAMES.items() for name in names}

READY_TOOLS: Final = words_in(
    "Read Write Edit Glob Grep Bash Fetch Skill LoadSkillSupporting calculator now react_emoji send_update"
)
"""Tools whose arguments are known. In any other tool, a text that looks like a path or URL is taken for one, whatever
its argument is called."""
_EXCEPTIONS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "Glob": {"pattern": "path"},
    "Grep": {"glob": "text"},
    "LoadSkillSupporting": {"path": "text"},
}
"""Arguments of these whose kind does not follow from their name."""

_SEVERAL: Final = ("commands",)
_MAX_GUESSED: Final = 4_096
_MAX_DEPTH: Final = 20
_URL: Final = re.compile(r"\s*[A-Za-z][\w+.-]*:[/\\]{2}")
_PATHLIKE: Final = re.compile(r"[/\\~]|[A-Za-z]:[/\\]|(?:.*[/\\])?\.\.(?:[/\\]|$)")


class Subject(Struct, frozen=True, kw_only=True):
    """What a call is about."""

    tool: str
    read_only: bool
    commands: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    """Where each command is in the arguments."""
    paths: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    surrounds: bool = False
    """It sets variables, standard input or further words of a command."""
    unclear: bool = False
    """It has a value that cannot be judged."""
    arguments: str = ""
    """All arguments as the tool gets them, in canonical JSON."""
    version: str = ""
    """A hash of the tool's name, description, parameters and own version: the server that it comes from, over MCP."""

    @property
    def fingerprint(self) -> str:
        """A hash of the tool and the exact arguments, whatever the call's id."""
        return _digest(self.tool, self.arguments)


def with_commands(call: ToolCall, tool: AnyTool | None, commands: Sequence[str]) -> str | None:
    """The arguments of a call with these commands in place of its own, as JSON.

    None unless the tool then reads these commands, and everything else as before.
    """
    own = subject_of(call, tool)
    try:
        arguments = json.dumps(_replaced(call.arguments, own, commands))
        wanted = canonical_json(_replaced(own.arguments, own, commands))
        read = subject_of(replace(call, arguments=arguments), tool)
    except (ToolError, LookupError, RecursionError, TypeError, ValueError):
        return None
    return arguments if read == replace(own, commands=tuple(commands), arguments=wanted) else None


def subject_of(call: ToolCall, tool: AnyTool | None) -> Subject:
    """Sort the arguments of a call. Without the tool, only its name is known. Raises ToolValidationError."""
    known, unclear = _values(call, tool)
    kinds: dict[str, Kind] = {**_BY_NAME, **_EXCEPTIONS.get(call.name, {})}
    found: defaultdict[Kind, list[str]] = defaultdict(list)
    places: list[Place] = []
    guesses = call.name not in READY_TOOLS
    for kind, text, place in _sort("", known, kinds):
        found[kind].append(text)
        if guesses and kind in ("text", "environment") and (guessed := _guess(text)) != "text":
            found[guessed].append(text)
        if kind == "command":
            places.append(place)
    return Subject(
        tool=call.name,
        read_only=tool is not None and tool.options.read_only,
        commands=tuple(found["command"]),
        places=tuple(places),
        paths=tuple(found["path"]),
        urls=tuple(found["url"]),
        surrounds=bool(found["environment"]),
        unclear=unclear or bool(found["unclear"]),
        arguments=canonical_json(call.parsed if unclear else known),
        version="unknown" if tool is None else _version_of(tool),
    )


def _sort(
    name: str, value: object, kinds: Mapping[str, Kind], kind: Kind = "text", place: Place = ()
) -> Iterator[tuple[Kind, str, Place]]:
    """Every text in a value, with its kind by the name of the argument, or of the one around it, and its place."""
    kind = kinds.get(_spelling(name)) or kind
    if len(place) > _MAX_DEPTH:
        yield "unclear", "", place
    elif isinstance(value, str):
        if value:
            yield kind, value, place
    elif isinstance(value, list):
        items = cast("list[object]", value)
        is_words = kind == "command" and items and all(isinstance(item, str) for item in items)
        if is_words:
            yield kind, quoted(cast("list[str]", items)), ()
        if not is_words or _spelling(name) in _SEVERAL:  # a tool may take them for several commands
            for index, item in enumerate(items):
                yield from _sort("", item, kinds, kind, (*place, index))
    elif isinstance(value, dict):
        if value and kind == "environment":
            yield kind, "", place
        for key, item in cast("dict[str, object]", value).items():
            yield from _sort(key, item, kinds, kind, (*place, key))
    elif value is not None and kind in ("command", "path", "url"):
        yield "unclear", "", place


def _replaced(arguments: str, subject: Subject, commands: Sequence[str]) -> object:
    check_depth(arguments)
    changed: object = json.loads(arguments)
    for place, before, after in zip(subject.places, subject.commands, commands, strict=True):
        if place:
            _put(changed, place, before, after)
    return changed


def _put(arguments: object, place: Place, before: str, after: str) -> None:
    """Replace one text. Raises LookupError, TypeError or ValueError if it is not in this place."""
    value: Any = arguments
    for step in place[:-1]:
        value = value[step]
    if value[place[-1]] != before:
        raise ValueError(place)
    value[place[-1]] = after


def _guess(text: str) -> Kind:
    if len(text) > _MAX_GUESSED:
        return "text"
    if _URL.match(text):
        return "url"
    return "path" if _PATHLIKE.match(text) and "\n" not in text else "text"


def _values(call: ToolCall, tool: AnyTool | None) -> tuple[dict[str, object], bool]:
    """The arguments as the tool will get them, and whether one of them is of a type that JSON lacks."""
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


def _version_of(tool: AnyTool) -> str:
    spec = tool.spec
    return _digest(spec.name, spec.description, bytes(spec.parameters).decode(), *filter(None, [spec.version]))


def _digest(*values: str) -> str:
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()
