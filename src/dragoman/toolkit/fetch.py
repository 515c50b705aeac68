"""`Fetch`: a page of the internet, as text.

A connection goes to exactly the address that was checked, and through no proxy: a proxy would look the name up once
more and go wherever it likes.
"""

from __future__ import annotations

import codecs
import os
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Final

from msgspec import Meta, Struct

from dragoman._stepping import step
from dragoman.conversation import Media
from dragoman.errors import StoppedError, ToolExecutionError, ToolTimeoutError
from dragoman.tools import AnyTool, ToolContext, tool
from dragoman.transport import (
    USER_AGENT,
    HttpRequest,
    MalformedReplyError,
    Outgoing,
    ReplyReader,
    Routes,
    SocketWire,
    connect,
    numeric,
    request_head,
    unpacker,
)

from .addresses import Network, Resolve, Target, check_address, look_up, networks, system_addresses, target_of
from .base import Deadline, Given, OutOfTimeError
from .files import MAX_IMAGE_BYTES, encoding_of_mark, image_type
from .page_text import page_text

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_TEXT_TYPE: Final = re.compile(
    r"|text/.*|application/(?:ecmascript|javascript|toml|x-ndjson|x-sh|(?:x-)?yaml|sql)|.*[/+](?:json|xml)"
).fullmatch
_PAGE_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})


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
    """Whether a redirect may lead to another host or port. If not, the model is told where it leads and may ask for
    that, so that the permission rules see every address."""
    allow_networks: tuple[str, ...] = ()
    """Networks beyond the public internet that may be asked: ("127.0.0.1", "10.1.0.0/16")."""
    ca_file: str | os.PathLike[str] | None = None
    """A PEM file of authorities that are trusted besides the system's."""


def fetch_tool(*, settings: FetchSettings = FetchSettings(), resolve: Resolve = system_addresses) -> AnyTool:  # noqa: B008 -- frozen
    allowed = networks(settings.allow_networks)

    @cache
    def tls() -> ssl.SSLContext:  # made when it is first needed: reading all authorities takes a while
        return Routes(proxy="", ca_file=settings.ca_file).tls

    @tool(name="Fetch", read_only=True, idempotent=True)
    def fetch(
        context: ToolContext[object], *, url: Given, offset: Annotated[int, Meta(ge=0)] = 0, raw: bool = False
    ) -> str | Media:
        """Get a page of the internet (http or https). HTML is returned as readable text, an image as an image.

        A long text is cut; the last line of the result then says how to read on.

        Args:
            url: The address of the page.
            offset: The character to start with, to read on in a long text.
            raw: Return HTML as it is.
        """
        target = target_of(url)
        visit = _Visit(settings, allowed, resolve, tls, Deadline.of(context, settings.seconds))
        try:
            target, page = visit.follow(target)
            return visit.content(target, page, offset, raw=raw)
        except OutOfTimeError as error:
            raise ToolTimeoutError(f"{target.host} did not answer in time.", hint="") from error

    return fetch


class _Page(Struct, frozen=True, kw_only=True):
    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool
    """Whether the body is longer than what was read of it."""

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def kind(self) -> str:
        return self.content_type.partition(";")[0].strip().lower()

    @property
    def is_text(self) -> bool:
        return _TEXT_TYPE(self.kind) is not None


class _Visit(Struct, frozen=True):
    """One page, over all its redirects."""

    settings: FetchSettings
    allowed: tuple[Network, ...]
    resolve: Resolve
    tls: Callable[[], ssl.SSLContext]
    deadline: Deadline

    def follow(self, target: Target) -> tuple[Target, _Page]:
        for _ in range(self.settings.max_redirects + 1):
            found = (
                [target.address] if target.address else look_up(self.resolve, target.host, target.port, self.deadline)
            )
            # Looked up once, and the connection goes to just these. All of them are checked: a name that leads to a
            # public and to a private address is up to no good.
            addresses = [str(check_address(each, self.allowed, target.host)) for each in found]
            page = _get(target, addresses, self)
            location = page.headers.get("location", "")
            if page.status not in _REDIRECTS or not location:
                return target, page
            following = target_of(location, target)
            if not (self.settings.follow_to_other_hosts or _is_same_origin(target, following)):
                message = f"{target.url} redirects to another host or port: {following.url}"
                raise ToolExecutionError(message, hint="Call Fetch with that URL if you want it.")
            target = following
        raise ToolExecutionError(f"there are more than {self.settings.max_redirects} redirects.")

    # --- what the model gets ---

    def content(self, target: Target, page: _Page, offset: int, *, raw: bool) -> str | Media:
        if page.status >= 400 or page.status < 200:
            said = self._text(target, page, raw=raw)[:2000] if page.is_text else ""
            message = f"{target.url} answered with status {page.status}.\n{said}".strip()
            raise ToolExecutionError(message, details=page.status)
        if picture := image_type(page.body):
            if page.cut or len(page.body) > MAX_IMAGE_BYTES:
                message = f"the image at {target.url} is too large (at most {MAX_IMAGE_BYTES} bytes)."
                raise ToolExecutionError(message)
            return Media.from_bytes(page.body, picture)
        text = self._text(target, page, raw=raw) if page.is_text else "\0"
        if "\0" in text[:1024]:
            kind = page.kind or "of no known type"
            raise ToolExecutionError(f"{target.url} is neither text nor an image but {kind}.")
        return _part(text.replace("\0", "\ufffd"), offset, self.settings.max_characters, cut=page.cut)

    def _text(self, target: Target, page: _Page, *, raw: bool) -> str:
        text = decode_page(page.body, page.content_type)
        return page_text(text, target.url, self.deadline.check) if page.kind in _PAGE_TYPES and not raw else text


