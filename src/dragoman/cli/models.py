"""`dragoman models`: which models there are and what they can do; `dragoman local`: the models on this machine.

Servers on this machine, the configured one, and those with a key are asked for their models. For other providers, only
names that surely exist are shown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from dragoman._decoding import decode_as
from dragoman._stepping import step
from dragoman.chat import Config, find_key, load_config
from dragoman.engines import (
    MODELS,
    ModelServer,
    Secret,
    StoredModel,
    bar_if_terminal,
    may_go,
    model_named,
    models,
    pull,
    remove,
    running_models,
    stop_models,
)
from dragoman.errors import ConfigurationError, DragomanError, MissingKeyError
from dragoman.providers import PROFILES, PROVIDERS, Prices, Profile, Provider, prices_of, profile_of, window_of
from dragoman.transport import HttpRequest, SocketTransport, Timeouts, host_of, is_loopback, validate_base_url

from .arguments import Parser, add_json
from .failures import list_models
from .output import print_list
from .terminal import Terminal

_QUICKLY: Final = Timeouts(connect=2.0, read=5.0, total=10.0)
_COLUMNS: Final = {
    "model": "model",
    "key": "key",
    "tools": "tools",
    "JSON": "structured",
    "thinking": "reasoning",
    "window": "context_window",
    "$ in/out": "prices",
    "takes": "media",
}
"""The columns of the list, and the fields in them."""
_PATHS: Final = {"anthropic": "/v1/models?limit=1000", "gemini": "/v1beta/models?pageSize=1000"}


def declare_models(parser: Parser) -> None:
    parser.default = "list"
    examples = ("dragoman models list claude", "dragoman models list --json --offline")
    listing = parser.add_command("list", _list, "List models and what they can do.", *examples)
    listing.add_argument("word", nargs="?", default="", help="only names that contain this")
    listing.add_argument("--offline", action="store_true", help="do not ask servers which models they have")
    add_json(listing)


def _list(arguments: argparse.Namespace, terminal: Terminal) -> None:
    config, word = load_config().config, arguments.word.lower()
    found = [row for row in _describe_models(config, terminal, arguments.offline) if word in str(row["model"]).lower()]
    print_list(
        terminal,
        found,
        lambda row: {column: _format(row[field]) for column, field in _COLUMNS.items()},
        as_json=arguments.json,
    )


def _format(value: object) -> str:
    if isinstance(value, Prices):
        return f"{value.input:g}/{value.output:g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else "-" if value in (None, "none", "") else str(value)


def _describe_models(config: Config, terminal: Terminal, offline: bool) -> Iterator[dict[str, object]]:
    services = [_find_service(row, config) for row in PROVIDERS.values() if row.chat]
    answers = {} if offline else _ask(services, terminal)
    for service in services:
        provider, names = service.provider.name, answers.get(service.url, [])
        for model in names or list_models(provider) or ["…"]:
            listed = "server" if names else "catalogue"
            yield _describe(profile_of(provider, model), model, service.key_state, listed)
    yield _describe(PROFILES["claude-local"], "…", "not needed", "catalogue")
    for row in [each for each in MODELS.values() if not each.embeds]:
        yield {**_describe(PROFILES["local"], row.name, "not needed", "catalogue"), "tools": row.tools}


def _describe(profile: Profile, model: str, key: str, listed: str) -> dict[str, object]:
    return {
        "model": f"{profile.provider}:{model}",
        "key": key,
        "tools": profile.tools,
        "structured": profile.structured,
        "reasoning": profile.reasoning,
        "media": ", ".join(sorted(profile.media)),
        "context_window": profile.context_window or window_of(profile.provider, model),
        "prices": prices_of(profile.provider, model, time=datetime.now(UTC)),
        "max_output": profile.max_output,
        "from": listed,
    }


# --- asking servers ---------------------------------------------------------------------------------------------------


class _Listing(Struct):
    """A server's response: OpenAI and Anthropic list `data` with `id`, Gemini `models` with `name`."""

    data: list[dict[str, object]] = []
    models: list[dict[str, object]] = []


class _Service(Struct, frozen=True, kw_only=True):
    """A provider, its address and its key."""

    provider: Provider
    url: str
    key: Secret | None
    key_state: str

    @property
    def can_be_asked(self) -> bool:
        if not self.url:
            return False
        return is_loopback(host_of(self.url)) if self.key is None else may_go(self.key, self.url)


def _find_service(row: Provider, config: Config) -> _Service:
    url, key, state = row.base_url, None, "-"
    try:
        is_chosen = config.provider_name == row.name
        url = (is_chosen and config.base_url) or url
        found = config.key() if is_chosen else find_key(row.name, keys=config.keys)
        unneeded = "identity" if row.cloud is not None else "not needed"
        key, state = (None, unneeded) if found is None else (found.secret, "set")
    except MissingKeyError:
        pass
    except ConfigurationError:  # the keychain is locked, or the configured model does not exist
        state = "locked"
    # Only code can provide a generated key, and this is a command.
    return _Service(provider=row, url=url, key=key if isinstance(key, Secret) else None, key_state=state)


