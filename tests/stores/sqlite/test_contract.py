from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.stores.async_store import AsyncStore
from dragoman.stores.sealing import AesGcmSealing
from dragoman.stores.sqlite import SqliteStore
from tests.stores.colours import blocking
from tests.stores.contract import Opener, StoreContract

KEY = bytes(range(32))


class TestPlain(StoreContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda: SqliteStore(tmp_path / "store.db")


class TestSealed(StoreContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda: SqliteStore(tmp_path / "store.db", sealing=AesGcmSealing(KEY))


class TestSealedWithPlainLists(StoreContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda: SqliteStore(tmp_path / "store.db", sealing=AesGcmSealing(KEY), listing="plain")


class TestAsync(StoreContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda: blocking(AsyncStore(SqliteStore(tmp_path / "store.db")))
