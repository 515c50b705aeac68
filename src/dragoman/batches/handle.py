"""A batch as a value: its conversations and its id, so that another process can fetch the answers.

Owns: Batch and its JSON form; BatchStatus, BatchResult; BatchDirectory, batches as files.
Must not know: providers, requests.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman._decoding import decode_as
from dragoman._descriptors import replace_file
from dragoman.conversation import (
    Conversation,
    ToolSpec,
    conversation_from_json,
    conversation_to_json,
    tool_spec_from_json,
    tool_spec_to_json,
)
from dragoman.errors import ConfigurationError, MalformedDataError, ProviderError, UnsupportedVersionError
from dragoman.providers import ModelOptions, without_secrets

_VERSION: Final = 1

BatchState: TypeAlias = Literal["running", "cancelling", "done", "failed", "cancelled", "expired"]
"""`failed`: the whole batch was refused. A cancelled or expired one may have some answers."""


class Batch(Struct, frozen=True, kw_only=True):
    """Conversations that were submitted together. The key is not part of it."""

    id: str
    """The provider's id."""
    model: str
    """As in `provider:model`."""
    base_url: str
    conversations: tuple[Conversation, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: ModelOptions = ModelOptions()
    """Saved without headers, which may contain keys."""
    created: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    def __len__(self) -> int:
        return len(self.conversations)

    def __repr__(self) -> str:
        return f"Batch({self.id!r}, {self.model!r}, {len(self)} conversations)"


class BatchStatus(Struct, frozen=True, kw_only=True):
    """The state of a batch. The provider's counts may lag behind."""

    state: BatchState
    total: int = 0
    succeeded: int = 0
    failed: int = 0
    message: str = ""
    """Why the whole batch was refused."""
    outputs: tuple[str, ...] = ()
    """The files with the results, if there are any."""

    @property
    def over(self) -> bool:
        """Whether the batch has ended, in whatever way."""
        return self.state not in ("running", "cancelling")

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed


class BatchResult(Struct, frozen=True, kw_only=True):
    """The result of one conversation."""

    position: int
    """Its index in the batch."""
    conversation: Conversation
    """With the reply at its end, if there is one."""
    error: ProviderError | None = None
    """Why there is no reply."""

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def text(self) -> str:
        """The text of the reply; empty if there is none."""
        return self.conversation.text if self.ok else ""


# --- the JSON form ----------------------------------------------------------------------------------------------------


class _Form(Struct, frozen=True, kw_only=True):
    dragoman_batch: int
    id: str
    model: str
    base_url: str
    created: datetime
    options: Raw
    tools: tuple[Raw, ...]
    conversations: tuple[Raw, ...]


def batch_to_json(batch: Batch) -> bytes:
    """The batch as JSON, versioned."""
    return msgspec.json.encode(
        _Form(
            dragoman_batch=_VERSION,
            id=batch.id,
            model=batch.model,
            base_url=batch.base_url,
            created=batch.created,
            options=Raw(msgspec.json.encode(without_secrets(batch.options))),
            tools=tuple(Raw(tool_spec_to_json(spec)) for spec in batch.tools),
            conversations=tuple(Raw(conversation_to_json(each)) for each in batch.conversations),
        )
    )


def batch_from_json(data: bytes | str) -> Batch:
    """The batch from its JSON. Raises MalformedDataError, or UnsupportedVersionError for one of a newer version."""
    try:
        form = decode_as(data, _Form)
        options = decode_as(form.options, ModelOptions)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise MalformedDataError(f"This is not a batch: {error}.") from None
    if form.dragoman_batch > _VERSION:
        message = f"The batch was written by a newer version ({form.dragoman_batch})."
        raise UnsupportedVersionError(message, found=form.dragoman_batch, supported=_VERSION)
    return Batch(
        id=form.id,
        model=form.model,
        base_url=form.base_url,
        created=form.created,
        options=options,
        tools=tuple(tool_spec_from_json(bytes(each)) for each in form.tools),
        conversations=tuple(conversation_from_json(bytes(each)) for each in form.conversations),
    )


# --- batches as files -------------------------------------------------------------------------------------------------

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


class BatchDirectory:
    """Batches as files that only their owner can read, written atomically."""

    def __init__(self, path: str | Path) -> None:
        self.path: Path = Path(path)

    def check(self) -> None:
        """Raise ConfigurationError if nothing can be written here."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with TemporaryFile(dir=self.path) as probe:
                probe.write(b"?")
        except OSError as error:
            message = f"Batches cannot be saved in {str(self.path)!r}: {error.strerror or error}."
            raise ConfigurationError(message, hint="Give a directory that this program can write to.") from None

    def save(self, batch: Batch) -> Path:
        """Save the batch, and sync it to disk."""
        file = self._file(batch.id)
        replace_file(file, batch_to_json(batch))
        return file

    def load(self, id: str) -> Batch:
        """The batch of this id. Raises ConfigurationError if it is not here."""
        try:
            return batch_from_json(self._file(id).read_bytes())
        except FileNotFoundError:
            known = ", ".join(batch.id for batch in self.list()) or "none"
            raise ConfigurationError(f"There is no batch {id!r} here.", hint=f"There are: {known}.") from None

    def list(self) -> list[Batch]:
        """All batches, the oldest first."""
        found = [batch_from_json(file.read_bytes()) for file in self.path.glob("*.json")]
        return sorted(found, key=lambda batch: batch.created)

    def delete(self, id: str) -> bool:
        """Delete a batch here, not at the provider. Returns whether it existed."""
        file = self._file(id)
        known = file.exists()
        file.unlink(missing_ok=True)
        return known

    def _file(self, id: str) -> Path:
        return self.path / f"{_UNSAFE.sub('-', id)}.json"
