"""Setup: `keys` stores, lists and removes API keys, `config` shows the settings and where they come from, `doctor`
checks everything and says what to do, `completion` prints a script for a shell.

A key is typed without echo, or piped in: an argument is visible in the list of processes and in the shell's history.
"""

from __future__ import annotations

import argparse
import getpass
import os
import platform
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Final, Literal

from msgspec import Struct

from dragoman._version import __version__
from dragoman.chat import (
    Explanation,
    LoadedConfig,
    delete_key,
    find_key,
    keys_file,
    list_keys,
    load_config,
    resolve_provider,
    store_key,
    user_file,
)
from dragoman.directories import cache_directory, state_directory
from dragoman.engines import Secret, models
from dragoman.errors import DragomanError, KeychainError
from dragoman.providers import PROVIDERS
from dragoman.transport import host_of, port_of

from .arguments import Parser, UsageError, add_asking, add_json, add_profile, expand_path
from .failures import LOCAL_INSTALL, can_run_local, describe
from .history import open_store, store_path
from .output import print_json, print_list
from .program import COMMANDS, load_command
from .settings import Settings, clean_models, read_settings, settle_model
from .terminal import Terminal

# --- keys -------------------------------------------------------------------------------------------------------------


def declare_keys(parser: Parser) -> None:
    parser.default = "list"
    about = "Store a key in the keychain, or in a file that only you can read."
    examples = ("dragoman keys set openai", "pass show openai | dragoman keys set openai --store file")
    store = parser.add_command("set", _set_key, about, *examples)
    store.add_argument("provider", help="such as openai, anthropic or gemini")
    store.add_argument("rest", nargs="?", help=argparse.SUPPRESS)
    store.add_argument("--store", choices=("keychain", "file"), help="where; by default the keychain, if there is one")
    add_json(parser.add_command("list", _list_keys, "List keys, masked, and where they are.", "dragoman keys list"))
    remove = parser.add_command("remove", _remove_key, "Remove a stored key.", "dragoman keys remove openai")
    remove.add_argument("provider", help="whose stored key to remove")


def _set_key(arguments: argparse.Namespace, terminal: Terminal) -> None:
    if arguments.rest:
        message = "Do not put a key on the command line, where others can see it."
        raise UsageError(message, hint=f"Run `dragoman keys set {arguments.provider}` and paste it, or pipe it in.")
    provider = resolve_provider(arguments.provider)  # before a key is asked for
    key = ""
    if terminal.in_is_tty:
        with suppress(EOFError):
            key = getpass.getpass(f"Key for {provider}: ", terminal.stderr).strip()
    else:
        key = terminal.read_input().strip()
    if key.split() != [key]:
        message = f"This is not a key for {provider}: it is empty or contains spaces."
        raise UsageError(message, hint="Copy it again, without anything before or after it.")
    try:
        stored = store_key(provider, key, store=arguments.store or "keychain")
    except KeychainError as error:
        if arguments.store or error.reason not in ("not_installed", "no_backend"):
            raise
        terminal.note(f"dragoman: {error.message} The key goes into a file that only you can read.", "yellow")
        stored = store_key(provider, key, store="file")
    terminal.say(f"The key {stored.masked} for {stored.provider} is in the {stored.store} ({stored.place}).")


def _list_keys(arguments: argparse.Namespace, terminal: Terminal) -> None:
    found = [
        {"provider": key.provider, "key": key.masked, "place": f"{key.store} ({key.place})"} for key in list_keys()
    ]
    found += [
        {"provider": provider.name, "key": Secret(value).masked, "place": f"environment variable {name}"}
        for provider in PROVIDERS.values()
        for name in provider.key_variables
        if (value := os.environ.get(name))
    ]
    otherwise = "There are no keys. Store one with: dragoman keys set openai"
    print_list(terminal, found, dict, as_json=arguments.json, otherwise=otherwise)


def _remove_key(arguments: argparse.Namespace, terminal: Terminal) -> None:
    if not delete_key(arguments.provider):
        message = f"No key is stored for {arguments.provider}."
        raise UsageError(message, hint="See dragoman keys list; a key in a variable is not stored here.")
    terminal.say(f"Removed the stored key for {arguments.provider}.")


# --- config -----------------------------------------------------------------------------------------------------------


def declare_config(parser: Parser) -> None:
    parser.default = "show"
    about = "Show every setting, its value and where it comes from."
    show = parser.add_command("show", _show_config, about, "dragoman config show --set")
    add_profile(show)
    show.add_argument("--set", action="store_true", dest="only_set", help="only what differs from the defaults")
    add_json(show)
    parser.add_command("path", _show_paths, "Show where files are.", "dragoman config path")


def _show_config(arguments: argparse.Namespace, terminal: Terminal) -> None:
    explained = load_config(profile=arguments.profile).explain()
    rows = Explanation(row for row in explained if not (arguments.only_set and row.origin == "default"))
    if arguments.json:
        print_json(terminal, rows)
    else:
        terminal.line(str(rows) if rows else "Nothing is set; all defaults apply.")


