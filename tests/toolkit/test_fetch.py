"""`Fetch` against servers on this machine that misbehave."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from dragoman.conversation import Media
from dragoman.toolkit import FetchSettings, fetch as module
from dragoman.toolkit.addresses import normalize_url
from dragoman.toolkit.fetch import fetch_tool, is_same_origin
from dragoman.tools import AnyTool, ToolRun
from tests.toolkit.calling import Call, bad, both_colours, call, good
from tests.transport.authority import Authority
from tests.transport.server import Exchange, Script, Server, deaf_server, full_server, raw, silent


def allowing(**settings: Any) -> FetchSettings:
    """What may ask this machine."""
    return FetchSettings(**{"allow_networks": ("127.0.0.1",), "seconds": 20.0, **settings})


HERE = allowing()

NAMES = {
    "public.test": ["127.0.0.1"], "other.test": ["127.0.0.1"], "private.test": ["10.0.0.5"],
    "metadata.test": ["169.254.169.254"], "loopback.test": ["127.0.0.2"], "six.test": ["::1"],
    "mapped.test": ["::ffff:10.0.0.1"], "both.test": ["127.0.0.1", "192.168.0.1"], "scoped.test": ["fe80::1%lo"],
    "nat64.test": ["64:ff9b::a00:1"], "odd.test": ["not an address"], "localhost": ["127.0.0.2"],
}  # fmt: skip


Resolve: TypeAlias = Callable[[str], list[str]]


@pytest.fixture
def resolving(monkeypatch: pytest.MonkeyPatch) -> Callable[[Resolve], None]:
    """Lets names mean what a function says; whatever is an address means itself."""

    def resolve_by(resolve: Resolve) -> None:
        def answer(host: str, port: int, *_: object, flags: int = 0, **__: object) -> list[object]:
            is_address = re.fullmatch(r"[0-9.]+|.*:.*", host)
            if flags & socket.AI_NUMERICHOST and not is_address:
                raise socket.gaierror
            families = {False: socket.AF_INET, True: socket.AF_INET6}
            found = [host] if is_address else resolve(host)
            return [(families[":" in each], socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

        monkeypatch.setattr(socket, "getaddrinfo", answer)

    return resolve_by


def resolve(host: str) -> list[str]:
    if host not in NAMES:
        raise socket.gaierror(-2, "Name or service not known")
    return NAMES[host]


@pytest.fixture(autouse=True)
def _names(resolving: Callable[[Resolve], None]) -> None:
    resolving(resolve)


def page(body: bytes | str, kind: str = "text/plain", **headers: str) -> Script:
    data = body.encode() if isinstance(body, str) else body

    async def script(exchange: Exchange) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await exchange.reply(data, headers={"content-type": kind, **named} if kind else named)

    return script


def redirect(location: str, status: int = 302) -> Script:
    async def script(exchange: Exchange) -> None:
        await exchange.reply(status=status, headers={"location": location.format(port=exchange.server.port)})

    return script


@pytest.fixture
def server() -> Iterator[Server]:
    with Server({}) as server:
        yield server


@pytest.fixture
def fetch() -> AnyTool:
    return fetch_tool(settings=HERE)


# --- content ---------------------------------------------------------------------------------------------------------


def test_images_and_other_data(server: Server, fetch: AnyTool) -> None:
    png = b"\x89PNG\r\n\x1a\n\0\0"
    server.scripts = {
        "/i": page(png, "image/png"),
        "/l": page(png, "text/plain"),
        "/b": page(b"\0\1", "application/octet-stream"),
        "/z": page(b"a\0b", "text/plain"),
        "/svg": page("<svg/>", "image/svg+xml"),
    }
    for path in ("/i", "/l"):
        [image] = call(fetch, url=f"{server.url}{path}").content
        assert isinstance(image, Media)
        assert (image.mime_type, image.data) == ("image/png", png)
    for path in ("/b", "/z"):
        assert "neither text nor an image" in bad(call(fetch, url=f"{server.url}{path}"), "execution")
    assert good(call(fetch, url=f"{server.url}/svg")) == "<svg/>"


def test_a_long_text_says_how_to_read_on(server: Server) -> None:
    fetch = fetch_tool(settings=allowing(max_characters=10))
    server.scripts = {"/": page("0123456789abcdefghijXY")}
    mark = "\n[Characters {} to {} of 22 are shown. To read on, call Fetch with offset={}.]"
    assert good(call(fetch, url=server.url)) == "0123456789" + mark.format(0, 10, 10)
    assert good(call(fetch, url=server.url, offset=10)) == "abcdefghij" + mark.format(10, 20, 20)
    assert good(call(fetch, url=server.url, offset=20)) == "XY"
    assert "only 22 characters" in bad(call(fetch, url=server.url, offset=22), "execution")


# --- limits ----------------------------------------------------------------------------------------------------------


async def endless(exchange: Exchange) -> None:
    await exchange.start(headers={"content-type": "text/plain"})
    while True:
        await exchange.chunk(b"spam " * 2000)


async def dripping(exchange: Exchange) -> None:
    await exchange.start(headers={"content-type": "text/plain"})
    while True:
        await exchange.chunk(b".")
        await asyncio.sleep(0.05)


async def dripping_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await exchange.send(b"x-a: b\r\n")
        await asyncio.sleep(0.05)


def test_an_endless_page_and_a_compression_bomb_are_cut(server: Server) -> None:
    server.scripts = {
        "/": endless,
        "/gzip": page(gzip.compress(b"\0" * 50_000_000), content_encoding="gzip"),
        "/deflate": page(zlib.compress(b"a" * 50_000_000), content_encoding="deflate"),
    }
    text = good(call(fetch_tool(settings=allowing(max_bytes=30_000)), url=server.url))
    assert text.endswith("[The page goes on, but it is too large to be read further.]")
    assert len(text) < 31_000
    for path in ("/gzip", "/deflate"):
        result = call(fetch_tool(settings=allowing(max_bytes=100_000)), url=f"{server.url}{path}")
        assert "are shown" in result.text or "neither text" in result.text
        assert len(result.text) < 50_000


@pytest.mark.parametrize("script", [silent, dripping, dripping_head, None], ids=["silent", "page", "head", "lookup"])
@both_colours
def test_a_slow_page_or_lookup_times_out(
    called: Call, server: Server, script: Script | None, resolving: Callable[[Resolve], None]
) -> None:
    server.scripts = {"/": script or silent}
    released = threading.Event()
    resolving(lambda _: ["127.0.0.1"] if script or released.wait(30) else [])
    fetch = fetch_tool(settings=allowing(seconds=0.5))
    said = bad(called(fetch, url=f"http://public.test:{server.port}/"), "timeout")
    released.set()
    assert "public.test did not answer in time" in said
    server.wait_for_open(0)


@both_colours
@pytest.mark.parametrize("phase", ["lookup", "connecting", "TLS", "head", "body", "endless"])
def test_a_fetch_can_be_cancelled_in_every_phase(
    called: Call, phase: str, server: Server, monkeypatch: pytest.MonkeyPatch, resolving: Callable[[Resolve], None]
) -> None:
    """The call, and its work: nobody is left behind in a thread with a connection."""
    released, ended = threading.Event(), threading.Event()
    follow = module._follow  # pyright: ignore[reportPrivateUsage]

    async def following(*given: Any) -> object:
        try:
            return await follow(*given)
        finally:
            ended.set()

    monkeypatch.setattr(module, "_follow", following)
    resolving(lambda _: ["127.0.0.1"] if phase != "lookup" or released.wait(30) else [])

    server.scripts = {"/": {"head": silent, "body": dripping, "endless": endless}.get(phase, silent)}
    with full_server() as full, deaf_server() as deaf:
        ports = {"connecting": full, "TLS": deaf}
        scheme = "https" if phase == "TLS" else "http"
        fetch, run = fetch_tool(settings=allowing(max_bytes=1 << 40)), ToolRun()
        cancelled: list[float] = []
        threading.Timer(0.4, lambda: (cancelled.append(time.monotonic()), run.cancel())).start()
        result = called(fetch, run=run, url=f"{scheme}://h.test:{ports.get(phase, server.port)}/")
        assert ended.wait(30)
        late = time.monotonic() - cancelled[0]
    released.set()
    bad(result, "cancelled")
    assert late < 10, "0.05 seconds where the machine has nothing else to do, and 20 without cancelling"
    server.wait_for_open(0)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"\x15\x03\x01\0\x02\x02\x16",
    ],
)
def test_invalid_responses_are_errors(server: Server, fetch: AnyTool, reply: bytes) -> None:
    server.scripts = {"/": raw(reply)}
    said = bad(call(fetch, url=server.url), "execution")
    assert re.match(r"What 127.0.0.1 sent is not an HTTP reply|.*127.0.0.1 (was cut off|closed the connection)", said)


# --- where it may go -------------------------------------------------------------------------------------------------

ELSEWHERE = [name for name in NAMES if name not in ("public.test", "other.test")]


LITERALS = ["127.0.0.2", "10.0.0.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.2]", "[fd00:ec2::254]", "2130706434"]
LITERALS += ["0x7f.0.0.2", "0177.0.0.2", "127.2", "0", "localhost.", "[64:ff9b::127.0.0.2]", "[::]", "0.0.0.0"]


@pytest.mark.parametrize("host", [*ELSEWHERE, *LITERALS])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_hosts_that_are_not_public_are_refused(server: Server, fetch: AnyTool, host: str, scheme: str) -> None:
    bad(call(fetch, url=f"{scheme}://{host}:{server.port}/latest/meta-data/"), "denied")
    assert server.connections == 0


REDIRECTS = [f"http://{host}:{{port}}/" for host in [*ELSEWHERE, *LITERALS]]
REDIRECTS += ["file:///etc/passwd", "gopher://127.0.0.1:{port}/", "http://u:p@public.test:{port}/"]
REDIRECTS += ["//127.0.0.2:{port}/", "http:\\\\127.0.0.2"]


@pytest.mark.parametrize("location", REDIRECTS)
def test_redirects_to_private_hosts_are_refused(server: Server, fetch: AnyTool, location: str) -> None:
    server.scripts = {"/": redirect(location)}
    assert call(fetch, url=f"http://public.test:{server.port}/").is_error
    assert server.connections == 1


def test_a_redirect_to_another_host_is_reported_not_followed(server: Server, fetch: AnyTool) -> None:
    server.scripts = {"/": redirect("http://other.test:{port}/c"), "/c": page("there")}
    url = f"http://public.test:{server.port}/"
    text = bad(call(fetch, url=url), "execution")
    assert f"redirects to another host or port: http://other.test:{server.port}/c" in text
    assert len(server.requests) == 1
    server.scripts = {"/": redirect("/c"), "/c": page("there"), "/round": redirect("/round")}
    assert good(call(fetch, url=url)) == "there"
    assert "more than 5 redirects" in bad(call(fetch, url=f"{url}round"), "execution")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_redirect_to_another_port_is_reported_not_followed(server: Server, fetch: AnyTool, scheme: str) -> None:
    with Server({"/c": page("a neighbour's secret")}) as neighbour:
        server.scripts = {"/": redirect(f"{scheme}://public.test:{neighbour.port}/c")}
        text = bad(call(fetch, url=f"http://public.test:{server.port}/"), "execution")
        assert f"redirects to another host or port: {scheme}://public.test:{neighbour.port}/c" in text
        assert neighbour.connections == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://h/", "http://h:80/x", True),
        ("http://h/", "https://h/", True),
        ("https://h/", "http://h/", False),
        ("http://h:8080/", "https://h/", False),
        ("http://h/", "https://h:8443/", False),
        ("http://h/", "http://h:81/", False),
        ("http://h/", "http://www.h/", False),
    ],
)
def test_same_origin(one: str, other: str, same: bool) -> None:
    assert is_same_origin(normalize_url(one), normalize_url(other)) is same


def test_the_address_that_was_checked_is_the_one_connected_to(
    server: Server, fetch: AnyTool, resolving: Callable[[Resolve], None]
) -> None:
    """Rebinding: the second answer of the resolver would be another one."""
    asked: list[str] = []

    def changing(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) in (1, 3) else ["127.0.0.2"]

    server.scripts = {"/": page("there"), "/again": redirect("/")}
    resolving(changing)
    assert good(call(fetch, url=f"http://changing.test:{server.port}/")) == "there"
    assert asked == ["changing.test"]
    bad(call(fetch, url=f"http://changing.test:{server.port}/"), "denied")
    bad(call(fetch, url=f"http://changing.test:{server.port}/again"), "denied")  # by the redirect's own lookup
    assert (server.connections, len(asked)) == (2, 4)


def test_proxies_are_not_used(server: Server, fetch: AnyTool, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server({"/": page("I am a proxy")}) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("no_proxy", "")
        server.scripts = {"/": page("direct")}
        assert good(call(fetch, url=f"http://public.test:{server.port}/")) == "direct"
        assert proxy.connections == 0


# --- TLS -------------------------------------------------------------------------------------------------------------


@both_colours
def test_certificates_are_checked_against_the_name(called: Call, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusting = allowing(ca_file=authority.file)
    with Server({"/": page("safe")}, tls=authority.server("public.test")) as server:
        fetch = fetch_tool(settings=trusting)
        assert good(called(fetch, url=f"https://public.test:{server.port}/")) == "safe"
        wrong = [called(fetch, url=f"https://other.test:{server.port}/")]
        wrong.append(called(fetch_tool(settings=HERE), url=f"https://public.test:{server.port}/"))
    with Server({"/": page("safe")}, tls=authority.server("public.test", expired=True)) as server:
        wrong.append(called(fetch, url=f"https://public.test:{server.port}/"))
    assert all(re.match(r"The certificate of \w+.test is not trusted", bad(each, "execution")) for each in wrong)
