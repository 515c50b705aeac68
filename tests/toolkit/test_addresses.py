"""Which addresses may be fetched from."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

import pytest
from hypothesis import given, strategies as st

from dragoman.errors import ConfigurationError, ToolDeniedError, ToolError, ToolValidationError
from dragoman.toolkit.addresses import check_address, networks, normalize_url
from tests.toolkit.calling import words

PRIVATE = [
    *words(
        "0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 127.0.0.1 127.1.2.3 168.63.129.16 "
        "169.254.0.1 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 "
        "192.168.1.1 198.18.0.1 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 :: "
        "::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:a9fe:a9fe ::ffff:0:127.0.0.1 64:ff9b::7f00:1 "
        "64:ff9b::169.254.169.254 64:ff9b:1::1 64:ff9b:1:ffff::8.8.8.8 100::1 2001::1 2001:0:7f00:1:: 2001:db8::1 "
        "2001:10::1 2002:7f00:1:: 2002:a9fe:a9fe::1 2002:808:808::1 2a00::5efe:127.0.0.1 2a00::200:5efe:10.0.0.1 "
        "3fff::1 fc00::1 fd00:ec2::254 fd12:3456::1 fe80::1 fe80::1%eth0 2a00::1%eth0 fec0::1 ff02::1 5f00::1"
    ),
    "not an address",
]
PUBLIC = words("8.8.8.8 1.1.1.1 100.63.0.1 172.32.0.1 192.0.1.1 2606:4700::1111 2a00:1450::1 ::ffff:8.8.8.8")
PUBLIC += ["64:ff9b::8.8.8.8", "169.253.0.1", "11.0.0.1", "223.255.255.255"]


@pytest.mark.parametrize("address", [*PRIVATE, *PUBLIC])
def test_only_public_addresses_are_allowed(address: str) -> None:
    assert refused(address) is (address in PRIVATE)


@given(number=st.integers(0, 2**32 - 1))
def test_every_form_of_an_ipv4_address_gets_the_same_decision(number: int) -> None:
    plain = IPv4Address(number)
    for prefix in (0xFFFF << 32, 0x0064FF9B << 96):
        assert refused(str(plain)) == refused(str(IPv6Address(prefix | number)))
    # Python's own opinion is never more careful than ours.
    if plain.is_private or plain.is_multicast or plain.is_loopback or plain.is_link_local or plain.is_reserved:
        assert refused(str(plain))


@given(number=st.integers(0, 2**128 - 1))
def test_python_is_never_stricter(number: int) -> None:
    address = IPv6Address(number)
    if not address.is_global or address.is_multicast:
        assert refused(str(address))


def refused(address: str) -> bool:
    try:
        check_address(address, (), "h")
    except ToolDeniedError:
        return True
    return False


def test_networks_can_be_allowed() -> None:
    allowed = networks(["127.0.0.1", "10.1.0.0/16", "fd00::/8"])
    for address in ("127.0.0.1", "10.1.2.3", "fd00::1", "::ffff:10.1.2.3"):
        check_address(address, allowed, "h")
    for address in ("127.0.0.2", "10.2.0.1", "169.254.169.254", "::1"):
        with pytest.raises(ToolDeniedError):
            check_address(address, allowed, "h")
    for wrong in ("localhost", "10.0.0.1/8", ""):
        with pytest.raises(ConfigurationError, match="is not a network"):
            networks([wrong])


@pytest.mark.parametrize(
    "url",
    [
        *words(
            "http://2130706433/ http://017700000001/ http://0x7f000001/ http://0X7F.0.0.1/ http://0177.0.0.1/ "
            "http://127.1/ http://127.0.1/ http://127.0.0.01/ http://127.0.0.1.5/ http://10.0.0.0x1/ http://0/ "
            "http://0x/ http://%31%32%37.0.0.1/ http://1.2.3.08/ http://3232235777/ file:///etc/passwd ftp://h/ "
            "gopher://127.0.0.1:6379/_FLUSHALL dict://h:11211/ data:text/html,x javascript:alert(1) ws://h/ "
            "//h/path h/path"
        ),
        "",
    ],
)
def test_unusual_numbers_and_other_schemes_are_refused(url: str) -> None:
    with pytest.raises(ToolDeniedError):
        normalize_url(url)


AMBIGUOUS = [
    *words(
        "http://user@h/ http://user:pass@h/ http://public.example@127.0.0.1/ http://127.0.0.1@public.example/ "
        "http://@h/ http://h\\@127.0.0.1/ http://127.0.0.1\\.public.example/ http://:80/ http:///path http://h:0/ "
        "http://h:99999/ http://h:port/ http://[::1/ http://[127.0.0.1]/ http://[::1%25eth0]/ http://[v1.x]/ "
        "http://-h-/ http://a..b/ http://.h/ http://①②⑦.⓪.⓪.①/ http://127。0。0。1/ http://exämple.test/ "
        "http://256.1.1.1/"
    ),
    *("http://h/\r\nX-Injected: 1", "http://h\t/", "http://h /", " http://h/", "http://h\0/"),
    *(f"http://{'a' * 64}.test/", f"http://{'a.' * 130}test/", f"http://h/{'x' * 5000}"),
]


@pytest.mark.parametrize("url", AMBIGUOUS)
def test_a_url_that_parsers_disagree_about_is_refused(url: str) -> None:
    with pytest.raises(ToolValidationError):
        normalize_url(url)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("http://Host.Test", "http://host.test/"),
        ("https://h.test./a?b=c#d", "https://h.test/a?b=c"),
        ("http://h.test:8080/ä%20b", "http://h.test:8080/%C3%A4%20b"),
        ("http://h:80/?q", "http://h/?q"),
        ("https://[2A00::1]:444/x", "https://[2a00::1]:444/x"),
        ("HTTP://8.8.8.8/", "http://8.8.8.8/"),
        ("http://xn--exmple-cua.test/", "http://xn--exmple-cua.test/"),
        ("http://h/a/../b", "http://h/a/../b"),
    ],
)
def test_an_ordinary_url_has_one_spelling(url: str, normal: str) -> None:
    assert normalize_url(url) == normalize_url(normal) == normal


def test_a_redirect_is_resolved_against_its_page() -> None:
    base = normalize_url("https://h.test/a/b?c")
    assert normalize_url("d", base) == "https://h.test/a/d"
    assert normalize_url("/d", base) == "https://h.test/d"
    assert normalize_url("//other.test/d", base) == "https://other.test/d"
    assert normalize_url("?x", base) == "https://h.test/a/b?x"
    for wrong in words("file:///etc/passwd http://u:p@h/ //0x7f.1/ http://2130706433/ //[::1%25lo]/ \\\\h\\x"):
        with pytest.raises(ToolError):
            normalize_url(wrong, base)


@given(url=st.one_of(st.text(max_size=40), st.builds("http://{}".format, st.text(max_size=30))))
def test_any_text_is_refused_or_has_one_spelling(url: str) -> None:
    try:
        normal = normalize_url(url)
    except ToolError:
        return
    assert normalize_url(normal) == normal
    assert not set(urlsplit(normal).netloc) & set("/@\\?#% ")
