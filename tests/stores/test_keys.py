"""Keys: where they come from, what is refused, and that they never show themselves."""

from __future__ import annotations

import base64
import copy
import pickle
import subprocess
import sys
import traceback

import pytest
from hypothesis import given, strategies as st

from dragoman.errors import ConfigurationError
from dragoman.stores import EncryptionKey

SECRET = bytes(range(1, 33))
SHOWN = (SECRET.hex(), base64.b64encode(SECRET).decode(), repr(SECRET), repr(SECRET)[2:-1])

usable = st.binary(min_size=32, max_size=32).filter(any)


@given(usable)
def test_every_way_of_writing_a_key_gives_the_same_key(secret: bytes) -> None:
    plain, padded = base64.b64encode(secret).decode(), base64.urlsafe_b64encode(secret).decode()
    texts = [secret.hex(), secret.hex().upper(), plain, plain.rstrip("="), padded, padded.rstrip("="), f" {plain}\n"]
    key = EncryptionKey(secret)
    for text in texts:
        assert EncryptionKey.from_text(text) == key
        assert EncryptionKey.from_environment("KEY", environ={"KEY": text}).reveal() == secret


@given(usable, usable)
def test_the_id_tells_keys_apart(one: bytes, other: bytes) -> None:
    first, second = EncryptionKey(one), EncryptionKey(other)
    assert (first.id == second.id) == (first == second) == (one == other)
    assert len(first.id) == 16


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        (b"", "is empty"),
        (b"short", "32 bytes, and this one 5"),
        (bytes(range(31)), "31"),
        (bytes(range(33)), "33"),
        (bytes(32), "all zeros"),
        ("x" * 32, "bytes, not str"),
        (None, "bytes, not NoneType"),
        (32, "bytes, not int"),
    ],
)
def test_what_is_no_key_is_refused(secret: bytes, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        EncryptionKey(secret)


@given(st.text(max_size=100))
def test_a_text_is_a_key_of_32_bytes_or_a_typed_error_that_does_not_repeat_it(text: str) -> None:
    problem = ""
    try:
        key = EncryptionKey.from_text(text)
    except ConfigurationError as error:
        problem = str(error)
    else:
        assert len(key.reveal()) == 32
    assert len(text.strip()) < 8 or text.strip() not in problem


def test_a_missing_or_empty_variable_is_named() -> None:
    with pytest.raises(ConfigurationError, match="no environment variable 'STORE_KEY'"):
        EncryptionKey.from_environment("STORE_KEY", environ={})
    with pytest.raises(ConfigurationError, match="'STORE_KEY' holds an empty"):
        EncryptionKey.from_environment("STORE_KEY", environ={"STORE_KEY": "  "})


def test_a_key_does_not_show_itself() -> None:
    key = EncryptionKey(SECRET)
    texts = [repr(key), str(key), f"{key}", f"{key!r:>80}", repr([key]), repr({"key": key})]
    for wrong in (SECRET[1:], SECRET.hex() + "0", SECRET.hex()[1:]):
        try:
            EncryptionKey(wrong) if isinstance(wrong, bytes) else EncryptionKey.from_text(wrong)
        except ConfigurationError:
            texts.append(traceback.format_exc())
    assert len(texts) == 9
    for text in texts:
        assert not any(shown[2:-2] in text for shown in SHOWN), text
    assert not hasattr(key, "__dict__")


def test_a_key_is_not_pickled_nor_copied_by_pickling() -> None:
    for carry in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            carry(EncryptionKey(SECRET))


def test_the_extras_are_not_imported_before_they_are_needed() -> None:
    code = "import dragoman.stores.encryption, sys; print([n for n in ('cryptography', 'keyring') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
