"""The arguments of tools: what the model is told of them, and how its JSON becomes a call.

    reader.py       Reader and Arguments: JSON text as a value of a type, or as the arguments that a schema describes
    functions.py    what a function tells of itself: its parameters as arguments, and how it wants to be called
    hints.py        which forms of hints are understood
    nodes.py        what they mean: the type that msgspec decodes, and the JSON Schema
    resolve.py      names in annotations, and the fields of classes
    docstrings.py   descriptions from docstrings
    json_schema.py  validation against a JSON Schema (the only import of the schema library)
    problems.py     what is wrong with arguments, in one line that a model can act on
    schemas.py      walking schemas, shared definitions, odd schemas made regular

Nothing is imported here: a program that defines no tools loads none of it.
"""
