"""A sealed store for the tests with several processes."""

from __future__ import annotations

from dragoman.stores.file import FileStore
from dragoman.stores.sealing import AesGcmSealing
from tests.stores.backends import Backend
from tests.stores.file.backend import litter

__all__ = ["BACKEND"]

BACKEND = Backend(open=lambda place: FileStore(place / "store", sealing=AesGcmSealing(b"k" * 32)), litter=litter)
