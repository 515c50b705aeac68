"""Which addresses may be used, in which order they are refused, and that no refusal repeats one."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import given, settings, strategies as st

from dragoman.errors import ConfigurationError, InvalidBaseURLError
from dragoman.transport import host_of, is_loopback, join, port_of, validate_base_url
from dragoman.transport.addresses import _TEXTS, MAX_BASE_URL_BYTES
from tests.rounds import rounds

GOOD = [
    "",
    *("https://api.openai.com", "https://api.openai.com/", "https://api.openai.com/v1", "https://api.openai.com."),
    *("https://API.OpenAI.com:8443/v1?api-version=2024-10-21", "https://my_service/v1", "https://10.0.0.1:8080"),
    *("https://fooexample.com", "https://example.com.evil.test", "https://example.company", "https://example.co"),
    *("https://localhost.localdomain.test", "https://[2001:db8::1]:8443/v1", "https://xn--bcher-kva.test"),
    *("http://localhost", "http://localhost:11434/v1", "http://LOCALHOST:1", "https://localhost"),
    *("http://127.0.0.1:8000", "http://127.255.255.254", "http://[::1]:8080/v1"),
    "https://host/" + "a" * (MAX_BASE_URL_BYTES - len("https://host/")),
]

BAD = {
    "too_long": [
        "https://host/" + "a" * MAX_BASE_URL_BYTES,
        "https://host/" + "é" * (MAX_BASE_URL_BYTES // 2),  # bytes count, not characters
        "\n" * (MAX_BASE_URL_BYTES + 1),
    ],
    "control_character": [
        *("https://host\n", "https://host\r\n/v1", "https://ho\tst", "\x00https://host", "https://host/\x7f"),
        *("https://host/\x85", "javascript:\x01"),
        "https://user:pass@host\n",  # before everything but the length
    ],
    "unparsable": [
        *("https://[::1", "https://[not-an-address]", "https://[::1%25eth0]", "https://a..b", "https://.host"),
        "https://h%6fst",
        *("https://host:99999", "https://host:port", "https://host:0", "https://höst.test", "http://\uff4cocalhost"),
        *("https://ho st", "https://host\\@localhost", "http://localhost\\.evil.test", "http://localhost。evil.test"),
        *("https://host\u2028", "https://\ud800"),
    ],
    "userinfo": [
        *("https://user:pass@host", "https://user@host", "https://@host", "https://:@host"),
        *("http://localhost@evil.test", "http://user:pass@evil.test", "ftp://user:pass@host"),
    ],
    "scheme": [
        *("http://api.openai.com", "http://10.0.0.1", "http://0.0.0.0", "http://localhost.evil.test", "http://"),
        *("http://example.com", "http://127.0.0.1.evil.test", "http://evil.test/localhost", "http://:8080"),
        "http://evil.test#localhost",
        *("http://evil.test?localhost", "http://x.localhost", "http://127.1", "http://2130706433", "http://0x7f.0.0.1"),
        *("http://[::ffff:127.0.0.1]", "ftp://host", "file:///etc/passwd", "javascript:alert(1)", "//host/path"),
        *("wss://host", "host", "host:8080", "localhost:11434"),
    ],
    "no_host": ["https://", "https:///path", "https://:8080", "https://:8080/v1", "https:", "https:host", "https://?x"],
    "placeholder": [
        *("https://example.com", "https://EXAMPLE.com/v1", "https://example.com.", "https://api.example.com"),
        *("https://a.b.example.net:8443", "https://example.org", "https://localhost.localdomain"),
        "https://x.localhost.localdomain./v1",
    ],
}


def test_good_addresses() -> None:
    for url in GOOD:
        validate_base_url(url)


@pytest.mark.parametrize("reason", BAD)
@pytest.mark.parametrize("insecure", [False, True])
def test_bad_addresses(reason: str, insecure: bool) -> None:
    """Allowing http allows nothing else."""
    for url in BAD[reason]:
        if insecure and url.startswith("http://") and reason == "scheme":
            continue
        with pytest.raises(InvalidBaseURLError) as caught:
            validate_base_url(url, allow_insecure=insecure)
        error = caught.value
        assert error.reason == reason, url
        assert error.hint
        assert error.__cause__ is error.__context__ is None
    for url in ("http://api.openai.com/v1", "http://10.0.0.1:8080", "http://my_service"):
        validate_base_url(url, allow_insecure=True)
    for url in ("http://example.com", "http://"):
        with pytest.raises(InvalidBaseURLError):
            validate_base_url(url, allow_insecure=True)


# --- hostile addresses -----------------------------------------------------------------------------------------------

PARTS = [
    *("http://", "https://", "HTTP://", "hTTps://", "http:/", "https:", "//", "ftp://", "http:///", "http:\\\\", ""),
    *("localhost", "127.0.0.1", "[::1]", "evil.test", "example.com", "user:key@", "@", ":", "0x7f.1", "①", "ⓛocalhost"),
    *(".", "..", "/", "\\", "?", "#", "%2e", "%00", "%0a", " ", "\t", "\n", "\r", "\x00", "\u200b", "\u3002", "\ufeff"),
    *(":80", ":0", ":99999", ":-1", ":\uff18\uff10", "[", "]", "[::", "::1]", "%25", "é", "ß", "\u202e", "\ud800"),
    "key=sk-123",
]


@settings(max_examples=rounds(2000))
@given(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=8).map("".join)
    | st.text(max_size=60)
    | st.from_regex(r"https?://[^/]{0,20}(/.{0,20})?", fullmatch=True)
)
def test_any_text(url: str) -> None:
    """Either the address is refused without being repeated, or every reader of it finds the host that was checked."""
    refused: InvalidBaseURLError | None = None
    try:
        validate_base_url(url)
    except InvalidBaseURLError as error:
        refused = error
    if refused is not None:
        # Every text is one of a few, so that none can repeat what was given.
        texts: dict[str, str] = {reason: message for reason, (message, _) in _TEXTS.items()}
        assert refused.message == texts[refused.reason]
        assert refused.__cause__ is refused.__context__ is None
    elif url:
        host = host_of(url)
        assert host
        theirs = httpx2.URL(url)  # another reader than Python's
        assert {host, (urlsplit(url).hostname or "").lower(), theirs.host} == {host}
        assert theirs.scheme != "http" or is_loopback(host)
        assert not theirs.userinfo


# --- joining ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "path", "joined"),
    [
        ("https://h", "/v1/messages", "https://h/v1/messages"),
        ("https://h/proxy/", "v1/messages", "https://h/proxy/v1/messages"),
        ("https://h/proxy", "/v1/x?alt=sse", "https://h/proxy/v1/x?alt=sse"),
        ("https://h/a?api-version=1", "/chat", "https://h/a/chat?api-version=1"),
        ("https://h/a?api-version=1", "/chat?alt=sse", "https://h/a/chat?alt=sse&api-version=1"),
        ("https://h/a#part", "/chat", "https://h/a/chat"),
        ("https://h", "", "https://h"),
        ("https://h", "//evil.test/x", "https://h/evil.test/x"),
        ("https://h", "/models/g-3:streamGenerateContent", "https://h/models/g-3:streamGenerateContent"),
    ],
)
def test_join(base: str, path: str, joined: str) -> None:
    assert join(base, path) == joined


@pytest.mark.parametrize(
    "path", ["/a b", "/a\n", "/a#b", "/../x", "/a/..", "/a/./b", "/%2e%2e/x", "/a\\b", "/é", "/models/../../keys", ".."]
)
def test_paths_that_change_the_destination_are_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="path of a request"):
        join("https://h/v1", path)


@given(st.sampled_from(["https://h", "https://h/p/", "https://h?q=1"]), st.text(max_size=30))
def test_joining_never_changes_the_host(base: str, path: str) -> None:
    try:
        joined = join(base, path)
    except ConfigurationError:
        return
    assert httpx2.URL(joined).host == "h"


# --- parts of addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://User:Key@Host.Test:8443/path?x@y", "host.test", 8443),
        ("http://[::1]/x", "::1", 80),
        ("https://h", "h", 443),
        ("socks5://h:1", "h", 1),
        ("socks5://h", "h", None),
        ("https://h\\@evil", "h", 443),
        ("nonsense", "", None),
        ("https://", "", 443),
        ("https://a:b:c", "", 443),
    ],
)
def test_host_and_port(url: str, host: str, port: int | None) -> None:
    assert (host_of(url), port_of(url)) == (host, port)


def test_which_hosts_are_this_machine() -> None:
    assert all(map(is_loopback, ["localhost", "LocalHost.", "127.0.0.1", "127.9.9.9", "::1", "[::1]"]))
    others = ["", "localhost.x", "x.localhost", "128.0.0.1", "0.0.0.0", "::2", "127.1", "loopback"]
    assert not any(map(is_loopback, others))
