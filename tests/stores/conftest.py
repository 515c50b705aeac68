"""The PostgreSQL server, and a new schema for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import psycopg
import pytest

from tests.stores.postgres_server import NoServerHereError, Server, shared_server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Server:
    try:
        return shared_server()
    except NoServerHereError as error:
        pytest.skip(str(error))


@pytest.fixture
def schema(server: Server) -> Iterator[str]:
    """The name of a new schema, which is dropped at the end."""
    name = f"test_{next(_numbers)}"
    yield name
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
