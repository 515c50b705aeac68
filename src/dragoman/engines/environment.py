"""What a child process gets of this one's environment: what every program needs, and what is its own. No secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_COMMON: Final = frozenset(
    [
        *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
        *("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
    ]
)
PYTHON: Final = ("DYLD_", "LD_", "PYTHON", "VIRTUAL_ENV")
"""How the names of variables begin that Python and the libraries of its modules read."""


def child_environment(environ: Mapping[str, str] | None = None, *, own: tuple[str, ...] = ()) -> dict[str, str]:
    """The variables for a child; `own` is how the names of those begin that are the child's own."""
    environment = os.environ if environ is None else environ
    return {name: value for name, value in environment.items() if name in _COMMON or name.startswith(own)}