def _ask(services: Iterable[_Service], terminal: Terminal) -> dict[str, list[str]]:
    """The models of the servers, by address; all are asked at the same time."""
    asked = {service.url: service for service in reversed(list(services)) if service.can_be_asked}
    with ThreadPoolExecutor(len(asked) or 1) as threads:
        answers = {url: threads.submit(_fetch_names, service) for url, service in asked.items()}
    found: dict[str, list[str]] = {}
    for url, answer in answers.items():
        try:
            found[url] = answer.result()
        except (DragomanError, ValueError, msgspec.MsgspecError) as error:
            if not is_loopback(host_of(url)):  # nothing to report: it is just not running
                terminal.note(f"dragoman: {host_of(url)} did not list its models: {error}", "yellow")
    return found


def _fetch_names(service: _Service) -> list[str]:
    row = service.provider
    validate_base_url(service.url)
    headers = {"anthropic-version": "2023-06-01"} if row.dialect == "anthropic" else {}
    if service.key is not None:
        bearer = "Bearer " if row.key_header == "authorization" else ""
        headers[row.key_header] = bearer + service.key.reveal()
    url = service.url.rstrip("/") + _PATHS.get(row.dialect, "/models")

    async def fetch() -> tuple[int, bytes]:
        response = await transport.open(HttpRequest(url=url, method="GET", headers=headers, timeout=_QUICKLY))
        return response.status, await response.read(10_000_000)

    with SocketTransport() as transport:
        status, body = step(fetch())
    if status != 200:
        raise ValueError(f"it answered {status}.")
    listing = decode_as(body, _Listing)
    names = {str(each.get("id") or each.get("name") or "") for each in (*listing.data, *listing.models)}
    return sorted({name.removeprefix("models/") for name in names} - {""})


# --- the models on this machine ---------------------------------------------------------------------------------------


def declare_local(parser: Parser) -> None:
    parser.default = "list"
    add_json(
        parser.add_command("list", _list_local, "List local models and whether they are here.", "dragoman local list")
    )
    about = "Download a model, and print its path. DRAGOMAN_MODEL_DIR is the directory."
    fetch = parser.add_command("pull", _pull_local, about, "dragoman local pull", "dragoman local pull smollm2-135m")
    named = "its name (see dragoman local list); by default the default model"
    fetch.add_argument("model", nargs="?", default="", help=named)
    about = "Remove a model's file."
    delete = parser.add_command("remove", _remove_local, about, "dragoman local remove smollm2-135m")
    delete.add_argument("model", help="its name (see dragoman local list)")
    about = "Show the models that are loaded. DRAGOMAN_LOCAL_IDLE says for how many seconds one is kept."
    add_json(parser.add_command("status", _status_local, about, "dragoman local status"))
    parser.add_command("stop", _stop_local, "Unload the models that are loaded.", "dragoman local stop")


def _list_local(arguments: argparse.Namespace, terminal: Terminal) -> None:
    found = models()
    print_list(terminal, found, _show_local, as_json=arguments.json)
    terminal.note(f"Models are in {found[0].path.parent} (set DRAGOMAN_MODEL_DIR to change that).")


def _show_local(model: StoredModel) -> dict[str, object]:
    part = f"{100 * model.fetched // model.size} % here" if model.fetched else "not downloaded"
    return {
        "model": f"local:{model.name}{' (default)' if model.default else ''}",
        "size": _format_size(model.size),
        "state": "here" if model.present else part,
        "about": model.about,
    }


def _format_size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _pull_local(arguments: argparse.Namespace, terminal: Terminal) -> None:
    name = model_named(arguments.model.removeprefix("local:")).name
    model = next(model for model in models() if model.name == name)
    if not model.present:
        terminal.note(f"dragoman: downloading local:{name} ({_format_size(model.download)}).")
    terminal.line(str(pull(name, bar_if_terminal(terminal.stderr))))


def _remove_local(arguments: argparse.Namespace, terminal: Terminal) -> None:
    freed = remove(arguments.model.removeprefix("local:"))
    terminal.say(f"Freed {freed / 1e6:,.0f} MB." if freed else "It was not on this machine.")


def _status_local(arguments: argparse.Namespace, terminal: Terminal) -> None:
    loaded = [{"model": _name_of(each), "pid": each.pid, "context": each.context} for each in running_models()]
    print_list(terminal, loaded, dict, as_json=arguments.json, otherwise="No model is loaded. The next call loads one.")


def _stop_local(_arguments: argparse.Namespace, terminal: Terminal) -> None:
    ended = stop_models()
    for each in ended:
        terminal.line(f"Unloaded {_name_of(each)}.")
    if not ended:
        terminal.say("No model was loaded.")


def _name_of(server: ModelServer) -> str:
    names = [model.name for model in models() if str(model.path) == server.model]
    return f"local:{names[0] if names else server.model}"
