"""JSON Schemas for each provider: what it refuses is rewritten, and every change is told.

    words.py      the vocabulary of JSON Schema
    document.py   references within one schema
    root.py       the root as one object
    plain.py      nearly all of JSON Schema
    node.py       a schema in a simple form: read.py and meet.py make it, with the tables of rules.py
    closed.py     strict schemas of OpenAI and Anthropic, sizes.py how large they may be
    positions.py  arrays whose items differ by position, without that
    gemini.py     Gemini's own schemas
    styles.py     the four styles
    restore.py    the way back: values for the given schema

Nothing here changes its input; the same input gives the same output, byte for byte.
"""

from .notes import NOT_STRICT, Note
from .restore import restored
from .styles import Conversion, conversion, convert, together

__all__ = ["NOT_STRICT", "Conversion", "Note", "conversion", "convert", "restored", "together"]
