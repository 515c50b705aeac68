"""JSON Schemas for each provider: what it refuses is rewritten, and every change is reported.

    rules.py     the vocabulary of JSON Schema and what each provider takes of it, as tables
    document.py  references, and oddities put right
    objects.py   references and combinators as one object
    convert.py   the three styles, and the way back from a value to the given schema

Nothing here changes its input; the same input gives the same output, byte for byte.
"""

from .convert import Conversion, convert, excesses_together, restored
from .rules import Note

__all__ = ["Conversion", "Note", "convert", "excesses_together", "restored"]
