"""Where keys are found, in which order, and where they may go."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import engine
from dragoman.chat import Config, ConfigWarning, KeyReference, delete_key, find_key, keys_file, list_keys, store_key
from dragoman.engines import Secret
from dragoman.engines.keys import child_environment, may_go
from dragoman.errors import ConfigFileError, ConfigurationError, KeychainError, MissingKeyError

keyring = pytest.importorskip("keyring")
keyring_errors = pytest.importorskip("keyring.errors")

KEY = "sk-a-0123456789abcdefghij"


class InMemory(keyring.backend.KeyringBackend):
    """A real backend, which keeps its entries in memory; it can be locked, and can refuse."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}
        self.trouble: Exception | None = None

    def get_password(self, service: str, username: str) -> str | None:
        if self.trouble is not None:
            raise self.trouble
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[service, username]


@pytest.fixture
def keychain() -> Iterator[InMemory]:
    before = keyring.get_keyring()
    backend = InMemory()
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}


def found(environ: dict[str, str], provider: str = "openai", **more: object) -> tuple[str, str]:
    key = find_key(provider, environ=environ, **more)  # type: ignore[arg-type]
    assert key is not None
    return key.secret.reveal(), key.origin


def test_places_are_tried_in_order(environ: dict[str, str], keychain: InMemory) -> None:
    keychain.entries["team", "ai"] = "from the keychain"
    environ |= {"MY_KEY": "from my variable", "OPENAI_API_KEY": "from the usual variable"}
    said = {
        "env": "MY_KEY",
        "keychain": "team/ai",
        "key": Secret("from the file"),
        "origin": "config.toml, line 3",
    }

    def find(*without: str, token: str | None = None) -> tuple[str, str]:
        kept = {name: value for name, value in said.items() if name not in without}
        return found(environ, token=token, keys={"openai": KeyReference(**kept)})  # type: ignore[arg-type]

    assert find(token="given") == ("given", "the argument token")
    assert find() == ("from my variable", "the environment variable MY_KEY (named by config.toml, line 3)")
    assert find("env") == ("from the keychain", "the keychain entry 'team/ai' (named by config.toml, line 3)")
    assert find("env", "keychain") == ("from the file", "config.toml, line 3")
    assert find("env", "keychain", "key") == ("from the usual variable", "the environment variable OPENAI_API_KEY")
    del environ["MY_KEY"]
    assert find()[0] == "from the keychain", "a variable that is not set is passed over"
    keychain.entries.clear()
    assert find()[0] == "from the file", "and so is an entry that is not there"


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("openai", ["OPENAI_API_KEY"]),
        ("claude", ["ANTHROPIC_API_KEY"]),
        ("gemini", ["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
        ("huggingface", ["HF_TOKEN"]),
        ("openai-compatible", ["OPENAI_COMPATIBLE_API_KEY"]),
    ],
)
def test_well_known_variables(environ: dict[str, str], provider: str, variables: list[str]) -> None:
    for variable in reversed(variables):
        environ[variable] = f"from {variable}"
        assert found(environ, provider) == (f"from {variable}", f"the environment variable {variable}")


def test_a_missing_key_lists_every_place_and_the_fix(
    environ: dict[str, str], keychain: InMemory, tmp_path: Path
) -> None:
    keys = {"gemini": KeyReference(env="MY_KEY", keychain="team/ai", origin="config.toml, line 3")}
    environ["GEMINI_API_KEY"] = ""
    with pytest.raises(MissingKeyError) as caught:
        find_key("google", keys=keys, environ=environ)
    error = caught.value
    assert error.places == (
        "the argument token",
        "the environment variable MY_KEY (named by config.toml, line 3)",
        "the keychain entry 'team/ai' (named by config.toml, line 3)",
        f"the stored keys ({tmp_path / 'dragoman' / 'keys.toml'})",
        "the environment variable GEMINI_API_KEY",
        "the environment variable GOOGLE_API_KEY",
    )
    assert error.message == "There is no key for gemini."
    assert error.hint.startswith("Set GEMINI_API_KEY, or give the key as an argument.")
    assert all(place in error.hint for place in error.places)
    assert error.hint.endswith("Or use the local model, which needs no key: local:")
    with pytest.raises(MissingKeyError, match=r"\[keys.openai\] of the configuration"):
        find_key("openai", environ=environ)
    assert find_key("ollama", environ=environ) is None
    assert find_key("a-third-party", environ=environ) is None


