"""What each source of the configuration says, in one form, and how these layers are merged.

    arguments  >  environment  >  the project's file  >  the user's file  >  defaults

Must not know: where files are and how they are written (config_files.py reads them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman.engines import Secret, is_registered
from dragoman.errors import ConfigurationError
from dragoman.providers import ALIASES, PROVIDERS, WELL_KNOWN_MODELS

from .credentials import KeyReference
from .fields import CODE_ONLY, FIELDS, PREFIX, TABLES, Path, check_value, parse_text, suggest
from .toml_file import TomlFile, warn

SourceKind: TypeAlias = Literal["argument", "environment", "project", "user"]
Section: TypeAlias = tuple[Mapping[str, object], Path]
"""A table of another room, and where it stands in its file."""


class Setting(Struct, frozen=True):
    """A value and where it comes from."""

    value: object
    origin: str


class Layer(Struct, frozen=True, kw_only=True):
    """What one source says."""

    kind: SourceKind
    settings: Mapping[Path, Setting] = {}
    keys: Mapping[str, KeyReference] = {}
    sections: Mapping[str, Section] = {}
    file: TomlFile | None = None
    trusted: bool = True
    """False: the file of a project that the user has not declared trusted."""


class Known(Struct, frozen=True, kw_only=True):
    """A setting that holds, and those that do not because of it."""

    value: object
    origin: str
    kind: SourceKind
    trusted: bool = True
    tied: bool = False
    """Whether its source also said for which provider it is meant."""
    overridden: tuple[str, ...] = ()
    """Where else it was set, the nearest first."""


# --- arguments --------------------------------------------------------------------------------------------------------


def read_arguments(arguments: Mapping[str, object], known: Sequence[str]) -> Layer:
    """What the caller says. None means that it says nothing."""
    settings: dict[Path, Setting] = {}
    keys: dict[str, KeyReference] = {}
    for name, given in arguments.items():
        value = Secret(given) if name == "token" and isinstance(given, str) else given  # from here on it does not print
        origin = f"the argument {name}"
        if name not in known:
            message = f"There is no setting {name!r} (an argument)."
            raise ConfigurationError(message, hint=suggest(name, list(known)))
        if value is None:
            continue
        if name == "keys":
            given_keys = cast("Mapping[str, KeyReference]", value)
            keys = {resolve_alias(provider): reference for provider, reference in given_keys.items()}
        elif name in TABLES:
            settings.update(_read_table(name, value, origin))
        elif (field := FIELDS.get((name,))) is not None and name != "response_schema":
            settings[name,] = Setting(check_value(field, value, origin), origin)
        else:
            settings[name,] = Setting(value, origin)
    return Layer(kind="argument", settings=settings, keys=keys)


def _read_table(table: str, value: object, origin: str) -> dict[Path, Setting]:
    """A value such as ModelOptions, or a mapping: whatever differs from the default counts as said."""
    struct = TABLES[table]
    if isinstance(value, Mapping):
        said = set(cast("Mapping[str, object]", value))
        try:
            value = msgspec.convert(cast("Mapping[str, object]", value), struct)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"{origin} does not fit: {error}.") from None
    elif isinstance(value, struct):
        said = {name for name in struct.__struct_fields__ if getattr(value, name) != getattr(struct(), name)}
    else:
        raise ConfigurationError(f"{origin} must be a {struct.__name__}, not {type(value).__name__}.")
    return {(table, name): Setting(getattr(value, name), origin) for name in sorted(said)}


# --- the environment --------------------------------------------------------------------------------------------------

_OTHERS: Final = frozenset({"DRAGOMAN_CONFIG", "DRAGOMAN_MODEL_DIR", "DRAGOMAN_PROFILE"})
_KEYS: Final = frozenset({"DRAGOMAN_API_KEY", "DRAGOMAN_KEY", "DRAGOMAN_TOKEN"})


def read_environment(environ: Mapping[str, str]) -> Layer:
    """What the variables say: AI_PROVIDER, and DRAGOMAN_ and the name of a field. An empty one says nothing."""
    settings: dict[Path, Setting] = {}
    if provider := environ.get("AI_PROVIDER", "").strip():
        settings["provider",] = Setting(provider, "environment variable AI_PROVIDER")
    fields = {field.variable: field for field in FIELDS.values()}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(PREFIX) or not text.strip() or variable in _OTHERS:
            continue
        origin = f"environment variable {variable}"
        if (field := fields.get(variable)) is not None:
            settings[field.path] = Setting(parse_text(field, text, origin), origin)
        else:
            _check_variable(variable, list(fields))
    return Layer(kind="environment", settings=settings)


def _check_variable(variable: str, known: list[str]) -> None:
    """Others may have variables of this prefix, so an unknown one is no error; a misspelt one is warned about."""
    if variable in _KEYS:
        message = f"A key belongs to one provider; {variable} does not say which."
        raise ConfigurationError(message, hint="Put it into that provider's variable, e.g. OPENAI_API_KEY.")
    for name, instead in CODE_ONLY.items():
        if variable == PREFIX + name.replace(".", "_").upper():
            raise ConfigurationError(f"{name} cannot be set by an environment variable ({variable}).", hint=instead)
    if near := get_close_matches(variable, known, n=1, cutoff=0.85):
        warn(f"The environment variable {variable} is not known and has no effect. Did you mean {near[0]}?")


# --- merging ----------------------------------------------------------------------------------------------------------

PROVIDER: Final[Path] = ("provider",)
MODEL: Final[Path] = ("model",)
BASE_URL: Final[Path] = ("base_url",)


def merge_layers(layers: Sequence[Layer]) -> dict[Path, Known]:
    """The settings of all layers, of which the first wins.

    A model means something at its own provider only, and so does an address: where a layer names another provider, the
    model and the address of the layers below no longer hold.
    """
    known: dict[Path, Known] = {}
    said: dict[Path, tuple[str, ...]] = {}

    def put(path: Path, value: object, origin: str, layer: Layer, *, tied: bool = False) -> None:
        before = said.get(path, ())
        known[path] = Known(
            value=value, origin=origin, kind=layer.kind, trusted=layer.trusted, tied=tied, overridden=before
        )
        said[path] = (origin, *before)

    for layer in reversed(layers):
        texts = {path: str(layer.settings[path].value) for path in (PROVIDER, MODEL) if path in layer.settings}
        before = str(known[PROVIDER].value) if PROVIDER in known else ""
        provider, model = split_address(texts.get(PROVIDER, ""), texts.get(MODEL, ""), before)
        if provider:
            at = PROVIDER if PROVIDER in texts else MODEL
            if not layer.trusted and provider not in PROVIDERS and layer.file is not None:
                # What is not in the catalogue may be anything, also a program that is started.
                raise refuse_in_project(layer.file, at, f"a provider like {provider!r}")
            if before and not _is_same_service(provider, before):
                known.pop(MODEL, None)
                if BASE_URL in known and known[BASE_URL].tied:
                    del known[BASE_URL]
            put(PROVIDER, provider, layer.settings[at].origin, layer)
        for path, setting in layer.settings.items():
            if path == MODEL:
                put(path, model, setting.origin, layer)
            elif path != PROVIDER:
                put(path, setting.value, setting.origin, layer, tied=bool(provider))
    return known


def refuse_in_project(file: TomlFile, at: Path, name: str) -> ConfigurationError:
    """The error for what only the user's own file may say."""
    directory = file.path.resolve().parent
    hint = (
        "It could send your data or keys elsewhere, or run programs. If you trust this project, write "
        f'trusted_projects = ["{directory}"] into your own configuration file; otherwise take the line out.'
    )
    return file.error(f"the file of a project may not set {name}.", at, hint=hint)


