"""Pictures that the model made: the one server tool whose result is a block of our own.

Owns: `image_generation_call` as media, and back. Everything else of the item stays beside the picture, so that the
item can be sent back as it was.
Must not know: the other items.
"""

from __future__ import annotations

import base64
from typing import cast

import msgspec
from msgspec import Raw

from dragoman.conversation import Media

from .wire import encode, members_of, native, text_of

__all__ = ["item_of", "picture_of"]


def picture_of(members: dict[str, Raw]) -> Media | None:
    """The picture in an item; None where the item is something else or holds none."""
    if text_of(members.get("type")) != "image_generation_call":
        return None
    try:
        data = base64.b64decode(text_of(members.get("result")) or "", validate=True)
    except ValueError:
        return None
    if not data:
        return None
    kind = text_of(members.get("output_format")) or "png"
    item = Raw(encode({name: raw for name, raw in members.items() if name != "result"}))
    picture = Media.from_bytes(data, f"image/{'svg+xml' if kind == 'svg' else kind}")
    return msgspec.structs.replace(picture, native=native({"item": item}))


def item_of(picture: Media, item: Raw) -> dict[str, object]:
    """The item that a picture came from, with the picture in it: without storage the service needs all of it."""
    members = cast("dict[str, object]", members_of(item))
    return {**members, "result": base64.b64encode(picture.data or b"").decode()}
