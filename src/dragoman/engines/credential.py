"""Keys as values: fixed ones, which do not print themselves, and generated ones.

A generated key is returned by a function when it is first needed, cached, and renewed before it expires, with one call
for all waiting requests, sync and async. Must not know: how a request carries a key (`Connection.signed`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NoReturn, Self, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import force_setattr

from dragoman._stop import pause
from dragoman.errors import AuthenticationError, ConfigurationError, DragomanError, StoppedError

_EARLY: Final = 300.0
"""Seconds before its expiry that a key is renewed; one that lives for less than 25 minutes, in its last fifth."""
_POLL_SECONDS: Final = 0.01
"""How often a waiting request checks whether another one has renewed the key."""
_RETRY_SECONDS: Final = 30.0
"""When a failed renewal is tried again, while the old key is still valid."""


class Secret:
    """A value that must not appear in logs, errors, tapes, snapshots or the environment of a child."""

    __slots__ = ("_value", "hosts")

    def __init__(self, value: str, *, hosts: Iterable[str] | None = None) -> None:
        self._value: str = value
        self.hosts: frozenset[str] | None = None if hosts is None else frozenset(hosts)
        """The hosts that it may be sent to: `name` or `name:port`. None: any."""

    def reveal(self) -> str:
        return self._value

    @property
    def is_sendable(self) -> bool:
        """Whether it has only characters that a key can have."""
        return self._value.isascii() and self._value.isprintable() and self._value == self._value.strip()

    @property
    def masked(self) -> str:
        """`…` and the last four characters, to tell two keys apart."""
        return f"…{self._value[-4:]}" if len(self._value) >= 20 else "…"

    def __repr__(self) -> str:
        return "Secret('…')"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        message = "a secret is not pickled; pass it on in another way"
        raise TypeError(message)

    def __getstate__(self) -> NoReturn:  # for serializers other than pickle
        return self.__reduce__()


class Confidential(Struct, frozen=True, kw_only=True):
    """A value whose fields are not printed, because one of them may contain a key."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []  # rich would print every field


# --- generated keys ---------------------------------------------------------------------------------------------------


class Token(Confidential, frozen=True, kw_only=False):
    """A key that expires: `Token(value, expires_at)`."""

    value: Secret | str
    """Stored as a Secret."""
    expires_at: float | None = None
    """The Unix time; None: it is used until a provider refuses it."""

    def __post_init__(self) -> None:
        if isinstance(self.value, str):
            force_setattr(self, "value", Secret(self.value))


class AwsKeys(Confidential, frozen=True, kw_only=False):
    """The keys that requests to Amazon are signed with."""

    access_key: str
    secret_key: str
    token: str | None = None
    """The session token of temporary keys."""
    expires_at: float | None = None


MadeKey: TypeAlias = Token | AwsKeys
KeySource: TypeAlias = Callable[[], str | Secret | MadeKey] | Callable[[], Awaitable[str | Secret | MadeKey]]
"""A function that returns a key. A sync one may block: on an event loop it is called in a worker thread."""


class _Renewal(Struct):
    over: bool = False
    error: Exception | None = None


class Credential:
    """A key that a function generates, once for all waiting calls. Safe to share between threads, tasks and engines."""

    masked: Final = "… (generated when it is needed)"

    def __init__(
        self, source: KeySource, *, hosts: Iterable[str] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.source: KeySource = source
        self.hosts: frozenset[str] | None = None if hosts is None else frozenset(hosts)
        """The hosts that it may be sent to, as for a Secret."""
        self._clock: Callable[[], float] = clock
        self._made: MadeKey | None = None
        self._renew_at: float | None = None
        self._renewal: dict[str, _Renewal] = {}
        """The current one, if there is one. Not a lock: Ctrl-C could leave it held."""

    def __repr__(self) -> str:
        return "Credential(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Credential) and (other.source, other.hosts) == (self.source, self.hosts)

    def __hash__(self) -> int:
        try:
            return hash((self.source, self.hosts))
        except TypeError:  # a callable object may not be hashable
            return hash((type(self.source), self.hosts))

    async def made(self, *, blocking: bool) -> MadeKey:
        """The cached key, or a new one. Raises AuthenticationError if the function fails.

        While another call renews the key, the old one is used if it is still valid; otherwise this call waits.
        """
        while (found := self._cached()) is None:
            mine = _Renewal()
            try:
                renewal = self._renewal.setdefault("", mine)
                if renewal is mine:
                    return await self._renew(blocking=blocking)
                if (old := self._unexpired()) is not None:
                    return old
                while not renewal.over:
                    await pause(_POLL_SECONDS, blocking=blocking)
                if renewal.error is not None:
                    raise renewal.error
            except Exception as error:
                mine.error = None if isinstance(error, StoppedError) else error
                raise
            finally:
                if self._renewal.get("") is mine:
                    del self._renewal[""]
                mine.over = True  # if it was given up, one of those that wait renews the key
        return found

    def discard(self, made: MadeKey) -> None:
        """Forget this key, because a provider has refused it."""
        if self._made is made:
            self._made = None

    def reveal(self) -> tuple[str, ...]:
        """The secret parts of the cached key; empty before there is one."""
        made = self._made
        if isinstance(made, Token):
            return (cast("Secret", made.value).reveal(),)
        return () if made is None else (made.secret_key, made.token or "")

    def _cached(self) -> MadeKey | None:
        return None if self._renew_at is not None and self._clock() >= self._renew_at else self._made

    def _unexpired(self) -> MadeKey | None:
        made = self._made
        return made if made is not None and self._clock() < (made.expires_at or 0) else None

    async def _renew(self, *, blocking: bool) -> MadeKey:
        if (found := self._cached()) is not None:  # another call was quicker
            return found
        try:
            made = _to_key(await _call_source(self.source, blocking=blocking))
        except DragomanError as error:
            if isinstance(error, StoppedError) or (old := self._unexpired()) is None:
                raise
            import logging  # slow to load, and rarely needed

            logger = logging.getLogger("dragoman.engines")
            logger.warning("A key could not be renewed; the old one is used until it expires. %s", error)
            self._renew_at = self._clock() + _RETRY_SECONDS
            return old
        self._renew_at = None
        if made.expires_at is not None:
            self._renew_at = made.expires_at - min(_EARLY, max(made.expires_at - self._clock(), 0) / 5)
        self._made = made
        return made


AnyKey: TypeAlias = str | Secret | KeySource | Credential
"""What can be passed as a key."""


async def _call_source(source: KeySource, *, blocking: bool) -> object:
    from inspect import isawaitable, iscoroutinefunction  # few programs need it

    try:
        if blocking or iscoroutinefunction(source):
            given: object = source()
        else:
            import asyncio  # sync programs do not load it

            given = await asyncio.to_thread(cast("Callable[[], object]", source))
        if isawaitable(given):
            if blocking:
                getattr(given, "close", bool)()
                message = "The function that returns the key is async, and this program is not."
                raise ConfigurationError(message, hint="Pass a sync function, or use AsyncChatClient.")
            given = cast("object", await given)
        return given
    except DragomanError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}".rstrip(".: ")
        hint = "Check the function that was passed as key=…, or the cloud's own library."
        raise AuthenticationError(f"The key could not be generated: {why}.", hint=hint) from error


def _to_key(given: object) -> MadeKey:
    if isinstance(given, str | Secret) and given:
        return Token(given)
    if isinstance(given, Token | AwsKeys):
        return given
    shown = type(given).__name__ if given else "nothing"
    message = f"The function that returns the key returned {shown}."
    raise ConfigurationError(message, hint="Return a string, a Secret, or Token(value, expires_at).")