def test_services_that_share_a_key_find_it_under_either_name(environ: dict[str, str]) -> None:
    environ["MY_KEY"] = "mine"
    keys = {"openai": KeyReference(env="MY_KEY")}
    assert found(environ, "openai-responses", keys=keys)[0] == "mine"
    keys["openai-responses"] = KeyReference(key=Secret("its own"))
    assert found(environ, "openai-responses", keys=keys)[0] == "its own"
    with pytest.raises(MissingKeyError):
        find_key("groq", keys=keys, environ=environ)


# --- the keychain -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "reason", "says"),
    [
        (keyring_errors.KeyringLocked("sk-1"), "locked", "is locked.*Unlock it"),
        (keyring_errors.NoKeyringError("sk-1"), "no_backend", "no usable keychain.*gnome-keyring"),
        (RuntimeError("sk-1"), "failed", "failed.*RuntimeError"),
    ],
)
def test_keychain_errors(
    environ: dict[str, str], keychain: InMemory, trouble: Exception, reason: str, says: str
) -> None:
    keychain.trouble = trouble
    environ["OPENAI_API_KEY"] = "another account's"
    with pytest.raises(KeychainError, match=says) as caught:
        find_key("openai", keys={"openai": KeyReference(keychain="x")}, environ=environ)
    assert caught.value.reason == reason
    assert "environment variable" in caught.value.hint
    assert "sk-1" not in str(caught.value)
    with pytest.raises(KeychainError):
        store_key("openai", KEY, environ=environ)
    assert list_keys(environ=environ) == ()


