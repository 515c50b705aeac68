"""A configuration that was loaded, and the account of where it came from.

Owns: LoadedConfig, its explanation, and the tables of other rooms.
Must not know: how it was loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from dragoman.errors import ConfigurationError
from dragoman.providers.catalogue import PROVIDERS, profile_of

from .config import Config
from .defaults import DEFAULT_PROVIDER
from .fields import FIELDS, Path
from .layers import Layer, not_for_projects
from .merge import Known
from .shown import shown_value
from .tables import SECTIONS

__all__ = ["Explanation", "LoadedConfig", "Row"]

T = TypeVar("T")


class Row(Struct, frozen=True, kw_only=True):
    """One setting: its value as it may be shown, and who set it."""

    field: str
    value: str
    origin: str
    overridden: tuple[str, ...] = ()
    """Who else has set it, to no effect, the nearest first."""


class Explanation(Struct, frozen=True):
    """Where every setting comes from. Print it, or go through its rows."""

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __str__(self) -> str:
        columns = ([row.field for row in self.rows], [row.value for row in self.rows])
        wide = [max(len(text) for text in column) for column in columns]
        lines = [f"{row.field:<{wide[0]}}  {row.value:<{wide[1]}}  {_origin(row)}" for row in self.rows]
        return "\n".join(lines)


def _origin(row: Row) -> str:
    return f"{row.origin} (instead of {', '.join(row.overridden)})" if row.overridden else row.origin


class LoadedConfig(Struct, frozen=True, kw_only=True):
    """The configuration that holds, and where each part of it comes from."""

    config: Config
    known: Mapping[Path, Known]
    """What was set, by path; what is not here has its default."""
    layers: tuple[Layer, ...]
    profile: str = ""

    def __repr__(self) -> str:
        return f"LoadedConfig({self.config!r})"

    @property
    def files(self) -> tuple[FilePath, ...]:
        """The files that were read, those that win first."""
        return tuple(layer.file.path for layer in self.layers if layer.file is not None)

    def origin(self, field: str) -> str:
        """Where a setting comes from: `environment variable DRAGOMAN_MODEL`, `dragoman.toml, line 3`, `default`."""
        path = tuple(field.split("."))
        if path in self.known:
            return self.known[path].origin
        if path in FIELDS or field in Config.__struct_fields__:
            return "default"
        raise ConfigurationError(f"There is no setting {field!r}.")

    def explain(self) -> Explanation:
        """Every setting, its value and where it comes from. Secrets are masked; no key is looked up."""
        paths = dict.fromkeys([*FIELDS, *self.known])
        rows = [self._row(path) for path in paths if path != ("keys",)]
        keys = [
            Row(
                field=f"keys.{name}",
                value=shown_value("keys", reference),
                origin=reference.origin or "the argument keys",
            )
            for name, reference in self.config.keys.items()
        ]
        return Explanation((*rows, *keys))

    def _row(self, path: Path) -> Row:
        name = ".".join(path)
        if (known := self.known.get(path)) is not None:
            value = self.config.secret if name == "token" else known.value
            return Row(field=name, value=shown_value(name, value), origin=known.origin, overridden=known.overridden)
        value: object = self.config
        for step in path:
            value = getattr(value, step)
        return Row(field=name, value=shown_value(name, self._filled(name) or value), origin="default")

    def _filled(self, name: str) -> object:
        """What an empty setting comes to."""
        if name == "provider":
            return DEFAULT_PROVIDER
        try:
            if name == "model":
                return self.config.model_name.partition(":")[2]
            if name == "max_tokens":
                provider, _, model = self.config.model_name.partition(":")
                of_profile = profile_of(provider, model).default_max_tokens if provider in PROVIDERS else None
                return self.config.for_model().max_tokens or of_profile
        except ConfigurationError:  # an explanation must also be had of a configuration that does not work
            return None
        return None

    def section(self, name: str, kind: type[T], *, project: bool = False) -> T:
        """A table of another room as a value of its own type, such as a Struct with defaults for all fields.

        Tables of later layers win key by key. The file of a project that is not trusted may have the table only if
        the room says that it can do no harm (`project=True`).
        """
        if name not in SECTIONS:
            message = f"There is no section {name!r}."
            raise ConfigurationError(message, hint=f"Sections are {', '.join(sorted(SECTIONS))}.")
        merged: dict[str, object] = {}
        for layer in reversed(self.layers):
            if name not in layer.sections:
                continue
            table, at = layer.sections[name]
            assert layer.file is not None
            if not layer.trusted and not project:
                raise not_for_projects(layer.file, at, f"[{name}]")
            try:
                msgspec.convert(table, kind)
            except msgspec.ValidationError as error:
                problem = f"[{name}] does not fit: {str(error).replace('`', '')}."
                raise layer.file.error(problem, at) from None
            merged.update(table)
        return cast("Any", msgspec.convert(merged, kind))
