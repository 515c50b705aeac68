"""Sealing: keys that are never shown, and records that only their key opens, only in their place."""

from __future__ import annotations

import base64
import copy
import pickle
import subprocess
import sys
import traceback
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, strategies as st

from dragoman.errors import (
    ConfigurationError,
    SnapshotCorruptError,
    SnapshotError,
    SnapshotSealError,
    SnapshotVersionError,
)
from dragoman.stores import AesGcmSealing, EncryptionKey
from dragoman.stores.sealing import MAGIC, Records, _cipher_of, is_sealed, sealed_with
from tests.strategies import json_values

# --- keys ------------------------------------------------------------------------------------------------------------

SECRET = bytes(range(1, 33))
SHOWN = (SECRET.hex(), base64.b64encode(SECRET).decode(), repr(SECRET), repr(SECRET)[2:-1])

usable = st.binary(min_size=32, max_size=32).filter(any)


@given(usable)
def test_a_key_can_be_written_in_base64_or_hex(secret: bytes) -> None:
    plain, padded = base64.b64encode(secret).decode(), base64.urlsafe_b64encode(secret).decode()
    texts = [secret.hex(), secret.hex().upper(), plain, plain.rstrip("="), padded, padded.rstrip("="), f" {plain}\n"]
    key = EncryptionKey(secret)
    for text in texts:
        assert EncryptionKey.from_text(text) == key
        assert EncryptionKey.from_environment("KEY", environ={"KEY": text}) == key


