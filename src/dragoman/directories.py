"""Where this library keeps its files on this machine.

Owns: the four directories (configuration, data, cache, state) on each platform. None of them is created here.
Must not know: which files are in them.

              configuration                        data and state                    cache
    Linux     $XDG_CONFIG_HOME or ~/.config        $XDG_DATA_HOME, $XDG_STATE_HOME   $XDG_CACHE_HOME or ~/.cache
    macOS     ~/Library/Application Support        the same                          ~/Library/Caches
    Windows   %APPDATA%                            %LOCALAPPDATA%                    %LOCALAPPDATA%
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from dragoman.errors import ConfigurationError

__all__ = ["Kind", "cache_directory", "config_directory", "data_directory", "home_directory", "state_directory"]

Kind: TypeAlias = Literal["config", "data", "cache", "state"]

_NAME: Final = "dragoman"


class _Place(NamedTuple):
    variable: str
    """The variable that names the directory; a relative path in it counts as none, as the XDG rules say."""
    below_home: tuple[str, ...]
    inside: tuple[str, ...] = ()
    """What comes behind our name, where one directory of the platform serves several purposes."""


_PLACES: Final[dict[str, dict[Kind, _Place]]] = {
    "linux": {
        "config": _Place("XDG_CONFIG_HOME", (".config",)),
        "data": _Place("XDG_DATA_HOME", (".local", "share")),
        "cache": _Place("XDG_CACHE_HOME", (".cache",)),
        "state": _Place("XDG_STATE_HOME", (".local", "state")),
    },
    "darwin": {
        "config": _Place("", ("Library", "Application Support")),
        "data": _Place("", ("Library", "Application Support")),
        "cache": _Place("", ("Library", "Caches")),
        "state": _Place("", ("Library", "Application Support")),
    },
    "win32": {
        "config": _Place("APPDATA", ("AppData", "Roaming")),
        "data": _Place("LOCALAPPDATA", ("AppData", "Local")),
        "cache": _Place("LOCALAPPDATA", ("AppData", "Local"), ("Cache",)),
        "state": _Place("LOCALAPPDATA", ("AppData", "Local")),
    },
}


def home_directory(environ: Mapping[str, str] | None = None) -> Path:
    """The user's own directory."""
    environment: Mapping[str, str] = os.environ if environ is None else environ
    named = environment.get("HOME") or environment.get("USERPROFILE")
    if named:
        return Path(named)
    try:
        return Path.home()
    except RuntimeError:
        message = "The home directory of this user cannot be found."
        raise ConfigurationError(message, hint="Set HOME.") from None


def _directory(kind: Kind, environ: Mapping[str, str] | None, platform: str) -> Path:
    place = _PLACES.get(platform, _PLACES["linux"])[kind]
    environment: Mapping[str, str] = os.environ if environ is None else environ
    named = environment.get(place.variable, "") if place.variable else ""
    absolute = bool(named) and (Path(named).is_absolute() or platform == "win32")
    base = Path(named) if absolute else home_directory(environment).joinpath(*place.below_home)
    return base.joinpath(_NAME, *place.inside)


def config_directory(environ: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> Path:
    """For what the user writes: configuration files, stored keys."""
    return _directory("config", environ, platform)


def data_directory(environ: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> Path:
    """For what must not be lost: conversations."""
    return _directory("data", environ, platform)


def cache_directory(environ: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> Path:
    """For what can be had again: downloaded models."""
    return _directory("cache", environ, platform)


def state_directory(environ: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> Path:
    """For what is worth keeping for a while: logs, the history of a prompt."""
    return _directory("state", environ, platform)
