"""What is to be done on the server, said without doing it.

Owns: one statement with its values (Ask), and a piece of work: the steps of one transaction, and what may happen to it
when the connection breaks.
Must not know: psycopg, connections, colours.

The steps are a generator: it yields statements, is sent their rows, and returns the result. It may be begun again from
the start, so it changes nothing but the database.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

__all__ = ["Ask", "Rows", "Steps", "Work"]

_T = TypeVar("_T")

Rows: TypeAlias = Sequence[Sequence[Any]]


class Ask(NamedTuple):
    """One statement. `{s}` in it stands for the schema."""

    sql: str
    values: Sequence[object] = ()
    many: bool = False
    """`values` are those of several runs of the statement, which give no rows."""


Steps: TypeAlias = Generator[Ask, Rows, _T]


class Work(NamedTuple, Generic[_T]):
    """The steps of one transaction."""

    steps: Callable[[], Steps[_T]]
    kind: Literal["look", "write"]
    """A look asks questions that each stand for themselves; only a write is put between BEGIN and COMMIT."""
    repeatable: bool = True
    """Whether it may be done again when nobody knows whether it has been done."""
