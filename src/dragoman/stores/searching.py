"""What a search looks at, and what it looks for: the same for every store that searches.

Owns: the text of a message for searches, and the words of a question.
Must not know: how a store finds them.

A word of the question is found wherever its letters stand in the text, in any case: in the middle of a longer word,
too, since many languages put no spaces between words.
"""

from __future__ import annotations

from typing import Final

from dragoman.conversation import Message

__all__ = ["search_words", "searchable_text"]

_LONGEST: Final = 64 * 1024
"""Characters of one message that can be found: the output of a tool may be a whole disk."""
_MOST_WORDS: Final = 32


def searchable_text(message: Message) -> str:
    """What was said, and what tools answered, folded to one case."""
    parts = [message.text, *[result.text for result in message.tool_results]]
    return "\n".join([part for part in parts if part])[:_LONGEST].casefold()


def search_words(text: str) -> tuple[str, ...]:
    """The words of a question, folded to one case, each once. None at all, and far too many, find nothing."""
    words = dict.fromkeys(text.replace("\0", " ").casefold().split())
    return tuple(words) if len(words) <= _MOST_WORDS else ()
