"""Which model is meant, and the configuration for it.

Owns: the order: what the command line says, the conversation that is continued, the configuration, the first provider
that there is a key for, and the model on this machine.
Must not know: how a model is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from dragoman.chat.config import Config, ConfigArguments, LoadedConfig, default_model, load_config
from dragoman.chat.credentials import find_key
from dragoman.errors import MissingKeyError
from dragoman.providers.catalogue import ALIASES, PROVIDERS
from dragoman.providers.programs import PROFILES

from .arguments import UsageError, nearest
from .arguments.talking import Talking
from .local_model import DEFAULT_MODEL, is_there
from .options import model_options

__all__ = ["Choice", "choose", "load"]

_TRIED: Final = ("openai", "anthropic", "gemini")
"""Providers that are looked at for a key where nobody names one."""


_NEAR: Final = 0.85


class Choice(NamedTuple):
    """A configuration whose model is settled, and what the user should know about that."""

    loaded: LoadedConfig
    note: str = ""


def load(arguments: Talking, environ: Mapping[str, str], model: str | None = None) -> LoadedConfig:
    """The configuration under these arguments."""
    said = model_options(arguments.options)
    given: ConfigArguments = {
        "model": clean_model(arguments.model) if arguments.model is not None else model,
        "system_prompt": arguments.system,
        "base_url": arguments.base_url,
    }
    limit = said.pop("max_tokens", None)
    if isinstance(limit, int):
        given["max_tokens"] = limit
    if said:
        given["options"] = said
    return load_config(profile=arguments.profile, environment=environ, **given)


def clean_model(name: str) -> str:
    """The name without the spaces that copying brings along; `local` and `local:` mean the default one."""
    name = name.strip()
    if name in ("local", "local:"):
        return DEFAULT_MODEL
    before, colon, _ = name.partition(":")
    known = [*PROVIDERS, *ALIASES, *PROFILES]
    # Where the configuration names a provider that serves any model, a slip would be taken for a name of one of its
    # models, which may well have colons.
    if colon and before not in known and (near := nearest(before, known, cutoff=_NEAR)):
        raise UsageError(f"There is no provider {before!r} (in {name!r}).", hint=f"Did you mean {near}?")
    return name


def choose(arguments: Talking, environ: Mapping[str, str], continued: str | None = None) -> Choice:
    """The configuration for a talk. `continued` is the model of the conversation that is continued, if any."""
    loaded = load(arguments, environ, continued)
    if any(loaded.origin(name) != "default" for name in ("provider", "model", "base_url")):
        return Choice(loaded)
    for provider in _TRIED:
        if _has_key(provider, loaded.config, environ):
            if provider == loaded.config.provider_name:
                return Choice(loaded)
            return Choice(load(arguments, environ, f"{provider}:{default_model(provider)}"))
    if not is_there():
        message = "There is no key, and the local model is not installed."
        raise MissingKeyError(message, provider=_TRIED[0])
    note = f"No key was found, so the local model answers ({DEFAULT_MODEL}). Store a key with: dragoman keys set openai"
    return Choice(load(arguments, environ, DEFAULT_MODEL), note)


def _has_key(provider: str, config: Config, environ: Mapping[str, str]) -> bool:
    try:
        return find_key(provider, keys=config.keys, environ=environ) is not None
    except MissingKeyError:
        return False
