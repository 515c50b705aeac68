"""What the doctor looks at.

Owns: the checks, each a function that gives findings and never raises.
Must not know: how findings are shown.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final, Literal

from msgspec import Struct

from dragoman._version import __version__
from dragoman.chat.config import LoadedConfig
from dragoman.engines.keys import hosts_of
from dragoman.errors import DragomanError
from dragoman.providers.catalogue import PROVIDERS
from dragoman.transport.addresses import host_of, is_loopback, port_of

from .arguments.talking import Talking
from .conversations import open_store, store_path
from .failures import described
from .local_model import INSTALL, is_local, is_there
from .model_choice import choose

__all__ = ["Finding", "examine"]

_SECONDS: Final = 5.0
_LEAST_FREE: Final = 2 * 1024**3


class Finding(Struct, frozen=True):
    """What one check has found."""

    state: Literal["ok", "note", "wrong"]
    about: str
    text: str
    fix: str = ""


def examine(*, offline: bool = False) -> list[Finding]:
    """All findings."""
    found = [*_versions(), *_extras()]
    loaded: list[LoadedConfig] = []
    found += _guarded("configuration", lambda: _configuration(loaded))
    for config in loaded:
        found += _guarded("key", lambda config=config: _key(config))
        if not offline:
            found += _guarded("network", lambda config=config: _network(config))
    found += _guarded("store", _store)
    found += _guarded("local model", _local)
    return found


def _guarded(about: str, check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(check())
    except (DragomanError, OSError) as error:
        text, fix = described(error)
        return [Finding("wrong", about, text, fix)]


# --- the checks -------------------------------------------------------------------------------------------------------


def _versions() -> Iterator[Finding]:
    system = f"{platform.system()} {platform.machine()}"
    yield Finding("ok", "version", f"dragoman {__version__}, Python {platform.python_version()}, {system}")


_EXTRAS: Final = {
    "cli": (("rich", "prompt_toolkit"), "editing, history and Markdown in the chat"),
    "keyring": (("keyring",), "keys in the system's keychain"),
    "mcp": (("mcp",), "MCP servers"),
}


def _extras() -> Iterator[Finding]:
    for extra, (modules, use) in _EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        if missing:
            fix = f"For {use}: pip install 'dragoman[{extra}]'"
            yield Finding("note", f"extra {extra}", "not installed", fix)
        else:
            yield Finding("ok", f"extra {extra}", ", ".join([f"{name} {_version(name)}" for name in modules]))


def _version(module: str) -> str:
    try:
        return version(module.replace("_", "-"))
    except PackageNotFoundError:
        return "(of unknown version)"


def _configuration(out: list[LoadedConfig]) -> Iterator[Finding]:
    from .settings import cli_settings, mcp_servers, policy, skill_settings

    chosen = choose(Talking(), os.environ)
    out.append(chosen.loaded)
    for section in (cli_settings, mcp_servers, policy, skill_settings):
        section(chosen.loaded)
    files = ", ".join(map(str, chosen.loaded.files)) or "no files"
    yield Finding("ok", "configuration", f"{files}; the model is {chosen.loaded.config.model_name}")
    if chosen.note:
        yield Finding("note", "key", "none was found, so the local model answers", "dragoman keys set openai")


def _key(loaded: LoadedConfig) -> Iterator[Finding]:
    config = loaded.config
    found = config.key()
    if found is None:
        yield Finding("ok", "key", f"none is needed for {config.provider_name}")
        return
    yield Finding("ok", "key", f"{found.secret.masked} for {config.provider_name}, from {found.origin}")


def _network(loaded: LoadedConfig) -> Iterator[Finding]:
    config = loaded.config
    if is_local(config.model_name):
        return
    row = PROVIDERS.get(config.provider_name)
    url = config.base_url or (row.base_url if row is not None else "")
    if not url:
        return
    host, port = host_of(url), port_of(url)
    proxy = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    if proxy and not is_loopback(host):
        yield Finding("note", "network", f"{host} is reached through a proxy, which was not tried")
        return
    try:
        socket.create_connection((host, port), timeout=_SECONDS).close()
    except OSError as error:
        text = f"{host}:{port} cannot be reached: {error.strerror or type(error).__name__}"
        fix = "Check the network, the address (base_url) and whether a proxy is needed (https_proxy)."
        yield Finding("wrong", "network", text, fix)
        return
    own = row is not None and (hosts_of(row) is None or host in (hosts_of(row) or ()))
    yield Finding("ok", "network", f"{host}:{port} can be reached{'' if own else ' (not the provider itself)'}")


def _store() -> Iterator[Finding]:
    path = store_path()
    with open_store() as store:
        page = store.list(limit=1000)
    if page.unreadable:
        text = f"{path}: {len(page.unreadable)} conversations cannot be read"
        yield Finding("wrong", "store", text, "They were left where they are; see docs/stores.md.")
    else:
        more = "+" if page.cursor else ""
        yield Finding("ok", "store", f"{path}: {len(page.items)}{more} conversations")
    free = shutil.disk_usage(path.parent).free
    if free < _LEAST_FREE:
        text = f"{free // 2**20} MiB are free"
        yield Finding("note", "disk", text, "The local model needs about 2.5 GiB while it is fetched.")


def _local() -> Iterator[Finding]:
    from dragoman.engines.local.storage import models

    if not is_there():
        yield Finding("note", "local model", "not installed", f"For a model without a key: {INSTALL}")
        return
    here = [f"local:{model.name}" for model in models() if model.present]
    if here:
        yield Finding("ok", "local model", ", ".join(here))
    else:
        yield Finding(
            "note", "local model", "none is fetched yet", "It is when first needed, or now: dragoman local pull"
        )