def _show_paths(_arguments: argparse.Namespace, terminal: Terminal) -> None:
    named = os.environ.get("DRAGOMAN_CONFIG", "").strip()
    path = expand_path(named) if named else user_file()
    also = [("also read", file) for file in load_config().files if file != path]
    own = [("cache", cache_directory()), ("state", state_directory())]
    for name, place in [("configuration", path), *also, ("keys", keys_file()), ("conversations", store_path()), *own]:
        terminal.line(f"{name:<13}  {place}")


# --- doctor -----------------------------------------------------------------------------------------------------------

_SECONDS: Final = 5.0
_EXTRAS: Final = {
    "cli": (("rich", "prompt_toolkit", "shtab"), "editing, history and Markdown in the chat, and completion"),
    "keyring": (("keyring",), "keys in the system's keychain"),
    "mcp": (("mcp",), "MCP servers"),
    "web": (("starlette", "uvicorn"), "the page in the browser"),
}


class Finding(Struct, frozen=True):
    """The result of one check."""

    state: Literal["ok", "note", "wrong"]
    about: str
    text: str
    fix: str = ""


def declare_doctor(parser: Parser) -> None:
    about = "Check versions, configuration, keys, network, MCP servers, store and model; say what to do."
    parser.describe(_run_checks, about, "dragoman doctor", "dragoman doctor -m openai:gpt-5 --offline")
    parser.add_argument("-m", "--model", metavar="MODEL", help="by default the configured one")
    add_profile(parser)
    parser.add_argument("--offline", action="store_true", help="do not use the network")
    add_json(parser)


def _run_checks(arguments: argparse.Namespace, terminal: Terminal) -> int:
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
        loaded = load_config(profile=arguments.profile, model=arguments.model and clean_models(arguments.model))
        settings = read_settings(loaded)
        loaded = settle_model(loaded, terminal)
    except DragomanError as error:
        yield Finding("wrong", "configuration", *describe(error))
    else:
        files = ", ".join(map(str, loaded.files)) or "no files"
        yield Finding("ok", "configuration", f"{files}; the model is {', then '.join(loaded.config.model_names)}")
        for provider in dict.fromkeys([name.partition(":")[0] for name in loaded.config.model_names]):
            yield _guard("key", partial(_check_key, provider=provider, loaded=loaded))
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


def _check_key(about: str, provider: str, loaded: LoadedConfig) -> Finding:
    found = find_key(provider, token=loaded.config.token, keys=loaded.config.keys)
    if found is None:
        row = PROVIDERS.get(provider)
        is_cloud = row is not None and row.cloud is not None
        text = f"the identity of this machine, for {provider}" if is_cloud else f"none is needed for {provider}"
        return Finding("ok", about, text)
    return Finding("ok", about, f"{found.secret.masked} for {provider}, from {found.origin}")


def _check_network(about: str, loaded: LoadedConfig) -> Finding:
    row = PROVIDERS.get(loaded.config.provider_name)
    url = loaded.config.base_url or (row.base_url if row is not None else "")
    if not url and row is not None and row.cloud is not None:
        return Finding("note", about, "not tried: the address depends on region, project or resource")
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
    """Connect to an MCP server of the configuration, and list its tools."""
    with settings.open_servers(name) as servers:
        found = "; ".join([f"{len(servers[name])} tools", *map(str, servers.problems)])
        return Finding("note" if servers.problems else "ok", about, found)


def _check_store(about: str) -> Finding:
    with open_store() as store:
        page = store.list(limit=1000)
    if page.unreadable:
        text = f"{store_path()}: {len(page.unreadable)} conversations cannot be read"
        return Finding("wrong", about, text, "They were left untouched; see docs/stores.md.")
    return Finding("ok", about, f"{store_path()}: {len(page.items)}{'+' if page.cursor else ''} conversations")


def _check_local(about: str) -> Finding:
    if not can_run_local():
        return Finding("note", about, "not installed", f"For a model without a key: {LOCAL_INSTALL}")
    if here := [f"local:{model.name}" for model in models() if model.present]:
        return Finding("ok", about, ", ".join(here))
    fix = "It is downloaded when first needed, or now with: dragoman local pull"
    return Finding("note", about, "none downloaded yet", fix)


# --- completion -------------------------------------------------------------------------------------------------------

SHELLS: Final = ("bash", "zsh", "fish")


def declare_completion(parser: Parser) -> None:
    examples = ('eval "$(dragoman completion bash)"', "dragoman completion fish | source")
    parser.describe(_print_completion, "Print a completion script.", *examples)
    parser.add_argument("shell", choices=SHELLS, help="the shell to print it for")


def _print_completion(arguments: argparse.Namespace, terminal: Terminal) -> None:
    if find_spec("shtab") is None:
        raise UsageError("Completion needs shtab, which is not installed.", hint="pip install 'dragoman[cli]'")
    import shtab

    root = Parser("dragoman")  # with every command in it
    for name, about in COMMANDS.items():
        load_command(name, root.add_group(name, about))
    add_asking(root)  # last, since the first word completes to a command
    terminal.answer(shtab.complete(root, arguments.shell) + "\n")
