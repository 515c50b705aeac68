"""What can be set, of which type and by whom: the keys of a file, the names of variables, and the checks of values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman.errors import ConfigurationError
from dragoman.providers import ModelOptions
from dragoman.tools import ToolConfig
from dragoman.transport import RetryPolicy, Timeouts

Path: TypeAlias = tuple[str, ...]

PREFIX: Final = "DRAGOMAN_"


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
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + "_".join(self.path).upper()


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
    Field(path=("response_schema",), type=dict[str, object], project=True),
    Field(path=("schema_name",), type=str, project=True),
    Field(path=("schema_description",), type=str, project=True),
    Field(path=("max_steps",), type=int, project=True, least=1),
    Field(path=("max_tokens",), type=int | None, project=True, least=1),
    Field(path=("parallel_tools",), type=bool, project=True),
    Field(path=("max_parallel_tools",), type=int, project=True, least=1),
    Field(path=("strict",), type=bool, project=True),
)


def _list_fields(table: str, struct: type[Struct]) -> list[Field]:
    return [
        Field(
            path=(table, info.name),
            type=Literal["auto", "none", "required"] if info.name == "tool_choice" else info.type,
            project=table == "options" and info.name in _OF_PROJECTS,
            least=None if table == "options" else float(info.name == "max_attempts"),
        )
        for info in msgspec.structs.fields(struct)
        if f"{table}.{info.name}" not in CODE_ONLY
    ]


FIELDS: Final[Mapping[Path, Field]] = {
    field.path: field
    for field in (*_TOP, *(field for table, struct in TABLES.items() for field in _list_fields(table, struct)))
}


def suggest(name: str, known: list[str]) -> str:
    """`Did you mean model?`, or the whole list."""
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return f"Did you mean {near[0]}?" if near else f"There are: {', '.join(sorted(known))}."


def check_value(field: Field, value: object, where: str, *, from_text: bool = False) -> Any:
    """The value as the field has it; raises ConfigurationError, which says what was expected and where it stands."""
    try:
        found = cast("object", msgspec.convert(value, cast("Any", field.type), strict=not from_text))
    except msgspec.ValidationError as error:
        reason = str(error).replace("`", "")
        raise _describe_wrong(field, where, f"{reason[:1].lower()}{reason[1:]}") from None
    except ConfigurationError as error:  # from the checks of a value's own type
        raise ConfigurationError(f"{field.name} ({where}): {error.message}", hint=error.hint) from None
    if isinstance(found, float) and not math.isfinite(found):
        if found == math.inf and field.type == float | None and field.path[0] != "options":
            return None  # how TOML says "without end"
        if math.isnan(found) or field.path[0] == "options":
            raise _describe_wrong(field, where, f"expected a number, got {found}")
    if field.least is not None and isinstance(found, (int, float)) and found < field.least:
        raise _describe_wrong(field, where, f"expected {field.least:g} or more, got {found}")
    return found


def _describe_wrong(field: Field, where: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{field.name} does not fit ({where}): {reason}.", hint=f"Correct {field.name}.")


def parse_text(field: Field, text: str, where: str) -> Any:
    """The value that the text of a variable or an option stands for: a plain word, a list `a, b`, or JSON."""
    if field.type in (str, str | None):
        return check_value(field, text, where)
    word = text.strip()
    if word.startswith(("[", "{")):
        try:
            return check_value(field, cast("object", msgspec.json.decode(word)), where)
        except msgspec.DecodeError:
            raise _describe_wrong(field, where, "it is no JSON") from None
    if field.type in (tuple[str, ...], frozenset[str] | None):
        return check_value(field, [part.strip() for part in word.split(",") if part.strip()], where)
    return check_value(field, word, where, from_text=True)
