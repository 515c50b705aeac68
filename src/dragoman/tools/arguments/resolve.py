"""Annotations as types: names are looked up, type variables filled in, and the fields of classes listed.

Owns: where a name in an annotation is looked up, and what dataclasses, TypedDicts, NamedTuples and Structs declare.
Must not know: what the types mean (hints.py).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType, SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec

MISSING = object()
"""No default, or none that can be shown."""

Scope = tuple[dict[str, Any], dict[str, Any]]
"""The globals and the locals in which an annotation is evaluated."""


class UnsupportedError(Exception):
    """A hint that cannot be expressed; the text says why, `fix` what to write instead."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message: str = message
        self.fix: str = fix

    def within(self, place: str) -> UnsupportedError:
        """The same error, with the place that holds the hint."""
        return UnsupportedError(f"{place}: {self.message}", self.fix)


@functools.lru_cache(maxsize=1024)  # most hints are one of a few, and reading one costs ten times its evaluation
def _compiled(annotation: str) -> CodeType:
    return compile(f"({annotation})", "<annotation>", "eval")


def resolve(annotation: object, scope: Scope) -> object:
    """The type that an annotation stands for; raises UnsupportedError."""
    try:
        written: object = eval(_compiled(annotation), *scope) if isinstance(annotation, str) else annotation  # noqa: S307 -- as typing does
        parts = getattr(written, "__args__", ())
        if isinstance(written, type) or (parts and all(isinstance(part, type) for part in parts)):
            return written
        # get_type_hints finds the names inside list["Item"]; it wants something that has annotations.
        holder = SimpleNamespace(__annotations__={"it": written})
        return typing.get_type_hints(holder, *scope, include_extras=True)["it"]
    except NameError as error:
        raise UnsupportedError(
            f"the name {error.name or error} in its annotation is not defined",
            "Define or import it where the function is defined, before the tool is made; not only under TYPE_CHECKING.",
        ) from None
    except Exception as error:  # noqa: BLE001 -- an annotation is any code
        message = f"its annotation {annotation!r:.200} cannot be evaluated: {type(error).__name__}: {error}"
        raise UnsupportedError(message, "Correct the annotation.") from None


def class_of(hint: object) -> type[Any] | None:
    """The class that a hint is, or that a generic hint is made of."""
    cls: Any = typing.get_origin(hint) or hint
    return cast("type[Any]", cls) if isinstance(cls, type) else None


# --- where names are looked up ---------------------------------------------------------------------------------------


