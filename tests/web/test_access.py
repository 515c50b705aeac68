"""Access to the page, response headers and refusals, without a browser."""

from __future__ import annotations

import pytest

from dragoman.errors import ConfigurationError
from dragoman.web import Access
from tests.web import asking
from tests.web.asking import Answer
from tests.web.pages import Site, serving


def ask(site: Site, method: str, path: str, body: object = None, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asking.ask(site.server.port, method, path, body, named)


def come_in(site: Site) -> dict[str, str]:
    status, headers, _ = ask(site, "GET", f"/?token={site.access.token}")
    assert status == 303
    assert headers["location"] == "/"
    return {"cookie": headers["set-cookie"].partition(";")[0], "origin": site.server.url}


def test_token_is_exchanged_for_a_cookie() -> None:
    with serving() as site:
        assert ask(site, "GET", "/")[0] == ask(site, "GET", "/?token=guess")[0] == 401
        assert ask(site, "GET", "/api/conversations")[0] == 401
        assert b"terminal" in ask(site, "GET", "/")[2]
        status, headers, _ = ask(site, "GET", f"/?token={site.access.token}")
        assert status == 303
        assert "HttpOnly" in headers["set-cookie"]
        assert "SameSite=strict" in headers["set-cookie"]
        cookie = headers["set-cookie"].partition(";")[0]
        status, headers, body = ask(site, "GET", "/", cookie=cookie)
        assert (status, b"<script" in body) == (200, True)
        policy = headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert ask(site, "GET", "/api/about", cookie=cookie)[0] == 200
        assert ask(site, "GET", "/api/about", cookie=cookie[:-1])[0] == 401


FOREIGN = [
    {"host": "evil.example"},
    {"host": "evil.example:80", "origin": "http://evil.example"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": ""},
    {"sec_fetch_site": "cross-site", "origin": ""},
]


def test_requests_of_other_pages_are_refused() -> None:
    with serving() as site:
        known = come_in(site)
        assert ask(site, "POST", "/api/conversations", {"text": "hello"}, **known).status == 202
        for foreign in FOREIGN:
            headers = {name: value for name, value in {**known, **foreign}.items() if value}
            assert ask(site, "POST", "/api/conversations", {"text": "hello"}, **headers).status == 403, foreign
            if "host" in foreign or "sec_fetch_site" in foreign:
                assert ask(site, "GET", "/api/conversations", **headers).status == 403, foreign


def test_link_from_another_site_reaches_only_the_page() -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    with serving() as site:
        cookie = come_in(site)["cookie"]
        assert ask(site, "GET", f"/?token={site.access.token}", **link)[0] == 303
        assert ask(site, "GET", "/api/about", cookie=cookie, **link)[0] == 403
        assert ask(site, "POST", "/login", "", **link)[0] == 403
        assert ask(site, "GET", "/", cookie=cookie, **{**link, "sec_fetch_dest": "iframe"})[0] == 403


def test_access_beyond_loopback_needs_password_or_proxy() -> None:
    with pytest.raises(ConfigurationError, match="nothing keeps people out"):
        Access(host="0.0.0.0")
    with pytest.raises(ConfigurationError, match="at least 8"):
        Access(host="0.0.0.0", password="short")
    with pytest.raises(ConfigurationError, match="not by both"):
        Access(password="correct horse", proxy_header="X-User")
    with serving(access=Access(password="correct horse")) as site:
        assert b"Password" in ask(site, "GET", "/")[2]
        assert ask(site, "GET", "/assets/login.css")[0] == 200
        origin = site.server.url
        assert ask(site, "POST", "/login", "password=wrong", origin=origin)[0] == 401
        status, headers, _ = ask(site, "POST", "/login", "password=correct+horse", origin=origin)
        assert status == 303
        assert ask(site, "GET", "/api/about", cookie=headers["set-cookie"].partition(";")[0])[0] == 200
        for _ in range(10):
            ask(site, "POST", "/login", "password=wrong", origin=origin)
        status, _, body = ask(site, "POST", "/login", "password=correct+horse", origin=origin)
        assert (status, b"too many" in body) == (401, True), "enough guesses"
    with serving(access=Access(host="0.0.0.0", proxy_header="X-User", allowed_hosts=iter(["talk.example"]))) as site:
        assert ask(site, "GET", "/api/about", host="talk.example")[0] == 401
        assert ask(site, "GET", "/api/about", host="talk.example", x_user="ada")[0] == 200
        assert ask(site, "GET", "/api/about", host="evil.example", x_user="ada")[0] == 403


def test_bad_requests_are_refused_without_effect() -> None:
    with serving() as site:
        known = come_in(site)
        nobody = "018f3c5e-7a10-7cc3-98c4-dc0c0c07398f"
        large = {"text": "x", "files": [{"name": "a", "type": "", "data": "A" * 46_000_000}]}
        for method, path, body, status in [
            ("POST", "/api/conversations", "{", 400),
            ("POST", "/api/conversations", {"text": ""}, 400),
            ("POST", "/api/conversations", {"text": "x", "files": [{"name": "a", "type": "", "data": "#"}]}, 400),
            ("POST", "/api/conversations", large, 413),
            ("GET", f"/api/conversations/{nobody}", None, 404),
            ("GET", "/api/conversations/..%2f..%2fetc", None, 404),
            ("POST", f"/api/conversations/{nobody}/messages", {"text": "x"}, 404),
            ("GET", f"/api/conversations/{nobody}/events", None, 204),
            ("GET", "/assets/..%2findex.html", None, 404),
            ("GET", "/assets/none.js", None, 404),
            ("GET", f"/assets/{'a' * 300}", None, 404),
            ("POST", "/api/conversations", '{"text": "a", "x": ' + "[" * 100_000 + "]" * 100_000 + "}", 400),
            ("POST", "/api/conversations", '{"text": "\u00ff"}', 400),  # http.client sends it in Latin-1
            ("GET", "/api/conversations?cursor=garbage", None, 400),
        ]:
            assert ask(site, method, path, body, **known)[0] == status, (method, path)
        assert not site.simulator.requests
