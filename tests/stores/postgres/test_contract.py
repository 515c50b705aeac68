"""PostgresStore and AsyncPostgresStore do what every store does, sealed or not."""

from __future__ import annotations

import pytest

from dragoman.stores.postgres import AsyncPostgresStore, PostgresStore
from dragoman.stores.sealing import AesGcmSealing
from tests.stores.colours import blocking
from tests.stores.contract import Opener, StoreContract
from tests.stores.postgres_server import Server

KEY = bytes(range(32))


class TestPostgres(StoreContract):
    @pytest.fixture
    def opener(self, server: Server, schema: str) -> Opener:
        return lambda: PostgresStore(server.conninfo, schema=schema)


class TestAsyncPostgres(StoreContract):
    @pytest.fixture
    def opener(self, server: Server, schema: str) -> Opener:
        return lambda: blocking(AsyncPostgresStore(server.conninfo, schema=schema))


class TestSealedPostgres(StoreContract):
    @pytest.fixture
    def opener(self, server: Server, schema: str) -> Opener:
        return lambda: PostgresStore(server.conninfo, schema=schema, sealing=AesGcmSealing(KEY))


class TestSealedAsyncPostgresWithPlainLists(StoreContract):
    @pytest.fixture
    def opener(self, server: Server, schema: str) -> Opener:
        return lambda: blocking(
            AsyncPostgresStore(server.conninfo, schema=schema, sealing=AesGcmSealing(KEY), listing="plain")
        )
