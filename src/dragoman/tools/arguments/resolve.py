"""Resolves annotations: looks names up, fills in type variables, and lists the fields of classes.

Must not know: the meaning of types (hints.py).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import CodeType, FrameType, SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec

from dragoman._annotations import annotations_of

MISSING = object()
"""No default, or none that can be shown to the model."""

Scope = tuple[dict[str, Any], dict[str, Any]]
"""The globals and the locals in which an annotation is evaluated."""


class UnsupportedError(Exception):
    """A hint that cannot be expressed in JSON. `fix` says what to write instead."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message: str = message
        self.fix: str = fix


@functools.lru_cache(maxsize=1024)  # compiling costs ten times the evaluation
def _compiled(annotation: str) -> CodeType:
    return compile(f"({annotation})", "<annotation>", "eval")


def resolve(annotation: object, scope: Scope) -> object:
    """The type that an annotation names; raises UnsupportedError."""
    try:
        written: object = eval(_compiled(annotation), *scope) if isinstance(annotation, str) else annotation  # noqa: S307 -- as typing does
        parts = getattr(written, "__args__", ())
        if isinstance(written, type) or (parts and all(isinstance(part, type) for part in parts)):
            return written
        # get_type_hints resolves the names inside list["Item"]; it needs an object with annotations.
        holder = SimpleNamespace(__annotations__={"it": written})
        return typing.get_type_hints(holder, *scope, include_extras=True)["it"]
    except NameError as error:
        raise unknown_name(error) from None
    except Exception as error:  # noqa: BLE001 -- an annotation is any code
        message = f"its annotation {annotation!r:.200} cannot be evaluated: {type(error).__name__}: {error}"
        raise UnsupportedError(message, "Correct the annotation.") from None


def unknown_name(error: NameError) -> UnsupportedError:
    return UnsupportedError(
        f"the name {error.name or error} in its annotation is not defined",
        "Define or import it where the function is defined, before the tool is made; not only under TYPE_CHECKING.",
    )


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
        with suppress(ValueError):  # not assigned yet
            around[name] = cell.cell_contents
    bound_to: object = getattr(fn, "__self__", fn)
    cls: type = bound_to if isinstance(bound_to, type) else type(bound_to)
    outer = {name: each for base in reversed(cls.__mro__) for name, each in _type_parameters(base).items()}
    return inner.__globals__, {**outer, **around, **_type_parameters(inner)}


def scope_of(owner: Any) -> Scope:
    """Where the names in a class's annotations, or in a `type X = ...`, are looked up."""
    module = sys.modules.get(owner.__module__)
    names = vars(module) if module else {}
    own: Mapping[str, Any] = vars(owner) if isinstance(owner, type) else {}
    inside = {name: value for name, value in own.items() if isinstance(value, type)}
    around = _running_locals(getattr(owner, "__qualname__", ""), names)
    return {**inside, **names}, {**around, owner.__name__: owner, **_type_parameters(owner)}


def _innermost(fn: Callable[..., Any]) -> object:
    """The plain function inside a partial, a bound method, a decorated function or a callable object."""
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[Any]", fn).func
    inner = inspect.unwrap(fn)
    if not inspect.isroutine(inner):
        inner = inspect.unwrap(type(inner).__call__)
    return getattr(inner, "__func__", inner)


def _type_parameters(owner: object) -> dict[str, object]:
    """The T of `def f[T]` or `class C[T]`, by name: no scope that a program can read holds it."""
    parameters: object = getattr(owner, "__type_params__", ())
    if not isinstance(parameters, tuple):  # that of a built-in class describes what its instances have
        return {}
    return {each.__name__: each for each in cast("tuple[Any, ...]", parameters)}


def _running_locals(qualname: str, names: Mapping[str, object]) -> dict[str, object]:
    """The locals of the functions and class bodies around a definition that are still running."""
    parts = qualname.split(".")[:-1]
    around = {".".join(parts[:count]) for count in range(1, len(parts) + 1) if parts[count - 1] != "<locals>"}
    found: dict[str, object] = {}
    frame: FrameType | None = inspect.currentframe() if around else None
    while frame is not None:
        if frame.f_code.co_qualname in around and frame.f_globals is names:
            generic = {each.__name__: each for each in frame.f_locals.get("__type_params__", ())}  # of a class
            found = {**generic, **frame.f_locals, **found}
        frame = frame.f_back
    return found


# --- the fields of classes -------------------------------------------------------------------------------------------


class Field(NamedTuple):
    """A field as its class declares it, or a parameter as its function does."""

    name: str
    hint: object
    key: str
    """Its name in JSON."""
    required: bool = True
    default: object = MISSING
    description: str = ""
    factory: Callable[[], object] | None = None
    """Creates the default of a function's parameter, if it has a factory."""


