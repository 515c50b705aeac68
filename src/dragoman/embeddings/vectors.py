"""The vectors of many texts in one buffer.

Owns: Embeddings, the result; Sheet, which collects the parts, from any thread.
Must not know: providers, requests.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Iterator, Sequence

from msgspec import Struct

from dragoman.conversation import Usage
from dragoman.providers import Adaptation, prices_of

from .codecs import Answered, Row

_SIZE = 4
"""Bytes of a number: vectors are 32-bit floats."""
_LONGEST = 1 << 16
"""More numbers than the vectors of any model have."""


class Embeddings(Struct, frozen=True, kw_only=True):
    """Vectors in the order of the texts. `numpy.asarray(embeddings)` makes an array of them without a copy."""

    model: str
    """`provider:model`."""
    data: memoryview[float]
    """All numbers in a row, of format `f`."""
    count: int
    dimensions: int
    """The length of a vector; 0 if there is none."""
    usage: Usage = Usage()
    adaptations: tuple[Adaptation, ...] = ()
    """The options that this model does not support."""
    missing: tuple[int, ...] = ()
    """Positions of texts without vectors, after a failure; their vectors are zeros."""

    @property
    def cost(self) -> float | None:
        """The cost in US dollars; None if the price or the number of tokens is not known."""
        if self.usage.charged is not None:
            return self.usage.charged
        provider, _, model = self.model.partition(":")
        prices = prices_of(provider, model)
        return None if prices is None else prices.cost(self.usage)

    @property
    def vectors(self) -> list[memoryview[float]]:
        """A view of each vector, without a copy."""
        return list(self)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, position: int) -> memoryview[float]:
        at = range(self.count)[position] * self.dimensions  # handles negative positions, and those out of range
        return self.data[at : at + self.dimensions]

    def __iter__(self) -> Iterator[memoryview[float]]:
        return (self[position] for position in range(self.count))

    @property
    def __array_interface__(self) -> dict[str, object]:
        """For NumPy, and other readers of its interface."""
        kind = "<f4" if sys.byteorder == "little" else ">f4"
        return {"version": 3, "shape": (self.count, self.dimensions), "typestr": kind, "data": self.data}

    def __buffer__(self, _flags: int) -> memoryview[float]:
        """The buffer itself, with two dimensions, from Python 3.12 on."""
        if not self.count * self.dimensions:  # a cast refuses a shape with a zero
            from ctypes import c_float  # rarely needed

            return memoryview((c_float * self.dimensions * self.count)())
        return self.data.cast("B").cast("f", shape=[self.count, self.dimensions])

    def __repr__(self) -> str:
        return f"Embeddings({self.model}, {self.count} of {self.dimensions} dimensions)"


class Sheet:
    """Collects vectors."""

    def __init__(self, count: int, begun: Embeddings | None = None, dimensions: int | None = None) -> None:
        self._lock: threading.Lock = threading.Lock()
        self._count: int = count
        self._missing: set[int] = set(range(count) if begun is None else begun.missing)
        self._dimensions: int = (0 if begun is None else begun.dimensions) or dimensions or 0
        """The requested length, or that of the first vector."""
        self._bytes: bytearray = bytearray(b"" if begun is None else begun.data)
        self._usages: list[Usage] = [] if begun is None else [begun.usage]

    @property
    def missing(self) -> list[int]:
        return sorted(self._missing)

    def fill(self, positions: Sequence[int], answered: Answered) -> None:
        """Store the vectors of these texts. Raises ValueError if their number or length is wrong."""
        rows = [_to_bytes(row) for row in answered.rows]
        if len(rows) != len(positions):
            raise ValueError(f"{len(rows)} vectors for {len(positions)} texts")
        size = len(rows[0])
        with self._lock:
            wanted = self._dimensions or size // _SIZE
            if not 0 < wanted <= _LONGEST or any(len(row) != wanted * _SIZE for row in rows):
                raise ValueError(f"vectors of other lengths, or none, where {wanted} numbers are wanted")
            self._dimensions, self._bytes = wanted, self._bytes or bytearray(self._count * size)
            with memoryview(self._bytes) as view:
                for position, row in zip(positions, rows, strict=True):
                    view[position * size : (position + 1) * size] = row
            self._missing.difference_update(positions)
            tokens = answered.tokens
            self._usages.append(
                Usage() if tokens is None or tokens < 0 else Usage(input=tokens, output=0, total=tokens)
            )

    def finish(self, model: str, adaptations: tuple[Adaptation, ...]) -> Embeddings:
        """The result so far."""
        return Embeddings(
            model=model,
            data=memoryview(self._bytes).cast("f"),
            count=self._count,
            dimensions=self._dimensions if self._bytes else 0,
            usage=Usage.total_of(self._usages),
            adaptations=adaptations,
            missing=tuple(self.missing),
        )


def _to_bytes(row: Row) -> bytes | memoryview:
    """A vector as the bytes of 32-bit floats of this machine."""
    if isinstance(row, bytes):
        if sys.byteorder == "little" or len(row) % _SIZE:
            return row
        swapped = array("f", row)
        swapped.byteswap()
        return swapped.tobytes()
    return memoryview(array("f", row)).cast("B")
