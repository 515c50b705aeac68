"""Reading the files that messages name.

Owns: turning `Media.path` into bytes before a codec sees it. A file is read once for each message, when the message is
first sent; what the model saw then is what it sees in later turns.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from dragoman.conversation import Block, Conversation, Json, Media, Message, Text, ToolResult, memory_of
from dragoman.errors import ConfigurationError
from dragoman.providers import remembered

_MAX_BYTES = 512 * 1024 * 1024

_Known: TypeAlias = tuple[int, Conversation | None]
_NOTHING_SEEN: _Known = (0, None)
_KEY = "files read"
"""Under this name is kept of a conversation how many messages were looked at, and these with their files read, if
there were any."""


def with_files_read(conversation: Conversation) -> Conversation:
    """The conversation with the bytes of all media that were given by path; itself if there are none."""
    messages = conversation.messages
    memory = memory_of(conversation)
    known: _Known = memory.get(_KEY, _NOTHING_SEEN)
    seen, before = known
    if seen == len(messages) and before is None:
        return conversation
    new = messages[seen:]
    if before is None and not any(map(_names_file, new)):
        read = conversation
    else:
        # Built upon what was read in an earlier turn, so that what is known of that is handed on.
        read = (before or conversation.up_to(seen)).plus(*[_read_message(message) for message in new])
        read = read.with_system(conversation.system).with_metadata(conversation.metadata)
    memory[_KEY] = (len(messages), None if read is conversation else read)
    return read


def _names_file(message: Message) -> bool:
    for block in message.blocks:  # noqa: SIM110 -- `any` takes three times as long, and nearly all blocks are texts
        if type(block) is not Text and _has_path(block):
            return True
    return False


def _has_path(block: Block | Json) -> bool:
    if isinstance(block, Media):
        return block.path is not None
    return isinstance(block, ToolResult) and any(_has_path(part) for part in block.content)


def _read_message(message: Message) -> Message:
    return remembered(message, _KEY, lambda: _with_blocks_read(message)) if _names_file(message) else message


def _with_blocks_read(message: Message) -> Message:
    return msgspec.structs.replace(message, blocks=tuple([_read_block(block) for block in message.blocks]))


def _read_block(block: Block) -> Block:
    if isinstance(block, Media):
        return _read_media(block)
    if isinstance(block, ToolResult):
        content = tuple([_read_media(part) if isinstance(part, Media) else part for part in block.content])
        return msgspec.structs.replace(block, content=content)
    return block


def _read_media(media: Media) -> Media:
    if media.path is None:
        return media
    from pathlib import Path

    path = Path(media.path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            message = f"The file {path.name!r} is larger than {_MAX_BYTES >> 20} MiB."
            raise ConfigurationError(message, hint="Send a smaller file, or put it where the provider can fetch it.")
        data = path.read_bytes()
    except OSError as error:
        message = f"The file {path.name!r} cannot be read: {error.strerror or error}."
        raise ConfigurationError(message, hint="Check the path of the attachment and its permissions.") from error
    return msgspec.structs.replace(media, data=data, path=None)
