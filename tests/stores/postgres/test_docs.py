"""What docs/stores.md says of PostgresStore is true of a real server."""

from __future__ import annotations

import asyncio
from typing import Any

from dragoman.conversation import Message
from dragoman.stores.snapshot import Snapshot
from tests.stores.contract import chain
from tests.stores.postgres_server import Server
from tests.test_docs import BLOCKS, ROOT

ADDRESS = "postgresql://app@db.internal/talk"


def test_the_example_runs(server: Server, schema: str) -> None:
    [block] = [each for each in BLOCKS if each.document == ROOT / "docs" / "stores.md" and ADDRESS in each.code]
    code = block.code.replace(f'"{ADDRESS}")', f'"{ADDRESS}", schema="dragoman")')
    code = code.replace(ADDRESS, server.conninfo).replace('schema="dragoman"', f'schema="{schema}"')
    names: dict[str, Any] = {"Snapshot": Snapshot, "Message": Message}
    exec(code, names)
    with names["fleet"] as store:
        points = chain(store, 2, said="What is a dragoman?")
        snapshot = names["next_turn"](points[0].id, "Thanks.")
        assert store.latest(points[0].id) == snapshot
        assert snapshot.messages[-1].text == "Thanks."
        assert asyncio.run(names["titles"]()) == ["What is a dragoman?"]