@given(usable, usable)
def test_different_keys_have_different_ids(one: bytes, other: bytes) -> None:
    first, second = EncryptionKey(one), EncryptionKey(other)
    assert (first.id == second.id) == (first == second) == (one == other)
    assert len(first.id) == 16


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        (b"", "32 bytes, not 0"),
        (bytes(range(31)), "31"),
        (bytes(range(33)), "33"),
        (bytes(32), "all zeros"),
        ("x" * 32, "bytes, not str"),
        (None, "bytes, not NoneType"),
    ],
)
def test_invalid_keys_are_refused(secret: bytes, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        EncryptionKey(secret)


@given(st.text(max_size=100))
def test_an_invalid_text_is_not_repeated_in_the_error(text: str) -> None:
    problem = ""
    try:
        EncryptionKey.from_text(text)
    except ConfigurationError as error:
        problem = str(error)
    assert len(text.strip()) < 8 or text.strip() not in problem


def test_a_missing_or_empty_variable_is_named() -> None:
    with pytest.raises(ConfigurationError, match="no environment variable 'STORE_KEY'"):
        EncryptionKey.from_environment("STORE_KEY", environ={})
    with pytest.raises(ConfigurationError, match="'STORE_KEY' is not an encryption key.*generate_encryption_key"):
        EncryptionKey.from_environment("STORE_KEY", environ={"STORE_KEY": "  "})


def test_a_key_is_never_shown() -> None:
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


def test_cryptography_is_imported_when_needed() -> None:
    code = "import dragoman.stores.sealing, sys; print([n for n in ('cryptography', 'keyring') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- the sealed form -------------------------------------------------------------------------------------------------

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
SEALING = AesGcmSealing(NEW)


@pytest.mark.parametrize(
    ("key", "bound", "sealed"),
    [
        (b"\x01" * 32, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (b"\x03" * 32, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
    ],
)
def test_published_vectors_of_xaes_256_gcm(key: bytes, bound: bytes, sealed: str) -> None:
    # The two keys take both branches of the derivation (the highest bit of an inner block is 0 and 1).
    nonce = b"ABCDEFGHIJKLMNOPQRSTUVWX"
    assert _cipher_of(EncryptionKey(key))(nonce).encrypt(nonce[12:], b"XAES-256-GCM", bound).hex() == sealed


@given(st.binary(max_size=2_000), st.binary(max_size=40), st.binary(max_size=40))
def test_a_sealed_record_opens_only_in_its_own_place(plain: bytes, about: bytes, elsewhere: bytes) -> None:
    sealed = SEALING.seal(plain, about=about)
    assert is_sealed(sealed)
    assert sealed_with(sealed) == SEALING.key_id
    assert SEALING.unseal(sealed, about=about) == plain
    assert len(plain) < 8 or plain not in sealed
    if about != elsewhere:
        with pytest.raises(SnapshotCorruptError, match="does not open it.*moved"):
            SEALING.unseal(sealed, about=elsewhere)


def test_every_flipped_bit_is_a_typed_error() -> None:
    sealed = SEALING.seal(b"a small record", about=b"here")
    kinds: dict[type[Exception], int] = {}
    for place in range(len(sealed) * 8):
        data = bytearray(sealed)
        data[place // 8] ^= 1 << place % 8
        with pytest.raises(SnapshotError) as caught:
            SEALING.unseal(bytes(data), about=b"here")
        kinds[type(caught.value)] = kinds.get(type(caught.value), 0) + 1
        assert not isinstance(caught.value, SnapshotVersionError) or f"in version {data[4]};" in str(caught.value)
    # The magic number and the id of the key; the version; everything else.
    version = 8 - 1  # one flip gives version 0
    assert kinds == {
        SnapshotSealError: (4 + 8) * 8,
        SnapshotVersionError: version,
        SnapshotCorruptError: len(sealed) * 8 - (4 + 8) * 8 - version,
    }

    for odd in (*[sealed[:length] for length in range(len(sealed))], sealed + b"\0"):
        with pytest.raises(SnapshotCorruptError):
            SEALING.unseal(odd, about=b"here")


@given(st.binary(max_size=300))
def test_foreign_bytes_are_a_typed_error(data: bytes) -> None:
    for garbage in (data, MAGIC + data, MAGIC + b"\1" + data, MAGIC + b"\1" + bytes.fromhex(SEALING.key_id) + data):
        with pytest.raises(SnapshotError):
            SEALING.unseal(garbage, about=b"")


def test_the_error_for_a_wrong_key_names_the_right_one_and_a_forged_id_does_not_help() -> None:
    sealed = bytearray(AesGcmSealing(OTHER).seal(b"record", about=b""))
    with pytest.raises(SnapshotSealError, match=f"{EncryptionKey(OTHER).id}.*{EncryptionKey(NEW).id}"):
        SEALING.unseal(bytes(sealed), about=b"")
    sealed[5:13] = bytes.fromhex(SEALING.key_id)
    with pytest.raises(SnapshotCorruptError):
        SEALING.unseal(bytes(sealed), about=b"")


def test_older_keys_open_records_and_the_first_key_seals() -> None:
    old, both = AesGcmSealing(OLD), AesGcmSealing(NEW, older=[OLD, EncryptionKey(OTHER), NEW])
    before = old.seal(b"record", about=b"place")
    assert both.unseal(before, about=b"place") == b"record"
    after = both.seal(b"record", about=b"place")
    assert sealed_with(after) == EncryptionKey(NEW).id == both.key_id == both.key_ids[0]
    assert SEALING.unseal(after, about=b"place") == b"record"
    assert set(both.key_ids) == {EncryptionKey(key).id for key in (OLD, NEW, OTHER)}
    with pytest.raises(SnapshotSealError):
        old.unseal(after, about=b"place")


# --- the records of a store ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("records", [Records("file", None), Records("file", SEALING)], ids=["open", "sealed"])
@given(value=json_values, where=st.integers(0, 10**6), noise=st.binary(min_size=1, max_size=3))
def test_a_damaged_or_moved_record_is_noticed(records: Records, value: object, where: int, noise: bytes) -> None:
    data = msgspec.json.encode(value)
    kept = records.seal(data, "entry", 1)
    assert records.unseal(kept, "entry", 1) == data
    for name in (("entry", 2), ("body", 1), ("entry",)):
        with pytest.raises(SnapshotCorruptError):
            records.unseal(kept, *name)
    at = where % len(kept)
    with suppress(SnapshotError):
        assert records.unseal(kept[:at] + noise + kept[at + len(noise) :], "entry", 1) == data
    with pytest.raises(SnapshotCorruptError):
        records.unseal(kept[:at], "entry", 1)


def test_the_error_without_a_key_names_the_key() -> None:
    records, sealed = Records("file", None), SEALING.seal(b"record", about=b"")
    for data, named in ((sealed, SEALING.key_id), (sealed[:7], SEALING.key_id[:4])):
        with pytest.raises(SnapshotSealError, match=f"sealed with key {named} and the store was opened without"):
            records.unseal(data, "x")


def test_sealing_does_not_show_or_pickle_its_keys() -> None:
    assert (
        repr(AesGcmSealing(NEW, older=[OLD])) == f"AesGcmSealing(key_ids={(SEALING.key_id, EncryptionKey(OLD).id)!r})"
    )
    assert not hasattr(SEALING, "__dict__")
    for carry in (pickle.dumps, copy.copy, copy.deepcopy):
        for secret in (SEALING, EncryptionKey(NEW)):
            with pytest.raises(TypeError, match="cannot be pickled"):
                carry(secret)


def test_without_cryptography_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ConfigurationError, match=r"dragoman\[crypto\]"):
        AesGcmSealing(NEW)
