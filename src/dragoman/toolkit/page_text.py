"""The readable text of an HTML page.

Headings, paragraphs, lists, links, tables and preformatted text; no scripts and styles. The page is read once without
backtracking, so that no page takes long: an element to drop that is not closed extends to the end.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from html import unescape
from typing import Final
from urllib.parse import urljoin

from msgspec import Struct

_TAG_NAME: Final = re.compile(r"</?([A-Za-z][^\s/>]*)")
_QUOTE_OR_END: Final = re.compile(r"[>\"']")
_HREF: Final = re.compile(r"(?:^|\s)href\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", re.IGNORECASE).search
_DROPPED: Final = frozenset(
    {"head", "iframe", "noscript", "object", "script", "select", "style", "svg", "template", "textarea", "title"}
)
_ENDS: Final = {name: re.compile(rf"</{name}[\s>/]", re.IGNORECASE) for name in _DROPPED}
_TITLE: Final = re.compile(r"<title[^>]{0,200}>", re.IGNORECASE)
_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_BLOCKS: Final = frozenset(
    {"address", "article", "aside", "blockquote", "body", "dd", "details", "dialog", "div", "dl", "dt", "fieldset"}
    | {"figcaption", "figure", "footer", "form", "header", "hgroup", "html", "main", "nav", "ol", "p", "section"}
    | {"summary", "table", "tbody", "tfoot", "thead", "ul"}
)
_MAX_HREF: Final = 500
_MAX_BROKEN: Final = 20
_CHECKED: Final = 1000
"""Tags between two checks."""


def page_text(html: str, url: str = "", check: Callable[[], None] = lambda: None) -> str:
    """The text of a page, with absolute links. `check` is called regularly, and may raise to stop."""
    reader = _Reader(url)
    title, at = "", 0
    if (start := _TITLE.search(html[:20_000])) and (end := _ENDS["title"].search(html, start.end())):
        title = " ".join(unescape(html[start.end() : end.start()]).split())[:300]
    for count in itertools.count():
        opening = html.find("<", at)
        if opening < 0:
            break
        if not count % _CHECKED:
            check()
        reader.text(html[at:opening])
        at = _read_tag(html, opening, reader)
    reader.text(html[at:] if at < len(html) else "")
    body = reader.finished()
    return f"{title}\n\n{body}".strip() if title and not body.startswith(f"# {title}") else body


def _read_tag(html: str, opening: int, reader: _Reader) -> int:
    """Read the tag at this position, and return the position after it."""
    if html.startswith("<!--", opening):
        return _after(html, "-->", opening + 2)
    following = html[opening + 1 : opening + 2]
    if following in ("!", "?"):
        return _after(html, ">", opening)
    if not (following.isalpha() or following == "/"):
        reader.text("<")
        return opening + 1
    tag = _TAG_NAME.match(html, opening)
    end = -1 if tag is None else _end_of_tag(html, tag.end())
    if tag is None or end < 0:
        if following == "/" and not html[opening + 2 : opening + 3].isalpha():  # `</>`, `</3`: not a tag
            reader.text("</")
            return opening + 2
        # Its quotes do not match. Finding that out takes a scan of all that follows, so not too often.
        reader.broken += 1
        return _after(html, ">", opening) if reader.broken <= _MAX_BROKEN else len(html)
    name, attributes, closing = tag[1].lower(), html[tag.end() : end], following == "/"
    if name in _DROPPED and not closing:
        if attributes.endswith("/") and name == "svg":
            return end + 1
        if name == "head" and reader.headless:
            return end + 1
        last = _ENDS[name].search(html, end + 1)
        if last is not None:
            return last.start()
        reader.headless = name == "head"  # it is closed by the body
        return end + 1 if reader.headless else len(html)
    reader.tag(name, attributes, closing=closing)
    return end + 1


def _end_of_tag(html: str, at: int) -> int:
    """The position of the `>` that ends a tag, outside of quotes; -1 if there is none."""
    while found := _QUOTE_OR_END.search(html, at):
        if found[0] == ">":
            return found.start()
        at = html.find(found[0], found.end()) + 1
        if not at:
            break
    return -1


def _after(html: str, sign: str, at: int) -> int:
    found = html.find(sign, at)
    return len(html) if found < 0 else found + len(sign)


class _Reader(Struct):
    url: str
    lines: list[str] = []
    pieces: list[str] = []
    preformatted: int = 0
    lists: list[int | None] = []
    """For each open list: the number of its last item; None for bullets."""
    open_link: tuple[str, int] | None = None
    """Its URL, and the number of pieces before it. Links do not nest."""
    prefix: str = ""
    """For the next line."""
    broken: int = 0
    headless: bool = False
    """No `</head>` follows, so none is searched again."""

    def text(self, text: str) -> None:
        if text:
            text = unescape(text)
            self.pieces.append(text if self.preformatted else re.sub(r"\s+", " ", text))

    def tag(self, name: str, attributes: str, *, closing: bool) -> None:
        if name == "br":
            self._line()
        elif name == "hr":
            self._paragraph()
        elif name == "a":
            self._link(attributes, closing=closing)
        elif name == "pre":
            self._preformatted_text(closing=closing)
        elif name in _HEADINGS:
            self._paragraph()
            if not closing:
                self.prefix = _HEADINGS[name]
        elif name == "li":
            self._item(closing=closing)
        elif name in ("ul", "ol"):
            self._list(name, closing=closing)
        elif name in ("td", "th"):
            if closing:
                self.pieces.append(" | ")
        elif name == "tr":
            self._line()
        elif name in _BLOCKS:
            self._paragraph()

    def finished(self) -> str:
        self._line()
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self.lines)).strip()

    def _line(self) -> None:
        text = "".join(self.pieces)
        self.pieces.clear()
        self.open_link = None
        if not self.preformatted:
            # A table row ends with an extra separator.
            text = re.sub(r" {2,}", " ", text).strip().removesuffix("|").rstrip()
        if text:
            self.lines.append(self.prefix + text)
            self.prefix = ""

    def _paragraph(self) -> None:
        self._line()
        if self.lines and self.lines[-1] and not self.lists:
            self.lines.append("")

    def _link(self, attributes: str, *, closing: bool) -> None:
        if not closing:
            found = _HREF(attributes)
            href = unescape(found[1] or found[2] or found[3] or "").strip() if found else ""
            if href.startswith("#") or len(href) > _MAX_HREF or href.lower().startswith(("javascript:", "data:")):
                href = ""
            try:
                address = urljoin(self.url, href) if href else ""
            except ValueError:
                address = ""
            self.open_link = (address, len(self.pieces))
            return
        if self.open_link is None:
            return
        (href, start), self.open_link = self.open_link, None
        label = " ".join("".join(self.pieces[start:]).split())
        if label and href and not self.preformatted:
            self.pieces[start:] = [f"[{label}]({href})"]

    def _preformatted_text(self, *, closing: bool) -> None:
        if closing and self.preformatted:
            self.lines += ["".join(self.pieces).strip("\n"), "```", ""]
            self.pieces.clear()
            self.preformatted -= 1
        elif not closing:
            self._paragraph()
            if not self.preformatted:
                self.lines.append("```")
                self.preformatted += 1

    def _list(self, name: str, *, closing: bool) -> None:
        self._line()
        if not closing:
            self.lists.append(0 if name == "ol" else None)
        elif self.lists:
            self.lists.pop()
            self._paragraph()

    def _item(self, *, closing: bool) -> None:
        self._line()
        if closing:
            return
        indent = "  " * min(len(self.lists) - 1, 8) if self.lists else ""
        sign = "-"
        if self.lists and (number := self.lists[-1]) is not None:
            self.lists[-1] = number + 1
            sign = f"{number + 1}."
        self.prefix = f"{indent}{sign} "
