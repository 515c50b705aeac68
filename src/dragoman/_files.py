"""Reading the files of media.

A file is read when its media are added to a conversation, in a prompt or in the result of a tool. Only its bytes are
sent and stored, so a stored conversation cannot make a program read files.
"""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.conversation import Block, Conversation, Media, Message, ToolResult
from dragoman.errors import ConfigurationError

_MAX_BYTES = 512 * 1024 * 1024


def read_files(conversation: Conversation) -> Conversation:
    """The conversation with its files read; itself if it has none."""
    messages = tuple(map(read_message, conversation.messages))
    return conversation if messages == conversation.messages else replace(conversation, messages=messages)


def read_message(message: Message) -> Message:
    """The message with its files read; itself if it has none."""
    blocks = tuple([_read_block(block) for block in message.blocks])
    return message if blocks == message.blocks else replace(message, blocks=blocks)


def read_result(result: ToolResult) -> ToolResult:
    """The result with its files read; itself if it has none."""
    content = tuple([read_media(part) if isinstance(part, Media) else part for part in result.content])
    return result if content == result.content else replace(result, content=content)


def _read_block(block: Block) -> Block:
    if isinstance(block, Media):
        return read_media(block)
    return read_result(block) if isinstance(block, ToolResult) else block


def read_media(media: Media) -> Media:
    """The media with their bytes; themselves if they have no path."""
    if media.path is None:
        return media
    from pathlib import Path  # rarely needed

    path = Path(media.path)
    try:
        if not path.is_file():
            message = f"{path.name!r} is not a file that can be sent."
            raise ConfigurationError(message, hint="Check the path of the attachment.")
        if path.stat().st_size > _MAX_BYTES:
            message = f"The file {path.name!r} is larger than {_MAX_BYTES >> 20} MiB."
            raise ConfigurationError(message, hint="Send a smaller file, or the URL of a file.")
        data = path.read_bytes()
    except OSError as error:
        message = f"The file {path.name!r} cannot be read: {error.strerror or error}."
        raise ConfigurationError(message, hint="Check the path of the attachment and its permissions.") from error
    return replace(media, data=data, path=None)
