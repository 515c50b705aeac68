"""JSON Schemas in each provider's style: what a provider refuses is rewritten, and every change is reported.

    document.py  references, and notes on changes
    objects.py   references and combinators merged into one object
    rules.py     the keywords of JSON Schema, and what each strict style takes
    convert.py   writes a schema in one of the three styles

The input is JSON Schema 2020-12 and is never changed; the same input gives the same output, byte for byte.
"""

from .convert import Conversion, convert, exceeded_together
from .document import Note

__all__ = ["Conversion", "Note", "convert", "exceeded_together"]
