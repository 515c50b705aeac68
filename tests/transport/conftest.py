"""The transports under test: each test that asks for a `kind` or a `client` runs on all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.transport.colours import KINDS, OWN_KINDS, Client, Kind


@pytest.fixture(params=KINDS, ids=repr)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture(params=[kind for kind in KINDS if not kind.plain], ids=repr)
def async_kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture
def client(kind: Kind) -> Iterator[Client]:
    with kind.client() as client:
        yield client


@pytest.fixture(params=OWN_KINDS, ids=repr)
def own(request: pytest.FixtureRequest) -> Kind:
    return request.param
