"""Grammars that a local model's output is held to, token by token.

    gbnf.py         the notation of llama.cpp, and a grammar under construction
    characters.py   sets of characters       numbers.py    integers and decimals between two bounds
    patterns.py     regular expressions      strings.py    strings by length, pattern and format
    limits.py       limits of JSON Schema    collections.py  arrays and objects
    values.py       JSON values of a JSON Schema
    calls.py        a call of one of the tools, or an answer

What a grammar lets through is valid. Where a schema says something that no grammar can hold, a note says so and
whoever reads the value must check it, as with any other model.
"""

from .calls import CallForm, Turn, turn_grammar
from .values import schema_grammar

__all__ = ["CallForm", "Turn", "schema_grammar", "turn_grammar"]
