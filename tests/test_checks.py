"""Wrong constructor arguments are refused, with a suggestion."""

from __future__ import annotations

from enum import Enum

import msgspec
import pytest

from dragoman._checks import CheckedMeta, nearest, refuse_unknown
from dragoman.errors import ConfigurationError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct, metaclass=CheckedMeta, frozen=True, kw_only=True):
    count: int = 1


class Settings(msgspec.Struct, metaclass=CheckedMeta, frozen=True, kw_only=True):
    colour: Colour = Colour.RED
    names: frozenset[str] = frozenset()
    seconds: float | None = None
    inner: Inner = Inner()


def test_equivalent_values_are_converted() -> None:
    made = Settings(colour="blue", names=["a"], seconds=3, inner={"count": 2})  # type: ignore[arg-type]
    assert made == Settings(colour=Colour.BLUE, names=frozenset(["a"]), seconds=3.0, inner=Inner(count=2))
    assert msgspec.json.decode(b'{"colour":"blue"}', type=Settings) == Settings(colour=Colour.BLUE)


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    assert nearest("Time-Out", ["timeout", "time"]) == "timeout"
    assert nearest("xyz", ["timeout"]) == ""

    def make(tools: object, *, permission: object = None, **unknown: object) -> None:
        refuse_unknown(unknown, make, "make")

    make(1, permission=2)
    with pytest.raises(ConfigurationError, match="make has no setting 'permision'. Did you mean permission?"):
        make(1, permision=2)
