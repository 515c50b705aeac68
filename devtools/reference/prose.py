"""Docstrings as Markdown.

Owns: what of a docstring means something in Markdown and must not, blocks of code, first sentences, links to names.
Must not know: what a docstring belongs to.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["first_sentence", "markdown"]

FENCE: Final = "text"
"""The language of code in a docstring: code that nobody runs."""

_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_WORDS = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][A-Za-z]*)+\b")
"""Two or more capitals in one word: such a word in plain text is a name."""
_NAME = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\.(?P<member>\w+))?(?:\(.*\))?", re.DOTALL)
_COLUMNS = re.compile(r"^\S.*? {3,}\S", re.MULTILINE)
"""A line of a small table: words, a gap, words."""
_SENTENCE = re.compile(r"(?<=[.!?])(?=\s+[A-Z`…\"])")
"""Where one sentence ends and another begins; what goes on in small letters was an abbreviation."""


def first_sentence(doc: str) -> str:
    """What a list says about a name."""
    paragraph = " ".join(doc.partition("\n\n")[0].split())
    return _SENTENCE.split(paragraph)[0].strip()


def markdown(doc: str, link: Callable[[str], str | None] = lambda _name: None) -> str:
    """A docstring as Markdown. `link` knows where a name is explained; each is linked once."""
    linked: set[str] = set()

    def once(name: str) -> str | None:
        address = None if name in linked else link(name)
        if address is not None:
            linked.add(name)
        return address

    parts: list[str] = []
    for block in re.split(r"\n{2,}", doc):
        if block.startswith("    "):
            parts.append(_fenced(block, parts))
        elif len(_COLUMNS.findall(block)) > 1:
            parts.append(f"```{FENCE}\n{block}\n```")
        else:
            parts.append(_prose(block, once))
    return "\n\n".join([part for part in parts if part])


def _fenced(block: str, before: list[str]) -> str:
    code = "\n".join([line.removeprefix("    ") for line in block.split("\n")])
    if before and before[-1].startswith(f"```{FENCE}\n"):  # an empty line in one and the same block
        code = before.pop().removeprefix(f"```{FENCE}\n").removesuffix("\n```") + f"\n\n{code}"
    return f"```{FENCE}\n{code}\n```"


def _prose(text: str, link: Callable[[str], str | None]) -> str:
    shown: list[str] = []
    end = 0
    for code in _CODE.finditer(text):
        shown.append(_plain(text[end : code.start()], link))
        shown.append(_linked(code[0], code[2], link))
        end = code.end()
    return "".join([*shown, _plain(text[end:], link)])


def _linked(shown: str, code: str, link: Callable[[str], str | None]) -> str:
    name = _NAME.fullmatch(code)
    address = None if name is None else link(name["name"])
    return shown if address is None else f"[{shown}]({address})"


def _plain(text: str, link: Callable[[str], str | None]) -> str:
    escaped = re.sub(r"[<*]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)

    def word(found: re.Match[str]) -> str:
        address = link(found[0])
        return found[0] if address is None else f"[{found[0]}]({address})"

    return _WORDS.sub(word, escaped)
