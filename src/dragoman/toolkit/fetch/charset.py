"""The bytes of a page as text, by what the page says of itself.

Owns: which names of encodings are believed.
Must not know: HTML beyond the one line that names an encoding.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

__all__ = ["text_of"]

_PARAMETER: Final = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE).search
_IN_PAGE: Final = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE).search
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

# Python's codecs include some that are no encodings of pages and can be made to work for minutes.
_BELIEVED: Final = re.compile(
    r"ascii|utf-8|utf-16(?:-[lb]e)?|utf-32(?:-[lb]e)?|iso8859-\d+|cp125\d|cp874|cp866|koi8-[ru]|mac-roman"
    r"|gb2312|gbk|gb18030|big5|big5hkscs|shift_jis|cp932|euc_jp|euc_kr|cp949|iso2022_jp"
).fullmatch


def text_of(body: bytes, content_type: str) -> str:
    """The text. What is said in the header counts most, then a byte order mark, then the page itself, then UTF-8."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    said = _PARAMETER(content_type)
    name = said[1] if said else None
    if name is None and (found := _IN_PAGE(body[:2048])):
        name = found[1].decode("ascii", "replace")
    return body.decode(_codec(name), "replace")


def _codec(name: str | None) -> str:
    if name is None:
        return "utf-8"
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        return "utf-8"
    # What pages call Latin-1 is Windows-1252; browsers read it so.
    return "cp1252" if found in ("iso8859-1", "ascii") else found if _BELIEVED(found) else "utf-8"
