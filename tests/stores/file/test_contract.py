"""FileStore keeps every rule of stores, sealed or not, plain or async."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.stores.async_store import AsyncStore
from dragoman.stores.file import FileStore
from dragoman.stores.sealing import AesGcmSealing
from tests.stores.colours import blocking
from tests.stores.contract import Opener, StoreContract

KEY = b"k" * 32


class TestOpen(StoreContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda: FileStore(tmp_path / "deep" / "store")


class TestSealed(StoreContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda: FileStore(tmp_path / "store", sealing=AesGcmSealing(KEY))


class TestSealedWithPlainLists(StoreContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda: FileStore(tmp_path / "store", sealing=AesGcmSealing(KEY), listing="plain")


class TestAsync(StoreContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda: blocking(AsyncStore(FileStore(tmp_path / "store")))