def test_without_the_library_the_extra_is_named(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(KeychainError, match="pip install 'dragoman.keyring.'") as caught:
        find_key("openai", keys={"openai": KeyReference(keychain="x")}, environ=environ)
    assert caught.value.reason == "not_installed"
    environ["OPENAI_API_KEY"] = KEY
    assert found(environ)[0] == KEY, "who does not use it does not need it"


def test_names_of_keychain_entries(environ: dict[str, str], keychain: InMemory) -> None:
    keychain.entries |= {("dragoman", "me"): "mine", ("a/b", "me"): "another"}
    for entry, secret in (("me", "mine"), ("a/b/me", "another")):  # without a service it is ours
        assert found(environ, keys={"openai": KeyReference(keychain=entry)})[0] == secret
    for entry in ("/", "service/", "/user", " / "):
        with pytest.raises(KeychainError, match="does not name an entry"):
            find_key("openai", keys={"openai": KeyReference(keychain=entry)}, environ=environ)


def test_keyring_is_imported_only_if_needed() -> None:
    code = (
        "import sys; from dragoman.chat.credentials import find_key; from dragoman.chat import load_config;"
        "load_config(); find_key('openai', environ={'HOME': '/nowhere', 'OPENAI_API_KEY': 'k'});"
        "assert 'keyring' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/", env={**os.environ, "HOME": "/nowhere"})


# --- stored keys ------------------------------------------------------------------------------------------------------


def test_a_key_can_be_stored_in_the_keychain(environ: dict[str, str], keychain: InMemory) -> None:
    stored = store_key("claude", KEY, environ=environ)
    assert (stored.provider, stored.store, stored.place) == ("anthropic", "keychain", "dragoman/anthropic")
    assert keychain.entries == {("dragoman", "anthropic"): KEY}
    assert KEY not in keys_file(environ).read_text()
    assert found(environ, "anthropic")[0] == KEY
    keychain.trouble = keyring_errors.KeyringLocked()
    [listed] = list_keys(environ=environ)  # without asking the keychain
    assert (listed.provider, listed.masked) == ("anthropic", "…")
    keychain.trouble = None
    assert delete_key("claude", environ=environ)
    assert keychain.entries == {}
    assert not delete_key("claude", environ=environ)
    assert list_keys(environ=environ) == ()


def test_a_key_can_be_stored_in_a_private_file(environ: dict[str, str]) -> None:
    store_key("openai", Secret("sk-old-0123456789"), store="file", environ=environ)
    stored = store_key("openai", KEY, store="file", environ=environ)
    store_key("groq", 'gsk_"odd\\key', store="file", environ=environ)
    path = keys_file(environ)
    assert stored.masked == "…ghij"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert tomllib.loads(path.read_text()) == {"groq": {"key": 'gsk_"odd\\key'}, "openai": {"key": KEY}}
    assert found(environ) == (KEY, f"{path}, line 7")
    assert [(key.provider, key.store, key.masked) for key in list_keys(environ=environ)] == [
        ("groq", "file", "…"),
        ("openai", "file", "…ghij"),
    ]
    assert KEY not in repr(list_keys(environ=environ))
    assert delete_key("openai", environ=environ)
    assert [key.provider for key in list_keys(environ=environ)] == ["groq"]
    assert sorted(name.name for name in path.parent.iterdir()) == ["keys.lock", "keys.toml"], "nothing is left behind"


@pytest.mark.parametrize("key", ["", " ", "with blank ", "line\nend", "schlüssel", "a\x00b"])
def test_an_invalid_key_is_not_stored(environ: dict[str, str], keychain: InMemory, key: str) -> None:
    for store in ("keychain", "file"):
        with pytest.raises(ConfigurationError, match="Copy it again") as caught:
            store_key("openai", key, store=store, environ=environ)  # type: ignore[arg-type]
        assert not key.strip() or key.strip() not in str(caught.value)
    with pytest.raises(ConfigurationError, match="no provider 'opnai'"):
        store_key("opnai", KEY, environ=environ)
    assert keychain.entries == {}


def test_stored_keys_that_others_can_read_cause_a_warning(environ: dict[str, str]) -> None:
    store_key("openai", KEY, store="file", environ=environ)
    keys_file(environ).chmod(0o644)
    with pytest.warns(ConfigWarning, match="chmod 600") as caught:
        list_keys(environ=environ)
    assert KEY not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store_key("groq", KEY, store="file", environ=environ)
    assert keys_file(environ).stat().st_mode & 0o777 == 0o600, "and storing another one mends it"


def test_only_keys_are_listed(environ: dict[str, str]) -> None:
    store_key("openai", KEY, store="file", environ=environ)
    with keys_file(environ).open("a") as file:
        file.write("\n[groq]\nenv = 'MY_GROQ'\n")
    assert [key.provider for key in list_keys(environ=environ)] == ["openai"]


@pytest.mark.parametrize(
    "text", ["[openai]\nkey = 5", "openai = 'sk-secret'", "[openai]\nkey = 'a'\nx = 'b'", "openai = []"]
)
def test_a_broken_keys_file_is_refused(environ: dict[str, str], text: str) -> None:
    path = keys_file(environ)
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigFileError, match=r"keys.toml, line \d: ") as caught:
        find_key("openai", environ=environ)
    assert "secret" not in str(caught.value)
    assert found(environ, token="given")[0] == "given"


