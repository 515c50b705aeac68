"""`Fetch`: a page of the internet, as text.

Owns: the tool: redirects, what is done with each type of content, the caps and how to read on.
Must not know: how a connection is made (connection.py) and which addresses are public (targets.py).
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable
from functools import cache
from typing import Annotated, Final

from msgspec import Meta, Struct

from dragoman.conversation import Media
from dragoman.errors import ToolExecutionError, ToolTimeoutError
from dragoman.toolkit.defining import ready
from dragoman.toolkit.read import MAX_IMAGE_BYTES
from dragoman.toolkit.text import image_type
from dragoman.tools.context import ToolContext
from dragoman.tools.definition import AnyTool
from dragoman.transport.routes import Routes

from .charset import text_of
from .connection import Limits, Page, get
from .page_text import page_text
from .resolving import Resolve, addresses_of, system_addresses
from .targets import Network, Target, check_address, networks, target_of

__all__ = ["FetchSettings", "fetch_tool"]

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_TEXT_TYPES: Final = frozenset(
    {"application/ecmascript", "application/javascript", "application/toml", "application/x-ndjson"}
    | {"application/x-sh", "application/x-yaml", "application/yaml", "application/sql"}
)
_PAGE_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_MARGIN: Final = 0.2


class FetchSettings(Struct, frozen=True, kw_only=True):
    """What may be fetched, and how much of it."""

    seconds: float = 30.0
    """For a page, redirects included."""
    max_bytes: int = 4 * 1024 * 1024
    """Of a page; the rest is not read."""
    max_characters: int = 40_000
    """Of text in one result."""
    max_redirects: int = 5
    follow_to_other_hosts: bool = False
    """Whether a redirect may lead to another host. If not, the model is told where it leads and may ask for that, so
    that the permission rules see every host."""
    allow_networks: tuple[str, ...] = ()
    """Networks beyond the public internet that may be asked: ("127.0.0.1", "10.1.0.0/16")."""
    ca_file: str | os.PathLike[str] | None = None
    """A PEM file of authorities that are trusted besides the system's."""


def fetch_tool(*, settings: FetchSettings = FetchSettings(), resolve: Resolve = system_addresses) -> AnyTool:  # noqa: B008 -- frozen
    """The tool `Fetch`."""
    allowed = networks(settings.allow_networks)

    @cache
    def tls() -> ssl.SSLContext:  # made when it is first needed: reading all authorities takes a while
        return Routes(proxy="", ca_file=settings.ca_file, trust_env=True, environ=None).tls

    @ready(name="Fetch", filled=["url"], read_only=True, idempotent=True)
    def fetch(
        context: ToolContext[object], url: str, offset: Annotated[int, Meta(ge=0)] = 0, raw: bool = False
    ) -> str | Media:
        """Get a page of the internet (http or https). HTML is returned as readable text, an image as an image.

        A long text is cut; the last line of the result then says how to read on.

        Args:
            url: The address of the page.
            offset: The character to start with, to read on in a long text.
            raw: Return HTML as it is.
        """
        seconds = settings.seconds
        if context.remaining is not None:
            seconds = min(seconds, max(0.0, context.remaining - _MARGIN))
        limits = Limits(
            deadline=time.monotonic() + seconds,
            max_bytes=settings.max_bytes,
            check=context.raise_if_cancelled,
        )
        visit = _Visit(settings, allowed, resolve, limits)
        target, page = visit.follow(target_of(url), tls)
        return _content(target, page, _Reading(settings, offset, raw, visit.check))

    return fetch


class _Reading(Struct, frozen=True):
    """What to do with a page."""

    settings: FetchSettings
    offset: int
    raw: bool
    check: Callable[[], None]


