"""JSON Schemas for each provider: what it refuses is rewritten, and every change is reported.

    rules.py   the vocabulary of JSON Schema and what each provider takes of it, as tables
    read.py    a schema in a simple form, references resolved and `allOf` merged
    write.py   the three styles, and the way back from a value to the given schema

Nothing here changes its input; the same input gives the same output, byte for byte.
"""

from .rules import Note
from .write import Conversion, convert, restored, together

__all__ = ["Conversion", "Note", "convert", "restored", "together"]
