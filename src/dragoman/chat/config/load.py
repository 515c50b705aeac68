"""From all sources to one Config.

Owns: load_config: which sources there are, in which order, and what is to be warned of.
Must not know: how a source is read (layers.py), where files are (places.py), how they are combined (merge.py).

    arguments  >  environment  >  the project's file  >  the user's file  >  defaults
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Unpack, cast

from dragoman.chat.toml.file import warn_of
from dragoman.errors import ConfigurationError

from .config import Config, ConfigArguments
from .layers import Layer, SourceKind, of_arguments, of_environment, of_file
from .loaded import LoadedConfig
from .merge import config_of, laid_over
from .places import FoundFile, is_trusted, named_file, project_file, user_file
from .tables import FileTables, tables_of

__all__ = ["load_config"]

_KNOWN: Final[Mapping[str, object]] = dict.fromkeys(Config.__struct_fields__)


def load_config(
    *,
    profile: str | None = None,
    file: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    directory: str | Path | None = None,
    **arguments: Unpack[ConfigArguments],
) -> LoadedConfig:
    """The configuration that holds here, and where each part of it comes from.

    `profile` is the name of a table [profiles.…]; `file` is read instead of the project's and the user's file;
    `environment` stands for the variables and `directory` for the place where the search for a project begins.
    """
    environ: Mapping[str, str] = os.environ if environment is None else environment
    chosen = profile if profile is not None else environ.get("DRAGOMAN_PROFILE", "").strip()
    named = file if file is not None else environ.get("DRAGOMAN_CONFIG", "").strip()
    layers = [of_arguments(cast("Mapping[str, object]", arguments), _KNOWN), of_environment(environ)]
    layers += _files(named, environ, _start(directory), chosen)
    known = laid_over(layers)
    return LoadedConfig(config=config_of(known, layers), known=known, layers=tuple(layers), profile=chosen)


def _start(directory: str | Path | None) -> Path | None:
    """Where the search for a project begins; None if the working directory is no longer there."""
    try:
        return Path.cwd() if directory is None else Path(directory)
    except OSError:
        return None


class _Sorted(NamedTuple):
    found: FoundFile
    kind: SourceKind
    tables: FileTables


# --- files ------------------------------------------------------------------------------------------------------------


def _files(named: str | Path, environ: Mapping[str, str], directory: Path | None, profile: str) -> list[Layer]:
    found: list[tuple[FoundFile, SourceKind]] = []
    if named:
        found.append((named_file(named), "user"))
    else:
        mine = user_file(environ)
        projects = None if directory is None else project_file(directory, environ)
        if projects is not None:
            found.append((projects, "project"))
        if mine is not None:
            found.append((mine, "user"))
    sorted_out = [_Sorted(one, kind, tables_of(one.file, one.root)) for one, kind in found]
    trusted = [name for _, kind, tables in sorted_out if kind == "user" for name in tables.trusted_projects]
    profiles = {name for _, _, tables in sorted_out for name in tables.profiles}
    if profile and profile not in profiles:
        message = f"There is no profile {profile!r}."
        known = f"The profiles are {', '.join(sorted(profiles))}." if profiles else "No file has any."
        raise ConfigurationError(message, hint=known)
    layers: list[Layer] = []
    for one, kind, tables in sorted_out:
        is_mine = kind == "user" or is_trusted(one.file.path, trusted, environ)
        if kind == "project" and tables.trusted_projects:
            raise one.file.error("only your own file can say trusted_projects.", (*one.root, "trusted_projects"))
        layers.append(of_file(one.file, tables, kind, profile=profile, trusted=is_mine))
        _warn(one, literal=tables.literal_keys)
    return layers


def _warn(found: FoundFile, *, literal: bool) -> None:
    file = found.file
    if file.others_can_write:
        warn_of(f"Others can change {file.shown}, and so what your programs do. Run: chmod go-w {file.shown}")
    if literal:
        also = f" Others can read it: run chmod 600 {file.shown}." if file.others_can_read else ""
        warn_of(f"{file.shown} holds a key. A variable (env) or the keychain (keychain) is a better place.{also}")
