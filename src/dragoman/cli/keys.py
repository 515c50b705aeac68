"""`dragoman keys`: store, list and remove API keys.

A key is typed where nobody sees it, or piped in; as an argument it would be seen by everybody who lists processes, and
kept in the shell's history.
"""

from __future__ import annotations

import argparse
import getpass
import os
from contextlib import suppress

from dragoman.chat import delete_key, list_keys, resolve_provider, store_key
from dragoman.engines import Secret
from dragoman.errors import KeychainError
from dragoman.providers import PROVIDERS

from .arguments import Parser, UsageError, add_json
from .output import print_list
from .terminal import Terminal


def declare(parser: Parser) -> None:
    """The commands about keys."""
    parser.default = "list"
    about = "Store a key in the keychain, or in a file that only you can read."
    examples = ("dragoman keys set openai", "pass show openai | dragoman keys set openai --store file")
    store = parser.add_command("set", _set, about, *examples)
    store.add_argument("provider", help="such as openai, anthropic or gemini")
    store.add_argument("rest", nargs="?", help=argparse.SUPPRESS)
    store.add_argument("--store", choices=("keychain", "file"), help="where; by default the keychain, if there is one")
    add_json(parser.add_command("list", _list, "List keys, masked, and where they are.", "dragoman keys list"))
    remove = parser.add_command("remove", _remove, "Forget a stored key.", "dragoman keys remove openai")
    remove.add_argument("provider", help="whose stored key is forgotten")


def _set(arguments: argparse.Namespace, terminal: Terminal) -> int:
    if arguments.rest:
        message = "A key does not belong on the command line, where others can see it."
        raise UsageError(message, hint=f"Run `dragoman keys set {arguments.provider}` and paste it, or pipe it in.")
    provider = resolve_provider(arguments.provider)  # before a key is asked for
    key = ""
    if terminal.in_is_tty:
        with suppress(EOFError):
            key = getpass.getpass(f"Key for {provider}: ", terminal.stderr).strip()
    elif terminal.stdin is not None:
        key = terminal.stdin.read().strip()
    if key.split() != [key]:
        message = f"This is not a key for {provider}: it is empty, or has spaces in it."
        raise UsageError(message, hint="Copy it again, without anything around it.")
    wanted = arguments.store or "keychain"
    try:
        stored = store_key(provider, key, store=wanted)
    except KeychainError as error:
        if arguments.store or error.reason not in ("not_installed", "no_backend"):
            raise
        terminal.note(f"dragoman: {error.message} The key goes into a file that only you can read.", "yellow")
        stored = store_key(provider, key, store="file")
    terminal.say(f"The key {stored.masked} for {stored.provider} is in the {stored.store} ({stored.place}).")
    return 0


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
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
    return 0


def _remove(arguments: argparse.Namespace, terminal: Terminal) -> int:
    if not delete_key(arguments.provider):
        message = f"No key is stored for {arguments.provider}."
        raise UsageError(message, hint="See dragoman keys list; what a variable says is not stored.")
    terminal.say(f"The stored key for {arguments.provider} is forgotten.")
    return 0