def test_concurrent_writers_lose_nothing(environ: dict[str, str]) -> None:
    names = ["openai", "anthropic", "gemini", "groq", "mistral", "xai", "zai", "together"]
    threads = [
        threading.Thread(target=store_key, args=(name, KEY), kwargs={"store": "file", "environ": environ})
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [key.provider for key in list_keys(environ=environ)] == sorted(names)


def test_an_unwritable_directory(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "dragoman").write_text("a file is in the way")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        store_key("openai", KEY, store="file", environ=environ)


# --- hosts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "url", "goes"),
    [
        (None, "https://anywhere.test", True),
        ((), "https://anywhere.test", False),
        (("api.openai.com",), "https://api.openai.com/v1", True),
        (("api.openai.com",), "https://API.openai.com:443/v2", True),
        (("api.openai.com",), "https://api.openai.com.evil.test/v1", False),
        (("api.openai.com",), "https://api.openai.com@evil.test/", False),
        (("api.openai.com",), "https://xapi.openai.com/", False),
        (("proxy.test:8443",), "https://proxy.test:8443/v1", True),
        (("proxy.test:8443",), "https://proxy.test/v1", False),
        (("Proxy.Test",), "https://proxy.test/v1", True),
        (("[::1]:8080",), "http://[::1]:8080/v1", True),
        (("::1",), "http://[::1]:8080/v1", True),
        (("",), "nonsense", False),
    ],
)
def test_where_a_key_may_go(hosts: tuple[str, ...] | None, url: str, goes: bool) -> None:
    assert may_go(Secret("k", hosts=hosts), url) is goes


def test_a_found_key_is_bound_to_its_providers_hosts(environ: dict[str, str]) -> None:
    environ |= {
        "OPENAI_API_KEY": KEY,
        "OLLAMA_API_KEY": KEY,
        "AZURE_OPENAI_API_KEY": KEY,
        "OPENAI_COMPATIBLE_API_KEY": KEY,
    }

    def hosts(provider: str, **reference: object) -> Any:
        keys = {provider: KeyReference(**reference)} if reference else {}  # type: ignore[arg-type]
        key = find_key(provider, keys=keys, environ=environ)
        assert key is not None
        return key.secret.hosts

    assert hosts("openai") == {"api.openai.com"}
    assert hosts("openai", hosts=("proxy.test",)) == {"api.openai.com", "proxy.test"}
    assert hosts("openai", env="OPENAI_API_KEY") == {"api.openai.com"}
    assert hosts("ollama") == {"localhost", "127.0.0.1", "::1"}
    assert {"*.openai.azure.com", "gateway.test"} < hosts("azure-responses", hosts=("gateway.test",))
    assert hosts("openai-compatible") is None, "it has no address of its own: the user says it"
    assert hosts("openai-compatible", hosts=("mine.test",)) == {"mine.test"}


@pytest.mark.parametrize("source", ["variable", "reference", "stored", "keychain"])
def test_a_found_key_is_not_sent_to_other_hosts(environ: dict[str, str], keychain: InMemory, source: str) -> None:
    keys: dict[str, KeyReference] = {}
    if source == "variable":
        environ["OPENAI_API_KEY"] = KEY
    elif source == "reference":
        keys["openai"] = KeyReference(key=Secret(KEY))
    else:
        store_key("openai", KEY, store="file" if source == "stored" else "keychain", environ=environ)
    config = Config(provider="openai", base_url="https://evil.test/v1", keys=keys)
    with pytest.raises(MissingKeyError, match="no key for openai at evil.test") as caught:
        engine(config.model_name, **config.for_engine(environ))
    assert KEY not in str(caught.value)
    own = Config(provider="openai", keys=keys)
    engine(own.model_name, **own.for_engine(environ)).close()


def test_a_child_does_not_inherit_keys() -> None:
    environ = {"PATH": "/bin", "OPENAI_API_KEY": KEY, "GOOGLE_API_KEY": KEY, "MY_KEY": KEY, "HF_TOKEN": KEY}
    assert child_environment(environ, own=("GOOGLE_", "HF_")) == {"PATH": "/bin"}
