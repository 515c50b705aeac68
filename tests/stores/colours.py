"""An async store that looks like a plain one, so that one suite tests both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self, cast

from dragoman.stores import AsyncConversationStore, ConversationStore

__all__ = ["blocking"]


class _Blocking:
    """Each call on a loop of its own: a store must not be tied to one."""

    def __init__(self, store: AsyncConversationStore) -> None:
        self._store = store
        self.can_search = store.can_search

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            async def work() -> Any:
                return await getattr(self._store, "aclose" if name == "close" else name)(*args, **kwargs)

            return asyncio.run(work())

        return call

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def blocking(store: AsyncConversationStore) -> ConversationStore:
    return cast("ConversationStore", _Blocking(store))
