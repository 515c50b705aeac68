"""`Fetch`: a page of the internet, as text.

A connection goes to exactly the address that was checked, and through no proxy: a proxy would resolve the name again,
and connect wherever it likes.
"""

from __future__ import annotations

import codecs
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from dragoman._stepping import step
from dragoman._stop import current_stop
from dragoman.conversation import Media
from dragoman.errors import DragomanError, ToolError, ToolExecutionError, ToolTimeoutError
from dragoman.tools import AnyTool, ToolContext, tool
from dragoman.transport import (
    HttpRequest,
    PoolLimits,
    Response,
    SocketTransport,
    SocketWire,
    Timeouts,
    connect,
    find_addresses,
)

from .addresses import Network, check_address, networks, normalize_url
from .base import Deadline, Given, OutOfTimeError
from .files import MAX_IMAGE_BYTES, encoding_of_mark, image_type
from .page_text import page_text

_MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_TEXT_TYPE: Final = re.compile(
    r"|text/.*|application/(?:ecmascript|javascript|toml|x-ndjson|x-sh|(?:x-)?yaml|sql)|.*[/+](?:json|xml)"
).fullmatch
_PAGE_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_ENCODINGS: Final = ("", "identity", "gzip", "x-gzip", "deflate")
_ACCEPT: Final = "text/html, text/plain, text/markdown, application/json, image/*;q=0.8, */*;q=0.5"


class FetchSettings(Struct, frozen=True, kw_only=True):
    """What may be fetched, and how much of it."""

    seconds: float = 30.0
    """For a page, redirects included."""
    max_bytes: int = 4 * 1024 * 1024
    """Of a page; the rest is not read."""
    max_characters: int = 40_000
    """Of text in one result."""
    allow_networks: tuple[str, ...] = ()
    """Networks beyond the public internet that are allowed: ("127.0.0.1", "10.1.0.0/16")."""
    ca_file: str | os.PathLike[str] | None = None
    """A PEM file of authorities that are trusted besides the system's."""


def fetch_tool(*, settings: FetchSettings = FetchSettings()) -> AnyTool:  # noqa: B008 -- frozen
    transport = _CheckedTransport(settings)

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
        deadline = Deadline.of(context, settings.seconds)
        url = normalize_url(url)
        try:
            page = step(_follow(url, transport, settings, deadline))
            text = _text(page, deadline, raw=raw)
        except OutOfTimeError as error:
            raise ToolTimeoutError(f"{urlsplit(url).hostname} did not answer in time.", hint="") from error
        return _content(page, text, offset, settings.max_characters)

    return fetch


class _CheckedTransport(SocketTransport):
    """Connects to addresses that were checked, and to nothing else."""

    def __init__(self, settings: FetchSettings) -> None:
        super().__init__(limits=PoolLimits(idle=0), proxy="", ca_file=settings.ca_file)
        self._allowed: tuple[Network, ...] = networks(settings.allow_networks)

    async def _dial(self, address: tuple[str, int], deadline: float | None) -> SocketWire:
        host, stop = address[0], current_stop()
        with suppress(ValueError):  # a name, which is resolved first
            check_address(str(ip_address(host)), self._allowed, host)
        found = find_addresses(*address, deadline, stop)
        for each in found:  # all of them: a name with a public and a private address is up to no good
            check_address(str(each[4][0]), self._allowed, host)
        return SocketWire(connect(found, deadline, stop))

    def _check_head(self, response: Response) -> None:
        pass  # `_follow` handles redirects


class _Page(Struct, frozen=True, kw_only=True):
    url: str
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


async def _follow(url: str, transport: SocketTransport, settings: FetchSettings, deadline: Deadline) -> _Page:
    for _ in range(_MAX_REDIRECTS + 1):
        try:
            page = await _get(url, transport, settings.max_bytes, deadline)
        except ToolError:
            raise
        except DragomanError as error:
            deadline.check()  # a connection that was woken fails in some way
            raise ToolExecutionError(error.message) from error
        location = page.headers.get("location", "")
        if page.status not in _REDIRECTS or not location:
            return page
        following = normalize_url(location, url)
        if not is_same_origin(url, following):
            # The model may request that URL itself, so that permission rules see every host.
            message = f"{url} redirects to another host or port: {following}"
            raise ToolExecutionError(message, hint="Call Fetch with that URL if you want it.")
        url = following
    raise ToolExecutionError(f"there are more than {_MAX_REDIRECTS} redirects.")


