"""Sealing: records that only the holder of a key can read, and that nobody can exchange or edit unseen.

protocol.py   what a store asks of a sealing; PLAIN, which seals nothing
key.py        keys and where they come from
aes_gcm.py    AES-256-GCM (extra `crypto`)
resealing.py  a walk through a store that seals everything with the current key
"""

from __future__ import annotations

from .aes_gcm import AesGcmSealing
from .key import KEY_BYTES, EncryptionKey, generate_encryption_key
from .protocol import PLAIN, Sealing, is_sealed, sealed_with
from .resealing import ResealProgress, areseal, progress_bar, reseal

__all__ = [
    "KEY_BYTES",
    "PLAIN",
    "AesGcmSealing",
    "EncryptionKey",
    "ResealProgress",
    "Sealing",
    "areseal",
    "generate_encryption_key",
    "is_sealed",
    "progress_bar",
    "reseal",
    "sealed_with",
]
