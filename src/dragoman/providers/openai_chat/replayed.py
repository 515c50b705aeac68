"""Reasoning on its way back to the server that wrote it.

Owns: writing a thought in the form that it came in; thoughts.py reads these forms.
Must not know: which servers want it back (the profile says that), and messages.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import Thinking

from .thoughts import FIELD
from .wire import joined, string

__all__ = ["thought_on_wire"]

_encode: Final = msgspec.json.encode

# The member of a detail that holds its text.
_TEXT_OF_TYPE: Final = {"reasoning.summary": "summary", "reasoning.encrypted": ""}


def thought_on_wire(thought: Thinking) -> tuple[str, bytes]:
    """The field it belongs in, and its form there; fields of plain text need no form."""
    kept: dict[str, Raw] = dict(thought.native.fields) if thought.native is not None else {}
    field = string(kept.pop(FIELD, None)) or "reasoning_content"
    if field == "content":
        chunk = b'{"type":"thinking","thinking":[{"type":"text","text":%s}]' % _encode(thought.text)
        rest = {**_proof(thought), **kept}
        return field, chunk + (b"," + joined(rest)[1:] if rest else b"}")
    if field == "reasoning_details":
        member = _TEXT_OF_TYPE.get(string(kept.get("type")), "text")
        text: dict[str, bytes | Raw] = {member: _encode(thought.text)} if member and thought.text else {}
        if thought.encrypted is not None:
            text["data"] = _encode(thought.encrypted)
        return field, joined({**kept, **text, **_proof(thought)})
    return field, b""


def _proof(thought: Thinking) -> dict[str, bytes | Raw]:
    return {"signature": _encode(thought.signature)} if thought.signature is not None else {}