async def _get(url: str, transport: SocketTransport, most: int, deadline: Deadline) -> _Page:
    deadline.check()
    limits = Timeouts(connect=None, read=None, total=max(0.001, deadline.at - time.monotonic()))
    response = await transport.open(HttpRequest(url=url, method="GET", headers={"accept": _ACCEPT}, timeout=limits))
    body = bytearray()
    try:
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in _ENCODINGS:
            raise ToolExecutionError(f"{url} has an encoding that was not requested ({encoding[:40]}).")
        while len(body) <= most and (piece := await response.next()):
            body += piece
    finally:
        await response.aclose()
    return _Page(
        url=url, status=response.status, headers=response.headers, body=bytes(body[:most]), cut=len(body) > most
    )


def is_same_origin(url: str, following: str) -> bool:
    """Whether two normalized URLs are of one server, or the second is the first over TLS at the usual port."""
    one, other = urlsplit(url), urlsplit(following)
    is_upgrade = (one.scheme, one.port, other.scheme, other.port) == ("http", None, "https", None)
    return one.hostname == other.hostname and (is_upgrade or (one.scheme, one.port) == (other.scheme, other.port))


# --- what the model gets ---------------------------------------------------------------------------------------------


def _text(page: _Page, deadline: Deadline, *, raw: bool) -> str | None:
    """The text of a page; None if it is not text."""
    if _TEXT_TYPE(page.kind) is None:
        return None
    text = decode_page(page.body, page.content_type)
    return page_text(text, page.url, deadline.check) if page.kind in _PAGE_TYPES and not raw else text


def _content(page: _Page, text: str | None, offset: int, limit: int) -> str | Media:
    if page.status >= 400 or page.status < 200:
        message = f"{page.url} answered with status {page.status}.\n{(text or '')[:2000]}".strip()
        raise ToolExecutionError(message, details=page.status)
    if picture := image_type(page.body):
        if page.cut or len(page.body) > MAX_IMAGE_BYTES:
            raise ToolExecutionError(f"the image at {page.url} is too large (at most {MAX_IMAGE_BYTES} bytes).")
        return Media.from_bytes(page.body, picture)
    if text is None or "\0" in text[:1024]:
        kind = page.kind or "of no known type"
        raise ToolExecutionError(f"{page.url} is neither text nor an image but {kind}.")
    if offset and offset >= len(text):
        message = f"the text has only {len(text)} characters."
        raise ToolExecutionError(message, hint="Call Fetch with a smaller offset.")
    shown = text[offset : offset + limit].replace("\0", "\ufffd")
    end = offset + len(shown)
    if end < len(text):
        mark = f"[Characters {offset} to {end} of {len(text)} are shown. To read on, call Fetch with offset={end}.]"
        return f"{shown}\n{mark}"
    if page.cut:
        return f"{shown}\n[The page goes on, but it is too large to be read further.]"
    return shown or "[The page is empty.]"


# --- character encodings ---------------------------------------------------------------------------------------------

_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE).search
_CHARSET_IN_PAGE: Final = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE).search
# Python has codecs that are not for pages, and can be made to work for minutes.
_KNOWN_CODECS: Final = re.compile(
    r"utf-8|utf-16(?:-[lb]e)?|utf-32(?:-[lb]e)?|iso8859-\d+|cp125\d|cp874|cp866|koi8-[ru]|mac-roman"
    r"|gb2312|gbk|gb18030|big5|big5hkscs|shift_jis|cp932|euc_jp|euc_kr|cp949|iso2022_jp"
).fullmatch


def decode_page(body: bytes, content_type: str) -> str:
    """Decode a page by its byte order mark, else by its header, else by its meta tag, else as UTF-8."""
    if marked := encoding_of_mark(body):
        return body[len(marked.mark) :].decode(marked.name, "replace")
    header, meta = _CHARSET(content_type), _CHARSET_IN_PAGE(body[:2048])
    name = header[1] if header else meta[1].decode("ascii", "replace") if meta else "utf-8"
    try:
        codec = codecs.lookup(name).name
    except (LookupError, ValueError):
        codec = "utf-8"
    if codec in ("iso8859-1", "ascii"):  # as browsers do: most of these pages are in Windows-1252
        codec = "cp1252"
    return body.decode(codec if _KNOWN_CODECS(codec) else "utf-8", "replace")
