"""Forms with a file in them, as uploads want them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping


def form_with_file(fields: Mapping[str, str], name: str, mime_type: str, data: bytes) -> tuple[str, bytes]:
    """The content type and the body of a form of these fields, and of one file in the field `file`."""
    mark = f"dragoman-{secrets.token_hex(16)}"
    said = "content-disposition: form-data; name="
    parts = [f'--{mark}\r\n{said}"{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    safe = "".join(each if each.isprintable() and each not in '"\\' else "_" for each in name) or "file"
    parts += [f'--{mark}\r\n{said}"file"; filename="{safe}"\r\n', f"content-type: {mime_type}\r\n\r\n"]
    return f"multipart/form-data; boundary={mark}", "".join(parts).encode() + data + f"\r\n--{mark}--\r\n".encode()
