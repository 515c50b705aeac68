"""The sealed form: opened by its key in its place, and by nothing else."""

from __future__ import annotations

import copy
import pickle
import sys

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
from dragoman.stores.encryption import _Box
from dragoman.stores.sealing import MAGIC, PLAIN, is_sealed, sealed_with

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
SEALING = AesGcmSealing(NEW)


@pytest.mark.parametrize(
    ("key", "bound", "sealed"),
    [
        (b"\x01" * 32, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (b"\x03" * 32, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
    ],
)
def test_the_published_vectors_of_xaes_256_gcm(key: bytes, bound: bytes, sealed: str) -> None:
    # The two keys take both branches of the derivation (the highest bit of an inner block is 0 and 1).
    box = _Box(EncryptionKey(key))
    nonce = b"ABCDEFGHIJKLMNOPQRSTUVWX"
    assert box.encrypt(nonce, b"XAES-256-GCM", bound).hex() == sealed
    assert box.decrypt(nonce, bytes.fromhex(sealed), bound) == b"XAES-256-GCM"


@given(st.binary(max_size=2_000), st.binary(max_size=100))
def test_what_is_sealed_can_be_opened(plain: bytes, about: bytes) -> None:
    sealed = SEALING.seal(plain, about=about)
    assert is_sealed(sealed)
    assert sealed_with(sealed) == SEALING.key_id
    assert SEALING.unseal(sealed, about=about) == plain
    assert len(plain) < 8 or plain not in sealed


@given(st.binary(max_size=200), st.binary(max_size=40), st.binary(max_size=40))
def test_a_record_opens_in_its_own_place_only(plain: bytes, about: bytes, elsewhere: bytes) -> None:
    sealed = SEALING.seal(plain, about=about)
    if about == elsewhere:
        assert SEALING.unseal(sealed, about=elsewhere) == plain
    else:
        with pytest.raises(SnapshotCorruptError, match="does not open it.*another place"):
            SEALING.unseal(sealed, about=elsewhere)


def test_every_single_flipped_bit_is_a_typed_error() -> None:
    sealed = SEALING.seal(b"a small record", about=b"here")
    kinds: dict[type[Exception], int] = {}
    for place in range(len(sealed) * 8):
        data = bytearray(sealed)
        data[place // 8] ^= 1 << place % 8
        with pytest.raises(SnapshotError) as caught:
            SEALING.unseal(bytes(data), about=b"here")
        kinds[type(caught.value)] = kinds.get(type(caught.value), 0) + 1
    # The magic number and the id of the key; the version; everything else.
    version = 8 - 1  # one flip gives version 0
    assert kinds == {
        SnapshotSealError: (4 + 8) * 8,
        SnapshotVersionError: version,
        SnapshotCorruptError: len(sealed) * 8 - (4 + 8) * 8 - version,
    }


def test_every_cut_is_a_typed_error() -> None:
    sealed = SEALING.seal(b"a small record", about=b"here")
    for length in range(len(sealed)):
        with pytest.raises(SnapshotCorruptError):
            SEALING.unseal(sealed[:length], about=b"here")
    with pytest.raises(SnapshotCorruptError):
        SEALING.unseal(sealed + b"\0", about=b"here")


@given(st.binary(max_size=300))
def test_foreign_bytes_are_a_typed_error(data: bytes) -> None:
    for garbage in (data, MAGIC + data, MAGIC + b"\1" + data, MAGIC + b"\1" + bytes.fromhex(SEALING.key_id) + data):
        with pytest.raises(SnapshotError):
            SEALING.unseal(garbage, about=b"")


def test_a_wrong_key_names_the_right_one() -> None:
    sealed = AesGcmSealing(OTHER).seal(b"record", about=b"")
    with pytest.raises(SnapshotSealError) as caught:
        SEALING.unseal(sealed, about=b"")
    assert EncryptionKey(OTHER).id in str(caught.value)
    assert EncryptionKey(NEW).id in str(caught.value)


def test_a_forged_key_id_does_not_help() -> None:
    sealed = bytearray(AesGcmSealing(OTHER).seal(b"record", about=b""))
    sealed[5:13] = bytes.fromhex(SEALING.key_id)
    with pytest.raises(SnapshotCorruptError):
        SEALING.unseal(bytes(sealed), about=b"")


def test_several_keys_are_read_and_one_is_written() -> None:
    old, both = AesGcmSealing(OLD), AesGcmSealing(NEW, older=[OLD, EncryptionKey(OTHER), NEW])
    before = old.seal(b"record", about=b"place")
    assert both.unseal(before, about=b"place") == b"record"
    assert not both.is_current(before)
    after = both.seal(b"record", about=b"place")
    assert both.is_current(after)
    assert sealed_with(after) == EncryptionKey(NEW).id == both.key_id == both.key_ids[0]
    assert SEALING.unseal(after, about=b"place") == b"record"
    assert set(both.key_ids) == {EncryptionKey(key).id for key in (OLD, NEW, OTHER)}
    with pytest.raises(SnapshotSealError):
        old.unseal(after, about=b"place")


def test_a_newer_form_is_refused_as_newer() -> None:
    with pytest.raises(SnapshotVersionError, match="version 2"):
        SEALING.unseal(MAGIC + b"\2" + bytes(100), about=b"")
    with pytest.raises(SnapshotCorruptError, match="version 0"):
        SEALING.unseal(MAGIC + b"\0" + bytes(100), about=b"")


def test_plain_records_are_read_only_where_that_was_asked_for() -> None:
    with pytest.raises(SnapshotSealError, match="not sealed.*accept_plain"):
        SEALING.unseal(b'{"plain": true}', about=b"")
    lenient = AesGcmSealing(NEW, accept_plain=True)
    assert lenient.unseal(b'{"plain": true}', about=b"") == b'{"plain": true}'
    assert not lenient.is_current(b'{"plain": true}')
    sealed = SEALING.seal(b"record", about=b"")
    for cut in (sealed[:2], sealed[:-1]):
        with pytest.raises(SnapshotCorruptError):
            lenient.unseal(cut, about=b"")


def test_no_sealing_passes_plain_bytes_and_names_the_key_of_sealed_ones() -> None:
    assert PLAIN.unseal(PLAIN.seal(b"{}", about=b"x"), about=b"y") == b"{}"
    assert PLAIN.is_current(b"{}")
    sealed = SEALING.seal(b"record", about=b"")
    with pytest.raises(SnapshotSealError, match=f"sealed with key {SEALING.key_id} and the store was opened without"):
        PLAIN.unseal(sealed, about=b"")
    with pytest.raises(SnapshotSealError, match="is sealed and"):
        PLAIN.unseal(sealed[:7], about=b"")
    assert not PLAIN.is_current(sealed)


def test_keys_do_not_leak_through_the_sealing() -> None:
    assert (
        repr(AesGcmSealing(NEW, older=[OLD])) == f"AesGcmSealing(key_ids={(SEALING.key_id, EncryptionKey(OLD).id)!r})"
    )
    assert not hasattr(SEALING, "__dict__")
    for carry in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            carry(SEALING)


def test_without_cryptography_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ConfigurationError, match=r"dragoman\[crypto\]"):
        AesGcmSealing(NEW)