def _is_same_origin(target: Target, following: Target) -> bool:
    """Whether both are one server, or the second one is the first by TLS at its usual port."""
    if following.host != target.host:
        return False
    secured = (target.scheme, target.port, following.scheme, following.port) == ("http", 80, "https", 443)
    return secured or (target.scheme, target.port) == (following.scheme, following.port)


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


# --- bytes as text, by what the page says of itself ------------------------------------------------------------------

_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE).search
_CHARSET_IN_PAGE: Final = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE).search
# Python's codecs include some that are no encodings of pages and can be made to work for minutes.
_BELIEVED: Final = re.compile(
    r"utf-8|utf-16(?:-[lb]e)?|utf-32(?:-[lb]e)?|iso8859-\d+|cp125\d|cp874|cp866|koi8-[ru]|mac-roman"
    r"|gb2312|gbk|gb18030|big5|big5hkscs|shift_jis|cp932|euc_jp|euc_kr|cp949|iso2022_jp"
).fullmatch


def decode_page(body: bytes, content_type: str) -> str:
    """The text. A byte order mark counts most, then what the header says, then the page itself, then UTF-8."""
    if marked := encoding_of_mark(body):
        return body[len(marked.mark) :].decode(marked.name, "replace")
    said, inside = _CHARSET(content_type), _CHARSET_IN_PAGE(body[:2048])
    name = said[1] if said else inside[1].decode("ascii", "replace") if inside else "utf-8"
    try:
        codec = codecs.lookup(name).name
    except (LookupError, ValueError):
        codec = "utf-8"
    if codec in ("iso8859-1", "ascii"):  # what pages call Latin-1 is Windows-1252; browsers read it so
        codec = "cp1252"
    return body.decode(codec if _BELIEVED(codec) else "utf-8", "replace")


# --- one request to addresses that were checked ----------------------------------------------------------------------

_SLICE: Final = 4 * 1024
"""What is unpacked at once: four kilobytes can become four megabytes, and a page is not asked how large it is."""
_ENCODINGS: Final = ("", "identity", "gzip", "x-gzip", "deflate")
_ACCEPT: Final = "text/html, text/plain, text/markdown, application/json, image/*;q=0.8, */*;q=0.5"


def _get(target: Target, addresses: Sequence[str], visit: _Visit) -> _Page:
    """Ask the first of these addresses that answers. Raises ToolError, or OutOfTimeError."""
    wire: SocketWire | None = None
    deadline, stop = visit.deadline, visit.deadline.context.stop
    try:
        tls = visit.tls() if target.scheme == "https" else None
        found = [each for address in addresses for each in numeric(address, target.port)]
        wire = SocketWire(connect(found, deadline.at, stop))
        with stop.waking(wire.wake):
            wire.limit(None, deadline.at)
            if tls is not None:
                step(wire.encrypt(tls, target.host))
            return _exchange(wire, target, visit)
    except (OSError, EOFError, ValueError, MalformedReplyError, StoppedError) as error:
        deadline.check()  # a connection that was woken fails in some way
        raise ToolExecutionError(f"cannot fetch from {target.host}: {_reason(error)}.") from error
    finally:
        if wire is not None:
            wire.close()


def _reason(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({error.verify_message})"
        case EOFError() | ssl.SSLEOFError():
            return "the answer was cut off"
        case MalformedReplyError():
            return f"what it sent is not an HTTP reply ({error})"
        case ValueError():
            return "the compressed answer could not be unpacked"
        case _:
            return getattr(error, "strerror", None) or "the connection failed"


def _exchange(wire: SocketWire, target: Target, visit: _Visit) -> _Page:
    request = HttpRequest(url=target.url, method="GET")
    usual = {"host": target.authority, "user-agent": USER_AGENT, "accept": _ACCEPT}
    usual |= {"accept-encoding": "gzip", "connection": "close"}
    step(wire.send(Outgoing(request_head(request, target=target.path, usual=usual))))
    reader = ReplyReader("GET")
    piece = b""
    while not reader.head_complete:
        piece = _feed(wire, reader)
    encoding = reader.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        message = f"cannot fetch from {target.host}: it sent an encoding that nobody asked for ({encoding[:40]})."
        raise ToolExecutionError(message)
    packed, body, most = unpacker(encoding), bytearray(), visit.settings.max_bytes
    while True:
        for at in range(0, len(piece), _SLICE):
            if len(body) <= most:
                part = piece[at : at + _SLICE]
                body += part if packed is None else packed.feed(part)
        if reader.complete or len(body) > most:
            break
        piece = _feed(wire, reader)
    if packed is not None and len(body) <= most:
        packed.finish()
    return _Page(status=reader.status, headers=reader.headers, body=bytes(body[:most]), cut=len(body) > most)


def _feed(wire: SocketWire, reader: ReplyReader) -> bytes:
    data = step(wire.receive())
    if data:
        return reader.feed(data)
    reader.end()
    return b""
