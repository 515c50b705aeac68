"""Which dialect and which endpoint a request is for.

Owns: paths, and the headers by which providers tell their clients apart.
Must not know: what a request says.

Only the end of a path counts, so that every base URL works: `/v1/messages`, `/openai/v1/chat/completions` …
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from .dialects import DIALECTS, Dialect
from .http1 import HttpRequest

__all__ = ["KEY_HEADER", "KEY_PREFIX", "Route", "given_key", "route_of"]

KEY_HEADER: Final = "x-simulator-key"
KEY_PREFIX: Final = "/key/"

_KEYED: Final = re.compile(r"/key/(?P<key>[^/]+)(?P<rest>/.*)?")
_GEMINI: Final = re.compile(r".*/(?:models|tunedModels)/(?P<model>[^:]+):(?P<method>(?:g|streamG)enerateContent)")
_MODEL: Final = re.compile(r".*/models/(?P<model>.+)")

_ENDINGS: Final = {
    "/chat/completions": "openai_chat",
    "/responses": "openai_responses",
    "/messages": "anthropic",
}


@dataclass(frozen=True)
class Route:
    """Where a request goes."""

    what: Literal["reply", "models", "model", "home", "unknown"]
    dialect: Dialect
    """Of an unknown path: the one in whose shape the error is written."""
    key: str | None = None
    """Of the conversation."""
    model: str = ""
    """Where the path names it."""
    stream: bool | None = None
    """Where the path says it."""


def route_of(http: HttpRequest) -> Route:
    """Where this request goes."""
    path, key = http.path, http.headers.get(KEY_HEADER)
    # Before percent signs are resolved: a key may contain a slash.
    if keyed := _KEYED.fullmatch(urlsplit(http.target).path):
        path, key = unquote(keyed["rest"] or "/"), unquote(keyed["key"])
    gemini = DIALECTS["gemini"]
    if http.method == "POST":
        if found := _GEMINI.fullmatch(path):
            return Route("reply", gemini, key, found["model"], found["method"] == "streamGenerateContent")
        for ending, name in _ENDINGS.items():
            if path.endswith(ending):
                return Route("reply", DIALECTS[name], key)
    elif http.method == "GET":
        if path in {"", "/"}:
            return Route("home", DIALECTS["openai_chat"])
        if path.endswith("/models"):
            return Route("models", _guess(http))
        if found := _MODEL.fullmatch(path):
            return Route("model", _guess(http), model=found["model"])
    return Route("unknown", _guess(http))


def _guess(http: HttpRequest) -> Dialect:
    """OpenAI and Anthropic have their models at the same path; their clients' headers differ."""
    if "x-goog-api-key" in http.headers or "/v1beta" in http.path or "key" in http.query:
        return DIALECTS["gemini"]
    if "anthropic-version" in http.headers or "x-api-key" in http.headers:
        return DIALECTS["anthropic"]
    return DIALECTS["openai_chat"]


def given_key(http: HttpRequest) -> str | None:
    """The API key, wherever a client may put it."""
    scheme, _, token = http.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    return http.headers.get("x-api-key") or http.headers.get("x-goog-api-key") or http.query.get("key")
