"""The fields of a class: dataclass, TypedDict, NamedTuple and msgspec.Struct.

Owns: reading a class's fields, defaults and docstring into a Record.
Must not know: how a field's hint becomes a node.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import msgspec

from .defaults import MISSING
from .node import UnsupportedError
from .resolve import class_hints, class_of

__all__ = ["RawField", "Shape", "own_docstring", "shape_of"]


class RawField(NamedTuple):
    """A field as its class declares it."""

    name: str
    hint: object
    key: str = ""
    required: bool = True
    default: object = MISSING
    description: str = ""


class Shape(NamedTuple):
    """What a class says of its objects."""

    fields: Callable[[], list[RawField]]
    """Called when the record exists already, since a field may refer to its own class."""
    build: Callable[[dict[str, object]], object]
    closed: bool = True
    native: object = None
    tag: tuple[str, object] | None = None
    as_array: bool = False
    hashable: bool | None = None


def shape_of(hint: object) -> Shape | None:
    """The shape of a class or of a generic class with arguments; None if it is not one that has fields."""
    cls = class_of(hint)
    if cls is None:
        return None
    for base, sign, shape in _SHAPES:
        if issubclass(cls, base) and hasattr(cls, sign):
            return shape(hint, cls)
    return None


def _hashable(cls: type[Any]) -> bool | None:
    return False if cls.__hash__ is None else None


def _dataclass(hint: object, cls: type[Any]) -> Shape:
    def fields() -> list[RawField]:
        hints = class_hints(hint)
        found = list(_dataclass_fields(cls, hints))
        _check_accepts(cls, [field.name for field in found])
        return found

    return Shape(fields, _by_keyword(cls), hashable=_hashable(cls))


def _by_keyword(cls: Callable[..., object]) -> Callable[[dict[str, object]], object]:
    return lambda values: cls(**values)


def _dataclass_fields(cls: type[Any], hints: dict[str, object]) -> Iterator[RawField]:
    # __dataclass_fields__ rather than fields(): the latter leaves InitVars out, which __init__ wants.
    declared = cast("dict[str, dataclasses.Field[object]]", cls.__dataclass_fields__)
    for field in declared.values():
        hint = hints.get(field.name, field.type)
        if typing.ClassVar in (hint, typing.get_origin(hint)) or not field.init:
            continue
        if isinstance(hint, dataclasses.InitVar):
            hint = cast("Any", hint).type
        has_factory = field.default_factory is not dataclasses.MISSING
        required = field.default is dataclasses.MISSING and not has_factory
        default = _made(field.default_factory) if has_factory else MISSING if required else field.default
        description = str(field.metadata.get("description") or getattr(field, "doc", None) or "")
        yield RawField(field.name, hint, required=required, default=default, description=description)


def _check_accepts(cls: type, names: list[str]) -> None:
    """A dataclass may have an __init__ of its own that takes something else than its fields."""
    parameters = inspect.signature(cls).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    strangers = [name for name in names if name not in parameters]
    if strangers:
        raise UnsupportedError(
            f"{cls.__name__}.__init__ does not take its field {strangers[0]!r}",
            "Let dataclass write __init__, or say field(init=False).",
        )


def _made(factory: Any) -> object:
    """What a default factory makes, to be shown; a factory that counts or reads a clock is not shown."""
    known: tuple[Any, ...] = (list, dict, set, tuple, frozenset)
    return factory() if factory in known else MISSING


def _typed_dict(hint: object, cls: type[Any]) -> Shape:
    def fields() -> list[RawField]:
        required = cast("frozenset[str]", cls.__required_keys__)
        found: list[RawField] = []
        for name, written in class_hints(hint).items():
            plain, must = _unqualified(written, name in required)
            found.append(RawField(name, plain, required=must))
        return found

    return Shape(fields, _as_it_is, hashable=False)


def _as_it_is(values: dict[str, object]) -> object:
    return values


def _unqualified(hint: object, required: bool) -> tuple[object, bool]:
    """The hint without Required, NotRequired and ReadOnly. Where annotations are text, only this shows them."""
    while True:
        qualifier = getattr(typing.get_origin(hint), "_name", None)
        if qualifier not in ("Required", "NotRequired", "ReadOnly"):
            return hint, required
        required = {"Required": True, "NotRequired": False}.get(qualifier, required)
        hint = typing.get_args(hint)[0]


def _named_tuple(hint: object, cls: type[Any]) -> Shape:
    def fields() -> list[RawField]:
        hints = class_hints(hint)
        defaults = cast("dict[str, object]", cls._field_defaults)
        return [
            RawField(name, hints.get(name, Any), required=name not in defaults, default=defaults.get(name, MISSING))
            for name in cast("tuple[str, ...]", cls._fields)
        ]

    return Shape(fields, _by_keyword(cls))


def _struct(hint: object, cls: type[msgspec.Struct]) -> Shape:
    config = cls.__struct_config__

    def fields() -> list[RawField]:
        hints = class_hints(hint)
        found: list[RawField] = []
        for name, key, default in _struct_fields(cls):
            required = default is msgspec.NODEFAULT
            factory = getattr(default, "factory", None) if type(default).__name__ == "Factory" else None
            shown = default if factory is None else _made(factory)
            shown = MISSING if required or default is msgspec.UNSET else shown
            found.append(RawField(name, hints[name], key=key, required=required, default=shown))
        return found

    tag = (config.tag_field, config.tag) if config.tag_field is not None else None
    return Shape(
        fields,
        _by_keyword(cls),
        closed=config.forbid_unknown_fields,
        # __post_init__ may raise anything; msgspec takes only ValueError and TypeError for a validation error.
        native=None if hasattr(cls, "__post_init__") else hint,
        tag=cast("tuple[str, object] | None", tag),
        as_array=config.array_like,
        hashable=_hashable(cls),
    )


def _struct_fields(cls: type[msgspec.Struct]) -> Iterator[tuple[str, str, object]]:
    """Name, key and default of each field. Unlike msgspec.structs.fields this looks up no types: we look further."""
    info: Any = cls
    defaults: tuple[object, ...] = info.__struct_defaults__
    padding = (msgspec.NODEFAULT,) * (len(info.__struct_fields__) - len(defaults))
    return zip(info.__struct_fields__, info.__struct_encode_fields__, padding + defaults, strict=True)


_SHAPES: tuple[tuple[type, str, Callable[[object, Any], Shape]], ...] = (
    (msgspec.Struct, "__struct_fields__", _struct),
    (object, "__dataclass_fields__", _dataclass),
    (dict, "__required_keys__", _typed_dict),
    (tuple, "_fields", _named_tuple),
)
"""A class is of a kind if it has this base and this attribute."""


def own_docstring(cls: type) -> str:
    """The docstring written for this class: not an inherited one, not one that Python made up."""
    own = vars(cls).get("__doc__")
    made_up = (f"{cls.__name__}(", "An enumeration.", "A collection of name/value pairs")
    return inspect.cleandoc(own) if isinstance(own, str) and not own.startswith(made_up) else ""
