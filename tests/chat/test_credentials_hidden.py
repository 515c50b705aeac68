"""A key is never shown: not in texts, logs, tapes, pickles or copies, nor when a server repeats it."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import pprint
import traceback
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from rich.pretty import pretty_repr

from dragoman import engine, errors
from dragoman.chat import Config, KeyReference, find_key, load_config
from dragoman.engines import Secret
from dragoman.engines.keys import without_keys
from dragoman.providers import ModelOptions
from dragoman.simulator import ErrorEvent, Reply, Simulator, Status
from dragoman.transport import RetryPolicy, SocketTransport, Tape
from dragoman.transport.tape import SecretFoundError
from tests.chat.test_newcomer_errors import ASKED, MODELS, Body

KEY = "qx7-Zr/4T+w0vN2m9Kc8"
"""Unlike any provider's keys, so that no pattern can help."""
ONCE = RetryPolicy(max_attempts=1)


def shows(value: object) -> bool:
    texts = (str(value), repr(value), f"{value}", pprint.pformat(value), f"{[value]} { {'a': value} }")
    texts += (pretty_repr(value),)  # what rich shows in tracebacks
    return any(KEY in text for text in texts)


@pytest.mark.parametrize(
    "value",
    [
        Secret(KEY),
        Config(token=KEY),
        Config(token=Secret(KEY)),
        Config(keys={"openai": KeyReference(key=Secret(KEY))}),
        Config(headers={"authorization": KEY}),
        KeyReference(key=Secret(KEY)),
        find_key("openai", token=KEY),
        Config(token=KEY).for_engine(),
        load_config(token=KEY, provider="openai", environment={"HOME": "/nowhere"}, directory="/"),
        load_config(token=KEY, environment={"HOME": "/nowhere"}, directory="/").known,
        load_config(token=KEY, environment={"HOME": "/nowhere"}, directory="/").layers,
        load_config(token=KEY, environment={"HOME": "/nowhere"}, directory="/").explain(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_with_a_key_do_not_print_it(value: object) -> None:
    assert not shows(value)


@pytest.mark.filterwarnings("ignore::dragoman.chat.ConfigWarning")
def test_files_headers_and_addresses_do_not_print_keys(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'[keys.openai]\nkey = "{KEY}"\n[mcp.servers.a]\ncommand = "a"\nenv = {{ K = "{KEY}" }}\n')
    loaded = load_config(
        file=file,
        environment={"HOME": "/nowhere"},
        provider="openai",
        headers={"x-team": KEY},
        base_url=f"https://proxy.test/v1?key={KEY}",
        options=ModelOptions(extra_headers={"x-team": KEY}),
    )
    for value in (loaded, loaded.config, loaded.config.options, loaded.known, loaded.layers, loaded.explain()):
        assert not shows(value), type(value)


@pytest.mark.parametrize("value", [Secret(KEY), Config(token=KEY), Config(token=KEY).for_engine()], ids=["a", "b", "c"])
def test_values_with_a_key_cannot_be_serialised(value: object) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(value, protocol)
    with pytest.raises((TypeError, NotImplementedError)):
        msgspec.json.encode(value)
    with pytest.raises(TypeError):
        json.dumps(value)
    with pytest.raises(TypeError):
        Secret(KEY).__getstate__()


def test_a_copy_is_the_secret_itself() -> None:
    secret = Secret(KEY, hosts=["a.test"])
    assert copy.copy(secret) is secret
    assert copy.deepcopy([secret])[0] is secret
    assert (secret.masked, secret.reveal()) == ("…9Kc8", KEY)
    assert Secret(KEY) == Secret(KEY) != Secret("other")
    assert len({Secret(KEY), Secret(KEY)}) == 1
    assert Secret("short-key").masked == "…"
    assert not Secret("")


# --- what a server says -----------------------------------------------------------------------------------------------

ECHOES = {
    "as it is": f"Your key {KEY} is wrong.",
    "in an address": f"GET /v1?key={quote(KEY, safe='')} is wrong.",
    "as a header": f"authorization: Bearer {KEY}",
    "cut off": "x" * 985 + KEY,
}


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES.keys())
def test_a_key_repeated_by_a_server_is_removed(provider: str, echo: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body = json.dumps({"error": {"message": echo, "code": KEY, "type": KEY}}).encode()
    with Simulator([Body(401, body)]) as simulator:
        options = {"key": KEY, "base_url": simulator.base_url(provider), "retry": ONCE}
        with engine(MODELS[provider][0], **options) as asked, pytest.raises(errors.ProviderError) as caught:  # type: ignore[arg-type]
            asked.reply(ASKED)
    error = caught.value
    seen = f"{error} {error!r} {error.args} {vars(error)} {''.join(traceback.format_exception(error))} {caplog.text}"
    assert KEY not in seen
    assert quote(KEY, safe="") not in seen
    assert KEY[:10] not in seen
    assert KEY not in str(pickle.dumps(error))
    if "cut" not in echo and len(echo) < 900:
        assert "[key]" in error.message


@pytest.mark.parametrize("provider", MODELS)
def test_a_key_repeated_in_a_stream_is_removed(provider: str) -> None:
    with Simulator([Reply("Some words", faults=[ErrorEvent(message=f"{KEY} has expired")])]) as simulator:
        options = {"key": KEY, "base_url": simulator.base_url(provider), "retry": ONCE}
        with engine(MODELS[provider][0], **options) as asked, asked.stream(ASKED) as stream:  # type: ignore[arg-type]
            events: list[object] = []
            with pytest.raises(errors.ProviderError) as caught:
                events.extend(stream)
        assert KEY not in f"{caught.value} {vars(caught.value)} {events} {stream.reply}"


def test_texts_without_a_key_are_unchanged() -> None:
    error = errors.ProviderError("The key is wrong, dear any.", hint="Do it.", code="any", request_id="r")
    without_keys(error, {"authorization": "Bearer any", "accept": "The key is wrong"})
    assert str(error) == "The key is wrong, dear any. Do it."
    without_keys(error, {"x-api-key": "wrong"})
    assert str(error) == "The key is [key], dear any. Do it."


# --- where it must not go ---------------------------------------------------------------------------------------------


def test_a_redirect_is_not_followed() -> None:
    with Simulator(["Mine now."]) as thief:
        target = f"{thief.base_url('openai')}/chat/completions"
        with Simulator([Status(307, headers={"location": target})]) as simulator:
            options = {"key": KEY, "base_url": simulator.base_url("openai"), "retry": ONCE}
            with engine("openai:gpt-4o", **options) as asked, pytest.raises(errors.ProtocolError) as caught:  # type: ignore[arg-type]
                asked.reply(ASKED)
            assert len(simulator.requests) == 1
        assert thief.requests == ()
    assert caught.value.code == "redirect"
    assert "not followed: the key would travel along" in caught.value.message
    assert KEY not in str(caught.value)


def test_a_tape_does_not_contain_it(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "tape.jsonl", mode="record")
    echo = f'{{"error": {{"message": "{KEY} is wrong"}}}}'.encode()
    with Simulator(["Hello.", Body(401, echo), "And again."]) as simulator:
        transport = tape.transport(SocketTransport)
        options = {"key": KEY, "base_url": simulator.base_url("openai"), "retry": ONCE, "transport": transport}
        with engine("openai:gpt-4o", **options) as asked:  # type: ignore[arg-type]
            asked.reply(ASKED)
            with pytest.raises(SecretFoundError, match="refuses to record") as caught:
                asked.reply(ASKED)
            asked.reply(ASKED)
    assert KEY not in str(caught.value)
    assert len(tape.exchanges) == 2
    assert KEY not in tape.path.read_text()
