"""`dragoman web`: the page, on this machine, and the browser opened on it."""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Final

import dragoman.web
from dragoman._programs import open_browser
from dragoman.chat import AsyncChatClient, LoadedConfig, find_key, new_async
from dragoman.engines import EngineOptions, models
from dragoman.errors import ConfigurationError, MissingKeyError
from dragoman.providers import PROVIDERS
from dragoman.stores import AsyncStore, MemoryStore
from dragoman.toolkit import PermissionChecker
from dragoman.transport import is_loopback

from .arguments import Parser, UsageError, add_talking
from .failures import can_run_local, list_models
from .history import open_store
from .instructions import read_instructions
from .session import Approver, make_system
from .settings import clean_model, fetch_models, load_with, read_settings, settle_model
from .terminal import Terminal
from .tools import ToolChoice

_VARIABLE: Final = "DRAGOMAN_WEB_PASSWORD"
_PLAIN: Final = (
    "dragoman: this page can be reached from other machines, and without an HTTPS proxy nothing is encrypted: "
    "password, conversations, files."
)


def declare_web(parser: Parser) -> None:
    about = "Chat with a model in the browser. Serves one page on this machine and opens it; Ctrl-C stops it."
    examples = ("dragoman web", "dragoman web -m local -T toolkit", "dragoman web --port 8080 --no-open")
    parser.describe(_serve, about, *examples)
    add_talking(parser, continues=False)
    add = parser.add_argument
    add("--port", type=int, default=0, metavar="N", help="the port to listen on; by default a free one")
    add("--no-open", action="store_true", help="do not open the browser")
    reach = f"listen there instead of 127.0.0.1; needs a password in {_VARIABLE}, or --proxy-header"
    add("--host", default="127.0.0.1", metavar="ADDRESS", help=reach)
    add("--proxy-header", metavar="NAME", help="trust a proxy that names the user in this header")
    names = "a further host name of the page, such as that of a proxy; may be repeated"
    add("--allow-host", dest="hosts", default=[], action="append", metavar="NAME", help=names)


def _serve(arguments: argparse.Namespace, terminal: Terminal) -> None:
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        message = "The page needs Starlette and uvicorn, which are not installed."
        raise UsageError(message, hint="pip install 'dragoman[web]'")
    password = os.environ.get(_VARIABLE)
    access = dragoman.web.Access(
        host=arguments.host, password=password, proxy_header=arguments.proxy_header, allowed_hosts=arguments.hosts
    )
    with ExitStack() as stack:
        page, store = _make_page(arguments, terminal, access, stack)

        async def close() -> None:
            await page.aclose()
            await store.aclose()

        server = dragoman.web.WebServer(page, host=arguments.host, port=arguments.port, when_closed=close)
        address = access.address(server.url)
        if not is_loopback(arguments.host) and not arguments.proxy_header:
            terminal.say(_PLAIN, "yellow")
        terminal.say(f"dragoman web is at {address}")
        terminal.note(f"Ctrl-C stops it; conversations are {'not ' if arguments.no_log else ''}kept.")
        server.serve(None if arguments.no_open else lambda: _open_browser(address))


def _open_browser(address: str) -> None:
    """Open it in a thread, since some browsers block."""
    threading.Thread(target=open_browser, args=(address,), daemon=True).start()


def _make_page(
    arguments: argparse.Namespace, terminal: Terminal, access: dragoman.web.Access, stack: ExitStack
) -> tuple[dragoman.web.Page, AsyncStore]:
    """The page and its store."""
    terminal.quiet = arguments.quiet
    loaded = load_with(arguments)
    settings = read_settings(loaded)
    loaded = settle_model(loaded, terminal)
    tools = ToolChoice(settings, terminal, stack).build(arguments.tools or settings.cli.tools)
    checker = PermissionChecker(settings.policy, workspace=settings.directory, door="web")
    approver = Approver(arguments.approve or settings.cli.approve, terminal, checker)
    if settings.cli.instructions:
        loaded, _ = read_instructions(loaded, terminal)
    fetch_models(loaded.config.model_names, terminal)
    store = AsyncStore(MemoryStore() if arguments.no_log or not settings.cli.log else open_store())
    system = make_system(loaded, settings, tools)

    def change(model: str) -> LoadedConfig:
        return loaded.change(model=clean_model(model)) if model != loaded.config.model_name else loaded

    async def make_client(id: str, model: str) -> AsyncChatClient:
        config = change(model).config
        return new_async(config, tools, store=store, id=id, permission=approver.decide, system=system or None)

    def engine_options(model: str) -> EngineOptions:
        return change(model).config.for_engine()

    page = dragoman.web.Page(
        make_client,
        engine_options=engine_options,
        store=store,
        checker=checker,
        access=access,
        model=loaded.config.model_name,
        models=list(_list_models(loaded)),
        workspace=str(settings.directory),
    )
    return page, store


def _list_models(loaded: LoadedConfig) -> Iterator[str]:
    """Models that can be used right away: those of providers with a key, and those on this machine."""
    for provider in PROVIDERS:
        try:
            found = find_key(provider, keys=loaded.config.keys)
        except (MissingKeyError, ConfigurationError):
            continue
        if found is not None:
            yield from [f"{provider}:{name}" for name in list_models(provider)]
    if can_run_local():
        yield from [f"local:{model.name}" for model in models() if model.present]
