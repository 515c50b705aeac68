"""Certificates and proxies, on every transport."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import httpx2
import pytest

from dragoman.errors import ConfigurationError
from dragoman.transport import Routes, Timeouts
from dragoman.transport.httpx_adapter import HttpxTransport
from tests.transport.authority import Authority
from tests.transport.colours import SECRET, Client, Kind, failing
from tests.transport.proxy import Proxy
from tests.transport.server import Exchange, Server, closed_port, echo, raw


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class TestCertificates:
    def test_an_authority_from_an_argument(self, kind: Kind, authority: Authority) -> None:
        with Server({"*": echo}, tls=authority.server()) as server, kind.client(ca_file=authority.file) as client:
            for number in range(5):
                assert client.open(server.url, body=b"%d" % number).read() == b"%d" % number
            assert server.connections == 1 or not client.reuses

    @pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
    def test_an_authority_from_the_environment(
        self, own: Kind, authority: Authority, variable: str, tmp_path: Path
    ) -> None:
        bundle = tmp_path / "bundle.pem"
        bundle.write_bytes(b"# a comment\n" + Authority(tmp_path, "another").pem + b"\n" + authority.pem)
        environ = {variable: str(bundle)}
        with Server({"*": echo}, tls=authority.server()) as server, own.client(environ=environ) as client:
            assert client.open(server.url, body=b"hello").read() == b"hello"

    @pytest.mark.parametrize(
        ("host", "expired", "trusted"),
        [("127.0.0.1", False, False), ("other.test", False, True), ("127.0.0.1", True, True)],
        ids=["nobody known has signed it", "for another host", "expired"],
    )
    def test_certificates_that_are_not_trusted(
        self, kind: Kind, authority: Authority, host: str, expired: bool, trusted: bool
    ) -> None:
        options = {"ca_file": authority.file} if trusted else {}
        with (
            Server({"*": echo}, tls=authority.server(host, expired=expired)) as server,
            kind.client(**options) as client,
        ):
            with failing("certificate") as caught:
                client.open(f"{server.url}/?key={SECRET}", headers={"authorization": SECRET})
            assert "SSL_CERT_FILE" in caught.value.hint
            assert "certificate of 127.0.0.1 is not trusted" in str(caught.value)
            assert server.requests == []

    def test_an_authority_whose_certificates_lack_what_newer_pythons_insist_on(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        old = Authority(tmp_path, identified=False)
        with Server({"*": echo}, tls=old.server()) as server, kind.client(ca_file=old.file) as client:
            if sys.version_info < (3, 13):
                assert client.open(server.url, body=b"hello").read() == b"hello"
                return
            with failing("certificate_form") as caught:
                client.open(server.url, headers={"authorization": SECRET})
            assert server.requests == []
            assert "missing authority key identifier" in caught.value.message
            assert "without ssl.VERIFY_X509_STRICT" in caught.value.hint
            context = ssl.create_default_context(cafile=old.file)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            with Client(HttpxTransport(httpx2.Client(verify=context, trust_env=False))) as lenient:
                assert lenient.open(server.url, body=b"hello").read() == b"hello"

    def test_a_server_that_does_not_speak_tls_or_cuts_within_it(self, kind: Kind, authority: Authority) -> None:
        with Server({}) as server, kind.client() as client:
            server.greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
            with failing("tls"):
                client.open(server.url.replace("http:", "https:"))
        cut = {"*": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello")}
        encrypted = Server(cut, tls=authority.server())
        with encrypted as server, kind.client(ca_file=authority.file) as client, failing("cut_off"):
            client.open(server.url).read()

    def test_a_missing_or_invalid_ca_file_is_refused(self, own: Kind, tmp_path: Path) -> None:
        empty = tmp_path / "empty.pem"
        empty.touch()
        for file in (tmp_path / "missing.pem", empty):
            with own.client(ca_file=file) as client, pytest.raises(ConfigurationError, match=f"{file.name}") as caught:
                client.open("https://127.0.0.1:9/")
            assert "ca_file" in caught.value.hint
            # Where no certificate is needed, none is looked for.
            with Server({"*": echo}) as server, own.client(ca_file=file) as client:
                assert client.open(server.url, body=b"plain").read() == b"plain"


HOST = "nowhere.test"
"""Exists nowhere: what is asked of it reaches the server only if the proxy is used."""


class TestProxies:
    @pytest.mark.parametrize("login", [None, "user:p@ss word"])
    def test_a_tunnel_for_https(self, kind: Kind, authority: Authority, login: str | None) -> None:
        with Server({"*": echo}, tls=authority.server(HOST)) as server, Proxy(server, login=login) as proxy:
            before = "" if login is None else "user:p%40ss%20word@"
            address = f"http://{before}127.0.0.1:{proxy.port}"
            with kind.client(proxy=address, ca_file=authority.file) as client:
                for _ in range(3):
                    with client.open(f"https://{HOST}/v1", body=b"hello", headers={"x-api-key": SECRET}) as reply:
                        assert reply.read() == b"hello"
                        assert reply.headers["x-host"] == HOST
            assert server.connections == (1 if kind.reuses else 3)
            assert {(each.method, each.target) for each in proxy.requests} == {("CONNECT", f"{HOST}:443")}
            asked = len(server.requests)
            with kind.client(proxy=address) as client, failing("certificate"):  # of a server that is not trusted
                client.open(f"https://{HOST}/v1")
            assert len(server.requests) == asked
            # Neither the key nor the proxy's password goes where it does not belong.
            assert SECRET not in str(proxy.requests[0].headers)
            assert "proxy-authorization" not in server.requests[0].headers

    def test_plain_http_is_passed_on(self, kind: Kind) -> None:
        with Server({"*": echo}) as server, Proxy(server) as proxy:
            with kind.client(proxy=proxy.url) as client:
                assert client.open(f"http://{HOST}:8080/v1?a=b", body=b"hello").read() == b"hello"
            [request] = server.requests
            assert request.headers["x-target"] == f"http://{HOST}:8080/v1?a=b"
            assert request.headers["host"] == f"{HOST}:8080"

    def test_a_proxy_from_the_environment(self, own: Kind, authority: Authority) -> None:
        with Server({"*": echo}, tls=authority.server(HOST)) as server, Proxy(server) as proxy:
            environ = {"HTTPS_PROXY": f"127.0.0.1:{proxy.port}", "SSL_CERT_FILE": str(authority.file)}
            with own.client(environ=environ) as client:
                assert client.open(f"https://{HOST}/", body=b"hello").read() == b"hello"
            assert len(proxy.requests) == 1

    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_an_unreachable_proxy_is_named(self, own: Kind, scheme: str) -> None:
        address = f"http://user:{SECRET}@127.0.0.1:{closed_port()}"
        with own.client(proxy=address) as client, failing("proxy") as caught:
            client.open(f"{scheme}://{HOST}/?key={SECRET}")
        assert "proxy on the way to nowhere.test" in str(caught.value)
        assert "HTTPS_PROXY" in caught.value.hint

    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_a_proxy_that_asks_for_a_password_is_named(self, own: Kind, scheme: str) -> None:
        with Server({"*": echo}) as server, Proxy(server, login="user:other") as proxy:
            address = f"http://user:{SECRET}@127.0.0.1:{proxy.port}"
            with own.client(proxy=address) as client, failing("proxy_auth"):
                client.open(f"{scheme}://{HOST}/")
            assert server.requests == []

    @pytest.mark.parametrize("status", [403, 502, 503])
    def test_a_proxy_that_refuses_the_tunnel_is_named(self, own: Kind, status: int) -> None:
        async def refuse(exchange: Exchange) -> None:
            await exchange.reply(b"no", status)
            exchange.hang_up()

        with Server({"*": refuse}) as proxy, own.client(proxy=proxy.url) as client:
            with failing("proxy"):
                client.open(f"https://{HOST}/", timeout=Timeouts(connect=20, read=20))
            proxy.wait_for_open(0)


@pytest.mark.parametrize("scheme", ["https", "socks5"])
def test_unsupported_proxies_are_refused(own: Kind, scheme: str) -> None:
    with own.client(proxy=f"{scheme}://127.0.0.1:9") as client:
        with pytest.raises(ConfigurationError, match=f"does not support {scheme} proxies") as caught:
            client.open(f"https://{HOST}/")
        assert "HttpxTransport" in caught.value.hint


# --- which proxy is for which host ---

PROXY = "http://proxy.test:3128"


def proxy_for(url: str, **environ: str) -> str | None:
    return Routes(environ=environ).proxy_for(url)


@pytest.mark.parametrize(
    ("environ", "plain", "encrypted"),
    [
        ({}, None, None),
        ({"HTTPS_PROXY": PROXY}, None, PROXY),
        ({"https_proxy": PROXY}, None, PROXY),
        ({"HTTP_PROXY": PROXY}, PROXY, None),
        ({"ALL_PROXY": PROXY}, PROXY, PROXY),
        ({"all_proxy": "socks5h://p:1", "https_proxy": PROXY}, "socks5h://p:1", PROXY),
        ({"HTTPS_PROXY": "http://upper:1", "https_proxy": PROXY}, None, PROXY),
        ({"HTTPS_PROXY": "proxy.test:3128"}, None, PROXY),
        ({"HTTPS_PROXY": ""}, None, None),
        # In a CGI program, HTTP_PROXY is what a stranger wrote into the header "Proxy".
        ({"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}, None, None),
        ({"http_proxy": PROXY, "REQUEST_METHOD": "GET"}, PROXY, None),
    ],
)
def test_variables(environ: dict[str, str], plain: str | None, encrypted: str | None) -> None:
    assert proxy_for("http://api.test/", **environ) == plain
    assert proxy_for("https://api.test/", **environ) == encrypted


NO_PROXY = {  # a rule, what goes direct by it, and what does not
    "*": (["https://anything.test"], []),
    "api.test": (["https://api.test", "https://eu.api.test"], ["https://notapi.test"]),
    "API.Test": (["https://api.TEST/"], []),
    ".api.test": (["https://eu.api.test", "https://api.test"], []),
    "*.api.test": (["https://eu.api.test"], []),
    "api.test:443": (["https://api.test"], ["https://api.test:8443"]),
    "10.0.0.1": (["https://10.0.0.1"], []),
    "10.0.0.0/8": (["https://10.1.2.3:8000/x"], ["https://11.1.2.3", "https://api.test"]),
    "0.1": ([], ["https://10.0.0.1"]),
    "fd00::/8": (["https://[fd00::1]/"], []),
    "[fd00::1]:443": (["https://[fd00::1]/"], ["https://[fd00::1]:80/"]),
    "nonsense/99": ([], ["https://10.0.0.1"]),
    "other.test, api.test ,": (["https://api.test"], []),
    ",.,": ([], ["https://api.test"]),
    "": (["http://localhost/", "https://127.8.8.8:8000/", "https://[::1]/"], []),
}


@pytest.mark.parametrize("rule", NO_PROXY)
def test_no_proxy(rule: str) -> None:
    direct, proxied = NO_PROXY[rule]
    for url in [*direct, *proxied]:
        assert proxy_for(url, ALL_PROXY=PROXY, NO_PROXY=rule) == (None if url in direct else PROXY), url


def test_arguments_win() -> None:
    environ = {"HTTPS_PROXY": "http://other:1", "NO_PROXY": "*"}
    assert Routes(proxy=PROXY, environ=environ).proxy_for("https://api.test") == PROXY
    assert Routes(proxy="", environ=environ).proxy_for("https://api.test") is None
    assert Routes(environ={}).proxy_for("https://api.test") is None


@pytest.mark.parametrize("address", ["ftp://proxy:1", "http://:3128", "proxy:1", "http://user:sesame@"])
def test_a_bad_proxy_is_refused_without_being_repeated(address: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Routes(proxy=address, environ={})
    assert "sesame" not in str(caught.value)
    assert address not in str(caught.value)
