"""Signatures that prove nothing, except that they came back unchanged.

Owns: making a signature for a text where the script gave none, and telling whether one of these was spoilt.
Must not know: where a dialect puts them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha256

__all__ = ["sign", "spoilt"]

_MARK = b"dragoman-simulator:"


def sign(text: str) -> str:
    """A signature of this text: valid base64, as providers' are, and the same every time."""
    return b64encode(_MARK + sha256(text.encode()).digest()[:12]).decode()


def spoilt(signature: str, text: str) -> bool:
    """Whether this is a signature made here, but of another text. Signatures of others pass."""
    found = _decoded(signature)
    return found.startswith(_MARK) and found != _decoded(sign(text))


def _decoded(signature: str) -> bytes:
    # One of the official SDKs sends back what it got in the URL-safe alphabet.
    try:
        return b64decode(signature.translate(str.maketrans("-_", "+/")), validate=True)
    except ValueError:
        return b""