# --- provider and model -----------------------------------------------------------------------------------------------

_MAKERS: Final = frozenset({"anthropic", "gemini", "openai", "openai-responses"})
"""Providers that have their own models only: the name of somebody else's cannot mean one of theirs."""

_TAG: Final = re.compile(r"latest|[a-z]?[0-9.]+[bm](?:-.*)?").fullmatch
"""What Ollama writes behind the colon, as in `mistral:7b`."""


def resolve_alias(provider: str) -> str:
    """The provider's own name; what is not known is left as it is, for the error to show it."""
    lower = provider.strip().lower()
    name = ALIASES.get(lower, lower)
    return name if name in PROVIDERS else provider.strip()


def split_address(provider: str, model: str, below: str = "") -> tuple[str, str]:
    """The provider and the bare model that one source means; `below` is the provider that lower sources have said.

    The provider is empty where this source says nothing about it.
    """
    before, colon, after = model.partition(":")
    if provider:
        name = resolve_alias(provider)
        return name, after if colon and resolve_alias(before) == name else model
    if after and _is_provider(before) and not (below == "ollama" and _TAG(after)):
        return resolve_alias(before), after
    if below and below not in _MAKERS:  # it serves models of others too, under names of its own
        return "", model
    before, _, after = model.partition("/")
    if after and _is_provider(before):
        return resolve_alias(before), after
    for pattern, maker in WELL_KNOWN_MODELS:
        if fnmatchcase(model, pattern) and not (below and _is_same_service(below, maker)):
            return maker, model
    return "", model


def _is_provider(word: str) -> bool:
    return bool(word) and (resolve_alias(word) in PROVIDERS or is_registered(word))


def _is_same_service(one: str, other: str) -> bool:
    """Whether models and addresses of one provider are also those of the other."""
    if one == other or one not in PROVIDERS or other not in PROVIDERS:
        return one == other
    return PROVIDERS[one].base_url == PROVIDERS[other].base_url != ""
