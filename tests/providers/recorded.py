"""The recorded exchanges with the real services: where they are, and how to read them."""

from __future__ import annotations

import gzip
import json
import os
from base64 import b64decode
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("DRAGOMAN_RECORDED", ROOT.parent / "shared" / "recorded"))


class Exchange(NamedTuple):
    """One request and its reply, as they went over the wire."""

    name: str
    index: int
    url: str
    kinds: tuple[str, ...]
    model: str | None
    request: Any
    status: int
    headers: dict[str, str]
    body: str
    encoding: str = "text"

    @property
    def data(self) -> bytes:
        """The body as it went over the wire."""
        return b64decode(self.body) if self.encoding == "base64" else self.body.encode()

    @property
    def id(self) -> str:
        return f"{self.name}-{self.index}"

    @property
    def streamed(self) -> bool:
        return "stream" in self.headers.get("content-type", "")


@cache
def exchanges(dialect: str) -> tuple[Exchange, ...]:
    """All exchanges of one file (anthropic, chat, embeddings, gemini …); empty where the folder is absent."""
    path = FOLDER / f"{dialect}.jsonl.gz"
    if not path.exists():
        return ()
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return tuple(_exchange(json.loads(line)) for line in lines)


def _exchange(row: dict[str, Any]) -> Exchange:
    fields = {"model": None, **row, "kinds": tuple(row.get("kinds", ()))}
    fields["headers"] = {name.lower(): value for name, value in row["headers"].items()}
    return Exchange(**{name: fields[name] for name in Exchange._fields if name in fields})


def parametrized(dialect: str, *words: str, without: str = "?") -> Any:
    """`@parametrized("anthropic")` runs a test once for each exchange; without the folder it is skipped visibly.

    `words`: only for replies that contain one of them.
    """
    rows = [row for row in exchanges(dialect) if not row.url.endswith(without)]
    if words:
        rows = [row for row in rows if row.status == 200 and any(word in row.body for word in words)]
    parameters = [pytest.param(row, id=row.id, marks=pytest.mark.recorded) for row in rows]
    if not rows:
        reason = f"the recorded exchanges are not here ({FOLDER.name}/{dialect}.jsonl.gz)"
        parameters = [pytest.param(None, id="absent", marks=[pytest.mark.recorded, pytest.mark.skip(reason=reason)])]
    return pytest.mark.parametrize("exchange", parameters)


def conversations(dialect: str) -> Iterator[list[Exchange]]:
    """Exchanges of one name, in their order: each request carries the replies before it as history."""
    by_name: dict[str, list[Exchange]] = {}
    for row in exchanges(dialect):
        by_name.setdefault(row.name, []).append(row)
    for rows in by_name.values():
        yield sorted(rows, key=lambda row: row.index)
