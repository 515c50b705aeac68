from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import ConfigurationError
from dragoman.transport.routes import Surroundings, authorities

PROXY = "http://proxy.test:3128"


def proxy_for(url: str, **environ: str) -> str | None:
    return Surroundings.of(environ=environ).proxy_for(url)


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


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "127.8.8.8:8000"])
def test_this_machine_is_reached_directly(host: str) -> None:
    assert proxy_for(f"http://{host}/", ALL_PROXY=PROXY) is None
    assert Surroundings.of(proxy=PROXY, environ={}).proxy_for(f"http://{host}/") == PROXY, "unless the code says so"


@pytest.mark.parametrize(
    ("rule", "url", "direct"),
    [
        ("*", "https://anything.test", True),
        ("api.test", "https://api.test", True),
        ("api.test", "https://API.test/", True),
        ("API.Test", "https://api.test/", True),
        ("api.test", "https://eu.api.test", True),
        (".api.test", "https://eu.api.test", True),
        (".api.test", "https://api.test", True),
        ("*.api.test", "https://eu.api.test", True),
        ("api.test", "https://notapi.test", False),
        ("test", "https://api.test", True),
        ("api.test:443", "https://api.test", True),
        ("api.test:443", "https://api.test:8443", False),
        ("api.test:8443", "https://api.test:8443", True),
        ("10.0.0.1", "https://10.0.0.1", True),
        ("10.0.0.0/8", "https://10.1.2.3:8000/x", True),
        ("10.0.0.0/8", "https://11.1.2.3", False),
        ("10.0.0.0/8", "https://api.test", False),
        ("0.1", "https://10.0.0.1", False),
        ("fd00::/8", "https://[fd00::1]/", True),
        ("fd00::1", "https://[fd00::1]/", True),
        ("[fd00::1]:443", "https://[fd00::1]/", True),
        ("[fd00::1]:80", "https://[fd00::1]/", False),
        ("nonsense/99", "https://10.0.0.1", False),
        ("other.test, api.test ,", "https://api.test", True),
        (",,", "https://api.test", False),
        (".", "https://api.test", False),
    ],
)
def test_no_proxy(rule: str, url: str, direct: bool) -> None:
    assert proxy_for(url, HTTPS_PROXY=PROXY, NO_PROXY=rule) == (None if direct else PROXY)


def test_arguments_win() -> None:
    environ = {"HTTPS_PROXY": "http://other:1", "NO_PROXY": "*"}
    assert Surroundings.of(proxy=PROXY, environ=environ).proxy_for("https://api.test") == PROXY
    assert Surroundings.of(proxy="", environ=environ).proxy_for("https://api.test") is None
    assert Surroundings.of(trust_env=False, environ=environ).proxy_for("https://api.test") is None


def test_the_real_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", PROXY)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    assert Surroundings.of().proxy_for("https://api.test") == PROXY


@pytest.mark.parametrize("address", ["ftp://proxy:1", "http://:3128", "proxy:1", "http://user:sesame@"])
def test_a_bad_proxy_is_refused_without_being_repeated(address: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Surroundings.of(proxy=address, environ={})
    assert "sesame" not in str(caught.value)
    assert address not in str(caught.value)


def test_files_of_authorities(tmp_path: Path) -> None:
    first, second = tmp_path / "first.pem", tmp_path / "second.pem"
    first.write_text("-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n")
    second.write_text("-----BEGIN CERTIFICATE-----\nB\n-----END CERTIFICATE-----\n")
    environ = {"SSL_CERT_FILE": str(second), "REQUESTS_CA_BUNDLE": str(second), "CURL_CA_BUNDLE": ""}
    found = authorities(Surroundings.of(ca_file=first, environ=environ))
    assert [b"\nA\n" in each for each in found] == [True, False]
    assert authorities(Surroundings.of(environ={})) == []
    assert authorities(Surroundings.of(trust_env=False, environ=environ)) == []
