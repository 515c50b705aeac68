"""`dragoman doctor`: checks, and what to do about what is wrong."""

from __future__ import annotations

import argparse
import platform
import socket
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Final, Literal

from msgspec import Struct

from dragoman._version import __version__
from dragoman.chat import LoadedConfig, load_config
from dragoman.engines import models
from dragoman.errors import DragomanError
from dragoman.providers import PROVIDERS
from dragoman.transport import host_of, port_of

from .arguments import Parser, add_json, add_profile
from .failures import LOCAL_INSTALL, can_run_local, describe
from .history import open_store, store_path
from .output import print_json
from .settings import Settings, clean_model, read_settings, settle_model
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
    about = "Check versions, configuration, keys, network, MCP servers, store and model; say what to do."
    parser.describe(_run, about, "dragoman doctor", "dragoman doctor -m openai:gpt-5 --offline")
    parser.add_argument("-m", "--model", metavar="MODEL", help="by default the configured one")
    add_profile(parser)
    parser.add_argument("--offline", action="store_true", help="do not use the network")
    add_json(parser)


def _run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    findings = list(_examine(arguments, terminal))
    if arguments.json:
        print_json(terminal, findings)
    else:
        marks = {"ok": "ok  ", "note": "note", "wrong": "FAIL"}
        for finding in findings:
            terminal.line(f"{marks[finding.state]}  {finding.about}: {finding.text}")
            if finding.fix:
                terminal.line(f"      {finding.fix}")
    return 1 if any(finding.state == "wrong" for finding in findings) else 0


def _examine(arguments: argparse.Namespace, terminal: Terminal) -> Iterator[Finding]:
    versions = f"dragoman {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield Finding("ok", "version", versions)
    for extra, (modules, use) in _EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        fix = f"For {use}: pip install 'dragoman[{extra}]'" if missing else ""
        text = f"{', '.join(missing)} not installed" if missing else "installed"
        yield Finding("note" if missing else "ok", f"extra {extra}", text, fix)
    try:
        loaded = load_config(profile=arguments.profile, model=arguments.model and clean_model(arguments.model))
        settings = read_settings(loaded)
        loaded = settle_model(loaded, terminal)
    except DragomanError as error:
        yield Finding("wrong", "configuration", *describe(error))
    else:
        files = ", ".join(map(str, loaded.files)) or "no files"
        yield Finding("ok", "configuration", f"{files}; the model is {loaded.config.model_name}")
        yield _guard("key", partial(_check_key, loaded=loaded))
        if not arguments.offline:
            yield _guard("network", partial(_check_network, loaded=loaded))
            for name in settings.servers:
                yield _guard(f"MCP server {name}", partial(_check_server, name=name, settings=settings))
    yield _guard("store", _check_store)
    yield _guard("local model", _check_local)


def _guard(about: str, check: Callable[[str], Finding]) -> Finding:
    try:
        return check(about)
    except (DragomanError, OSError) as error:
        return Finding("wrong", about, *describe(error))


def _check_key(about: str, loaded: LoadedConfig) -> Finding:
    provider, found = loaded.config.provider_name, loaded.config.key()
    if found is None:
        return Finding("ok", about, f"none is needed for {provider}")
    return Finding("ok", about, f"{found.secret.masked} for {provider}, from {found.origin}")


def _check_network(about: str, loaded: LoadedConfig) -> Finding:
    row = PROVIDERS.get(loaded.config.provider_name)
    url = loaded.config.base_url or (row.base_url if row is not None else "")
    if not url:
        return Finding("ok", about, "none is needed")
    host, port = host_of(url), port_of(url)
    try:
        socket.create_connection((host, port), timeout=_SECONDS).close()
    except OSError as error:
        text = f"{host}:{port} cannot be reached directly: {error.strerror or type(error).__name__}"
        fix = "Check the network, the address (base_url) and whether a proxy is needed (https_proxy)."
        return Finding("wrong", about, text, fix)
    return Finding("ok", about, f"{host}:{port} can be reached")


def _check_server(about: str, name: str, settings: Settings) -> Finding:
    """Start or reach an MCP server of the configuration, and ask for its tools."""
    with settings.open_servers(name) as servers:
        found = "; ".join([f"{len(servers[name])} tools", *map(str, servers.problems)])
        return Finding("note" if servers.problems else "ok", about, found)


def _check_store(about: str) -> Finding:
    with open_store() as store:
        page = store.list(limit=1000)
    if page.unreadable:
        text = f"{store_path()}: {len(page.unreadable)} conversations cannot be read"
        return Finding("wrong", about, text, "They were left where they are; see docs/stores.md.")
    return Finding("ok", about, f"{store_path()}: {len(page.items)}{'+' if page.cursor else ''} conversations")


def _check_local(about: str) -> Finding:
    if not can_run_local():
        return Finding("note", about, "not installed", f"For a model without a key: {LOCAL_INSTALL}")
    if here := [f"local:{model.name}" for model in models() if model.present]:
        return Finding("ok", about, ", ".join(here))
    return Finding("note", about, "none is fetched yet", "It is when first needed, or now: dragoman local pull")
