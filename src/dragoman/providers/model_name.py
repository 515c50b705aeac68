"""Names of models: `provider:model`, `provider/model`, or a well-known model alone.

Owns: splitting such a name.
Must not know: what a provider or a model can do.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from dragoman.errors import ConfigurationError

from .catalogue import ALIASES, PROGRAMS, PROVIDERS, WELL_KNOWN_MODELS

__all__ = ["divided", "provider_of", "split_model"]

_DELIMITER = re.compile(r"[:/]")


def divided(name: str) -> tuple[str, str] | None:
    """What stands before and behind the first `:` or `/`; later ones are the model's. None if there is neither."""
    delimiter = _DELIMITER.search(name)
    if delimiter is None:
        return None
    before, after = name[: delimiter.start()], name[delimiter.end() :]
    if not before or (not after and before.lower() not in PROGRAMS):
        side = "behind" if before else "before"
        message = f"{name!r} does not name a model: nothing stands {side} the {delimiter[0]!r}."
        raise ConfigurationError(message, hint="Write provider:model, e.g. anthropic:claude-sonnet-4-5.")
    return before, after


def split_model(name: str) -> tuple[str, str]:
    """The provider and the model that a name means."""
    if (parts := divided(name)) is not None:
        before, after = parts
        return provider_of(before, name), after
    for pattern, provider in WELL_KNOWN_MODELS:
        if name and fnmatchcase(name, pattern):
            return provider, name
    message = f"{name!r} does not say which provider has the model."
    hint = f"Write provider:model; the providers are {', '.join(sorted(PROVIDERS))}."
    raise ConfigurationError(message, hint=f"Did you mean {near}? Otherwise: {hint}" if (near := _near(name)) else hint)


def _near(name: str) -> str:
    """A well-known model whose name begins almost like this one."""
    first, dash, rest = name.partition("-")
    begins = [pattern.removesuffix("-*") for pattern, _ in WELL_KNOWN_MODELS if pattern.endswith("-*")]
    from difflib import get_close_matches

    near = get_close_matches(first.lower(), begins, n=1)
    return f"{near[0]}-{rest}" if near and dash else ""


def provider_of(word: str, name: str | None = None) -> str:
    """The provider that a word means. `name` is the whole name that it was taken from, for the message."""
    lower = word.lower()
    provider = ALIASES.get(lower, lower)
    if provider in PROVIDERS or provider in PROGRAMS:
        return provider
    from difflib import get_close_matches

    near = get_close_matches(lower, [*PROVIDERS, *PROGRAMS, *ALIASES], n=3)
    meant = f"Did you mean {' or '.join(near)}?" if near else f"The providers are {', '.join(sorted(PROVIDERS))}."
    where = f" (in {name!r})" if name is not None else ""
    raise ConfigurationError(f"There is no provider {word!r}{where}.", hint=meant)