def scope_of_function(fn: Callable[..., object]) -> Scope:
    """Where the names in a function's annotations are looked up."""
    inner = _innermost(fn)
    if not inspect.isfunction(inner):
        return vars(sys.modules.get(getattr(inner, "__module__", None) or "builtins", typing)), {}
    around = _running_locals(inner.__qualname__, inner.__globals__)
    for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True):
        try:
            around[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return inner.__globals__, around


def scope_of(owner: Any) -> Scope:
    """Where the names in a class's annotations, or in a `type X = ...`, are looked up."""
    module = sys.modules.get(owner.__module__)
    names = vars(module) if module else {}
    own: Mapping[str, Any] = vars(owner) if isinstance(owner, type) else {}
    inside = {name: value for name, value in own.items() if isinstance(value, type)}
    around = _running_locals(getattr(owner, "__qualname__", ""), names)
    return {**inside, **names}, {**around, owner.__name__: owner}


def _innermost(fn: Callable[..., object]) -> object:
    """The plain function inside a partial, a bound method, a decorated function or a callable object."""
    current: Any = fn
    while True:
        inner: Any = getattr(current, "__wrapped__", None) or getattr(current, "__func__", None)
        if type(current) is functools.partial:
            inner = current.func
        elif inner is None and not inspect.isroutine(current):
            inner = getattr(cast("object", type(current)), "__call__", None)  # noqa: B004 -- the method itself is wanted
        if inner is None or inspect.ismethodwrapper(inner):
            return cast("object", current)
        current = inner


def _running_locals(qualname: str, names: Mapping[str, object]) -> dict[str, object]:
    """The locals of the functions and class bodies around a definition, as far as they are still running."""
    parts = qualname.split(".")[:-1]
    around = {".".join(parts[:count]) for count in range(1, len(parts) + 1) if parts[count - 1] != "<locals>"}
    found: dict[str, object] = {}
    frame: FrameType | None = inspect.currentframe() if around else None
    while frame is not None:
        if frame.f_code.co_qualname in around and frame.f_globals is names:
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found


# --- the fields of classes -------------------------------------------------------------------------------------------


class RawField(NamedTuple):
    """A field as its class declares it, or a parameter as its function does."""

    name: str
    hint: object
    key: str
    """Its name in JSON."""
    required: bool = True
    default: object = MISSING
    description: str = ""
    factory: Callable[[], object] | None = None
    """Makes the default, where a function's parameter says how."""


def fields_of(hint: object) -> list[RawField] | None:
    """The fields of a class, or of a generic class with arguments; None if it is not one that has fields."""
    cls = class_of(hint)
    if cls is None:
        return None
    for base, sign, read in _READERS:
        if issubclass(cls, base) and hasattr(cls, sign):
            return list(read(cls, _class_hints(cls, typing.get_args(hint))))
    return None


def _dataclass_fields(cls: type[Any], hints: dict[str, object]) -> Iterator[RawField]:
    for field in dataclasses.fields(cls):
        if field.init:
            has_factory = field.default_factory is not dataclasses.MISSING
            required = field.default is dataclasses.MISSING and not has_factory
            default = _factory_default(field.default_factory) if has_factory else MISSING if required else field.default
            description = str(field.metadata.get("description") or getattr(field, "doc", None) or "")
            yield RawField(field.name, hints[field.name], field.name, required, default, description)


def _factory_default(factory: Any) -> object:
    """What a default factory makes, to be shown; a factory that counts or reads a clock is not shown."""
    known: tuple[Any, ...] = (list, dict, set, tuple, frozenset)
    return factory() if factory in known else MISSING


def _typed_dict_fields(cls: type[Any], hints: dict[str, object]) -> Iterator[RawField]:
    for name, written in hints.items():
        hint, required = written, name in cls.__required_keys__
        # Where annotations are text, only the hint itself shows Required and NotRequired.
        while (qualifier := getattr(typing.get_origin(hint), "_name", None)) in ("Required", "NotRequired", "ReadOnly"):
            required = {"Required": True, "NotRequired": False}.get(str(qualifier), required)
            hint = typing.get_args(hint)[0]
        yield RawField(name, hint, name, required)


def _named_tuple_fields(cls: type[Any], hints: dict[str, object]) -> Iterator[RawField]:
    for name in cast("tuple[str, ...]", cls._fields):
        default = cls._field_defaults.get(name, MISSING)
        yield RawField(name, hints.get(name, Any), name, default is MISSING, default)


def _struct_fields(cls: type[Any], hints: dict[str, object]) -> Iterator[RawField]:
    # Unlike msgspec.structs.fields this looks up no types: hints were looked up further.
    defaults: Sequence[Any] = cls.__struct_defaults__
    padding = (msgspec.NODEFAULT,) * (len(cls.__struct_fields__) - len(defaults))
    names: Iterator[tuple[str, str, Any]] = zip(
        cls.__struct_fields__, cls.__struct_encode_fields__, (*padding, *defaults), strict=True
    )
    for name, key, default in names:
        factory: Any = getattr(default, "factory", None) if type(default).__name__ == "Factory" else None
        shown = default if factory is None else _factory_default(factory)
        hidden = default is msgspec.NODEFAULT or default is msgspec.UNSET
        yield RawField(name, hints[name], key, default is msgspec.NODEFAULT, MISSING if hidden else shown)


_READERS: tuple[tuple[type, str, Callable[[Any, dict[str, object]], Iterator[RawField]]], ...] = (
    (msgspec.Struct, "__struct_fields__", _struct_fields),
    (object, "__dataclass_fields__", _dataclass_fields),
    (dict, "__required_keys__", _typed_dict_fields),
    (tuple, "_fields", _named_tuple_fields),
)
"""A class is of a kind if it has this base and this attribute."""


def _class_hints(cls: type[Any], arguments: Sequence[object]) -> dict[str, object]:
    """The annotations of a class and its bases, with the type variables of generic classes filled in."""
    filled = dict(zip(cast("tuple[object, ...]", getattr(cls, "__parameters__", ())), arguments, strict=False))
    found: dict[str, object] = {}
    # From the last base to the first, so that what Python finds first is what stays.
    for base in reversed(vars(cls).get("__orig_bases__", cls.__bases__)):
        origin = class_of(base)
        if origin is not None:
            found.update(_class_hints(origin, [_fill(argument, filled) for argument in typing.get_args(base)]))
    for name, annotation in inspect.get_annotations(cls).items():
        try:
            found[name] = _fill(resolve(annotation, scope_of(cls)), filled)
        except UnsupportedError as error:
            raise error.within(f"field {name} of {cls.__name__}") from None
    return found


def _fill(hint: object, filled: Mapping[object, object]) -> object:
    if isinstance(hint, typing.TypeVar):
        return filled.get(hint, hint)
    parameters = cast("tuple[object, ...]", getattr(hint, "__parameters__", ()))
    if not filled or not parameters or isinstance(hint, type):
        return hint
    return cast("Any", hint)[tuple(filled.get(parameter, Any) for parameter in parameters)]
