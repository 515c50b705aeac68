"""What can be set, of which type, and by whom.

Owns: the table of fields, from which everything else follows: the keys of a file, the names of variables, what a
project's file may say, and the checks of values.
Must not know: where a value came from; its place is given as words for the message.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman.errors import ConfigurationError
from dragoman.providers.options import ModelOptions
from dragoman.tools.run import ToolConfig
from dragoman.transport.protocol import Timeouts
from dragoman.transport.retry import RetryPolicy

__all__ = ["CODE_ONLY", "FIELDS", "TABLES", "Field", "Path", "checked", "from_text", "nearest", "variable_of"]

Path: TypeAlias = tuple[str, ...]


class Field(Struct, frozen=True, kw_only=True):
    """One thing that can be set."""

    path: Path
    """`("options", "temperature")` is `temperature` in the table `[options]`."""
    type: object
    project: bool = False
    """Whether the file of a project that the user has not declared trusted may set it."""
    least: float | None = None

    @property
    def name(self) -> str:
        """`options.temperature`."""
        return ".".join(self.path)

    @property
    def simple(self) -> bool:
        """Whether it is one value rather than a table of its own."""
        return self.type is not _TABLE


_TABLE: Final = dict[str, object]

TABLES: Final[Mapping[str, type[Struct]]] = {
    "options": ModelOptions,
    "tool_config": ToolConfig,
    "retry": RetryPolicy,
    "timeouts": Timeouts,
}
"""Tables whose keys are the fields of a value that the rest of the library uses too."""

CODE_ONLY: Final[Mapping[str, str]] = {
    "allow_insecure_base_url": "It is for tests: pass it as an argument.",
    "async_transport": "Pass it as an argument.",
    "find_program": "Pass it as an argument.",
    "headers": "Pass them as an argument: they may hold keys.",
    "model_profile": "Pass it as an argument.",
    "options.extra_headers": "Pass ModelOptions(extra_headers=…) as an argument: they may hold keys.",
    "options.max_tokens": "Write max_tokens, outside of any table.",
    "options.response_format": "Write response_schema, outside of any table.",
    "options.server_tools": "Pass ModelOptions(server_tools=…) as an argument.",
    "options.tool_choice": "Write it in [tool_config].",
    "token": "Keep keys out of settings: write [keys.openai] with env, keychain or key.",
    "tool_config.max_iterations": "Write max_steps, outside of any table.",
    "tool_config.max_parallel_tools": "Write max_parallel_tools, outside of any table.",
    "transport": "Pass it as an argument.",
}
"""What neither a file nor a variable can set, and what to do instead."""

# A project may say which model answers and how, but not where requests go, which keys are used or what may run.
_OF_PROJECTS: Final = frozenset({"reasoning", "temperature", "top_p", "top_k", "stop", "seed", "cache", "adapt"})

_TOP: Final = (
    Field(path=("provider",), type=str, project=True),
    Field(path=("model",), type=str, project=True),
    Field(path=("base_url",), type=str),
    Field(path=("system_prompt",), type=str, project=True),
    Field(path=("response_schema",), type=_TABLE, project=True),
    Field(path=("schema_name",), type=str, project=True),
    Field(path=("schema_description",), type=str, project=True),
    Field(path=("max_steps",), type=int, project=True, least=1),
    Field(path=("max_tokens",), type=int | None, project=True, least=1),
    Field(path=("parallel_tools",), type=bool, project=True),
    Field(path=("max_parallel_tools",), type=int, project=True, least=1),
    Field(path=("strict",), type=bool, project=True),
)

_LEAST: Final = {"retry.max_attempts": 1.0}


def _inside(table: str, struct: type[Struct]) -> list[Field]:
    found: list[Field] = []
    for info in msgspec.structs.fields(struct):
        path = (table, info.name)
        if ".".join(path) in CODE_ONLY:
            continue
        kind: object = Literal["auto", "none", "required"] if info.name == "tool_choice" else info.type
        least = None if table == "options" else _LEAST.get(".".join(path), 0.0)
        project = table == "options" and info.name in _OF_PROJECTS
        found.append(Field(path=path, type=kind, project=project, least=least))
    return found


FIELDS: Final[Mapping[Path, Field]] = {
    field.path: field
    for field in (*_TOP, *(field for table, struct in TABLES.items() for field in _inside(table, struct)))
}


def variable_of(field: Field) -> str:
    """The environment variable that sets a field."""
    return "DRAGOMAN_" + "_".join(field.path).upper()


def nearest(name: str, known: list[str]) -> str:
    """`Did you mean model?`, or the whole list."""
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return f"Did you mean {near[0]}?" if near else f"There are: {', '.join(sorted(known))}."


# --- values -----------------------------------------------------------------------------------------------------------

_WORDS: Final[Mapping[object, str]] = {
    str: "a text",
    int: "a whole number",
    int | None: "a whole number",
    float: "a number",
    float | None: "a number",
    bool: "true or false",
    bool | None: "true or false",
    str | None: "a text",
    tuple[str, ...]: "a list of texts",
    frozenset[str] | None: "a list of texts",
    dict[str, int]: "a table of whole numbers",
    _TABLE: "a table",
}

_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off"})


def checked(field: Field, value: object, where: str) -> Any:
    """The value as the field has it; raises ConfigurationError, which says what was expected and where it stands."""
    try:
        found = cast("object", msgspec.convert(value, cast("Any", field.type)))
    except msgspec.ValidationError as error:
        raise _wrong(field, value, where, _reason(error)) from None
    except ConfigurationError as error:  # from the checks of a value's own type
        raise ConfigurationError(f"{field.name} ({where}): {error.message}", hint=error.hint) from None
    if isinstance(found, float) and not math.isfinite(found):
        if math.isnan(found) or field.path[0] == "options":
            raise _wrong(field, value, where)
        if _may_be_none(field) and found > 0:
            return None  # how TOML says "without end"
    if field.least is not None and isinstance(found, (int, float)) and found < field.least:
        message = f"{field.name} is {value} ({where})."
        raise ConfigurationError(message, hint=f"Give it {field.least:g} or more.")
    return found


def _may_be_none(field: Field) -> bool:
    return "None" in str(field.type)


def _reason(error: msgspec.ValidationError) -> str:
    text = str(error).replace("`", "")
    return f"{text[:1].lower()}{text[1:]}"


def _wrong(field: Field, value: object, where: str, reason: str = "") -> ConfigurationError:
    words = _WORDS.get(field.type)
    if words is None:
        words, detail = "something else", f" ({reason})" if reason else ""
    else:
        detail = ""
    message = f"{field.name} must be {words}, not {_shown(value)} ({where}){detail}."
    return ConfigurationError(message, hint=f"Correct {field.name}; it takes {words}.")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def from_text(field: Field, text: str, where: str) -> Any:
    """The value that the text of a variable stands for."""
    kind = field.type
    if kind in (str, str | None):
        return checked(field, text, where)
    word = text.strip()
    if kind in (bool, bool | None):
        if word.lower() not in _YES | _NO:
            raise _wrong(field, text, where)
        return word.lower() in _YES
    if kind in (tuple[str, ...], frozenset[str] | None) and not word.startswith("["):
        return checked(field, [part.strip() for part in word.split(",") if part.strip()], where)
    try:
        return checked(field, cast("object", msgspec.json.decode(word)), where)
    except msgspec.DecodeError:
        return checked(field, word, where)  # a bare word, such as the name of a choice; or wrong, and said to be
