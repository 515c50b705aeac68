"""Keys as values: typed ones that do not print themselves, and ones that are made.

A made key is fetched by a function when it is first needed, kept, and renewed before it expires, by one for all who
wait, in both colours.

Owns: Secret and Confidential; Token and AwsKeys, which such a function may give; Credential, which asks it.
Must not know: where keys come from, and how a request carries one (`Connection.sign`).
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
"""Seconds before its end that a key is renewed; one that lives for less than 25 minutes, in its last fifth."""
_GLANCE: Final = 0.01
"""Seconds after which is looked again whether the key that somebody else makes is there."""
_NEXT_TRY: Final = 30.0
"""Seconds until a renewal that failed is tried again, while the key that is there still holds."""


class Secret:
    """A value that must not appear in logs, errors, tapes, snapshots or the environment of a child."""

    __slots__ = ("_value", "hosts")

    def __init__(self, value: str, *, hosts: Iterable[str] | None = None) -> None:
        self._value: str = value
        self.hosts: frozenset[str] | None = None if hosts is None else frozenset(hosts)
        """The hosts that it may be sent to: `name` or `name:port`. None: wherever the one who gave it says."""

    def reveal(self) -> str:
        return self._value

    @property
    def is_sendable(self) -> bool:
        """Whether it has only characters that a key can have."""
        return self._value.isascii() and self._value.isprintable() and self._value == self._value.strip()

    @property
    def masked(self) -> str:
        """Enough to tell two keys apart, and too little to be of use: `…` and the last four characters."""
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
        message = "a secret is not pickled; pass it on by other means"
        raise TypeError(message)

    def __getstate__(self) -> NoReturn:  # what serializers other than pickle ask for
        return self.__reduce__()


class Confidential(Struct, frozen=True, kw_only=True):
    """A value whose fields are not shown: one of them is, or may hold, a key."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []  # rich would print every field


# --- keys that are made -----------------------------------------------------------------------------------------------


class Token(Confidential, frozen=True, kw_only=False):
    """A key with an end: `Token(value, expires_at)`."""

    value: Secret | str
    """Kept as a Secret."""
    expires_at: float | None = None
    """The Unix time; None: it is kept until a provider refuses it."""

    def __post_init__(self) -> None:
        if isinstance(self.value, str):
            force_setattr(self, "value", Secret(self.value))


class AwsKeys(Confidential, frozen=True, kw_only=False):
    """What requests to Amazon are signed with."""

    access_key: str
    secret_key: str
    token: str | None = None
    """Of the session, for keys that were lent."""
    expires_at: float | None = None


MadeKey: TypeAlias = Token | AwsKeys
KeySource: TypeAlias = Callable[[], str | Secret | MadeKey] | Callable[[], Awaitable[str | Secret | MadeKey]]
"""A function that makes a key. A plain one may block: on an event loop it is called in a worker thread."""


class _Renewal(Struct):
    """A key that is being made."""

    over: bool = False
    error: Exception | None = None


class Credential:
    """A key that a function makes, one time for all who wait. Safe to share between threads, tasks and engines."""

    masked: Final = "… (made when it is needed)"

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
        """The one that is under way, if one is. Not a lock, which Ctrl-C could leave taken."""

    def __repr__(self) -> str:
        return "Credential(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Credential) and (other.source, other.hosts) == (self.source, self.hosts)

    def __hash__(self) -> int:
        try:
            return hash((self.source, self.hosts))
        except TypeError:  # a function may be an object that has no hash
            return hash((type(self.source), self.hosts))

    async def made(self, *, blocking: bool) -> MadeKey:
        """The key that is kept, or a new one. Raises AuthenticationError if it cannot be made.

        Whoever finds a renewal under way goes on with the old key while that holds, and otherwise waits.
        """
        while (found := self._kept()) is None:
            mine = _Renewal()
            try:
                renewal = self._renewal.setdefault("", mine)
                if renewal is mine:
                    return await self._renew(blocking=blocking)
                if (old := self._unexpired()) is not None:
                    return old
                while not renewal.over:
                    await pause(_GLANCE, blocking=blocking)
                if renewal.error is not None:
                    raise renewal.error
            except Exception as error:
                mine.error = None if isinstance(error, StoppedError) else error
                raise
            finally:
                if self._renewal.get("") is mine:
                    del self._renewal[""]
                mine.over = True  # made, or given up: then one of those who wait makes it
        return found

    def discard(self, made: MadeKey) -> None:
        """A provider has refused this key: the next who needs one gets a new one."""
        if self._made is made:
            self._made = None

    def reveal(self) -> tuple[str, ...]:
        """What of the key that is kept nobody may read; nothing before it is made."""
        made = self._made
        if isinstance(made, Token):
            return (cast("Secret", made.value).reveal(),)
        return () if made is None else (made.secret_key, made.token or "")

    def _kept(self) -> MadeKey | None:
        return None if self._renew_at is not None and self._clock() >= self._renew_at else self._made

    def _unexpired(self) -> MadeKey | None:
        made = self._made
        return made if made is not None and self._clock() < (made.expires_at or 0) else None

    async def _renew(self, *, blocking: bool) -> MadeKey:
        if (found := self._kept()) is not None:  # somebody was quicker
            return found
        try:
            made = _read(await _ask(self.source, blocking=blocking))
        except DragomanError as error:
            if isinstance(error, StoppedError) or (old := self._unexpired()) is None:
                raise
            import logging  # slow to load, and keys that are typed need none of it

            logger = logging.getLogger("dragoman.engines")
            logger.warning("A key could not be renewed; the old one is used until it expires. %s", error)
            self._renew_at = self._clock() + _NEXT_TRY
            return old
        self._renew_at = None
        if made.expires_at is not None:
            self._renew_at = made.expires_at - min(_EARLY, max(made.expires_at - self._clock(), 0) / 5)
        self._made = made
        return made


AnyKey: TypeAlias = str | Secret | KeySource | Credential
"""What can be given as a key."""


async def _ask(source: KeySource, *, blocking: bool) -> object:
    from inspect import isawaitable, iscoroutinefunction  # few programs need it

    try:
        if blocking or iscoroutinefunction(source):
            given: object = source()
        else:
            import asyncio  # which plain programs do not load

            given = await asyncio.to_thread(cast("Callable[[], object]", source))
        if isawaitable(given):
            if blocking:
                getattr(given, "close", bool)()
                message = "The key is made by an async function, and this program is a plain one."
                raise ConfigurationError(message, hint="Give a plain function, or use AsyncChatClient.")
            given = cast("object", await given)
        return given
    except DragomanError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}".rstrip(".: ")
        hint = "Look at the function that makes it: what key=… gave, or the cloud's own library."
        raise AuthenticationError(f"The key could not be made: {said}.", hint=hint) from error


def _read(given: object) -> MadeKey:
    if isinstance(given, str | Secret) and given:
        return Token(given)
    if isinstance(given, Token | AwsKeys):
        return given
    shown = type(given).__name__ if given else "nothing"
    message = f"The function that makes the key gave {shown}."
    raise ConfigurationError(message, hint="It gives a text, a Secret, or Token(value, expires_at).")
