"""Signature Version 4: the headers that authenticate a request to Amazon.

Only the host, the content type and Amazon's own headers are signed: a proxy may change the others.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit

from dragoman.engines.credential import AwsKeys
from dragoman.transport import HttpRequest

_ALGORITHM: Final = "AWS4-HMAC-SHA256"


def signature(request: HttpRequest, keys: AwsKeys, *, region: str, service: str, now: float) -> dict[str, str]:
    """The headers to add to the request. `now` is the Unix time: a signature is valid for five minutes."""
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-date": moment}
    if keys.token:
        added["x-amz-security-token"] = keys.token
    signed = _headers_to_sign(request, added)
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    canonical = "\n".join(
        [
            request.method,
            _path(request.url),
            _query(request.url),
            *[f"{name}:{value}" for name, value in signed.items()],
            "",
            ";".join(signed),
            hashlib.sha256(request.body).hexdigest(),
        ]
    )
    text = "\n".join([_ALGORITHM, moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    proof = _hmac(key, text).hex()
    credential = f"Credential={keys.access_key}/{scope}"
    added["authorization"] = f"{_ALGORITHM} {credential}, SignedHeaders={';'.join(signed)}, Signature={proof}"
    return added


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _headers_to_sign(request: HttpRequest, added: Mapping[str, str]) -> dict[str, str]:
    """Sorted by their names, in lower case, with collapsed spaces."""
    address = urlsplit(request.url)
    usual = {"http": 80, "https": 443}.get(address.scheme)
    host = address.hostname or ""
    host = f"[{host}]" if ":" in host else host
    found = {"host": host if address.port in (None, usual) else f"{host}:{address.port}"}
    for name, value in {**request.headers, **added}.items():
        if (lower := name.lower()) == "content-type" or lower.startswith("x-amz"):
            found[lower] = " ".join(value.split())
    return dict(sorted(found.items()))


def _query(url: str) -> str:
    """The query, sorted by names and values."""
    query = urlsplit(url).query
    pairs = [pair.partition("=") for pair in query.split("&")] if query else []
    return "&".join([f"{name}={value}" for name, _, value in sorted(pairs)])


def _path(url: str) -> str:
    """The path as it is sent, encoded once more, without dots and empty segments."""
    path = urlsplit(url).path
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    end = "/" if parts and path.endswith("/") else ""
    return quote("/" + "/".join(parts) + end, safe="/~")
