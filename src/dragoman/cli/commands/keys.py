"""`dragoman keys`: store, list and remove API keys.

A key is typed where nobody sees it, or piped in; as an argument it would be seen by everybody who lists processes, and
kept in the shell's history.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from dragoman.cli.arguments import Command, Group, Parser, UsageError

if TYPE_CHECKING:
    from dragoman.chat.credentials import StoredKey
    from dragoman.cli.terminal import Terminal

__all__ = ["GROUP"]


def _set_arguments(parser: Parser) -> None:
    parser.add_argument("provider", help="such as openai, anthropic or gemini")
    parser.add_argument("rest", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--store", choices=("keychain", "file"), help="where; by default the keychain, if there is one")


def _set(arguments: argparse.Namespace, terminal: Terminal) -> int:
    if arguments.rest:
        message = "A key does not belong on the command line, where others can see it."
        raise UsageError(message, hint=f"Run `dragoman keys set {arguments.provider}` and paste it, or pipe it in.")
    _check_provider(arguments.provider)
    key = _read_key(arguments.provider, terminal)
    if key.split() != [key]:
        message = f"This is not a key for {arguments.provider}: it is empty, or has spaces in it."
        raise UsageError(message, hint="Copy it again, without anything around it.")
    stored = _stored(arguments.provider, key, arguments.store, terminal)
    terminal.say(f"The key {stored.masked} for {stored.provider} is in the {stored.store} ({stored.place}).")
    return 0


def _check_provider(name: str) -> None:
    """Before a key is asked for."""
    from dragoman.engines.factory import is_registered
    from dragoman.providers.catalogue import provider_of

    if not is_registered(name):
        provider_of(name)


def _read_key(provider: str, terminal: Terminal) -> str:
    if not terminal.in_is_tty:
        return "" if terminal.stdin is None else terminal.stdin.read().strip()
    import getpass

    try:
        return getpass.getpass(f"Key for {provider}: ", terminal.stderr).strip()
    except EOFError:
        return ""


def _stored(provider: str, key: str, store: str | None, terminal: Terminal) -> StoredKey:
    from dragoman.chat.credentials import store_key
    from dragoman.errors import KeychainError

    if store == "file":
        return store_key(provider, key, store="file")
    try:
        return store_key(provider, key, store="keychain")
    except KeychainError as error:
        if store == "keychain" or error.reason not in ("not_installed", "no_backend"):
            raise
        terminal.note(f"dragoman: {error.message} The key goes into a file that only you can read.", "yellow")
        return store_key(provider, key, store="file")


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    import os

    from dragoman.chat.credentials import list_keys
    from dragoman.cli.tables import print_json, print_table
    from dragoman.cli.warning_lines import warnings_as_lines
    from dragoman.engines.keys import Secret
    from dragoman.providers.catalogue import PROVIDERS

    with warnings_as_lines(terminal):
        rows = [(key.provider, key.masked, f"{key.store} ({key.place})") for key in list_keys()]
    for provider in PROVIDERS.values():
        rows += [
            (provider.name, Secret(value).masked, f"environment variable {name}")
            for name in provider.key_variables
            if (value := os.environ.get(name))
        ]
    if arguments.json:
        print_json(terminal, [dict(zip(("provider", "key", "place"), row, strict=True)) for row in rows])
    elif rows:
        print_table(terminal, ("provider", "key", "where"), rows)
    else:
        terminal.say("There are no keys. Store one with: dragoman keys set openai")
    return 0


def _remove_arguments(parser: Parser) -> None:
    parser.add_argument("provider", help="whose stored key is forgotten")


def _remove(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.chat.credentials import delete_key

    if not delete_key(arguments.provider):
        message = f"No key is stored for {arguments.provider}."
        raise UsageError(message, hint="See dragoman keys list; what a variable says is not stored.")
    terminal.say(f"The stored key for {arguments.provider} is forgotten.")
    return 0


GROUP: Final = Group(
    "keys",
    {
        "set": Command(
            "Store a key in the keychain, or in a file that only you can read.",
            _set,
            _set_arguments,
            ("dragoman keys set openai", "pass show openai | dragoman keys set openai --store file"),
        ),
        "list": Command("List keys, masked, and where they are.", _list, _list_arguments, ("dragoman keys list",)),
        "remove": Command("Forget a stored key.", _remove, _remove_arguments, ("dragoman keys remove openai",)),
    },
    default="list",
)
