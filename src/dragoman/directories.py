"""The directories of this library on this machine. They are not created here.

Not platformdirs: we need these four directories for an environment that is passed in, and the core should have few
dependencies.

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
from typing import Final

from dragoman.errors import ConfigurationError

_SUPPORT: Final = ("", "Library/Application Support", "dragoman")
_LOCAL: Final = ("LOCALAPPDATA", "AppData/Local", "dragoman")

# The variable that names the directory, its default below the home directory, and our own directory in it.
_XDG: Final = {
    "config": ("XDG_CONFIG_HOME", ".config", "dragoman"),
    "data": ("XDG_DATA_HOME", ".local/share", "dragoman"),
    "cache": ("XDG_CACHE_HOME", ".cache", "dragoman"),
    "state": ("XDG_STATE_HOME", ".local/state", "dragoman"),
}
_PLACES: Final = {
    "darwin": dict.fromkeys(_XDG, _SUPPORT) | {"cache": ("", "Library/Caches", "dragoman")},
    "win32": dict.fromkeys(_XDG, _LOCAL)
    | {
        "config": ("APPDATA", "AppData/Roaming", "dragoman"),
        "cache": ("LOCALAPPDATA", "AppData/Local", "dragoman/Cache"),
    },
}


def home_directory(environ: Mapping[str, str] | None = None) -> Path:
    """The user's home directory."""
    environment = os.environ if environ is None else environ
    named = environment.get("HOME") or environment.get("USERPROFILE")
    if named:
        return Path(named)
    try:
        return Path.home()
    except RuntimeError:
        message = "The home directory of this user cannot be found."
        raise ConfigurationError(message, hint="Set HOME.") from None


def _find_directory(kind: str, environ: Mapping[str, str] | None, platform: str) -> Path:
    variable, below_home, ours = _PLACES.get(platform, _XDG)[kind]
    environment = os.environ if environ is None else environ
    named = environment.get(variable, "") if variable else ""
    # The XDG rules ignore relative paths.
    is_absolute = bool(named) and (Path(named).is_absolute() or platform == "win32")
    return (Path(named) if is_absolute else home_directory(environment) / below_home) / ours


def config_directory(environ: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> Path:
    """For files that the user writes: configuration, stored keys."""
    return _find_directory("config", environ, platform)


def data_directory(environ: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> Path:
    """For data that must not be lost: conversations."""
    return _find_directory("data", environ, platform)


def cache_directory(environ: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> Path:
    """For data that can be downloaded again: models."""
    return _find_directory("cache", environ, platform)


def state_directory(environ: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> Path:
    """For logs and the history of prompts."""
    return _find_directory("state", environ, platform)