def fields_of(hint: object) -> list[Field] | None:
    """The fields of a class, or of a generic class with arguments; None if it is not a class with fields."""
    cls = class_of(hint)
    if cls is None:
        return None
    for base, sign, read in _READERS:
        if issubclass(cls, base) and hasattr(cls, sign):
            return list(read(cls, _class_hints(cls, typing.get_args(hint))))
    return None


def _dataclass_fields(cls: type[Any], hints: dict[str, object]) -> Iterator[Field]:
    for field in dataclasses.fields(cls):
        if field.init:
            has_factory = field.default_factory is not dataclasses.MISSING
            required = field.default is dataclasses.MISSING and not has_factory
            default = _factory_default(field.default_factory) if has_factory else MISSING if required else field.default
            description = str(field.metadata.get("description") or getattr(field, "doc", None) or "")
            yield Field(field.name, hints[field.name], field.name, required, default, description)


def _factory_default(factory: Any) -> object:
    """The result of a default factory, to be shown; one that may count or read a clock is not called."""
    known: tuple[Any, ...] = (list, dict, set, tuple, frozenset)
    return factory() if factory in known else MISSING


def _typed_dict_fields(cls: type[Any], hints: dict[str, object]) -> Iterator[Field]:
    for name, written in hints.items():
        hint, required = written, name in cls.__required_keys__
        # If annotations are strings, __required_keys__ does not know about Required and NotRequired.
        while (qualifier := getattr(typing.get_origin(hint), "_name", None)) in ("Required", "NotRequired", "ReadOnly"):
            required = {"Required": True, "NotRequired": False}.get(str(qualifier), required)
            hint = typing.get_args(hint)[0]
        yield Field(name, hint, name, required)


def _named_tuple_fields(cls: type[Any], hints: dict[str, object]) -> Iterator[Field]:
    for name in cast("tuple[str, ...]", cls._fields):
        default = cls._field_defaults.get(name, MISSING)
        yield Field(name, hints.get(name, Any), name, default is MISSING, default)


def _struct_fields(cls: type[Any], hints: dict[str, object]) -> Iterator[Field]:
    # Unlike msgspec.structs.fields this resolves no types: the hints are resolved already.
    defaults: Sequence[Any] = cls.__struct_defaults__
    padding = (msgspec.NODEFAULT,) * (len(cls.__struct_fields__) - len(defaults))
    names: Iterator[tuple[str, str, Any]] = zip(
        cls.__struct_fields__, cls.__struct_encode_fields__, (*padding, *defaults), strict=True
    )
    for name, key, default in names:
        factory: Any = getattr(default, "factory", None) if type(default).__name__ == "Factory" else None
        shown = default if factory is None else _factory_default(factory)
        hidden = default is msgspec.NODEFAULT or default is msgspec.UNSET
        yield Field(name, hints[name], key, default is msgspec.NODEFAULT, MISSING if hidden else shown)


_READERS: tuple[tuple[type, str, Callable[[Any, dict[str, object]], Iterator[Field]]], ...] = (
    (msgspec.Struct, "__struct_fields__", _struct_fields),
    (object, "__dataclass_fields__", _dataclass_fields),
    (dict, "__required_keys__", _typed_dict_fields),
    (tuple, "_fields", _named_tuple_fields),
)
"""For each kind of class its base, an attribute by which it is recognised, and a function that lists its fields."""


def _class_hints(cls: type[Any], arguments: Sequence[object]) -> dict[str, object]:
    """The annotations of a class and its bases, with the type variables of generic classes filled in."""
    filled = dict(zip(cast("tuple[object, ...]", getattr(cls, "__parameters__", ())), arguments, strict=False))
    found: dict[str, object] = {}
    # From the last base to the first: the first one wins.
    for base in reversed(vars(cls).get("__orig_bases__", cls.__bases__)):
        origin = class_of(base)
        if origin is not None:
            found.update(_class_hints(origin, [_fill(argument, filled) for argument in typing.get_args(base)]))
    for name, annotation in annotations_of(cls).items():
        found[name] = _fill(resolve(annotation, scope_of(cls)), filled)
    return found


def _fill(hint: object, filled: Mapping[object, object]) -> object:
    if isinstance(hint, typing.TypeVar):
        return filled.get(hint, hint)
    parameters = cast("tuple[object, ...]", getattr(hint, "__parameters__", ()))
    if not filled or not parameters or isinstance(hint, type):
        return hint
    return cast("Any", hint)[tuple(filled.get(parameter, Any) for parameter in parameters)]
