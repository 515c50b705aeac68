"""`dragoman doctor`: checks, and what to do about what is wrong."""

from __future__ import annotations

import argparse
import platform
import socket
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Final, Literal

from msgspec import Struct

from dragoman._version import __version__
from dragoman.chat.config import LoadedConfig, load_config
from dragoman.engines.local.shelf import models
from dragoman.errors import DragomanError
from dragoman.providers.catalogue import PROVIDERS
from dragoman.transport.addresses import host_of, port_of

from .arguments import Parser, add_json
from .conversations import open_store, store_path
from .failures import LOCAL_INSTALL, can_run_local, describe
from .output import print_json
from .settings import find_directory, open_skills, read_cli_settings, read_policy, read_servers, settle_model
from .terminal import Terminal

_SECONDS: Final = 5.0
_EXTRAS: Final = {
    "cli": (("rich", "prompt_toolkit", "shtab"), "editing, history and Markdown in the chat, and completion"),
    "keyring": (("keyring",), "keys in the system's keychain"),
    "mcp": (("mcp",), "MCP servers"),
}


class Finding(Struct, frozen=True):
    """What one check has found."""

    state: Literal["ok", "note", "wrong"]
    about: str
    text: str
    fix: str = ""


def declare(parser: Parser) -> None:
    """The options of the doctor."""
    about = "Check versions, configuration, keys, network, store and model; say what to do."
    parser.describe(_run, about, "dragoman doctor", "dragoman doctor --offline")
    parser.add_argument("--offline", action="store_true", help="do not use the network")
    add_json(parser)


def _run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    findings = _examine(terminal, offline=arguments.offline)
    if arguments.json:
        print_json(terminal, findings)
    else:
        marks = {"ok": "ok  ", "note": "note", "wrong": "FAIL"}
        for finding in findings:
            terminal.line(f"{marks[finding.state]}  {finding.about}: {finding.text}")
            if finding.fix:
                terminal.line(f"      {finding.fix}")
    return 1 if any(finding.state == "wrong" for finding in findings) else 0


def _examine(terminal: Terminal, *, offline: bool) -> list[Finding]:
    system = f"{platform.system()} {platform.machine()}"
    versions = f"dragoman {__version__}, Python {platform.python_version()}, {system}"
    found = [Finding("ok", "version", versions), *_check_extras()]
    loaded: list[LoadedConfig] = []
    found += _guard("configuration", lambda: _check_configuration(loaded, terminal))
    for config in loaded:
        found += _guard("key", lambda config=config: _check_key(config))
        if not offline:
            found += _guard("network", lambda config=config: _check_network(config))
    found += _guard("store", _check_store)
    found += _guard("local model", _check_local)
    return found


def _guard(about: str, check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(check())
    except (DragomanError, OSError) as error:
        text, fix = describe(error)
        return [Finding("wrong", about, text, fix)]


def _check_extras() -> Iterator[Finding]:
    for extra, (modules, use) in _EXTRAS.items():
        if missing := [name for name in modules if find_spec(name) is None]:
            fix = f"For {use}: pip install 'dragoman[{extra}]'"
            yield Finding("note", f"extra {extra}", f"{', '.join(missing)} not installed", fix)
        else:
            yield Finding("ok", f"extra {extra}", "installed")


def _check_configuration(out: list[LoadedConfig], terminal: Terminal) -> Iterator[Finding]:
    loaded = load_config()
    for read in (read_cli_settings, read_servers, read_policy):
        read(loaded)
    open_skills(loaded, find_directory())
    loaded = settle_model(loaded, terminal)
    out.append(loaded)
    files = ", ".join(map(str, loaded.files)) or "no files"
    yield Finding("ok", "configuration", f"{files}; the model is {loaded.config.model_name}")


def _check_key(loaded: LoadedConfig) -> Iterator[Finding]:
    provider, found = loaded.config.provider_name, loaded.config.key()
    if found is None:
        yield Finding("ok", "key", f"none is needed for {provider}")
    else:
        yield Finding("ok", "key", f"{found.secret.masked} for {provider}, from {found.origin}")


def _check_network(loaded: LoadedConfig) -> Iterator[Finding]:
    row = PROVIDERS.get(loaded.config.provider_name)
    url = loaded.config.base_url or (row.base_url if row is not None else "")
    if not url:
        return
    host, port = host_of(url), port_of(url)
    try:
        socket.create_connection((host, port), timeout=_SECONDS).close()
    except OSError as error:
        text = f"{host}:{port} cannot be reached directly: {error.strerror or type(error).__name__}"
        fix = "Check the network, the address (base_url) and whether a proxy is needed (https_proxy)."
        yield Finding("wrong", "network", text, fix)
    else:
        yield Finding("ok", "network", f"{host}:{port} can be reached")


def _check_store() -> Iterator[Finding]:
    path = store_path()
    with open_store() as store:
        page = store.list(limit=1000)
    if page.unreadable:
        text = f"{path}: {len(page.unreadable)} conversations cannot be read"
        yield Finding("wrong", "store", text, "They were left where they are; see docs/stores.md.")
    else:
        yield Finding("ok", "store", f"{path}: {len(page.items)}{'+' if page.cursor else ''} conversations")


def _check_local() -> Iterator[Finding]:
    here = [f"local:{model.name}" for model in models() if model.present]
    if not can_run_local():
        yield Finding("note", "local model", "not installed", f"For a model without a key: {LOCAL_INSTALL}")
    elif here:
        yield Finding("ok", "local model", ", ".join(here))
    else:
        fix = "It is when first needed, or now: dragoman local pull"
        yield Finding("note", "local model", "none is fetched yet", fix)