class _Visit:
    """One page, over all its redirects."""

    def __init__(self, settings: FetchSettings, allowed: tuple[Network, ...], resolve: Resolve, limits: Limits) -> None:
        self._settings: FetchSettings = settings
        self._allowed: tuple[Network, ...] = allowed
        self._resolve: Resolve = resolve
        self._limits: Limits = limits

    def follow(self, target: Target, tls: Callable[[], ssl.SSLContext]) -> tuple[Target, Page]:
        for _ in range(self._settings.max_redirects + 1):
            page = get(target, self._addresses(target), tls, self._limits)
            location = page.headers.get("location", "")
            if page.status not in _REDIRECTS or not location:
                return target, page
            target = self._next(target, location)
        message = f"there are more than {self._settings.max_redirects} redirects."
        raise ToolExecutionError(message)

    def check(self) -> None:
        """Raise if nobody waits any more, or the time is over."""
        self._limits.check()
        if time.monotonic() >= self._limits.deadline:
            raise ToolTimeoutError("the page could not be read in time.", hint="")

    def _addresses(self, target: Target) -> list[str]:
        """Where to connect. Looked up once and checked; the connection goes to just these."""
        if target.address is not None:
            found = [target.address]
        else:
            found = addresses_of(
                self._resolve, target.host, target.port, deadline=self._limits.deadline, check=self._limits.check
            )
        # All of them: a name that leads to a public and to a private address is up to no good.
        return [str(check_address(each, self._allowed, target.host)) for each in found]

    def _next(self, target: Target, location: str) -> Target:
        following = target_of(location, target)
        # Also without following it: the model shall not be sent where it may not go.
        if following.host != target.host and not self._settings.follow_to_other_hosts:
            message = f"{target.url} redirects to another host: {following.url}"
            raise ToolExecutionError(message, hint="Call Fetch with that URL if you want it.")
        return following


def _content(target: Target, page: Page, reading: _Reading) -> str | Media:
    content_type = page.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if page.status >= 400 or page.status < 200:
        said = _text(target, page, content_type, reading) if _is_text(kind) else ""
        message = f"{target.url} answered with status {page.status}."
        raise ToolExecutionError(f"{message}\n{said[:2000]}".strip(), details=page.status)
    if picture := image_type(page.body):
        if page.cut or len(page.body) > MAX_IMAGE_BYTES:
            message = f"the image at {target.url} is too large (at most {MAX_IMAGE_BYTES} bytes)."
            raise ToolExecutionError(message)
        return Media.from_bytes(page.body, picture)
    text = _text(target, page, content_type, reading) if _is_text(kind) else None
    if text is None or "\0" in text[:1024]:
        message = f"{target.url} is neither text nor an image but {kind or 'of no known type'}."
        raise ToolExecutionError(message)
    return _part(text.replace("\0", "\ufffd"), reading.offset, reading.settings.max_characters, cut=page.cut)


def _is_text(kind: str) -> bool:
    return (
        not kind
        or kind.startswith("text/")
        or kind in _TEXT_TYPES
        or kind.rpartition("/")[2] in ("json", "xml")
        or kind.endswith(("+json", "+xml"))
    )


def _text(target: Target, page: Page, content_type: str, reading: _Reading) -> str:
    text = text_of(page.body, content_type)
    is_page = content_type.partition(";")[0].strip().lower() in _PAGE_TYPES
    return page_text(text, target.url, reading.check) if is_page and not reading.raw else text


def _part(text: str, offset: int, limit: int, *, cut: bool) -> str:
    if offset and offset >= len(text):
        message = f"the text has only {len(text)} characters."
        raise ToolExecutionError(message, hint="Call Fetch with a smaller offset.")
    shown = text[offset : offset + limit]
    end = offset + len(shown)
    if end < len(text):
        mark = f"[Characters {offset} to {end} of {len(text)} are shown. To read on, call Fetch with offset={end}.]"
        return f"{shown}\n{mark}"
    if cut:
        return f"{shown}\n[The page goes on, but it is too large to be read further.]"
    return shown or "[The page is empty.]"
