"""The arguments of tools: what the model is told of them, and how its JSON becomes a call.

    compiled.py     Arguments, compiled once for each tool, from a function or a JSON Schema
    signature.py    which parameters of a function the model fills in
    hints/          from type hints to a schema and a decoder
    docstrings.py   descriptions from docstrings (the only import of the docstring parser)
    normalise.py    odd JSON Schemas made regular, with a note for each change       type_words.py
    json_schema.py  validation against a JSON Schema (the only import of the schema library)
    problems.py     what is wrong with arguments, in one line that a model can act on    json_values.py
    schemas.py      walking schemas, shared definitions

Nothing is imported here: a program that defines no tools loads none of it.
"""
